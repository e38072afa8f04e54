//! The circuit of a chain of activations is the chain, whatever errors its shares' guard bits
//! carry.

use crate::common::{
    circuits, in_a_circuit,
    networks::{Middle, around, shared},
    refusal, value,
};
use pronghorn_graph::{
    fixed::{ActivationOp, Table, ValueSpec, scalar},
    geometry::Window,
};
use pronghorn_mpc::circuit::Rectifier;
use pronghorn_plan::{
    CheckedPlan, Engine, StepKind,
    share_form::{ShareForm, guard_for},
    steps::{
        activation::{
            chain::Stage,
            garbled::{Circuits, MAX_WINDOW, Output},
        },
        open,
    },
};
use proptest::prelude::*;

fn apply(ops: &[ActivationOp], values: &[i32]) -> i32 {
    let each = |x: i32, ops: &[ActivationOp]| {
        ops.iter().fold(x, |x, op| match *op {
            ActivationOp::Relu => scalar::relu(x),
            ActivationOp::Clip { low, high } => scalar::clip(x, low, high),
            ActivationOp::LeakyRelu { slope, shift } => scalar::leaky_relu(x, slope, shift),
            ActivationOp::Requantise { shift, low, high } => {
                scalar::requantise(x, shift, low, high)
            }
            ActivationOp::Table(ref table) => table.at(x),
            ActivationOp::Square
            | ActivationOp::MaxPool { .. }
            | ActivationOp::Dither { .. }
            | ActivationOp::RequantiseChannels { .. } => unreachable!("not elementwise"),
        })
    };
    let pool = ops
        .iter()
        .position(|op| matches!(op, ActivationOp::MaxPool { .. }));
    let (before, after) = pool.map_or((ops, &[][..]), |at| (&ops[..at], &ops[at + 1..]));
    let largest = values.iter().map(|&x| each(x, before)).max();
    each(largest.expect("a window holds a value"), after)
}

/// The oracle's value for `values` with all errors, through a stage's circuit on shares.
fn through_circuit(
    ops: &[ActivationOp],
    spec: &ValueSpec,
    form: &ShareForm,
    values: &[(i32, i64, u64)],
) -> i32 {
    let stage = Stage::of(ops).expect("the chain is one stage");
    let output = ShareForm::exact(32);
    let circuit = stage
        .circuit((values.len(), stage.shift()), (spec, form), &output)
        .expect("the numbers go together");
    let mask = u64::MAX >> (64 - form.bits);
    let share = |&(x, error, server): &(i32, i64, u64)| {
        let lifted = (i64::from(x) << form.guard) + error;
        // The engine's server adds the offset to its share.
        let offset = stage.offset(form) as u64;
        (
            server.wrapping_add(offset) & mask,
            (lifted as u64).wrapping_sub(server) & mask,
        )
    };
    // A circuit may take fewer bits than the shares have.
    let (server, client): (Vec<u64>, Vec<u64>) = values.iter().map(share).unzip();
    circuit.evaluate_plain(&server, &client)[0] as u32 as i32
}

fn chain() -> impl Strategy<Value = Vec<ActivationOp>> {
    let requantise = (0u32..9, -40i32..=0, 1i32..200)
        .prop_map(|(shift, low, high)| ActivationOp::Requantise { shift, low, high });
    let clip = (-300i32..100, 0i32..400).prop_map(|(low, width)| ActivationOp::Clip {
        low,
        high: low + width,
    });
    let window = Window {
        kernel: [2, 2],
        stride: [2, 2],
        dilation: [1, 1],
        padding: [0; 4],
    };
    let op = prop_oneof![
        Just(ActivationOp::Relu),
        clip,
        requantise,
        (0i32..20, 0u32..5).prop_map(|(slope, shift)| ActivationOp::LeakyRelu { slope, shift }),
        Just(ActivationOp::MaxPool { window }),
    ];
    (prop::collection::vec(op, 0..4), prop::option::of(table())).prop_map(|(mut ops, table)| {
        ops.extend(table.map(ActivationOp::Table));
        ops
    })
}

fn table() -> impl Strategy<Value = Table> {
    let place = (any::<bool>(), 0u32..5, -20..20);
    let pieces = (0u32..5, 0u32..5).prop_flat_map(|(bits, fine)| {
        let entries = prop::collection::vec(-40..40, 1 << bits);
        let rises = prop::collection::vec(prop_oneof![Just(6), -60..60], 1 << bits);
        (entries, Just(fine), rises)
    });
    (place, pieces).prop_map(|((rectified, drop, first), (entries, fine, rises))| {
        let fine = fine.min(drop);
        Table {
            rectified,
            drop,
            first,
            entries,
            fine,
            rises: if fine == 0 { Vec::new() } else { rises },
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn circuits_are_their_chains(
        ops in chain(),
        low in -3000i32..0, high in 1i32..3000,
        error in 1u64..4, exact: bool,
        seeds in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u64>()), 4),
    ) {
        prop_assume!(Stage::of(&ops).is_some());
        let factor = ops.iter().map(|op| match op {
            ActivationOp::LeakyRelu { slope, shift } => (*slope as u64).max(1 << shift),
            _ => 1,
        }).product();
        let (error, guard) = if exact { (0, 0) } else { (error, guard_for(error, factor)) };
        let form = ShareForm { bits: 13 + guard, prime: None, guard, error };
        let spec = ValueSpec { shape: vec![4], fraction_bits: 0, low, high };
        let pool = if ops.iter().any(|op| matches!(op, ActivationOp::MaxPool { .. })) { 4 } else { 1 };
        let values: Vec<_> = seeds[..pool].iter().map(|&(x, e, server)| {
            let x = match x % 5 {
                0 => low,
                1 => high,
                2 => 0,
                _ => low + (x % (high - low) as u32) as i32,
            };
            (x, i64::from(e) % (2 * error as i64 + 1) - error as i64, server)
        }).collect();
        let plain: Vec<i32> = values.iter().map(|&(x, ..)| x).collect();
        prop_assert_eq!(through_circuit(&ops, &spec, &form, &values), apply(&ops, &plain));
    }

    #[test]
    fn opening_rounds_errors_away(low in -5000i32..0, high in 1i32..5000, guard in 2u32..6, x: u32, e: u32, server: u64) {
        let error = (1u64 << (guard - 1)) - 1;
        let form = ShareForm { bits: 14 + guard, prime: None, guard, error };
        let spec = ValueSpec { shape: vec![1], fraction_bits: 0, low, high };
        let x = low + (x % (high - low + 1) as u32) as i32;
        let error = i64::from(e) % (2 * error as i64 + 1) - error as i64;
        let circuit = open::circuit(&spec, &form).expect("the numbers go together");
        let mask = u64::MAX >> (64 - form.bits);
        let lifted = ((i64::from(x) << guard) + error) as u64;
        let word = circuit.evaluate_plain(&[server & mask], &[lifted.wrapping_sub(server) & mask])[0];
        let width = open::opened_bits(&spec, &form);
        prop_assert_eq!((word << (64 - width)) as i64 >> (64 - width), i64::from(x));
    }
}

#[test]
fn chains_that_are_no_circuit_are_refused() {
    let requantise = ActivationOp::Requantise {
        shift: 3,
        low: 0,
        high: 9,
    };
    assert!(Stage::of(&[ActivationOp::Square]).is_none());
    assert!(Stage::of(&[requantise.clone(), requantise]).is_none());
    assert!(
        Stage::of(&[ActivationOp::LeakyRelu {
            slope: -1,
            shift: 2
        }])
        .is_none()
    );
}

/// A max-pool with a square window.
fn pool(kernel: usize, stride: usize, padding: usize) -> Vec<ActivationOp> {
    let window = crate::common::window(kernel, stride, padding);
    vec![ActivationOp::MaxPool { window }]
}

/// A plan with these functions alone, and no linear layer.
fn checked(input: &[usize], ops: Vec<ActivationOp>, output: &[usize]) -> CheckedPlan {
    let plan = in_a_circuit(value(input, -5, 5), ops, value(output, -5, 5));
    CheckedPlan::new(plan).expect("the plan is valid")
}

/// The output elements of all groups, ascending.
fn elements(circuits: &Circuits) -> Vec<usize> {
    let groups = circuits.groups.iter();
    let mut elements: Vec<usize> = groups.flat_map(|group| group.elements.iter()).collect();
    elements.sort_unstable();
    elements
}

/// Values in the windows of each group.
fn sizes(circuits: &Circuits) -> Vec<usize> {
    let groups = circuits.groups.iter();
    groups
        .map(|group| group.circuit.garbler_words().len())
        .collect()
}

/// Windows at the border of a padded pool have fewer values, and all elements are in some group.
#[test]
fn groups_cover_a_padded_pool() {
    let plan = checked(&[2, 6, 6], pool(3, 2, 1), &[2, 3, 3]);
    let circuits = circuits(&plan, 1).expect("it has circuits");
    assert_eq!(elements(circuits), (0..18).collect::<Vec<_>>());
    assert_eq!(sizes(circuits), [4, 6, 9]);
    for (group, pool) in circuits.groups.iter().zip(sizes(circuits)) {
        assert_eq!(group.sources.len(), pool * group.elements.len());
    }
}

/// A stage of these functions.
fn stage(ops: &[ActivationOp]) -> Stage {
    Stage::of(ops).expect("the chain is one circuit")
}

/// Neighbours in a chain become one change of precision, or one clamp.
#[test]
fn chains_are_merged() {
    let requantise = |shift, low, high| ActivationOp::Requantise { shift, low, high };
    let clip = |low, high| ActivationOp::Clip { low, high };
    let change = |ops: &[ActivationOp]| {
        let last = stage(ops).requantisation.expect("precision changes");
        (last.shift, last.low, last.high)
    };
    // A clamp before bits are dropped is a clamp of what is left.
    assert_eq!(
        change(&[clip(-100, 1000), requantise(4, -5, 50)]),
        (4, -5, 50)
    );
    assert_eq!(change(&[clip(-40, 80), requantise(4, -50, 50)]), (4, -2, 5));
    assert_eq!(change(&[requantise(4, -50, 50), clip(-3, 60)]), (4, -3, 50));
    // A ReLU after it is a clamp at zero.
    let relu = stage(&[requantise(4, -50, 50), ActivationOp::Relu]);
    assert_eq!(relu.rectifier, Rectifier::None);
    assert_eq!(
        change(&[requantise(4, -50, 50), ActivationOp::Relu]),
        (4, 0, 50)
    );
    assert_eq!(
        change(&[requantise(4, -50, -10), ActivationOp::Relu]),
        (4, 0, 0)
    );
    // One before it is the circuit's.
    let relu = stage(&[
        ActivationOp::Relu,
        ActivationOp::Relu,
        requantise(4, -50, 50),
    ]);
    assert_eq!(relu.rectifier, Rectifier::Relu);
    let leaky = ActivationOp::LeakyRelu { slope: 3, shift: 4 };
    let rectifier = Rectifier::Leaky { slope: 3, shift: 4 };
    assert_eq!(stage(std::slice::from_ref(&leaky)).rectifier, rectifier);
    assert!(Stage::of(&[leaky.clone(), leaky.clone()]).is_none());
    assert!(Stage::of(&[ActivationOp::Relu, leaky.clone()]).is_none());
    assert!(Stage::of(&[leaky, ActivationOp::Relu]).is_none());
}

/// Where bits are dropped, the server's share is raised by the error.
#[test]
fn offsets_are_errors_before_bits_are_dropped() {
    let form = ShareForm {
        bits: 20,
        prime: None,
        guard: 4,
        error: 5,
    };
    let requantise = ActivationOp::Requantise {
        shift: 2,
        low: 0,
        high: 9,
    };
    assert_eq!(stage(&[requantise]).offset(&form), 5);
    assert_eq!(stage(&[ActivationOp::Relu]).offset(&form), 0);
    assert_eq!(stage(&[]).offset(&form), 0);
}

/// Guard bits and primes take a circuit to open.
#[test]
fn what_takes_a_circuit_to_open() {
    let exact = ShareForm::exact(9);
    assert!(!open::takes_circuit(&exact));
    assert!(open::takes_circuit(&ShareForm {
        guard: 2,
        error: 1,
        ..exact
    }));
    assert!(open::takes_circuit(&ShareForm {
        prime: Some(12_289),
        bits: 14,
        ..exact
    }));
    let spec = |low, high| ValueSpec {
        shape: vec![1],
        fraction_bits: 0,
        low,
        high,
    };
    // -5000..=5000 is a word of 14 bits, whatever guard bits it has below.
    assert_eq!(
        open::opened_bits(&spec(-5000, 5000), &ShareForm { bits: 14, ..exact }),
        14
    );
    let guarded = ShareForm {
        bits: 18,
        prime: None,
        guard: 4,
        error: 1,
    };
    assert_eq!(open::opened_bits(&spec(-5000, 5000), &guarded), 14);
    assert_eq!(open::opened_bits(&spec(0, 0), &exact), 1);
}

#[test]
fn without_a_window_each_element_is_its_own() {
    let clip = vec![ActivationOp::Clip { low: -5, high: 5 }];
    let plan = checked(&[2, 3], clip, &[2, 3]);
    let circuits = circuits(&plan, 1).expect("it has circuits");
    let [group] = circuits.groups.as_slice() else {
        panic!("there is one group")
    };
    assert_eq!(sizes(circuits), [1]);
    assert_eq!(elements(circuits), [0, 1, 2, 3, 4, 5]);
    assert_eq!(group.sources, group.elements);
}

fn by_channel(shifts: &[u32]) -> ActivationOp {
    ActivationOp::RequantiseChannels {
        shifts: shifts.to_vec(),
        low: -5,
        high: 5,
    }
}

/// Channels that drop as many bits share a circuit, whether they are pooled or not.
#[test]
fn channels_are_grouped_by_their_shifts() {
    let ops = vec![ActivationOp::Relu, by_channel(&[2, 1, 2])];
    let plan = checked(&[3, 2, 2], ops, &[3, 2, 2]);
    let circuits = circuits(&plan, 1).expect("it has circuits");
    let found: Vec<Vec<usize>> = circuits
        .groups
        .iter()
        .map(|group| group.elements.iter().collect())
        .collect();
    assert_eq!(found, [vec![4, 5, 6, 7], vec![0, 1, 2, 3, 8, 9, 10, 11]]);
    let sources = |group: usize| circuits.groups[group].sources.clone();
    assert_eq!(sources(0), circuits.groups[0].elements);
    let mut ops = pool(2, 2, 0);
    ops.push(by_channel(&[2, 1, 2]));
    let plan = checked(&[3, 4, 4], ops, &[3, 2, 2]);
    let circuits = self::circuits(&plan, 1).expect("it has circuits");
    assert_eq!(circuits.groups.len(), 2);
    assert_eq!(elements(circuits), (0..12).collect::<Vec<_>>());
}

/// A table follows a change of precision in one circuit, and nothing follows it there: it is not
/// monotone.
#[test]
fn tables_come_last() {
    let table = ActivationOp::Table(Table {
        rectified: true,
        drop: 1,
        first: -2,
        entries: vec![-1, 0, 2, 1],
        fine: 0,
        rises: Vec::new(),
    });
    let clip = ActivationOp::Clip { low: -3, high: 9 };
    let both = [by_channel(&[1, 3]), table.clone()];
    assert!(stage(&both).table.is_some());
    for after in [
        clip,
        ActivationOp::Relu,
        table.clone(),
        pool(2, 1, 0).remove(0),
    ] {
        assert!(Stage::of(&[table.clone(), after]).is_none());
    }
    let mut pooled = pool(2, 2, 0);
    pooled.push(table);
    let plan = checked(&[3, 4, 4], pooled, &[3, 2, 2]);
    assert_eq!(
        elements(circuits(&plan, 1).expect("it has circuits")).len(),
        12
    );
}

#[test]
fn hostile_tables_are_refused() {
    let refused = |drop, entries: Vec<i32>| {
        let table = Table {
            rectified: true,
            drop,
            first: -1,
            entries,
            fine: 0,
            rises: Vec::new(),
        };
        let ops = vec![ActivationOp::Table(table)];
        refusal(&in_a_circuit(value(&[4], -5, 5), ops, value(&[4], -5, 9)))
    };
    assert_eq!(refused(1, vec![0, 4]), None);
    let pieces = |fine, rises| {
        let table = Table {
            rectified: false,
            drop: 3,
            first: 0,
            entries: vec![0],
            fine,
            rises,
        };
        let ops = vec![ActivationOp::Table(table)];
        refusal(&in_a_circuit(value(&[4], -5, 5), ops, value(&[4], -5, 9)))
    };
    assert_eq!(pieces(2, vec![8]), None);
    for (fine, rises, reason) in [
        (4, vec![8], "fine bits"),
        (u32::MAX, vec![8], "fine bits"),
        (2, vec![], "number of rises"),
        (2, vec![8, 8], "number of rises"),
        (2, vec![30], "range"),
        (2, vec![i32::MAX], "range"),
        (2, vec![i32::MIN], "range"),
    ] {
        let found = pieces(fine, rises).expect("it is refused");
        assert!(found.contains(reason), "{found}");
    }
    for (drop, entries, reason) in [
        (1, vec![], "number of entries"),
        (1, vec![0, 1, 2], "number of entries"),
        (1, vec![0; 1 << 10], "number of entries"),
        (32, vec![0], "drop"),
        (1, vec![0, 1000], "range"),
        (1, vec![0, i32::MAX], "range"),
    ] {
        let found = refused(drop, entries).expect("it is refused");
        assert!(found.contains(reason), "{found}");
    }
}

/// A channel that drops nothing rounds its guard bits in another way than others.
#[test]
fn channels_drop_a_bit_or_more() {
    assert!(Stage::of(&[by_channel(&[1, 0])]).is_none());
    assert_eq!(stage(&[by_channel(&[1, 3])]).shift(), 3);
    let twice = [by_channel(&[1, 3]), by_channel(&[1, 3])];
    assert!(Stage::of(&twice).is_none());
}

#[test]
fn windows_without_values_or_with_too_many_have_no_groups() {
    let refused = |input: &[usize], ops: Vec<ActivationOp>, output: &[usize]| {
        refusal(&in_a_circuit(
            value(input, -5, 5),
            ops,
            value(output, -5, 5),
        ))
        .expect("it is refused")
    };
    let reason = refused(&[1, 4, 4], pool(2, 1, 2), &[1, 7, 7]);
    assert!(reason.contains("padding"), "{reason}");
    let reason = refused(&[16], pool(2, 1, 0), &[9]);
    assert!(reason.contains("shape"), "{reason}");
    let side = MAX_WINDOW.isqrt();
    let plan = checked(&[1, side, side], pool(side, 1, 0), &[1, 1, 1]);
    let circuits = circuits(&plan, 1).expect("it has circuits");
    assert_eq!(sizes(circuits), [MAX_WINDOW]);
    let more = side + 1;
    let reason = refused(&[1, more, more], pool(more, 1, 0), &[1, 1, 1]);
    assert!(reason.contains("more than 1024 values"), "{reason}");
}

/// The circuits of a plan's steps take all values, and give each element once.
#[test]
fn circuits_of_plans_cover_their_steps() {
    let middles = [
        Middle::Relu,
        Middle::LeakyRelu,
        Middle::PaddedMaxPool,
        Middle::Square,
    ];
    for engine in [Engine::Coefficient, Engine::Slot] {
        for middle in middles {
            let plan = shared(&around(middle), engine, None).plan;
            for (index, step) in plan.steps.iter().enumerate() {
                let is_garbled = match &step.kind {
                    StepKind::Garbled(_) => true,
                    StepKind::Open => open::takes_circuit(&plan.forms()[step.inputs[0]]),
                    _ => false,
                };
                let found = circuits(&plan, index);
                assert_eq!(found.is_some(), is_garbled, "step {index}");
                let Some(circuits) = found else {
                    continue;
                };
                assert_eq!(
                    elements(circuits),
                    (0..step.value.len()).collect::<Vec<_>>()
                );
                for group in &circuits.groups {
                    let pool = group.circuit.garbler_words().len();
                    assert_eq!(group.sources.len(), pool * group.elements.len());
                    assert!(group.circuit.table_bytes(1) > 0);
                }
                let is_opened = step.kind == StepKind::Open;
                assert_eq!(circuits.output == Output::Shares, !is_opened);
            }
        }
    }
}

#[test]
fn other_steps_have_no_circuits() {
    let plan = shared(&around(Middle::Square), Engine::Coefficient, None).plan;
    for (index, step) in plan.steps.iter().enumerate() {
        let is_other = !matches!(step.kind, StepKind::Garbled(_) | StepKind::Open);
        assert_eq!(circuits(&plan, index).is_none(), is_other, "step {index}");
    }
}
