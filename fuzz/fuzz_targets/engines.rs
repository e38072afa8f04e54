//! Whole runs of small networks in the coefficient and the slot engine, of ones with products, and
//! of lean steps by both kinds of OTs,
//! one message of which a hostile peer has changed: an error, or a run that goes on.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use pronghorn_engine::{ClientRun, EngineError, Machine, ServerModel, ServerRun, Want};
use pronghorn_fuzz::{Splice, attention, class, edited, gated, lean, small_in};
use pronghorn_plan::{Built, Engine, steps::activation::lean::Transfers};

/// Messages of a run, at most.
const MESSAGES: usize = 256;

static MODELS: LazyLock<[ServerModel; 7]> = LazyLock::new(|| {
    let [coefficients, slots] = [Engine::Coefficient, Engine::Slot].map(small_in);
    let [bits, silent] = [Transfers::Extension, Transfers::Silent].map(lean);
    let built = [coefficients, slots, gated(), bits, silent, class(), attention()];
    built.map(model)
});

static INPUT: [f32; 2] = [0.1, 0.9];

fn model(built: Built) -> ServerModel {
    ServerModel::new(&built).expect("weights fit the plan")
}

#[derive(Arbitrary, Debug)]
struct Input {
    model: u8,
    message: u8,
    splices: Vec<Splice>,
}

fuzz_target!(|input: Input| {
    let model = &MODELS[usize::from(input.model) % MODELS.len()];
    let mut client = ClientRun::new(model.plan().clone(), &INPUT, 1).expect("an image");
    let mut server = ServerRun::new(model, 1).expect("a batch");
    let mut message = Vec::new();
    for count in 0..MESSAGES {
        message.clear();
        let (from, to): (
            &mut dyn Machine<Error = EngineError>,
            &mut dyn Machine<Error = EngineError>,
        ) = match (client.want(), server.want()) {
            (Want::Send, Want::Receive) => (&mut client, &mut server),
            (Want::Receive, Want::Send) => (&mut server, &mut client),
            // The change has put the parties out of step.
            _ => return,
        };
        if from.send(&mut message).is_err() {
            return;
        }
        if count == usize::from(input.message) {
            message = edited(std::mem::take(&mut message), &input.splices);
        }
        // What is longer the session does not read.
        if message.len() > to.max_incoming() || to.receive(&message).is_err() {
            return;
        }
    }
});
