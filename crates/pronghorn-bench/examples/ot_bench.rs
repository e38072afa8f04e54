//! Oblivious transfer in memory, each party on one core: OTs a second and bytes an OT.
//! `cargo run --release -p pronghorn-bench --example ot_bench`.

use std::hint::black_box;
use std::time::Instant;

use pronghorn_mpc::Block;
use pronghorn_mpc::aes::{Aes128, BATCH};
use pronghorn_mpc::machine::Machine;
use pronghorn_mpc::ot::{
    BaseOt, CotReceiver, CotSender, OtParameters, ReceiverSetup, SenderSetup, SetupReceiver,
    SetupSender, extension::MOST_OF_BATCH, transfer,
};
use pronghorn_ring::random::Seed;

/// OTs of one message.
const COUNT: usize = 8 * MOST_OF_BATCH;

fn main() {
    for base in [BaseOt::MlKem, BaseOt::Ristretto] {
        set_up(base);
    }
    let blocks = aes_blocks();
    println!("\nAES: {:.0} million blocks a second", blocks / 1e6);
    println!("correlated OTs, {COUNT} a message: million a second, sender and receiver;");
    println!("in brackets the share of the time that AES alone takes");
    for width in 1..=8 {
        let parameters = OtParameters::new(base_of_extension(), width).expect("1 to 8");
        let (sender, receiver) = make(parameters);
        extend(width, sender, receiver, blocks);
    }
    transfers();
}

/// The base OTs that cost least; the extension does not depend on them.
fn base_of_extension() -> BaseOt {
    BaseOt::Ristretto
}

fn make(parameters: OtParameters) -> (SenderSetup, ReceiverSetup) {
    let mut sender = SetupSender::new(parameters, [0; 32], &Seed::from_bytes([1; 32]));
    let mut receiver = SetupReceiver::new(parameters, [0; 32], &Seed::from_bytes([2; 32]));
    let sent = exchange(&mut sender, &mut receiver);
    black_box(sent);
    (
        sender.into_setup().expect("it has finished"),
        receiver.into_setup().expect("it has finished"),
    )
}

/// One message from `first` to `second` and one back; their bytes.
fn exchange<M, N>(first: &mut M, second: &mut N) -> [usize; 2]
where
    M: Machine<Error: std::fmt::Debug>,
    N: Machine<Error: std::fmt::Debug>,
{
    let (mut there, mut back) = (Vec::new(), Vec::new());
    first.send(&mut there).expect("it sends");
    second.receive(&there).expect("it receives");
    second.send(&mut back).expect("it sends");
    first.receive(&back).expect("it receives");
    [there.len(), back.len()]
}

fn connect(sender: &SenderSetup, receiver: &ReceiverSetup) -> (CotSender, CotReceiver) {
    let mut sender = sender.connect().expect("there is randomness");
    let mut receiver = receiver.connect().expect("there is randomness");
    exchange(&mut sender, &mut receiver);
    (
        sender.into_sender().expect("it has finished"),
        receiver.into_receiver().expect("it has finished"),
    )
}

fn set_up(base: BaseOt) {
    let parameters = OtParameters::new(base, 4).expect("1 to 8");
    let seconds = least(|| {
        make(parameters);
    });
    println!(
        "set-up with {base:?}: {:.1} ms for both parties, {} bytes",
        seconds * 1e3,
        parameters.setup_bytes()
    );
}

/// AES blocks a second, in batches.
fn aes_blocks() -> f64 {
    let cipher = Aes128::new(Block::ONES);
    let (counters, mut out) = ([Block::ZERO; BATCH], [Block::ZERO; BATCH]);
    let rounds = 1 << 12;
    let seconds = least(|| {
        for _ in 0..rounds {
            cipher.encrypt_to(black_box(&counters), &mut out);
            black_box(&mut out);
        }
    });
    (rounds * BATCH) as f64 / seconds
}

fn extend(width: u8, sender: SenderSetup, receiver: ReceiverSetup, aes_blocks: f64) {
    let (mut sender, mut receiver) = connect(&sender, &receiver);
    let choices = vec![0x5a; COUNT.div_ceil(8)];
    let (mut q, mut t) = (vec![Block::ZERO; COUNT], vec![Block::ZERO; COUNT]);
    let mut message = Vec::new();
    let mut times = [f64::INFINITY; 2];
    for _ in 0..20 {
        message.clear();
        let start = Instant::now();
        receiver
            .extend(&choices, &mut t, &mut message)
            .expect("there are OTs left");
        times[1] = times[1].min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        sender.extend(&message, &mut q).expect("it is honest");
        times[0] = times[0].min(start.elapsed().as_secs_f64());
    }
    let [sender, receiver] = times.map(|seconds| COUNT as f64 / seconds / 1e6);
    // The receiver has 2^k leaves for every k columns.
    let blocks_of_ot = f64::from(1 << width) / f64::from(width);
    println!(
        "k = {width}: {sender:6.1} {receiver:6.1} ({:2.0} %), {:.3} bytes an OT",
        100.0 * blocks_of_ot * receiver * 1e6 / aes_blocks,
        message.len() as f64 / COUNT as f64
    );
}

fn transfers() {
    let parameters = OtParameters::new(base_of_extension(), 4).expect("1 to 8");
    let (sender, receiver) = make(parameters);
    let (mut sender, mut receiver) = connect(&sender, &receiver);
    let choices = vec![0x5a; COUNT.div_ceil(8)];
    let (mut q, mut t) = (vec![Block::ZERO; COUNT], vec![Block::ZERO; COUNT]);
    let mut message = Vec::new();
    receiver
        .extend(&choices, &mut t, &mut message)
        .expect("there are OTs left");
    let first = sender.extend(&message, &mut q).expect("it is honest");
    let strings: Vec<u64> = (0..COUNT as u64).map(|j| j & 0xff).collect();
    let mut out = vec![0; COUNT];

    println!("\non top, million a second");
    let mut ones = vec![Block::ZERO; COUNT];
    report("random OT, sender", || {
        transfer::send_random(&sender, first, &mut q, &mut ones).expect("the slices fit");
    });
    report("random OT, receiver", || {
        transfer::receive_random(&receiver, first, &mut t)
    });
    report("chosen OT of 8 bits, sender", || {
        message.clear();
        transfer::send_chosen(&sender, first, &q, &strings, &strings, 8, &mut message)
            .expect("the slices fit");
    });
    report("chosen OT of 8 bits, receiver", || {
        transfer::receive_chosen(&receiver, first, &t, &choices, 8, &message, &mut out)
            .expect("the message is whole");
    });
}

fn report(name: &str, run: impl FnMut()) {
    println!("{name}: {:.1}", COUNT as f64 / least(run) / 1e6);
}

/// The least of some runs, in seconds.
fn least(mut run: impl FnMut()) -> f64 {
    let times = (0..8).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}
