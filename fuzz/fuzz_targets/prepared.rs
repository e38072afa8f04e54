//! Files of prepared batches, and halves that somebody changed in files whose hashes are good: an error, or a half that is written as it
//! was read.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use pronghorn_engine::{
    ClientKeys, ClientPreparation, ClientPrepared, Machine, ServerKeys, ServerModel,
    ServerPreparation, ServerPrepared, Want,
};
use pronghorn_fuzz::{Splice, edited, shared};
use pronghorn_plan::Plan;
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
    plan: Plan,
    setup: [u8; 32],
    client: Vec<u8>,
    server: Vec<u8>,
}

static GOOD: LazyLock<Good> = LazyLock::new(|| {
    let model = ServerModel::new(&shared()).expect("weights fit the plan");
    let (ours, theirs) = (ClientKeys::default(), ServerKeys::default());
    let mut client =
        ClientPreparation::new(model.plan().clone(), BATCH, &ours).expect("the batch fits");
    let mut server = ServerPreparation::new(&model, BATCH, &theirs).expect("the batch fits");
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
        plan: model.plan().as_ref().clone(),
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
fn read<H: Half>(batch: usize, bytes: &[u8]) {
    if let Ok(half) = H::read(&GOOD.plan, batch, GOOD.setup, bytes) {
        assert_eq!(half.batch(), batch);
        assert_eq!(bytes_of(&half), bytes);
    }
}

fuzz_target!(|input: Input| match input {
    Input::File(bytes) => {
        let _ = file::Header::from_bytes(&bytes);
        if let Ok((header, half)) = file::read(&bytes) {
            assert_eq!(header.to_bytes().len() + half.len() + 32, bytes.len());
        }
        read::<ClientPrepared>(BATCH, &bytes);
        read::<ServerPrepared>(BATCH, &bytes);
    }
    Input::Edited {
        client,
        batch,
        splices,
    } => {
        let good = if client { &GOOD.client } else { &GOOD.server };
        let bytes = edited(good.clone(), &splices);
        let batch = usize::from(batch % 4);
        read::<ClientPrepared>(batch, &bytes);
        read::<ServerPrepared>(batch, &bytes);
        let same = bytes == *good && batch == BATCH;
        if same && client {
            assert!(<ClientPrepared as Half>::read(&GOOD.plan, batch, GOOD.setup, &bytes).is_ok());
        }
    }
});
