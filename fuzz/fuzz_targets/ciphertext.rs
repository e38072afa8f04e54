//! Both parties' machines on hostile messages: an honest run in which some messages are changed or
//! replaced.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use pronghorn_engine::{ClientRun, EngineError, Machine, ServerModel, ServerRun, Want};
use pronghorn_fuzz::{Splice, edited, finish, small};

static MODEL: LazyLock<ServerModel> =
    LazyLock::new(|| ServerModel::new(&small()).expect("weights fit the plan"));

#[derive(Arbitrary, Debug)]
struct Input {
    batch: u8,
    /// One for each message in turn; honest once they are used up.
    changes: Vec<Change>,
}

#[derive(Arbitrary, Debug)]
enum Change {
    None,
    Edit(Vec<Splice>),
    Flip { at: u16, mask: u8 },
    Fill(u8),
    Replace(Vec<u8>),
}

fuzz_target!(|input: Input| {
    let batch = usize::from(input.batch % 4) + 1;
    let plan = MODEL.plan().clone();
    let inputs = vec![0.5; batch * plan.input_len()];
    let mut client = ClientRun::new(plan, &inputs, batch).expect("the inputs fit");
    let mut server = ServerRun::new(&MODEL, batch).expect("the batch fits");
    let honest = input
        .changes
        .iter()
        .all(|change| matches!(change, Change::None));
    let result = exchange(&mut client, &mut server, input.changes);
    assert!(result.is_ok() || !honest);
    if result.is_ok() {
        finish(client, honest);
    }
});

fn exchange(
    client: &mut ClientRun,
    server: &mut ServerRun,
    changes: Vec<Change>,
) -> Result<(), EngineError> {
    let mut changes = changes.into_iter();
    let mut message = Vec::new();
    loop {
        message.clear();
        match (client.want(), server.want()) {
            (Want::Send, Want::Receive) => {
                client.send(&mut message)?;
                server.receive(&changed(&message, changes.next()))?;
            }
            (Want::Receive, Want::Send) => {
                server.send(&mut message)?;
                client.receive(&changed(&message, changes.next()))?;
            }
            (Want::Done, Want::Done) => return Ok(()),
            (client, server) => panic!("client wants {client:?}, server wants {server:?}"),
        }
    }
}

fn changed(message: &[u8], change: Option<Change>) -> Vec<u8> {
    let mut message = message.to_vec();
    match change {
        None | Some(Change::None) => {}
        Some(Change::Edit(splices)) => return edited(message, &splices),
        Some(Change::Flip { at, mask }) => {
            let at = usize::from(at) % message.len();
            message[at] ^= mask;
        }
        Some(Change::Fill(byte)) => message.fill(byte),
        Some(Change::Replace(bytes)) => return bytes,
    }
    message
}
