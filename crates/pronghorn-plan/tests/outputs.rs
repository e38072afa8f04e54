//! Outputs whose spreads differ by many powers of two: scales of their own, which clients take back.

use crate::common::{
    networks::{clipped, dense, numbers, options},
    refusal,
};
use pronghorn_graph::{finish::Finish, float, graph::Graph, oracle};
use pronghorn_plan::{BuildOptions, Built, NamedOutput, Plan, TrustLevel, build};

/// Factors of the outputs.
const SIZES: [f32; 4] = [1.0, 2e5, 3e-4, 40.0];

/// A network with outputs of these sizes.
fn heads(sizes: [f32; 4]) -> Graph {
    let mut graph = clipped(1.0);
    for (name, row) in [("last.w", 4), ("last.b", 1)] {
        let tensor = graph.tensors.get_mut(name).expect("it has weights");
        let rows = tensor.data_mut().chunks_mut(row).zip(sizes);
        rows.for_each(|(row, size)| row.iter_mut().for_each(|weight| *weight *= size));
    }
    graph
}

fn planned(graph: &Graph, trust: TrustLevel) -> Built {
    let options = BuildOptions {
        samples: Some(numbers(6 * 64, 3)),
        ..options(trust)
    };
    build(graph, &options).expect("there is a plan")
}

/// Each output on other inputs is as precise as the plan says of all.
#[test]
fn small_outputs_keep_their_precision() {
    let graph = heads(SIZES);
    let (inputs, rows) = (numbers(6 * 200, 9), 200);
    let wanted = float::evaluate(&graph, &inputs, rows).expect("whole rows");
    for trust in [TrustLevel::TwoParty, TrustLevel::ClientAided] {
        let built = planned(&graph, trust);
        let [Finish::Scale { exponents }] = built.plan.finish.as_slice() else {
            panic!("{trust}: one scale");
        };
        assert!(exponents[1] == 0 && exponents[2] < -24, "{exponents:?}");
        let (integers, _) = built.plan.quantise(&inputs).expect("numbers");
        let integers = built.oracle(&integers, rows).expect("whole rows");
        let found = oracle::finish(&built.plan.finish, built.plan.result(), &integers, rows);
        for output in 0..4 {
            let of = |values: &[f32]| {
                let values = values[output..].iter().step_by(4);
                values.map(|&x| f64::from(x)).collect::<Vec<f64>>()
            };
            let (found, wanted) = (of(&found), of(&wanted));
            let mean = wanted.iter().sum::<f64>() / rows as f64;
            let spread: f64 = wanted.iter().map(|w| (w - mean).powi(2)).sum();
            let off: f64 = found
                .iter()
                .zip(&wanted)
                .map(|(f, w)| (f - w).powi(2))
                .sum();
            let error = (off / spread).sqrt();
            assert!(error < 0.04, "{trust}, output {output}: {error}");
            // The stated error is in the output's unit.
            let stated = built.fidelity.outputs[output].rmse / (off / rows as f64).sqrt();
            assert!(
                (0.3..3.0).contains(&stated),
                "{trust}, output {output}: {stated}"
            );
        }
        assert!(built.warnings().is_empty(), "{:?}", built.warnings());
    }
}

/// An output with a name that is next to nothing on all samples takes none of the others' precision,
/// and keeps its own.
#[test]
fn a_small_constant_output_hides_no_other() {
    for constant in [1e-4, 0.5, 1e6] {
        let mut graph = heads([1.0, 2e5, 3e-4, 1.0]);
        for (name, row, value) in [("last.w", 4, 0.0), ("last.b", 1, constant)] {
            let tensor = graph.tensors.get_mut(name).expect("it has weights");
            tensor.data_mut()[3 * row..4 * row].fill(value);
        }
        let outputs = ["a", "b", "c", "d"].map(|name| NamedOutput {
            name: name.into(),
            shape: vec![1],
        });
        for trust in [TrustLevel::TwoParty, TrustLevel::ClientAided] {
            let options = BuildOptions {
                samples: Some(numbers(6 * 64, 3)),
                outputs: outputs.to_vec(),
                ..options(trust)
            };
            let built = build(&graph, &options).expect("there is a plan");
            let errors = built.fidelity.outputs.iter().map(|output| output.error);
            let most = errors.fold(0.0, f64::max);
            let aim = built.fidelity.aim;
            assert!(most < 1.5 * aim, "{trust}, {constant}: {most} of {aim}");
            assert!(built.warnings().is_empty(), "{:?}", built.warnings());
        }
    }
}

#[test]
fn plans_with_scales_travel() {
    let plan = planned(&heads(SIZES), TrustLevel::TwoParty).plan;
    assert_eq!(refusal(&plan), None);
    let read = Plan::from_bytes(&plan.to_bytes()).expect("it is valid");
    assert_eq!(read, plan);
    assert_eq!(
        plan.client_learns(),
        planned(&heads([1.0; 4]), TrustLevel::TwoParty)
            .plan
            .client_learns()
    );
    // One exponent too few goes with no result.
    let mut broken = plan.plan().clone();
    broken.finish = vec![Finish::Scale {
        exponents: vec![0; 3],
    }];
    let error = Plan::from_bytes(&broken.to_bytes()).expect_err("it is refused");
    assert!(error.to_string().contains("finish"), "{error}");
}

#[test]
fn outputs_that_are_alike_share_one_scale() {
    let alike = planned(&heads([1.0, 2.0, 0.5, 1.0]), TrustLevel::TwoParty);
    assert!(alike.plan.finish.is_empty());
    // Ciphertexts have a scale of their own making.
    let encrypted = BuildOptions {
        samples: Some(numbers(6 * 64, 3)),
        ..options(TrustLevel::Encrypted)
    };
    let squares = dense(Some("square"));
    let built = build(&squares, &encrypted).expect("a plan");
    assert!(built.plan.finish.is_empty());
}

/// An output that differs on few samples has the scale of these.
#[test]
fn rare_events_count_in_spreads() {
    let mut graph = dense(None);
    // The second output is the last feature, which is far from 0 in four of a hundred rows alone.
    let weights = graph.tensors.get_mut("dense.w").expect("it has weights");
    weights.data_mut()[6..12].copy_from_slice(&[0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    let mut samples = numbers(6 * 400, 3);
    for (row, values) in samples.chunks_mut(6).enumerate() {
        values[5] = if row % 25 == RARE {
            5.0
        } else {
            1e-3 * values[5]
        };
    }
    let options = BuildOptions {
        samples: Some(samples),
        ..options(TrustLevel::ClientAided)
    };
    let built = build(&graph, &options).expect("there is a plan");
    assert!(built.plan.finish.is_empty(), "{:?}", built.plan.finish);
}

/// A row that 16 samples drawn from 400 leave out.
const RARE: usize = 8;
