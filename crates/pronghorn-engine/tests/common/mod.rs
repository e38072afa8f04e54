//! What tests of whole runs share.

#[path = "../../../pronghorn-plan/tests/common/networks.rs"]
pub mod networks;
pub mod transcript;

use std::sync::Arc;

use pronghorn_engine::{
    ClientRun, EngineError, Machine, ServerModel, ServerRun, Want, dither::Addends,
};
use pronghorn_plan::Built;

pub use networks::{network, numbers, tensors};

/// Drives both machines against each other until both are done; how many messages that took.
pub fn exchange(
    client: &mut dyn Machine<Error = EngineError>,
    server: &mut dyn Machine<Error = EngineError>,
) -> Result<usize, EngineError> {
    exchange_with(client, server, |_, _| {})
}

/// The same, with `on_the_way` given the number of each message and the message, which it may
/// change.
pub fn exchange_with(
    client: &mut dyn Machine<Error = EngineError>,
    server: &mut dyn Machine<Error = EngineError>,
    mut on_the_way: impl FnMut(usize, &mut Vec<u8>),
) -> Result<usize, EngineError> {
    // What a buffer has shows in no message.
    let mut message = vec![0; 1 << 20];
    for count in 0.. {
        message.fill(0xaa);
        let (from, to): (
            &mut dyn Machine<Error = EngineError>,
            &mut dyn Machine<Error = EngineError>,
        ) = match (client.want(), server.want()) {
            (Want::Send, Want::Receive) => (client, server),
            (Want::Receive, Want::Send) => (server, client),
            (Want::Done, Want::Done) => return Ok(count),
            (client, server) => panic!("stuck: client wants {client:?}, server wants {server:?}"),
        };
        from.send(&mut message)?;
        assert!(message.len() <= to.max_incoming());
        on_the_way(count, &mut message);
        to.receive(&message)?;
    }
    unreachable!("messages do not run out")
}

/// A whole run in process: its result, and the addends of what it rounds by a dither.
pub fn run(model: &Arc<ServerModel>, inputs: &[f32], batch: usize) -> (Vec<i32>, Addends) {
    let plan = model.plan();
    let mut client = ClientRun::new(plan.clone(), inputs, batch).expect("inputs fit the plan");
    let mut server = ServerRun::new(model, batch).expect("the batch fits");
    client.keep_rounded();
    server.keep_rounded();
    exchange(&mut client, &mut server).expect("an honest run succeeds");
    let progress = client.progress();
    assert_eq!(progress.done, progress.total);
    let addends = Addends::of(plan, &mut client, &mut server);
    (client.finish_integers().expect("the run is over"), addends)
}

/// A whole run in process equals the oracle, bit for bit.
pub fn check(built: &Built, inputs: &[f32], batch: usize) {
    let model = Arc::new(ServerModel::new(built).expect("weights fit the plan"));
    let (found, addends) = run(&model, inputs, batch);
    let (integers, _) = built.plan.quantise(inputs).expect("inputs are numbers");
    let wanted = built
        .oracle_of_run(&integers, batch, &addends)
        .expect("values stay in their ranges");
    assert_eq!(found, wanted);
}
