//! The wire format, held still: what both parties send in runs on fixed seeds equals golden files.
//!
//! `golden/README.md` says what the files hold and when one may change.

use std::{collections::BTreeSet, env, fs, process::Command};

use crate::common::{
    network,
    networks::{
        Middle, aided, aided_coefficient, around, attention, class, deep, dense, dithered,
        has_words, in_bands, lean, options, parts, plan, pooled_input, shared, ties, wide,
    },
    transcript::{
        self,
        Act::{self, Batch, Online, Prepare, Reconnect},
    },
};
use pronghorn_plan::{
    BuildOptions, Engine, TrustLevel, WordSize, planner::schedule::Passes,
    steps::activation::lean::Transfers,
};
use pronghorn_ring::SimdLevel;

/// Several batches on one connection, then one whose offline part comes first.
const TWO_PARTY: &[Act] = &[Batch(2), Batch(2), Batch(3), Prepare(2), Online(2)];

/// An offline part that sets the connection up, its online part, and a batch without one.
const AHEAD: &[Act] = &[Prepare(1), Online(1), Batch(1)];

/// What is kept serves a second connection.
const KEPT: &[Act] = &[Batch(1), Prepare(1), Reconnect, Online(1), Batch(1)];

/// One test a case, and the names of all cases.
macro_rules! cases {
    ($($name:ident: $built:expr, $script:expr;)*) => {
        /// The cases, which are the golden files.
        const CASES: &[&str] = &[$(stringify!($name)),*];

        $(
            #[test]
            fn $name() {
                let (case, built) = (stringify!($name), $built);
                let records = transcript::record(case, &built, $script);
                transcript::compare(case, &built.plan, &records);
            }
        )*
    };
}

cases! {
    // All kinds of steps in each engine.
    two_party_batch: shared(&network(1), Engine::Batch, None), TWO_PARTY;
    two_party_coefficient: shared(&network(1), Engine::Coefficient, None), TWO_PARTY;
    two_party_slot: shared(&network(1), Engine::Slot, None), TWO_PARTY;
    client_aided: aided(1, None), &[Batch(2), Batch(2), Batch(5)];
    client_aided_coefficient: aided_coefficient(1, None), &[Batch(2), Batch(1), Reconnect, Batch(1)];

    // Words of 64 bits.
    two_party_batch_u64: wide(Engine::Batch), AHEAD;
    two_party_coefficient_u64: wide(Engine::Coefficient), AHEAD;
    client_aided_u64: {
        let built = aided(2, Some((11, 16)));
        assert!(has_words(&built, WordSize::U64));
        built
    }, &[Batch(2)];

    // Weights in two digits.
    client_aided_two_digits: {
        let built = aided(4, Some((11, 9)));
        assert!(built.plan.steps.iter().any(|step| parts(step) == 2));
        built
    }, &[Batch(2)];

    // Weights in three digits and more.
    client_aided_digits: {
        let built = aided(4, Some((10, 14)));
        assert!(built.plan.steps.iter().any(|step| parts(step) > 2));
        built
    }, &[Batch(2)];

    // In bands of rows.
    client_aided_bands: in_bands(aided(1, None), 1 << 15), &[Batch(2), Batch(5)];

    // One kind of step at a time.
    step_square: shared(&around(Middle::Square), Engine::Coefficient, None), AHEAD;
    step_relu: shared(&around(Middle::Relu), Engine::Coefficient, None), AHEAD;
    step_leaky_relu: shared(&around(Middle::LeakyRelu), Engine::Coefficient, None), AHEAD;
    step_max_pool: shared(&around(Middle::MaxPool), Engine::Coefficient, None), AHEAD;
    step_padded_max_pool: shared(&around(Middle::PaddedMaxPool), Engine::Coefficient, None), AHEAD;
    step_average_pool: shared(&around(Middle::AveragePool), Engine::Coefficient, None), AHEAD;
    step_residual: shared(&around(Middle::Residual), Engine::Coefficient, None), AHEAD;
    step_bias: shared(&around(Middle::Bias), Engine::Coefficient, None), TWO_PARTY;
    step_concat: shared(&around(Middle::Concat), Engine::Coefficient, None), AHEAD;
    step_product: shared(&around(Middle::Gate), Engine::Coefficient, None), TWO_PARTY;
    step_product_client_aided: plan(&around(Middle::Gate), options(TrustLevel::ClientAided)), &[Batch(3)];
    step_matrices: shared(&around(Middle::Attention), Engine::Coefficient, None), TWO_PARTY;
    step_matrices_client_aided: plan(&around(Middle::Attention), options(TrustLevel::ClientAided)), &[Batch(3)];
    step_encrypted_matrices: shared(&attention(), Engine::Coefficient, None), AHEAD;
    step_lean_relu: lean(&around(Middle::Relu), Engine::Coefficient, None), TWO_PARTY;
    step_lean_leaky_relu: lean(&around(Middle::LeakyRelu), Engine::Coefficient, None), AHEAD;
    step_lean_silu: lean(&around(Middle::Silu), Engine::Coefficient, None), AHEAD;
    step_lean_padded_max_pool: lean(&around(Middle::PaddedMaxPool), Engine::Coefficient, None), AHEAD;
    step_lean_residual: lean(&around(Middle::Residual), Engine::Coefficient, None), AHEAD;
    step_dithered_relu: dithered(&around(Middle::Relu), Engine::Coefficient, None), TWO_PARTY;
    step_dithered_max_pool: dithered(&around(Middle::PaddedMaxPool), Engine::Coefficient, None), AHEAD;
    slot_dithered_residual: dithered(&around(Middle::Residual), Engine::Slot, None), AHEAD;
    two_party_lean: lean(&network(1), Engine::Coefficient, None), TWO_PARTY;
    step_argmax: class(&ties(5), Engine::Coefficient, 2, Transfers::Extension), TWO_PARTY;
    step_argmax_at_once: class(&ties(5), Engine::Coefficient, 5, Transfers::Extension), AHEAD;
    step_argmax_on_slots: class(&ties(5), Engine::Slot, 3, Transfers::Extension), AHEAD;
    step_on_the_input: shared(&pooled_input(), Engine::Batch, None), AHEAD;
    // Squares take shares modulo a power of two, layers on slots shares modulo a prime.
    slot_square: shared(&around(Middle::Square), Engine::Slot, None), AHEAD;
    slot_lean_residual: lean(&around(Middle::Residual), Engine::Slot, None), AHEAD;
    slot_product: shared(&around(Middle::Gate), Engine::Slot, None), AHEAD;
    slot_residual: shared(&around(Middle::Residual), Engine::Slot, None), AHEAD;

    // The three ways to open a result.
    open_shares: shared(&dense(Some("relu")), Engine::Coefficient, None), AHEAD;
    open_guard_bits: shared(&dense(None), Engine::Coefficient, None), AHEAD;
    open_modulo_a_prime: shared(&dense(None), Engine::Slot, None), AHEAD;

    // What a party keeps between connections.
    kept_publication: shared(&around(Middle::Relu), Engine::Coefficient, None), KEPT;
    kept_slot_keys: shared(&around(Middle::Relu), Engine::Slot, None), KEPT;

    // More images than a block has.
    blocks_two_party: shared(&dense(Some("relu")), Engine::Batch, None), &[Batch(2100), Batch(3)];
    blocks_client_aided: plan(&dense(Some("relu")), options(TrustLevel::ClientAided)), &[Batch(2100)];

    // Networks on ciphertexts, without keys and with them.
    encrypted: plan(&deep(2), options(TrustLevel::Encrypted)), &[Batch(3), Batch(1)];
    encrypted_relinearised: {
        let passes = Passes { lazy_relinearisation: false, ..Passes::default() };
        plan(&deep(2), BuildOptions { passes, ..options(TrustLevel::Encrypted) })
    }, &[Batch(3), Batch(1)];
    encrypted_deep: plan(&deep(3), options(TrustLevel::Encrypted)), &[Batch(2), Batch(2)];
}

#[test]
fn every_golden_file_is_of_a_case() {
    if transcript::blesses() {
        return;
    }
    let files = fs::read_dir(transcript::directory()).expect("there are golden files");
    let names = files.map(|file| file.expect("it has a name").file_name());
    let names: BTreeSet<String> = names
        .filter_map(|name| Some(name.to_str()?.strip_suffix(".txt")?.to_owned()))
        .collect();
    assert_eq!(names, CASES.iter().map(|&name| name.to_owned()).collect());
}

/// No instruction set and no number of threads changes a byte. Each is fixed once in a process, so
/// this runs other processes.
#[test]
fn machines_make_no_difference() {
    if transcript::blesses() {
        return;
    }
    let slower = SimdLevel::available().into_iter().rev().skip(1);
    let names = slower.map(|level| format!("{level:?}").to_lowercase());
    for (name, threads) in names.zip(["1", "3", "5"]) {
        let output = Command::new(env::current_exe().expect("this test has a path"))
            .args(CASES.iter().map(|case| format!("transcripts::{case}")))
            .arg("--exact")
            .env("PRONGHORN_SIMD", &name)
            .env("RAYON_NUM_THREADS", threads)
            .output()
            .expect("this test runs again");
        let text = String::from_utf8_lossy(&output.stdout);
        let passed = text.contains(&format!("{} passed", CASES.len()));
        assert!(
            output.status.success() && passed,
            "{name}, {threads} threads:\n{text}"
        );
    }
}
