//! Silent OT in memory, each party on one core: OTs a second, bits an OT, and the parts of a round.
//! `cargo run --release -p pronghorn-mpc --example silent_rate`.

use std::time::Instant;

use pronghorn_mpc::{
    Block,
    machine::Machine,
    ot::{
        BaseOt, CotReceiver, CotSender, OtError, OtParameters, SetupReceiver, SetupSender,
        SilentReceiver, SilentSender, extension,
        silent::{Chain, LpnParameters},
    },
};
use pronghorn_ring::random::Seed;
use rayon::ThreadPoolBuilder;

/// Columns of a strip of the extension: 16 bits an OT.
const WIDTH: u8 = 8;
/// OTs taken at a time.
const PIECE: usize = 1 << 13;
/// Rounds measured; the best of each part counts.
const ROUNDS: usize = 8;

fn main() -> Result<(), OtError> {
    let one = ThreadPoolBuilder::new().num_threads(1).build();
    one.expect("a thread can start").install(print_all)
}

fn print_all() -> Result<(), OtError> {
    println!("million OTs a second, one core a party; then milliseconds of the parts of a round");
    println!("K, t, depth: sender, receiver; bits an OT | round, challenge, answer, verify; takes");
    for chain in Chain::ALL {
        if let [set] = chain.sets() {
            measure(chain, set)?;
        }
    }
    println!(
        "\nset-up to the first OT of the last set: milliseconds of both parties on one core, kB"
    );
    for chain in Chain::ALL {
        set_up(chain)?;
    }
    println!("\ntraffic in kB: OTs, extension alone, silent, sets of the chain");
    for count in [
        50_000,
        100_000,
        200_000,
        500_000,
        1_000_000,
        6_000_000,
        100_000_000,
    ] {
        let chain = Chain::cheapest(count, WIDTH.into());
        println!(
            "{count:10} {:8} {:6} {}",
            extension::message_bytes(count as usize, WIDTH.into()) / 1000,
            chain.bytes(count, WIDTH.into()) / 1000,
            chain.sets().len()
        );
    }
    Ok(())
}

fn measure(chain: Chain, set: &LpnParameters) -> Result<(), OtError> {
    let (mut ot_sender, mut ot_receiver) = connect()?;
    let [seed, other] = [[1; 32], [2; 32]].map(Seed::from_bytes);
    let mut message = Vec::new();
    let mut receiver = SilentReceiver::begin(chain, &mut ot_receiver, &seed, &mut message)?;
    let mut sender = SilentSender::begin(chain, &mut ot_sender, &other, &message)?;
    let (mut blocks, mut best) = (vec![Block::ZERO; PIECE], [f64::INFINITY; 6]);
    let (mut whole, mut bytes) = ([f64::INFINITY; 2], 0);
    for round in 0..ROUNDS {
        let (mut corrections, mut challenge, mut answer) = (Vec::new(), Vec::new(), Vec::new());
        let mut times = [0.0; 6];
        times[0] = seconds(|| sender.round(&mut corrections))?;
        let taken = seconds(|| receiver.take_round(&corrections))?;
        times[1] = taken + seconds(|| receiver.challenge(&mut challenge))?;
        times[2] = seconds(|| sender.answer(&challenge, &mut answer))?;
        times[3] = seconds(|| receiver.verify(&answer))?;
        bytes = corrections.len() + challenge.len() + answer.len();
        while sender.left() > 0 {
            let blocks = &mut blocks[..PIECE.min(sender.left())];
            times[4] += seconds(|| sender.take(blocks))?;
        }
        while receiver.left() > 0 {
            let blocks = &mut blocks[..PIECE.min(receiver.left())];
            times[5] += seconds(|| receiver.take(blocks))?;
        }
        // The first round has no refill.
        if round > 0 {
            let parties = [
                times[0] + times[2] + times[4],
                times[1] + times[3] + times[5],
            ];
            for (whole, party) in whole.iter_mut().zip(parties) {
                *whole = whole.min(party);
            }
            best.iter_mut()
                .zip(times)
                .for_each(|(best, time)| *best = best.min(time));
        }
    }
    let usable = chain.usable(0) as f64;
    let [sender, receiver] = whole.map(|seconds| usable / seconds / 1e6);
    let [round, challenge, answer, verify, send, receive] = best.map(|seconds| seconds * 1e3);
    println!(
        "2^{} {} {}: {sender:.1} {receiver:.1}; {:.3} | \
         {round:.2} {challenge:.2} {answer:.2} {verify:.2}; {send:.1} {receive:.1}",
        set.secrets().ilog2(),
        set.trees(),
        set.depth(),
        8.0 * bytes as f64 / usable,
    );
    Ok(())
}

/// All rounds up to the first of the last set, and what they take.
fn set_up(chain: Chain) -> Result<(), OtError> {
    let (mut ot_sender, mut ot_receiver) = connect()?;
    let [seed, other] = [[1; 32], [2; 32]].map(Seed::from_bytes);
    let mut bytes = chain.begin_bytes(WIDTH.into());
    let start = Instant::now();
    let mut message = Vec::new();
    let mut receiver = SilentReceiver::begin(chain, &mut ot_receiver, &seed, &mut message)?;
    let mut sender = SilentSender::begin(chain, &mut ot_sender, &other, &message)?;
    for set in chain.sets() {
        let (mut corrections, mut challenge, mut answer) = (Vec::new(), Vec::new(), Vec::new());
        sender.round(&mut corrections)?;
        receiver.take_round(&corrections)?;
        receiver.challenge(&mut challenge)?;
        sender.answer(&challenge, &mut answer)?;
        receiver.verify(&answer)?;
        bytes += set.round_bytes();
        if set != &chain.sets()[chain.sets().len() - 1] {
            let mut blocks = vec![Block::ZERO; sender.left()];
            sender.take(&mut blocks)?;
            receiver.take(&mut blocks)?;
        }
    }
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    let sets = chain
        .sets()
        .iter()
        .map(|set| set.secrets().ilog2().to_string());
    let sets: Vec<String> = sets.collect();
    println!("2^{}: {milliseconds:.0} {}", sets.join(" 2^"), bytes / 1000);
    Ok(())
}

fn seconds<T>(work: impl FnOnce() -> Result<T, OtError>) -> Result<f64, OtError> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

fn connect() -> Result<(CotSender, CotReceiver), OtError> {
    let parameters = OtParameters::new(BaseOt::Ristretto, WIDTH)?;
    let mut sender = SetupSender::new(parameters, [0; 32], &Seed::from_os()?);
    let mut receiver = SetupReceiver::new(parameters, [0; 32], &Seed::from_os()?);
    exchange(&mut sender, &mut receiver)?;
    let mut sender = sender.into_setup()?.connect()?;
    let mut receiver = receiver.into_setup()?.connect()?;
    exchange(&mut sender, &mut receiver)?;
    Ok((sender.into_sender()?, receiver.into_receiver()?))
}

/// One message from `first` to `second` and one back.
fn exchange<M, N>(first: &mut M, second: &mut N) -> Result<(), OtError>
where
    M: Machine<Error = OtError>,
    N: Machine<Error = OtError>,
{
    let (mut there, mut back) = (Vec::new(), Vec::new());
    first.send(&mut there)?;
    second.receive(&there)?;
    second.send(&mut back)?;
    first.receive(&back)
}
