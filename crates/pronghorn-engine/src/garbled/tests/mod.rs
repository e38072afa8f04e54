//! Both machines in one process, against what they should compute.

mod garbled;
mod hostile;
mod ideal;
mod open;
mod prepared;
mod product;
mod setup;

use std::sync::{Arc, LazyLock};

use pronghorn_mpc::{
    circuit::{Activation, Modulus},
    ot::{BaseOt, OtParameters, ReceiverSetup, SenderSetup},
};

use super::{Circuits, Group, Indices, Layout, Output, schedule::Limits};
use crate::{
    error::EngineError,
    exchange::Exchange,
    machine::{Machine, StepMachine, Want},
    ots::{ReceiverOts, SenderOts, SetupClient, SetupServer},
    share::{Batch, Share},
};

/// A generator for tests (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A value in a range: often one of its ends, or near zero.
    pub fn value(&mut self, low: i64, high: i64) -> i64 {
        match self.next() % 16 {
            0 => low,
            1 => high,
            2 => 0i64.clamp(low, high),
            3 => 1i64.clamp(low, high),
            4 => (-1i64).clamp(low, high),
            _ => low + (self.next() % (high - low + 1) as u64) as i64,
        }
    }

    /// Values of a batch.
    pub fn values(&mut self, count: usize, low: i64, high: i64) -> Vec<i64> {
        (0..count).map(|_| self.value(low, high)).collect()
    }

    /// Shares modulo `2^bits`, the client's and the server's; the bits above are anything.
    pub fn shares(&mut self, values: &[i64], images: usize, bits: u32) -> [Share; 2] {
        let elements = values.len() / images;
        let (mut client, mut server) = (
            Batch::zeros(elements, images),
            Batch::zeros(elements, images),
        );
        let words = client.words_mut().iter_mut().zip(server.words_mut());
        for ((client, server), &value) in words.zip(values) {
            *server = match self.next() % 8 {
                0 => 0,
                1 => i32::MIN >> (32 - bits),
                2 => i32::MAX >> (32 - bits),
                _ => self.next() as i32,
            };
            let above = (self.next() as u32).checked_shl(bits).unwrap_or(0);
            *client = (value as i32)
                .wrapping_sub(*server)
                .wrapping_add(above as i32);
        }
        [Share::Words(client), Share::Words(server)]
    }
}

/// What shares modulo `2^bits` are shares of, centred.
pub fn opened(client: &Share, server: &Share, bits: u32) -> Vec<i64> {
    let Share::Words(client) = client else {
        panic!("the client has a share");
    };
    let unused = 32 - bits;
    let server = match server {
        Share::Words(server) => server.words().to_vec(),
        Share::Zero => vec![0; client.words().len()],
    };
    let sum = client
        .words()
        .iter()
        .zip(server)
        .map(|(client, server)| client.wrapping_add(server) << unused >> unused);
    sum.map(i64::from).collect()
}

/// Bytes and messages of each party.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub up: usize,
    pub down: usize,
    pub messages: usize,
    /// Times that the turn passed from one party to the other.
    pub turns: usize,
}

/// Runs both to the end. Exactly one of them sends at a time, and the bounds of what is received
/// are exact.
pub fn run<'a>(
    client: &'a mut (dyn Machine<Error = EngineError> + 'a),
    server: &'a mut (dyn Machine<Error = EngineError> + 'a),
) -> Result<Traffic, EngineError> {
    let (mut traffic, mut message, mut last) = (Traffic::default(), Vec::new(), None);
    let mut done = [client.progress().done, server.progress().done];
    loop {
        let up = match [client.want(), server.want()] {
            [Want::Send, Want::Receive] => true,
            [Want::Receive, Want::Send] => false,
            [Want::Done, Want::Done] => break,
            wants => panic!("{wants:?}"),
        };
        let (from, to): (
            &mut dyn Machine<Error = EngineError>,
            &mut dyn Machine<Error = EngineError>,
        ) = match up {
            true => (&mut *client, &mut *server),
            false => (&mut *server, &mut *client),
        };
        assert_eq!(from.max_incoming(), 0);
        message.clear();
        from.send(&mut message)?;
        assert_eq!(to.max_incoming(), message.len());
        to.receive(&message)?;
        *(if up {
            &mut traffic.up
        } else {
            &mut traffic.down
        }) += message.len();
        traffic.messages += 1;
        traffic.turns += usize::from(last.replace(up).is_some_and(|last| last != up));
        let now = [client.progress().done, server.progress().done];
        assert!(now[0] >= done[0] && now[1] >= done[1]);
        done = now;
    }
    for machine in [client, server] {
        assert_eq!(machine.progress().done, machine.progress().total);
        assert_eq!(machine.max_incoming(), 0);
        assert!(matches!(
            machine.send(&mut message),
            Err(EngineError::OutOfTurn { .. })
        ));
        assert!(matches!(
            machine.receive(&message),
            Err(EngineError::OutOfTurn { .. })
        ));
    }
    Ok(traffic)
}

/// Runs a step and leaves both shares.
pub fn step(
    mut client: impl StepMachine,
    mut server: impl StepMachine,
) -> Result<([Share; 2], Traffic), EngineError> {
    let traffic = run(&mut client, &mut server)?;
    let (client, server) = (Box::new(client).into_made()?, Box::new(server).into_made()?);
    assert!(server.doubt.is_none(), "the server decrypts nothing");
    match client.doubt {
        Some(doubt) => Err(doubt),
        None => Ok(([client.share, server.share], traffic)),
    }
}

/// OTs of a new connection, of set-ups that all tests share.
pub fn connection() -> (ReceiverOts, SenderOts) {
    static SETUPS: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| {
        let (client, server) = (ReceiverOts::default(), SenderOts::default());
        let parameters = OtParameters::new(BaseOt::Ristretto, 5).unwrap();
        run(
            &mut SetupClient::new(parameters, client.clone()),
            &mut SetupServer::new(parameters, server.clone()),
        )
        .unwrap();
        let (client, server) = (client.setup().unwrap(), server.setup().unwrap());
        [client.to_bytes(), server.to_bytes()].map(|bytes| bytes.to_vec())
    });
    // A copy each: a test that fails a check ends its own.
    let client_setup = Arc::new(ReceiverSetup::from_bytes(&SETUPS[0]).unwrap());
    let server_setup = Arc::new(SenderSetup::from_bytes(&SETUPS[1]).unwrap());
    let (client, server) = (ReceiverOts::default(), SenderOts::default());
    run(
        &mut SetupClient::resume(client_setup, client.clone()),
        &mut SetupServer::resume(server_setup, server.clone()),
    )
    .unwrap();
    (client, server)
}

/// Chunks of a few pieces, windows of a few chunks.
pub(super) const SMALL: Limits = Limits {
    piece: 1 << 13,
    tables: 60_000,
    labels: 40_000,
    window: 100_000,
    flips: 250,
    words: 100,
};

/// An activation on windows, with its ranges and moduli.
#[derive(Clone, Copy)]
pub struct Function {
    pub activation: Activation<'static>,
    pub bits: u32,
    pub low: i64,
    pub high: i64,
    pub output_bits: u32,
    pub offset: i64,
}

impl Function {
    pub const RELU: Self = Self {
        activation: Activation::RELU,
        bits: 20,
        low: -(1 << 19),
        high: (1 << 19) - 1,
        output_bits: 20,
        offset: 0,
    };

    fn group(&self, pool: usize, windows: &[&Vec<usize>], elements: Vec<usize>) -> Group {
        let modulus = |bits| Modulus::power_of_two(bits).unwrap();
        let activation = Activation {
            pool,
            ..self.activation
        };
        let circuit = activation.circuit(
            modulus(self.bits),
            self.low,
            self.high,
            modulus(self.output_bits),
        );
        Group {
            circuit: Arc::new(circuit.unwrap()),
            elements: elements.into_iter().collect(),
            sources: windows.iter().copied().flatten().copied().collect(),
        }
    }

    /// The layout for the windows of each output element.
    pub fn layout(&self, windows: &[Vec<usize>], inputs: usize, images: usize) -> Layout {
        let mut sizes: Vec<usize> = windows.iter().map(Vec::len).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let groups = sizes.into_iter().map(|size| {
            let elements: Vec<usize> = (0..windows.len())
                .filter(|&element| windows[element].len() == size)
                .collect();
            let windows: Vec<&Vec<usize>> = elements.iter().map(|&each| &windows[each]).collect();
            self.group(size, &windows, elements)
        });
        Layout {
            step: "activation".to_owned(),
            inputs,
            outputs: windows.len(),
            images,
            circuits: Arc::new(Circuits {
                groups: groups.collect(),
                offset: self.offset,
                output: Output::Shares,
            }),
        }
    }
}

/// Each element alone.
pub fn single(elements: usize) -> Vec<Vec<usize>> {
    (0..elements).map(|element| vec![element]).collect()
}

/// The windows of a pool of `side * side` with stride 2 on an image of `size * size`, padded by
/// one: fewer values at borders.
pub fn pooled(size: usize, side: usize) -> Vec<Vec<usize>> {
    let out = size.div_ceil(2);
    let span = |at: usize| (2 * at).saturating_sub(1)..(2 * at + side - 1).min(size);
    let window = |at: usize| {
        let rows = span(at / out);
        rows.flat_map(|row| span(at % out).map(move |column| row * size + column))
            .collect()
    };
    (0..out * out).map(window).collect()
}

#[test]
fn tables_list_the_messages() {
    use crate::exchange::tests::{assert_table, names};
    let ots = connection();
    let parameters = OtParameters::default();
    let setup = SetupClient::new(parameters, ReceiverOts::default());
    assert_table(include_str!("../../ots/setup.rs"), names(setup.messages()));
    let layout = Arc::new(Function::RELU.layout(&single(5), 5, 1));
    let garbled = super::GarbledClient::new(layout.clone(), Share::Zero, ots.0.clone()).unwrap();
    assert_table(include_str!("../mod.rs"), names(garbled.messages()));
    let opened = super::OpenServer::new(open::result(4, 2, 9), Share::Zero).unwrap();
    assert_table(include_str!("../open.rs"), names(opened.messages()));
    let squares = product::layout(3, 1, 9);
    let square = super::ProductClient::new(squares.clone(), Share::Zero, ots.0.clone()).unwrap();
    assert_table(include_str!("../product.rs"), names(square.messages()));
    let (_, prepared) = prepared::squares_ahead(&squares, &ots);
    let online = super::OnlineProductServer::new(prepared);
    assert_table(
        include_str!("../product_ahead.rs"),
        names(online.messages()),
    );
    let ((_, prepared), _) = prepared::prepare(&layout, &Share::Zero, &ots, &SMALL);
    let online = super::OnlineServer::new(prepared);
    assert_table(include_str!("../online.rs"), names(online.messages()));
}

/// Compiles where secrets wipe themselves.
#[test]
fn secrets_are_wiped() {
    const fn wiped<T: zeroize::ZeroizeOnDrop>() {}
    wiped::<pronghorn_mpc::ot::CotSender>();
    wiped::<pronghorn_mpc::ot::CotReceiver>();
    wiped::<SenderSetup>();
    wiped::<ReceiverSetup>();
    wiped::<super::PreparedClient>();
    wiped::<super::PreparedServer>();
    wiped::<super::PreparedProductClient>();
    wiped::<super::PreparedProductServer>();
}
