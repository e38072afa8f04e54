//! Reasons to refuse a plan that opens a class alone.

use std::sync::LazyLock;

use pronghorn_graph::finish::{Along, Finish};
use pronghorn_plan::{
    Engine, Plan, StepKind,
    steps::{activation::lean::Transfers, argmax::ArgMax},
};

use super::{SHARES, of, refuses};
use crate::common::networks::{class, ties};

/// A class of nine on shares.
static CLASS: LazyLock<Plan> = LazyLock::new(|| {
    let transfers = Transfers::Extension;
    of(class(&ties(9), Engine::Coefficient, 2, transfers))
});

#[test]
fn classes() {
    fn argmax(plan: &mut Plan) -> &mut ArgMax {
        let step = plan.output - 1;
        match &mut plan.steps[step].kind {
            StepKind::ArgMax(argmax) => argmax,
            _ => panic!("the class is computed before it is opened"),
        }
    }
    for at_once in [0, 1, 65, u32::MAX] {
        refuses(&CLASS, "compared at once", |plan| {
            argmax(plan).at_once = at_once;
        });
    }
    refuses(&CLASS, "outside its range", |plan| {
        let step = plan.output - 1;
        plan.steps[step].value.high -= 1;
    });
    refuses(&CLASS, "fraction bits", |plan| {
        let step = plan.output - 1;
        plan.steps[step].value.fraction_bits = 1;
    });
    refuses(&CLASS, "declared as [2]", |plan| {
        let step = plan.output - 1;
        plan.steps[step].value.shape = vec![2];
    });
    // What is done over a dimension is over one of the result's.
    for (count, inner) in [(0, 1), (3, 1), (u32::MAX, u32::MAX)] {
        for of in [Along::Softmax, Along::ArgMax] {
            refuses(&SHARES, "does not go with the result", |plan| {
                plan.finish = vec![Finish::Along { of, count, inner }];
            });
        }
    }
    // Nobody calls values a class, nor a class anything else.
    refuses(&SHARES, "no opened class", |plan| {
        plan.finish = vec![Finish::Class];
    });
    refuses(&CLASS, "no opened class", |plan| {
        plan.finish.push(Finish::Softmax);
    });
    refuses(&CLASS, "more than", |plan| {
        let step = plan.output - 1;
        let class = plan.steps[step].clone();
        plan.steps.extend(vec![class; 270]);
    });
}
