//! The speed of this machine: short measurements of the kernels that protocols are made of.
//!
//! [`speed`] takes about a second. Planning and running need none of it.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use pronghorn_graph::geometry::{ConvGeometry, Window};
use pronghorn_he::{RlweRing, SecretKey, rlwe};
use pronghorn_mpc::{
    Block,
    circuit::{Builder, Circuit},
    garble::{Delta, Evaluator, Garbler},
    machine::Want as MpcWant,
    ot::{CotReceiver, CotSender, OtError, OtParameters, extension::MOST_OF_BATCH},
};
use pronghorn_plan::cost::{Speed, rate};
use pronghorn_product::{PackedWeights, Scratch, TILE};
use pronghorn_ring::{Prime, Word, bits, modulus::largest_ntt_prime, random::Seed};
use zeroize::Zeroizing;

use crate::{
    error::EngineError,
    machine::{Machine, Want},
    ots::{ReceiverOts, SenderOts, SetupClient, SetupServer},
};

/// Repetitions of each measurement; the fastest counts.
const ROUNDS: usize = 3;

/// Degree of the ring whose encryption is measured.
const DEGREE: usize = 4096;

/// Bits of the moduli of products and encryption, in 32-bit and in 64-bit words.
const MODULUS_BITS: [u32; 2] = [31, 48];

/// Seconds of kernels as a part of the nominal ones, on a reference core: an EPYC with AVX-512
/// IFMA, on which the steps of CryptoNets took 0.6 to 1.2 times their nominal seconds. The rest is
/// labels, buffers, packing and messages, and is taken to be faster or slower as the kernels are.
const KERNELS: Speed = Speed {
    products: 0.86,
    encryption: 0.18,
    garbling: 0.15,
    transfers: 0.89,
};

/// The speed of one core of this machine.
///
/// # Errors
/// When the system gives no randomness.
pub fn speed() -> Result<Speed, EngineError> {
    let [narrow, wide] = MODULUS_BITS;
    let products = [
        rate::PRODUCT_U32 / products::<u32>(narrow)?,
        rate::PRODUCT_U64 / products::<u64>(wide)?,
    ];
    let encryption = [
        encryption::<u32>(narrow)? / rate::VALUE_U32,
        encryption::<u64>(wide)? / rate::VALUE_U64,
    ];
    let rates = activations(ROUNDS)?;
    let both = |one: f64, other: f64| one.recip() + other.recip();
    let gate = both(rates.garbled, rates.evaluated);
    let transfer = both(rates.sent, rates.received);
    let gate_bytes = 2.0 * Block::BYTES as f64;
    Ok(Speed {
        products: mean(products) / KERNELS.products,
        encryption: mean(encryption) / KERNELS.encryption,
        garbling: gate / (gate_bytes * rate::TABLE_BYTE) / KERNELS.garbling,
        transfers: transfer / rate::TRANSFER / KERNELS.transfers,
    })
}

/// The geometric mean.
fn mean([one, other]: [f64; 2]) -> f64 {
    (one * other).sqrt()
}

/// The least seconds of some runs of `work`, after one to warm up.
fn fastest(mut work: impl FnMut()) -> f64 {
    work();
    let seconds = (0..ROUNDS).map(|_| {
        let mut clock = Duration::ZERO;
        clocked(&mut clock, &mut work);
        clock.as_secs_f64()
    });
    seconds.fold(f64::INFINITY, f64::min)
}

/// Multiply-adds a second of words by weights: a convolution of 32 maps on this thread.
fn products<W: Word>(modulus_bits: u32) -> Result<f64, EngineError> {
    let geometry = ConvGeometry {
        in_channels: 32,
        out_channels: 32,
        input: [8; 2],
        window: Window {
            kernel: [3; 2],
            stride: [1; 2],
            dilation: [1; 2],
            padding: [1; 4],
        },
        groups: 1,
    };
    let weight = |i: i32| (i * 7919 % 63 - 31) as i16;
    let weights: Vec<i16> = (0..32 * 32 * 9).map(weight).collect();
    let packed =
        PackedWeights::new(&geometry, &weights).map_err(|source| EngineError::Weights {
            step: step(),
            source,
        })?;
    let q = prime::<W>(modulus_bits);
    let input: Vec<W> = (0..packed.inputs() * TILE)
        .map(|i| W::from_u64((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % q.value()))
        .collect();
    let mut output = vec![W::default(); packed.outputs() * TILE];
    let mut scratch = Scratch::default();
    let seconds = fastest(|| {
        pronghorn_product::multiply_tile(&packed, &q, &input, None, &mut output, &mut scratch);
        black_box(&mut output);
    });
    Ok(packed.multiply_adds() as f64 * TILE as f64 / seconds)
}

fn prime<W: Word>(bits: u32) -> Prime<W> {
    largest_ntt_prime(bits, DEGREE)
        .and_then(|q| Prime::new(q).ok())
        .expect("such a prime exists")
}

/// Seconds of a value that is encrypted, packed and unpacked. The encryption has an inverse NTT, as
/// a decryption has.
fn encryption<W: Word>(modulus_bits: u32) -> Result<f64, EngineError> {
    const ROWS: u64 = 16;
    let q = prime::<W>(modulus_bits);
    let ring = RlweRing::<W>::new(DEGREE, q.value()).map_err(|source| EngineError::Parameters {
        step: step(),
        source,
    })?;
    let key = SecretKey::generate(&ring, 1, &Seed::from_os()?);
    let generator = rlwe::a_generator(&Seed::from_os()?);
    let messages: Vec<i32> = (0..DEGREE as i32).map(|i| i % 129 - 64).collect();
    let (mut a, mut b) = (vec![W::default(); DEGREE], vec![W::default(); DEGREE]);
    let (mut scratch, mut packed) = (rlwe::Scratch::new(&ring), Vec::new());
    rlwe::expand_a(&generator, 0, ring.modulus(), &mut a);
    let seconds = fastest(|| {
        for row in 0..ROWS {
            packed.clear();
            let fits = key.encrypt_row((row, 0), &a, &messages, 12, &mut scratch, &mut b);
            assert!(fits.is_ok(), "the messages fit");
            bits::pack(&b, modulus_bits, &mut packed);
            let whole = bits::unpack(&packed, modulus_bits, black_box(&mut b));
            assert!(whole.is_ok(), "they were packed so");
        }
    });
    Ok(seconds / (ROWS as usize * DEGREE) as f64)
}

/// Stands for the step in errors.
fn step() -> String {
    "measurement".to_owned()
}

/// What activations are made of, on one core and in memory, a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// AND gates garbled.
    pub garbled: f64,
    /// AND gates evaluated.
    pub evaluated: f64,
    /// OTs at the sender.
    pub sent: f64,
    /// OTs at the receiver.
    pub received: f64,
}

/// AND gates of the circuit whose garbling is measured, one after the other.
const GATES: usize = 10_000;
/// Instances of it.
const INSTANCES: usize = 256;

/// The rates of the message that went fastest.
///
/// # Errors
/// When the system gives no randomness.
pub fn activations(rounds: usize) -> Result<Rates, EngineError> {
    let garble = |source| EngineError::Garble {
        step: step(),
        source,
    };
    let ot = |source| EngineError::Ot {
        step: step(),
        source,
    };
    let mut extensions = extensions(&connection()?).map_err(ot)?;
    let circuit = Arc::new(chain());
    let mut rates = Rates::default();
    for _ in 0..rounds.max(1) {
        garbling(&circuit, &mut rates).map_err(garble)?;
        transfers(&mut extensions, &mut rates).map_err(ot)?;
    }
    Ok(rates)
}

/// The next `x[i]` is `x[i] and not x[i + 1]`, over and over: each needs the last.
fn chain() -> Circuit {
    let mut builder = Builder::new();
    let mut word = builder.evaluator_input(64);
    for gate in 0..GATES {
        let flipped = builder.not(word[(gate + 1) % 64]);
        word[gate % 64] = builder.and(word[gate % 64], flipped);
    }
    builder.output_revealed(&word);
    builder.finish()
}

fn garbling(
    circuit: &Arc<Circuit>,
    rates: &mut Rates,
) -> Result<(), pronghorn_mpc::garble::GarbleError> {
    // Speed depends on no value.
    let labels = Zeroizing::new(vec![Block::ONES; circuit.labelled_bits() * INSTANCES]);
    let (delta, start) = (Delta::new(Block::ONES), Block::ONES);
    let (none, values) = (
        Zeroizing::new(Vec::new()),
        Zeroizing::new(vec![0; INSTANCES]),
    );
    let mut garbler = Garbler::new(
        circuit.clone(),
        INSTANCES,
        &delta,
        start,
        none,
        labels.clone(),
    )?;
    let mut evaluator = Evaluator::new(circuit.clone(), INSTANCES, values, labels)?;
    let bytes_of_gate = 2.0 * Block::BYTES as f64;
    let mut message = Vec::new();
    while garbler.want() == MpcWant::Send {
        message.clear();
        let [mut garbled, mut evaluated] = [Duration::ZERO; 2];
        clocked(&mut garbled, || garbler.send(&mut message))?;
        clocked(&mut evaluated, || evaluator.receive(&message))?;
        let gates = message.len() as f64 / bytes_of_gate;
        rates.garbled = rates.garbled.max(gates / garbled.as_secs_f64());
        rates.evaluated = rates.evaluated.max(gates / evaluated.as_secs_f64());
    }
    Ok(())
}

/// Both parties' OTs, set up in memory.
fn connection() -> Result<(ReceiverOts, SenderOts), EngineError> {
    let (client, server) = (ReceiverOts::default(), SenderOts::default());
    let parameters = OtParameters::default();
    let mut one = SetupClient::new(parameters, client.clone());
    let mut other = SetupServer::new(parameters, server.clone());
    let mut message = Vec::new();
    while one.want() != Want::Done {
        message.clear();
        match one.want() {
            Want::Send => {
                one.send(&mut message)?;
                other.receive(&message)?;
            }
            _ => {
                other.send(&mut message)?;
                one.receive(&message)?;
            }
        }
    }
    Ok((client, server))
}

/// Both parties' OT extensions on a further connection.
fn extensions(
    (client, server): &(ReceiverOts, SenderOts),
) -> Result<(CotSender, CotReceiver), OtError> {
    let setups = server.setup().zip(client.setup());
    let (sender, receiver) = setups.expect("a connection is made with both");
    let (mut sender, mut receiver) = (sender.connect()?, receiver.connect()?);
    let mut message = Vec::new();
    sender.send(&mut message)?;
    receiver.receive(&message)?;
    message.clear();
    receiver.send(&mut message)?;
    sender.receive(&message)?;
    Ok((sender.into_sender()?, receiver.into_receiver()?))
}

fn transfers(
    (sender, receiver): &mut (CotSender, CotReceiver),
    rates: &mut Rates,
) -> Result<(), OtError> {
    const COUNT: usize = 4 * MOST_OF_BATCH;
    let choices = vec![0x5a; COUNT / 8];
    let (mut t, mut q) = (vec![Block::ZERO; COUNT], vec![Block::ZERO; COUNT]);
    let mut message = Vec::new();
    let [mut sent, mut received] = [Duration::ZERO; 2];
    clocked(&mut received, || {
        receiver.extend(&choices, &mut t, &mut message)
    })?;
    clocked(&mut sent, || sender.extend(&message, &mut q))?;
    rates.sent = rates.sent.max(COUNT as f64 / sent.as_secs_f64());
    rates.received = rates.received.max(COUNT as f64 / received.as_secs_f64());
    Ok(())
}

/// Adds the time of `work` to a clock.
fn clocked<T>(clock: &mut Duration, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    *clock += started.elapsed();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_work_is_measured() {
        let speed = speed().expect("there is randomness");
        let Speed {
            products,
            encryption,
            garbling,
            transfers,
        } = speed;
        for factor in [products, encryption, garbling, transfers] {
            assert!(factor.is_finite() && factor > 0.0, "{speed:?}");
        }
    }

    #[test]
    fn both_parties_of_activations_are_measured() {
        let rates = activations(1).expect("there is randomness");
        assert!(rates.garbled > 0.0 && rates.evaluated > 0.0);
        assert!(rates.sent > 0.0 && rates.received > 0.0);
    }
}
