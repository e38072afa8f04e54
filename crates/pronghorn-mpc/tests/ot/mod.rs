//! Oblivious transfer: every protocol against what it should compute, resumption, hostile peers.

mod base;
mod extension;
mod setup;
mod transfer;

use pronghorn_mpc::machine::Machine;
use pronghorn_mpc::ot::{
    BaseOt, CotReceiver, CotSender, OtError, OtParameters, ReceiverSetup, SenderSetup,
    SetupReceiver, SetupSender,
};
use pronghorn_ring::random::{Prg, Seed, Stream};

fn stream(index: u64) -> Stream {
    Prg::new(&Seed::from_bytes([5; 32]), "pronghorn test").stream(index)
}

fn random_bytes(index: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream(index).fill(&mut bytes);
    bytes
}

fn choice(choices: &[u8], j: usize) -> bool {
    choices[j / 8] >> (j % 8) & 1 == 1
}

fn parameters(width: u8) -> OtParameters {
    OtParameters::new(BaseOt::Ristretto, width).unwrap()
}

/// One message there and one back.
fn exchange<M: Machine<Error = OtError>, N: Machine<Error = OtError>>(
    first: &mut M,
    second: &mut N,
) {
    let (mut there, mut back) = (Vec::new(), Vec::new());
    first.send(&mut there).unwrap();
    assert_eq!(there.len(), second.max_incoming());
    second.receive(&there).unwrap();
    second.send(&mut back).unwrap();
    assert_eq!(back.len(), first.max_incoming());
    first.receive(&back).unwrap();
}

fn set_up(parameters: OtParameters) -> (SenderSetup, ReceiverSetup) {
    let session = [7; 32];
    let mut sender = SetupSender::new(parameters, session, &Seed::from_bytes([1; 32]));
    let mut receiver = SetupReceiver::new(parameters, session, &Seed::from_bytes([2; 32]));
    exchange(&mut sender, &mut receiver);
    (sender.into_setup().unwrap(), receiver.into_setup().unwrap())
}

fn connect(sender: &SenderSetup, receiver: &ReceiverSetup) -> (CotSender, CotReceiver) {
    let mut sender = sender.connect().unwrap();
    let mut receiver = receiver.connect().unwrap();
    exchange(&mut sender, &mut receiver);
    (
        sender.into_sender().unwrap(),
        receiver.into_receiver().unwrap(),
    )
}

fn pair(width: u8) -> (CotSender, CotReceiver) {
    let (sender, receiver) = set_up(parameters(width));
    connect(&sender, &receiver)
}
