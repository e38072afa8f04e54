//! Plans from a hostile server or a damaged file: what is accepted can be printed, costed and
//! followed by a client without a panic, whatever the server then answers.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use pronghorn_engine::{ClientRun, Machine, Want};
use pronghorn_fuzz::{
    Splice, attention, built, class, edited, finish, gated, lean, polynomial, shared,
};
use pronghorn_plan::{CheckedPlan, Plan, cost, steps::activation::lean::Transfers};

static GOOD: LazyLock<[Vec<u8>; 7]> = LazyLock::new(|| {
    let lean = lean(Transfers::Silent);
    let plans = [
        built(),
        polynomial(),
        shared(),
        gated(),
        lean,
        class(),
        attention(),
    ];
    plans.map(|built| built.plan.to_bytes())
});

/// Values of all steps together up to which a plan is run.
const SMALL: usize = 6_000;

#[derive(Arbitrary, Debug)]
enum Input {
    Bytes(Vec<u8>),
    Edited {
        which: u8,
        splices: Vec<Splice>,
        answer: u8,
    },
}

fuzz_target!(|input: Input| {
    let (bytes, answer) = match input {
        Input::Bytes(bytes) => (bytes, 0),
        Input::Edited {
            which,
            splices,
            answer,
        } => (
            edited(GOOD[usize::from(which) % GOOD.len()].clone(), &splices),
            answer,
        ),
    };
    let Ok(plan) = Plan::from_bytes(&bytes) else {
        return;
    };
    let again = Plan::from_bytes(&plan.to_bytes()).expect("an accepted plan is accepted again");
    assert_eq!(plan, again);
    assert_eq!(plan.hash(), again.hash());
    let _ = (
        plan.to_string(),
        plan.to_json(),
        cost::total(&plan, plan.max_batch),
    );
    if plan
        .steps
        .iter()
        .map(|step| step.value.len())
        .sum::<usize>()
        <= SMALL
    {
        follow(plan, answer);
    }
});

/// One image through the client, against a server that answers with one byte over and over.
fn follow(plan: CheckedPlan, answer: u8) {
    let inputs: Vec<f32> = (0..plan.input_len())
        .map(|index| index as f32 / 7.0 - 1.0)
        .collect();
    let Ok(mut client) = ClientRun::new(plan, &inputs, 1) else {
        return;
    };
    let mut message = Vec::new();
    loop {
        message.clear();
        match client.want() {
            Want::Send => client.send(&mut message).expect("it is the client's turn"),
            Want::Receive => {
                message.resize(client.max_incoming(), answer);
                if client.receive(&message).is_err() {
                    return;
                }
            }
            Want::Done => break,
        }
    }
    finish(client, false);
}
