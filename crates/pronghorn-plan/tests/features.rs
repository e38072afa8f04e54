//! Features of a table that differ by many powers of two: scales of their own, and the precision
//! that these keep.

use crate::common::{
    networks::{FEATURES, dense, numbers, options, table, table_layer},
    refusal,
};
use pronghorn_graph::{features::LEAST_ROWS, float, graph::Graph, oracle};
use pronghorn_plan::{BuildOptions, Built, Plan, StepKind, TrustLevel, build};

const LEVELS: [TrustLevel; 3] = [
    TrustLevel::TwoParty,
    TrustLevel::ClientAided,
    TrustLevel::Encrypted,
];

fn planned(trust: TrustLevel, samples: Vec<f32>) -> Built {
    let options = BuildOptions {
        samples: Some(samples),
        ..options(trust)
    };
    build(&table_layer(), &options).expect("there is a plan")
}

/// Root mean square of the differences to the float network on other rows, over that of its outputs
/// about zero, where their mean is.
fn error(built: &Built, rows: usize) -> f64 {
    let inputs = table(rows, 9);
    let (integers, _) = built.plan.quantise(&inputs).expect("numbers");
    let integers = built.oracle(&integers, rows).expect("whole rows");
    let found = oracle::finish(&[], built.plan.result(), &integers, rows);
    let wanted = float::evaluate(&table_layer(), &inputs, rows).expect("whole rows");
    let sum =
        |values: &mut dyn Iterator<Item = f32>| values.map(|x| f64::from(x).powi(2)).sum::<f64>();
    let differences = sum(&mut found.iter().zip(&wanted).map(|(f, w)| f - w));
    (differences / sum(&mut wanted.iter().copied())).sqrt()
}

#[test]
fn small_features_keep_their_precision() {
    for trust in LEVELS {
        let built = planned(trust, table(200, 3));
        let StepKind::Features(scales) = &built.plan.steps[0].kind else {
            panic!("{trust}: one scale");
        };
        let exponents: Vec<i8> = scales.0.iter().map(|scale| scale.exponent).collect();
        assert!(
            exponents[0] == 0 && exponents[1] > 14 && exponents[5] > 20,
            "{exponents:?}"
        );
        assert!((scales.0[3].offset - 2005.0).abs() < 4.0 && scales.0[1].offset == 0.0);
        assert!(
            built.fidelity.error <= 0.015,
            "{trust} {:?}",
            built.fidelity
        );
        let found = error(&built, 100);
        assert!(found < 0.03, "{trust}: {found}");
    }
}

#[test]
fn plans_with_scales_travel_and_print_them() {
    let plan = planned(TrustLevel::TwoParty, table(200, 3)).plan;
    assert_eq!(refusal(&plan), None);
    let read = Plan::from_bytes(&plan.to_bytes()).expect("it is valid");
    assert_eq!(read, plan);
    assert_eq!(
        (plan.hash(), read.hash()),
        (plan.plan().hash(), plan.hash())
    );
    let inputs = table(5, 4);
    assert_eq!(
        plan.quantise(&inputs).unwrap(),
        read.quantise(&inputs).unwrap()
    );
    let text = format!("{plan:#}");
    assert!(
        text.contains("feature 0 * 2^0") && text.contains("(feature 3 - 200"),
        "{text}"
    );
    assert!(plan.to_json().contains("\"features\""));
}

/// Values beyond a feature's own range are counted, whatever those of others are.
#[test]
fn features_are_clamped_to_their_own_ranges() {
    let plan = planned(TrustLevel::ClientAided, table(200, 3)).plan;
    let row = [2000.0, 0.009, 0.5, 2000.0, 9000.0, 5e-5];
    assert_eq!(plan.quantise(&row).unwrap().1, 0);
    for (feature, value) in [(1, 1.0), (3, 0.0), (5, -0.5)] {
        let mut far = row;
        far[feature] = value;
        assert_eq!(plan.quantise(&far).unwrap().1, 1, "feature {feature}");
    }
}

#[test]
fn features_that_are_alike_share_one_scale() {
    let kind = |samples: Vec<f32>| {
        let options = BuildOptions {
            samples: Some(samples),
            ..options(TrustLevel::ClientAided)
        };
        build(&dense(None), &options).expect("a plan").plan.steps[0]
            .kind
            .clone()
    };
    assert_eq!(kind(numbers(FEATURES * 40, 1)), StepKind::Input);
    // Too few rows tell no ranges.
    assert_eq!(
        kind(numbers(FEATURES * (LEAST_ROWS - 1), 1)),
        StepKind::Input
    );
    let made_up = build(&dense(None), &options(TrustLevel::ClientAided)).expect("a plan");
    assert_eq!(made_up.plan.steps[0].kind, StepKind::Input);
}

/// A ReLU of the raw features has no weights that could take up the scales.
#[test]
fn inputs_of_no_layer_share_one_scale() {
    let json = r#"{"name":"n","nodes":[
        {"name":"x","op":{"kind":"input"},"inputs":[],"shape":[6]},
        {"name":"r","op":{"kind":"relu"},"inputs":[0],"shape":[6]},
        {"name":"d","op":{"kind":"dense","weight":"dense.w","bias":"dense.b"},"inputs":[1],"shape":[4]}
        ],"output":2}"#;
    let graph = Graph::from_json(json, table_layer().tensors).expect("a graph");
    let options = BuildOptions {
        samples: Some(table(100, 3)),
        error: Some(2.0),
        ..options(TrustLevel::ClientAided)
    };
    let built = build(&graph, &options).expect("there is a plan");
    assert_eq!(built.plan.steps[0].kind, StepKind::Input);
}
