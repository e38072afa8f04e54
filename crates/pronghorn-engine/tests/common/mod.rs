//! What tests of whole runs share.

use std::collections::BTreeMap;

use pronghorn_engine::{ClientRun, EngineError, Machine, ServerRun, Want};
use pronghorn_graph::graph::Tensor;

/// Small deterministic numbers in (-1, 1).
pub fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Such numbers as tensors.
pub fn tensors(shapes: &[(&str, &[usize])], seed: u64) -> BTreeMap<String, Tensor> {
    let make = |(index, (name, shape)): (usize, &(&str, &[usize]))| {
        let data = numbers(shape.iter().product(), seed + index as u64);
        (
            (*name).to_owned(),
            Tensor {
                shape: shape.to_vec(),
                data,
            },
        )
    };
    shapes.iter().enumerate().map(make).collect()
}

/// Drives both machines against each other until both are done.
pub fn exchange(client: &mut ClientRun, server: &mut ServerRun) -> Result<(), EngineError> {
    let mut message = Vec::new();
    loop {
        message.clear();
        match (client.want(), server.want()) {
            (Want::Send, Want::Receive) => {
                client.send(&mut message)?;
                assert!(message.len() <= server.max_incoming());
                server.receive(&message)?;
            }
            (Want::Receive, Want::Send) => {
                server.send(&mut message)?;
                assert!(message.len() <= client.max_incoming());
                client.receive(&message)?;
            }
            (Want::Done, Want::Done) => return Ok(()),
            (client, server) => panic!("stuck: client wants {client:?}, server wants {server:?}"),
        }
    }
}
