//! What a plan says of bytes is what a run sends, step by step.

use crate::common::{
    network,
    networks::{
        self, Middle, aided, aided_coefficient, around, class, deep, dense, has_words, lean,
        options, plan, pooled_input, shared, ties, wide,
    },
    transcript::{
        self,
        Act::{Batch, Online, Prepare},
        Message, Party, Record,
    },
};
use pronghorn_plan::{
    Built, CheckedPlan, Derived, Engine, StepKind, TrustLevel, WordSize, cost,
    steps::activation::lean::Transfers,
};

/// Images of each batch here: with an even number, the networks' squares need no padding to whole
/// bytes, which costs leave out.
const IMAGES: usize = 2;

/// Bytes of a set-up of oblivious transfer: the client's, the server's.
const SET_UP: [u64; 2] = [204_880, 200_787];

/// Bytes of the set-up of lean steps.
const LEAN_SET_UP: [u64; 2] = [3320 + 8192 + 2 * 64, 2840 + 8192 + 2 * 64];

/// Costs leave out this many bytes of each piece of garbled tables.
const PIECE: u64 = 16;

/// Most pieces of a garbled step here.
const MOST_PIECES: u64 = 8;

/// Plans of all kinds of steps, in all engines on shares.
fn on_shares() -> Vec<(String, Built)> {
    use Middle::*;
    let mut plans = Vec::new();
    for engine in [Engine::Batch, Engine::Coefficient, Engine::Slot] {
        let mut add = |name: &str, built| plans.push((format!("{name}, {engine:?}"), built));
        add("all steps", shared(&network(1), engine, None));
        for middle in [LeakyRelu, PaddedMaxPool, Residual, Concat, Gate, Attention] {
            add("one step", shared(&around(middle), engine, None));
        }
        if engine != Engine::Slot {
            add("all lean steps", lean(&network(1), engine, None));
            for middle in [LeakyRelu, PaddedMaxPool, Residual] {
                add("a lean step", lean(&around(middle), engine, None));
            }
        }
        add("one layer", shared(&dense(None), engine, None));
        for (classes, at_once) in [(5, 2), (9, 4)] {
            let built = class(&ties(classes), engine, at_once, Transfers::Extension);
            add("a class", built);
        }
        add(
            "a layer and a relu",
            shared(&dense(Some("relu")), engine, None),
        );
        add("a pool and a layer", shared(&pooled_input(), engine, None));
    }
    for engine in [Engine::Batch, Engine::Coefficient] {
        plans.push((format!("64 bits, {engine:?}"), wide(engine)));
    }
    plans
}

fn sent(record: &Record) -> [u64; 2] {
    [record.bytes(Party::Client), record.bytes(Party::Server)]
}

fn is_garbled(plan: &CheckedPlan, index: usize) -> bool {
    matches!(plan.derived(index), Derived::Circuits(_))
}

/// Bytes that each party sends in step `index`, up and down. Of what comes with the first batch
/// alone, nothing is counted where `is_later`.
fn cost_of(plan: &CheckedPlan, index: usize, is_later: bool) -> [u64; 2] {
    let cost = cost::step(plan, index, IMAGES);
    let once = match &plan.steps[index].kind {
        StepKind::SharedLinear(linear) if is_later && cost::published(plan) > 0 => {
            let rows = plan.steps[index].value.len() * linear.rlwe.answer_bytes_a();
            [cost::SEED_BYTES as u64, rows as u64]
        }
        _ => [0, 0],
    };
    [cost.bytes_up - once[0], cost.bytes_down - once[1]]
}

/// The messages are those of the plan's steps in order, each with the bytes that its cost says.
fn follow(name: &str, plan: &CheckedPlan, messages: &[Message], is_later: bool) {
    let mut messages = messages.iter();
    for index in 0..plan.steps.len() {
        let [up, down] = cost_of(plan, index, is_later);
        let mut found = [0, 0];
        while found[0] < up || found[1] < down {
            let message = messages.next().expect("a step sends what it costs");
            found[usize::from(message.party == Party::Server)] += message.length as u64;
        }
        let more = found[1] - down;
        let fits = match is_garbled(plan, index) {
            true => more.is_multiple_of(PIECE) && (1..=MOST_PIECES).contains(&(more / PIECE)),
            false => more == 0,
        };
        assert!(
            found[0] == up && fits,
            "{name}, step {} sends {found:?} and costs {up}, {down}",
            plan.step_name(index)
        );
    }
    assert!(messages.next().is_none(), "{name}: no step costs the rest");
}

#[test]
fn steps_on_shares_send_what_they_cost() {
    for (name, built) in on_shares() {
        let records = transcript::record(&name, &built, &[Batch(IMAGES), Batch(IMAGES)]);
        follow(&name, &built.plan, &records[1].messages, true);
    }
}

#[test]
fn client_aided_steps_send_what_they_cost() {
    for (bits, word, parts) in [
        (None, WordSize::U32, 1),
        (Some((11, 16)), WordSize::U64, 1),
        (Some((11, 9)), WordSize::U32, 2),
    ] {
        let built = aided(if bits.is_none() { 1 } else { 4 }, bits);
        assert!(has_words(&built, word));
        assert!(
            built
                .plan
                .steps
                .iter()
                .any(|step| networks::parts(step) == parts)
        );
        let records = transcript::record("aided", &built, &[Batch(IMAGES)]);
        follow("aided", &built.plan, &records[0].messages, false);
    }
}

#[test]
fn client_aided_steps_on_coefficients_send_what_they_cost() {
    let built = aided_coefficient(1, None);
    let records = transcript::record("aided", &built, &[Batch(IMAGES), Batch(IMAGES)]);
    follow("aided", &built.plan, &records[1].messages, false);
}

/// With the first batch of a connection come a set-up, and what is published or sent once.
#[test]
fn first_batches_send_what_comes_once() {
    for (name, built) in on_shares() {
        let plan = &built.plan;
        let records = transcript::record(&name, &built, &[Batch(IMAGES), Batch(IMAGES)]);
        let [first, later] = [sent(&records[0]), sent(&records[1])];
        let more = [0, 1].map(|way| {
            let lean = if plan.is_lean() { LEAN_SET_UP[way] } else { 0 };
            first[way] - later[way] - SET_UP[way] - lean
        });
        let seeds = plan.linear_steps().count() * cost::SEED_BYTES;
        // Beside what is counted: names of publications and keys, and what one party has of them.
        let (once, names) = if cost::publication(plan) > 0 {
            ([0, cost::publication(plan)], [69, 64])
        } else if plan.slot_key_bytes() > 0 {
            let [up, down] = cost::key_check(plan);
            ([plan.slot_key_bytes() + up, down], [32, 1])
        } else {
            ([seeds as u64, cost::published(plan)], [0, 0])
        };
        assert_eq!(more, [once[0] + names[0], once[1] + names[1]], "{name}");
    }
}

#[test]
fn preparations_send_and_keep_what_they_cost() {
    for (name, built) in on_shares() {
        let plan = &built.plan;
        let script = [
            Batch(IMAGES),
            Prepare(IMAGES),
            Online(IMAGES),
            Batch(IMAGES),
        ];
        let records = transcript::record(&name, &built, &script);
        let cost = cost::prepared(plan, IMAGES);
        let [up, down] = sent(&records[1]);
        assert_eq!(up, cost.bytes_up, "{name}");
        let steps = plan.steps.len() as u64;
        let more = down - cost.bytes_down;
        assert!(
            more.is_multiple_of(PIECE) && more <= steps * MOST_PIECES * PIECE,
            "{name}: {down} {}",
            cost.bytes_down
        );
        let [ours, theirs] = [0, 1].map(|party| records[1].stored[party].length as u64);
        // Bounds on memory, with room for the lengths of steps in what is stored.
        assert!(
            ours <= cost.memory.client + 24 * steps,
            "{name}: {ours} {:?}",
            cost.memory
        );
        assert!(
            theirs <= cost.memory.server + 64 * steps,
            "{name}: {theirs} {:?}",
            cost.memory
        );
        // Of lean steps a store is not asked for many times what it gets.
        let bound = |stored: u64| 2 * stored + 4096;
        let is_near = cost.memory.client <= bound(ours) && cost.memory.server <= bound(theirs);
        assert!(
            is_near || !name.contains("lean"),
            "{name}: {ours}, {theirs}, {:?}",
            cost.memory
        );
        // What was sent ahead is not sent again.
        let [online, whole] = [&records[2], &records[3]].map(sent);
        if down > 0 {
            assert!(online[1] < whole[1] && online[0] <= whole[0], "{name}");
        } else {
            assert_eq!(online, whole, "{name}");
        }
    }
}

/// Keys and their check come with the first batch.
#[test]
fn encrypted_networks_send_what_they_cost() {
    for squares in [2, 3] {
        let built = plan(&deep(squares), options(TrustLevel::Encrypted));
        let records = transcript::record("encrypted", &built, &[Batch(IMAGES), Batch(IMAGES)]);
        let StepKind::Encrypted(encrypted) = &built.plan.steps[1].kind else {
            panic!("the step is encrypted")
        };
        let cost = cost::step(&built.plan, 1, IMAGES);
        let [first, later] = [sent(&records[0]), sent(&records[1])];
        let [up, down] = cost::key_check(&built.plan);
        assert_eq!(
            [first[1], later[1]],
            [cost.bytes_down + down, cost.bytes_down]
        );
        assert_eq!(first[0], cost.bytes_up + up);
        let inputs = built.plan.input_len() * encrypted.request_row_bytes();
        assert_eq!(later[0], inputs as u64);
    }
}

/// Squares are padded to a multiple of eight values, which costs do not count: 108 values to 112.
#[test]
fn squares_are_padded() {
    let built = shared(&network(1), Engine::Coefficient, None);
    let records = transcript::record("padded", &built, &[Batch(3), Batch(3)]);
    let [up, down] = sent(&records[1]);
    let cost = cost::total(&built.plan, 3);
    for (sent, cost) in [(up, cost.bytes_up), (down, cost.bytes_down)] {
        assert!(sent > cost && sent < cost + cost / 100, "{sent} {cost}");
    }
}
