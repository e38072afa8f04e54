//! Runs on tables whose features have scales of their own.

use std::sync::Arc;

use crate::common::{
    check,
    networks::{FEATURES, options, table, table_layer},
};
use pronghorn_engine::{ClientInputs, ClientModel, EngineError, Images};
use pronghorn_plan::{BuildOptions, Built, StepKind, TrustLevel, build};

fn planned(trust: TrustLevel) -> Built {
    let options = BuildOptions {
        samples: Some(table(200, 3)),
        ..options(trust)
    };
    let built = build(&table_layer(), &options).expect("there is a plan");
    assert!(matches!(built.plan.steps[0].kind, StepKind::Features(_)));
    built
}

#[test]
fn runs_equal_the_oracle() {
    for trust in [TrustLevel::TwoParty, TrustLevel::ClientAided] {
        let built = planned(trust);
        check(&built, &table(1, 4), 1);
        check(&built, &table(7, 5), 7);
        // Inputs far beyond the samples are clamped.
        let far: Vec<f32> = table(3, 6).iter().map(|x| 1e6 * x).collect();
        check(&built, &far, 3);
    }
}

#[test]
fn images_of_another_plan_are_refused() {
    let [plan, other] = [TrustLevel::TwoParty, TrustLevel::ClientAided].map(|t| planned(t).plan);
    let images = Arc::new(Images::new(&plan, &table(2, 4), 2).expect("images"));
    let refused = |plan| {
        let model = ClientModel::new(plan).expect("a plan to follow");
        ClientInputs::new(Arc::new(model), images.clone(), 0..2).err()
    };
    assert!(refused(plan).is_none());
    let error = refused(other).expect("they are of another plan");
    assert!(error.to_string().contains("another plan"), "{error}");
}

#[test]
fn inputs_that_are_no_numbers_are_refused() {
    let plan = planned(TrustLevel::TwoParty).plan;
    let mut inputs = table(2, 4);
    inputs[FEATURES + 1] = f32::NAN;
    let refused = Images::new(&plan, &inputs, 2).err();
    assert!(
        matches!(refused, Some(EngineError::Input(_))),
        "{refused:?}"
    );
}
