//! Files of prepared batches, and halves that somebody changed in files whose hashes are good: an
//! error, or a half that is written as it was read.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use pronghorn_engine::{
    ClientModel, ClientPreparation, ClientPrepared, Connection, EngineError, Machine, ServerModel,
    ServerPreparation, ServerPrepared, Want,
};
use pronghorn_fuzz::{Splice, edited, gated};
use pronghorn_session::store::{Half, file};

const BATCH: usize = 2;

#[derive(Arbitrary, Debug)]
enum Input {
    /// A whole file.
    File(Vec<u8>),
    /// A half whose file is sound.
    Edited {
        client: bool,
        batch: u8,
        splices: Vec<Splice>,
    },
}

struct Good {
    client_model: Arc<ClientModel>,
    server_model: ServerModel,
    setup: [u8; 32],
    client: Vec<u8>,
    server: Vec<u8>,
}

static GOOD: LazyLock<Good> = LazyLock::new(|| {
    let server_model = ServerModel::new(&gated()).expect("weights fit the plan");
    let client_model = ClientModel::new(server_model.plan().clone()).expect("it can be followed");
    let client_model = Arc::new(client_model);
    let (ours, theirs) = (Connection::default(), Connection::default());
    let mut client = ClientPreparation::new(&client_model, BATCH, &ours).expect("the batch fits");
    let mut server = ServerPreparation::new(&server_model, BATCH, &theirs).expect("the batch fits");
    while client.want() != Want::Done {
        let mut message = Vec::new();
        if client.want() == Want::Send {
            client.send(&mut message).expect("it is its turn");
            server.receive(&message).expect("it is honest");
        } else {
            server.send(&mut message).expect("it is its turn");
            client.receive(&message).expect("it is honest");
        }
    }
    let client = client.into_prepared().expect("it is over");
    let server = server.into_prepared().expect("it is over");
    Good {
        client_model,
        server_model,
        setup: client.setup(),
        client: bytes_of(&client),
        server: bytes_of(&server),
    }
});

fn bytes_of(half: &impl Half) -> Vec<u8> {
    let mut bytes = Vec::new();
    half.write(&mut |part| {
        bytes.extend_from_slice(part);
        Ok(())
    })
    .expect("there is room");
    bytes
}

/// Whatever is read is written again as it was.
fn check<H: Half>(half: Result<H, EngineError>, batch: usize, bytes: &[u8]) -> bool {
    let Ok(half) = half else { return false };
    assert_eq!(half.batch(), batch);
    assert_eq!(bytes_of(&half), bytes);
    true
}

/// Reads bytes as either party's half; whether each is one.
fn read(batch: usize, bytes: &[u8]) -> [bool; 2] {
    let client = ClientPrepared::from_bytes(&GOOD.client_model, batch, GOOD.setup, bytes);
    let server = ServerPrepared::from_bytes(&GOOD.server_model, batch, GOOD.setup, bytes);
    [check(client, batch, bytes), check(server, batch, bytes)]
}

fuzz_target!(|input: Input| match input {
    Input::File(bytes) => {
        let _ = file::Header::from_bytes(&bytes);
        if let Ok((header, half)) = file::read(&bytes) {
            assert_eq!(header.to_bytes().len() + half.len() + 32, bytes.len());
        }
        read(BATCH, &bytes);
    }
    Input::Edited {
        client,
        batch,
        splices,
    } => {
        let good = if client { &GOOD.client } else { &GOOD.server };
        let bytes = edited(good.clone(), &splices);
        let batch = usize::from(batch % 4);
        let [is_client, _] = read(batch, &bytes);
        let same = bytes == *good && batch == BATCH;
        assert!(is_client || !(same && client));
    }
});
