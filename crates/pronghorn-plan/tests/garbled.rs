//! The circuit of a chain of activations is the chain, whatever errors its shares' guard bits carry.

mod common;

use common::networks::{Middle, around, shared};
use pronghorn_graph::{
    fixed::{ActivationOp, ValueSpec, scalar},
    geometry::Window,
};
use pronghorn_mpc::circuit::Rectifier;
use pronghorn_plan::{
    Engine, Protocol, StepKind,
    garbled::{self, MAX_WINDOW, Stage},
    held::{Held, guard_for, held},
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
            ActivationOp::Square | ActivationOp::MaxPool { .. } => unreachable!("not elementwise"),
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
    held: &Held,
    values: &[(i32, i64, u64)],
) -> i32 {
    let stage = Stage::of(ops).expect("the chain is one stage");
    let output = Held {
        prime: None,
        bits: 32,
        guard: 0,
        error: 0,
    };
    let circuit = stage
        .circuit(values.len(), (spec, held), &output)
        .expect("the numbers go together");
    let mask = u64::MAX >> (64 - held.bits);
    let share = |&(x, error, server): &(i32, i64, u64)| {
        let lifted = (i64::from(x) << held.guard) + error;
        // The engine's server adds the offset to its share.
        let offset = stage.offset(held) as u64;
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
    prop::collection::vec(op, 0..4)
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
        let held = Held { bits: 13 + guard, prime: None, guard, error };
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
        prop_assert_eq!(through_circuit(&ops, &spec, &held, &values), apply(&ops, &plain));
    }

    #[test]
    fn opening_rounds_errors_away(low in -5000i32..0, high in 1i32..5000, guard in 2u32..6, x: u32, e: u32, server: u64) {
        let error = (1u64 << (guard - 1)) - 1;
        let held = Held { bits: 14 + guard, prime: None, guard, error };
        let spec = ValueSpec { shape: vec![1], fraction_bits: 0, low, high };
        let x = low + (x % (high - low + 1) as u32) as i32;
        let error = i64::from(e) % (2 * error as i64 + 1) - error as i64;
        let circuit = garbled::open(&spec, &held).expect("the numbers go together");
        let mask = u64::MAX >> (64 - held.bits);
        let lifted = ((i64::from(x) << guard) + error) as u64;
        let word = circuit.evaluate_plain(&[server & mask], &[lifted.wrapping_sub(server) & mask])[0];
        let width = garbled::open_bits(&spec, &held);
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

/// Windows at the border of a padded pool have fewer values, and all elements are in some group.
#[test]
fn groups_cover_a_padded_pool() {
    let window = Window {
        kernel: [3, 3],
        stride: [2, 2],
        dilation: [1, 1],
        padding: [1; 4],
    };
    let spec = ValueSpec {
        shape: vec![2, 6, 6],
        fraction_bits: 0,
        low: -5,
        high: 5,
    };
    let groups = garbled::groups(Some(&window), &spec).expect("the pool fits");
    let mut elements: Vec<usize> = groups
        .iter()
        .flat_map(|group| group.elements.clone())
        .collect();
    elements.sort_unstable();
    assert_eq!(elements, (0..18).collect::<Vec<_>>());
    assert_eq!(
        groups.iter().map(|group| group.pool).collect::<Vec<_>>(),
        [4, 6, 9]
    );
    for group in &groups {
        assert_eq!(group.sources.len(), group.pool * group.elements.len());
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
    let held = Held {
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
    assert_eq!(stage(&[requantise]).offset(&held), 5);
    assert_eq!(stage(&[ActivationOp::Relu]).offset(&held), 0);
    assert_eq!(stage(&[]).offset(&held), 0);
}

/// Guard bits and primes take a circuit to open.
#[test]
fn what_takes_a_circuit_to_open() {
    let exact = Held {
        bits: 9,
        prime: None,
        guard: 0,
        error: 0,
    };
    assert!(!garbled::opens(&exact));
    assert!(garbled::opens(&Held {
        guard: 2,
        error: 1,
        ..exact
    }));
    assert!(garbled::opens(&Held {
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
        garbled::open_bits(&spec(-5000, 5000), &Held { bits: 14, ..exact }),
        14
    );
    let guarded = Held {
        bits: 18,
        prime: None,
        guard: 4,
        error: 1,
    };
    assert_eq!(garbled::open_bits(&spec(-5000, 5000), &guarded), 14);
    assert_eq!(garbled::open_bits(&spec(0, 0), &exact), 1);
}

#[test]
fn without_a_window_each_element_is_its_own() {
    let spec = ValueSpec {
        shape: vec![2, 3],
        fraction_bits: 0,
        low: 0,
        high: 1,
    };
    let groups = garbled::groups(None, &spec).expect("nothing is pooled");
    let [group] = groups.as_slice() else {
        panic!("there is one group")
    };
    assert_eq!(group.pool, 1);
    assert_eq!(group.elements, [0, 1, 2, 3, 4, 5]);
    assert_eq!(group.sources, group.elements);
}

#[test]
fn windows_without_values_or_with_too_many_have_no_groups() {
    let window = |kernel: usize, padding: usize| Window {
        kernel: [kernel; 2],
        stride: [1; 2],
        dilation: [1; 2],
        padding: [padding; 4],
    };
    let spec = |shape: &[usize]| ValueSpec {
        shape: shape.to_vec(),
        fraction_bits: 0,
        low: 0,
        high: 1,
    };
    assert!(garbled::groups(Some(&window(2, 2)), &spec(&[1, 4, 4])).is_none());
    assert!(garbled::groups(Some(&window(2, 0)), &spec(&[16])).is_none());
    let side = MAX_WINDOW.isqrt();
    let whole = |side: usize| garbled::groups(Some(&window(side, 0)), &spec(&[1, side, side]));
    assert_eq!(whole(side).map(|groups| groups[0].pool), Some(MAX_WINDOW));
    assert!(whole(side + 1).is_none());
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
            let held = held(&plan);
            for (index, step) in plan.steps.iter().enumerate() {
                let is_garbled = match &step.kind {
                    StepKind::Activation(activation) => activation.protocol == Protocol::Garbled,
                    StepKind::Open => garbled::opens(&held[step.inputs[0]]),
                    _ => false,
                };
                if !is_garbled {
                    continue;
                }
                let circuits = garbled::circuits(&plan, index, &held).expect("it has circuits");
                let mut elements: Vec<usize> = Vec::new();
                for (group, circuit) in &circuits {
                    elements.extend(&group.elements);
                    assert_eq!(group.sources.len(), group.pool * group.elements.len());
                    assert!(circuit.table_bytes(1) > 0);
                }
                elements.sort_unstable();
                assert_eq!(elements, (0..step.value.len()).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn other_steps_have_no_circuits() {
    let plan = shared(&around(Middle::Square), Engine::Coefficient, None).plan;
    let held = held(&plan);
    for (index, step) in plan.steps.iter().enumerate() {
        let is_other = match &step.kind {
            StepKind::Activation(activation) => activation.protocol == Protocol::Product,
            StepKind::Open => false,
            _ => true,
        };
        assert_eq!(
            garbled::circuits(&plan, index, &held).is_err(),
            is_other,
            "{}",
            step.name
        );
    }
}
