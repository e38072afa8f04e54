//! What people read of plans equals golden files.
//!
//! `PRONGHORN_BLESS=1 cargo test -p pronghorn-plan text::` writes them anew. A plan's hash and
//! numbers are in the text, so a change of the planner or of the plan's format changes it.

use std::{env, fs, path::PathBuf};

use crate::common::networks::{
    Middle, aided, aided_coefficient, around, deep, dense, dithered, network, options,
    plan as planned, shared, ties,
};
use pronghorn_plan::{
    BuildOptions, Built, CheckedPlan, Engine, Opening, Plan, TrustLevel, cost, summary::Summary,
};

/// Most columns of the short form.
const COLUMNS: usize = 120;

/// Both forms of a plan, with lines of at most [`COLUMNS`].
fn compare(name: &str, built: &Built) {
    let (short, long) = (built.text(false), built.text(true));
    assert_fits(&short);
    assert_fits(&long);
    assert!(long.lines().count() > short.lines().count());
    compare_text(name, &short);
    compare_text(&format!("{name}_details"), &long);
}

#[track_caller]
fn assert_fits(text: &str) {
    for line in text.lines() {
        let columns = line.chars().count();
        assert!(columns <= COLUMNS, "{columns} columns: {line}");
    }
}

fn compare_text(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.txt"));
    if env::var("PRONGHORN_BLESS").is_ok_and(|value| value == "1") {
        fs::write(&path, text).expect("the golden file is written");
        return;
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    for (line, (found, wanted)) in text.lines().zip(golden.lines()).enumerate() {
        assert_eq!(found, wanted, "{name}, line {line}");
    }
    assert_eq!(text.lines().count(), golden.lines().count(), "{name}");
}

#[test]
fn client_aided() {
    compare("client_aided", &aided(1, None));
}

#[test]
fn two_party_dithered() {
    compare(
        "two_party_dithered",
        &dithered(&around(Middle::Residual), Engine::Coefficient, None),
    );
}

#[test]
fn client_aided_coefficient() {
    compare("client_aided_coefficient", &aided_coefficient(1, None));
}

#[test]
fn two_digits() {
    compare("two_digits", &aided(4, Some((11, 9))));
}

#[test]
fn two_party_batch() {
    compare("two_party_batch", &shared(&network(1), Engine::Batch, None));
}

#[test]
fn two_party_coefficient() {
    compare(
        "two_party_coefficient",
        &shared(&network(1), Engine::Coefficient, None),
    );
}

#[test]
fn two_party_slot() {
    compare(
        "two_party_slot",
        &shared(&around(Middle::Square), Engine::Slot, None),
    );
}

#[test]
fn two_party_class() {
    let options = BuildOptions {
        opening: Some(Opening::Class),
        engine: Some(Engine::Coefficient),
        ..options(TrustLevel::TwoParty)
    };
    let built = planned(&ties(9), options);
    compare("two_party_class", &built);
    let learns = "client learns the class of its input alone, shapes and ranges of the layers";
    assert!(built.text(false).contains(learns));
    assert!(format!("client learns {}", Summary::of(&built).learns.client) == learns);
}

/// Where the client takes the class itself, it learns the values, and the text says so.
#[test]
fn values_behind_a_class_are_told() {
    for (trust, opening) in [
        (TrustLevel::TwoParty, Some(Opening::Values)),
        (TrustLevel::ClientAided, Some(Opening::Class)),
        (TrustLevel::Encrypted, None),
    ] {
        let graph = ties(4).with_class().expect("a row of values");
        let options = BuildOptions {
            opening,
            ..options(trust)
        };
        let text = planned(&graph, options).text(false);
        let learns = "client learns its output and the values that it is taken from";
        assert!(text.contains(learns), "{text}");
    }
}

#[test]
fn encrypted() {
    compare(
        "encrypted",
        &planned(&deep(3), options(TrustLevel::Encrypted)),
    );
}

/// The documents' tables of trust levels say what plans print of the client's knowledge.
#[test]
fn documents_say_what_the_client_learns() {
    for document in ["SECURITY.md", "README.md"] {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(document);
        let text = fs::read_to_string(&path).expect("it is in the repository");
        for level in TrustLevel::ALL
            .into_iter()
            .filter(|level| level.is_available())
        {
            let learns = level.client_learns();
            let learns = learns
                .split([':', '('])
                .next()
                .expect("it has words")
                .trim();
            let learns = learns.trim_end_matches(" of the model");
            let rows = text
                .lines()
                .filter(|line| line.starts_with(&format!("| `{level}`")));
            let rows: Vec<String> = rows
                .map(|row| row.replace("**", "").to_lowercase())
                .collect();
            let learns = learns.to_lowercase();
            assert!(
                rows.iter().any(|row| row.contains(&learns)),
                "{document}: {learns:?} is not in {rows:?}"
            );
        }
    }
}

/// The text names what a reader must know, whatever its form.
#[test]
fn plans_say_who_learns_what() {
    for level in TrustLevel::ALL
        .into_iter()
        .filter(|level| level.is_available())
    {
        let graph = match level {
            TrustLevel::Encrypted => deep(1),
            _ => dense(Some("relu")),
        };
        let built = planned(&graph, options(level));
        let (short, long) = (built.text(false), built.text(true));
        let hash = built.plan.hash_hex();
        for text in [&short, &long] {
            let words = [level.name(), hash.as_str()];
            // Lines are broken between what the parties learn.
            let reveals = level.reveals();
            for word in words.into_iter().chain(reveals.split("; ")) {
                assert!(text.contains(word), "{word:?} is not in:\n{text}");
            }
        }
        assert!(long.contains("bit security"), "{long}");
    }
}

/// Long names are cut in the short form, and whole in the details.
#[test]
fn long_names_fit() {
    let name = "layer_".repeat(40);
    let mut built = shared(&around(Middle::Residual), Engine::Coefficient, None);
    built.names.model = name.clone();
    built.names.steps.fill(name.clone());
    assert_fits(&built.text(false));
    assert!(built.text(true).contains(&name));
    let mut plan = built.plan.plan().clone();
    plan.model = name.clone();
    let plan = CheckedPlan::new(plan).expect("names are free");
    assert_fits(&plan.to_string());
    assert!(format!("{plan:#}").contains(&name));
}

/// Words are cut only where a line has no columns left.
#[test]
fn words_are_cut_for_width_alone() {
    let built = shared(&around(Middle::Residual), Engine::Coefficient, None);
    let text = built.text(false);
    assert!(!text.contains('…'), "{text}");
}

/// A summary for programs has the numbers of the cost model and both parties' knowledge.
#[test]
fn the_summary_has_costs_and_who_learns_what() {
    let built = shared(&around(Middle::Residual), Engine::Coefficient, None);
    let (json, plan) = (Summary::of(&built).to_json(), &built.plan);
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(json["plan_hash"], plan.hash_hex());
    assert_eq!(json["learns"]["server"], "shapes, counts and timing");
    let (alone, costs) = (cost::total(plan, 1), &json["cost"]);
    assert_eq!(costs["one_image"]["bytes_up"], alone.bytes_up);
    assert_eq!(costs["one_image"]["seconds"], alone.seconds.total());
    let offline = cost::prepared(plan, 1);
    assert_eq!(costs["one_image_offline"]["bytes_down"], offline.bytes_down);
    assert_eq!(costs["full_batch"]["images"], plan.max_batch);
    let memory = cost::memory(plan, plan.max_batch);
    assert_eq!(costs["memory"]["server"], memory.server);
    let publication = cost::publication(plan);
    assert_eq!(costs["once"]["client_publication_down"], publication);
    let aided = Summary::of(&aided(1, None));
    assert!(aided.learns.client.contains("EVERY WEIGHT"));
    assert!(aided.cost.one_image_offline.is_none());
}

/// JSON is for tools: it holds what the plan holds.
#[test]
fn json_holds_the_plan() {
    let plan = shared(&around(Middle::Residual), Engine::Coefficient, None).plan;
    let json: serde_json::Value = serde_json::from_str(&plan.to_json()).expect("it is JSON");
    let read: Plan = serde_json::from_value(json).expect("it is a plan");
    assert_eq!(CheckedPlan::new(read).expect("it is valid"), plan);
}
