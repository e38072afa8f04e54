//! The class alone, in place of the values: runs equal the oracle bit for bit, and the oracle is
//! the index of the largest value, the smallest of equal ones.

use crate::common::{
    check,
    networks::{class, network, numbers, options, plan, ties, yes_or_no},
};
use pronghorn_graph::{finish::Finish, graph::Graph};
use pronghorn_plan::{
    BuildError, BuildOptions, Built, Engine, Opening, StepKind, TrustLevel, build,
    steps::activation::lean::Transfers,
};

const ENGINES: [Engine; 3] = [Engine::Batch, Engine::Coefficient, Engine::Slot];

/// The classes by the oracle, and by the integers of the same plan's values.
fn classes(built: &Built, values: &Built, images: usize) -> [Vec<i32>; 2] {
    let inputs = numbers(built.plan.input_len() * images, 11);
    let (integers, _) = built.plan.quantise(&inputs).expect("inputs are numbers");
    let found = built.oracle(&integers, images).expect("within ranges");
    let (integers, _) = values.plan.quantise(&inputs).expect("inputs are numbers");
    let rows = values.oracle(&integers, images).expect("within ranges");
    let largest = |row: &[i32]| {
        let most = row.iter().max();
        row.iter()
            .position(|value| Some(value) == most)
            .map_or(-1, |place| place as i32)
    };
    [
        found,
        rows.chunks(values.plan.result().len())
            .map(largest)
            .collect(),
    ]
}

#[test]
fn classes_equal_the_oracle_in_all_engines() {
    for engine in ENGINES {
        for (classes, at_once) in [(2, 2), (4, 2), (7, 2), (7, 3), (7, 7), (13, 5)] {
            let built = class(&ties(classes), engine, at_once, Transfers::Extension);
            for images in [1, 9] {
                check(&built, &numbers(6 * images, 5), images);
            }
        }
        let built = class(&network(1), engine, 2, Transfers::Extension);
        check(&built, &numbers(162 * 7, 5), 7);
    }
}

/// Many classes, many images, and more images than a tile has.
#[test]
fn many_classes_equal_the_oracle() {
    for (classes, at_once, images) in [(1000, 16, 1), (1000, 2, 30), (100, 8, 70), (3, 3, 1500)] {
        let built = class(
            &ties(classes),
            Engine::Coefficient,
            at_once,
            Transfers::Extension,
        );
        check(&built, &numbers(6 * images, 5), images);
    }
}

#[test]
fn classes_on_silent_ots_equal_the_oracle() {
    for transfers in [Transfers::Silent, Transfers::SilentLarge] {
        let built = class(&ties(10), Engine::Coefficient, 4, transfers);
        check(&built, &numbers(6 * 5, 5), 5);
    }
}

/// The planner's own choice, for networks that end in the index of the largest value, in
/// probabilities and in values.
#[test]
fn the_oracle_is_the_first_of_the_largest_values() {
    let opening = |opening| BuildOptions {
        opening: Some(opening),
        ..options(TrustLevel::TwoParty)
    };
    for graph in [ties(9), network(1)] {
        let built = plan(&graph, opening(Opening::Class));
        let values = plan(&graph, opening(Opening::Values));
        assert_eq!(
            (built.plan.output_shape(), &built.plan.finish[..]),
            (vec![1], &[Finish::Class][..])
        );
        let [found, wanted] = classes(&built, &values, 200);
        assert_eq!(found, wanted);
        assert!(found.iter().any(|class| *class != found[0]));
    }
    // A network that ends in ArgMax opens the class unasked, and values only where that is asked.
    let ended = ties(9).with_class().expect("a row of values");
    let unasked = plan(&ended, options(TrustLevel::TwoParty));
    assert_eq!(
        unasked.plan.plan(),
        plan(&ended, opening(Opening::Class)).plan.plan()
    );
    let values = plan(&ended, opening(Opening::Values));
    assert_eq!(
        (&values.plan.finish[..], values.plan.result().len()),
        (&[Finish::ArgMax][..], 9)
    );
}

#[test]
fn one_probability_is_yes_or_no() {
    for engine in ENGINES {
        let built = class(&yes_or_no(), engine, 2, Transfers::Extension);
        check(&built, &numbers(6 * 40, 5), 40);
        let inputs = numbers(6 * 40, 5);
        let (integers, _) = built.plan.quantise(&inputs).expect("inputs are numbers");
        let found = built.oracle(&integers, 40).expect("within ranges");
        assert!(found.contains(&0) && found.contains(&1));
    }
}

#[test]
fn the_client_takes_the_class_itself_where_it_learns_all_values() {
    let built = plan(
        &ties(9),
        BuildOptions {
            opening: Some(Opening::Class),
            ..options(TrustLevel::ClientAided)
        },
    );
    assert_eq!(built.plan.finish, [Finish::ArgMax]);
    assert!(
        built
            .plan
            .steps
            .iter()
            .all(|step| !matches!(step.kind, StepKind::ArgMax(_)))
    );
    assert!(
        built
            .plan
            .client_learns()
            .contains("the values that it is taken from AND EVERY WEIGHT")
    );
}

#[test]
fn what_has_no_class_is_refused() {
    let refused = |graph: &Graph, trust| {
        let options = BuildOptions {
            opening: Some(Opening::Class),
            ..options(trust)
        };
        build(graph, &options).map(|_| ()).unwrap_err()
    };
    let error = refused(&ties(9), TrustLevel::Encrypted);
    assert!(matches!(error, BuildError::NoClass { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("the client would learn all values: use --trust two-party")
    );
    let json = r#"{"name":"map","output":1,"nodes":[
        {"name":"x","op":{"kind":"input"},"inputs":[],"shape":[2,3]},
        {"name":"r","op":{"kind":"relu"},"inputs":[0],"shape":[2,3]}]}"#;
    let map = Graph::from_json(json, Default::default()).expect("a map");
    let error = refused(&map, TrustLevel::TwoParty);
    assert!(matches!(error, BuildError::Class(_)), "{error}");
}
