//! Both parties' runs side by side.

use std::sync::Arc;

use pronghorn_mpc::{
    circuit::{Activation, Modulus, Rectifier, Requantisation},
    lean::{Evaluation, Input, Party, Program, Received, Sent, deal},
};

/// A generator for tests (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn block(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Both parties' residues of the result.
pub fn run(
    program: &Arc<Program>,
    inputs: [&[Vec<u32>]; 2],
    [
        (sent_by_server, received_by_client),
        (sent_by_client, received_by_server),
    ]: [(Sent, Received); 2],
) -> [Vec<u64>; 2] {
    let slices = inputs.map(|inputs| inputs.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let mut server = Evaluation::new(
        program.clone(),
        Party::Server,
        &slices[0],
        received_by_server,
    );
    server.provide(sent_by_server);
    let mut client = Evaluation::new(
        program.clone(),
        Party::Client,
        &slices[1],
        received_by_client,
    );
    client.provide(sent_by_client);
    let mut parties = [server, client];
    while !parties.iter().all(Evaluation::is_done) {
        level(&mut parties);
    }
    let [mut server, mut client] = parties;
    [
        server.output().unwrap().to_vec(),
        client.output().unwrap().to_vec(),
    ]
}

/// Runs a level: the messages of both parties.
pub fn level(parties: &mut [Evaluation; 2]) -> [Vec<u8>; 2] {
    let level = parties[0].made();
    let first = Party::first_of(level);
    let mut messages = [Vec::new(), Vec::new()];
    for speaker in [first, first.peer()] {
        let message = &mut messages[speaker as usize];
        let speaks = &mut parties[speaker as usize];
        speaks.make(message).unwrap();
        let bytes = speaks.program().bytes(level, speaker, speaks.elements());
        assert_eq!(message.len(), bytes);
        parties[speaker.peer() as usize].take(message).unwrap();
    }
    messages
}

pub fn activation(
    pool: usize,
    rectifier: Rectifier,
    requantisation: Option<(u32, i32, i32)>,
) -> Activation<'static> {
    Activation {
        pool,
        rectifier,
        requantisation: requantisation.map(|(shift, low, high)| Requantisation {
            shift,
            low,
            high,
        }),
        table: None,
    }
}

/// Runs the activation on windows of values, each with an error, and compares it with the oracle.
pub fn check(
    activation: &Activation<'_>,
    input: Input,
    output: Modulus,
    windows: &[Vec<(i64, i64)>],
    random: &mut Random,
) {
    let program = Program::activation(activation, input, output)
        .unwrap_or_else(|error| panic!("{activation:?} {input:?} {output:?}: {error}"));
    let found = opened(program, input, output, windows, random);
    for (window, (found, _)) in windows.iter().zip(found) {
        let values: Vec<i64> = window.iter().map(|(value, _)| *value).collect();
        assert_eq!(
            found,
            activation.apply(&values),
            "{activation:?} {input:?} {window:?}"
        );
    }
}

/// The same of the program whose values are rounded by a dither.
pub fn check_dithered(
    activation: &Activation<'_>,
    input: Input,
    output: Modulus,
    windows: &[Vec<(i64, i64)>],
    random: &mut Random,
) {
    let program = Program::dithered(activation, input, output)
        .unwrap_or_else(|error| panic!("{activation:?} {input:?} {output:?}: {error}"));
    let found = opened(program, input, output, windows, random);
    for (window, (found, shares)) in windows.iter().zip(found) {
        let expected = dithered(activation, &input, window, &shares);
        assert_eq!(found, expected, "{activation:?} {input:?} {window:?}");
    }
}

/// What the server's shares of a window make of its values, each with its error.
pub fn dithered(
    activation: &Activation<'_>,
    input: &Input,
    window: &[(i64, i64)],
    server: &[u32],
) -> i64 {
    let last = activation.requantisation.unwrap();
    let rest = Activation {
        requantisation: Some(Requantisation { shift: 0, ..last }),
        ..*activation
    };
    let rounded = window.iter().zip(server).map(|(&(value, error), &share)| {
        let whole = 1i64 << (last.shift + input.guard);
        let low = (i64::from(share) + input.dither_offset(last.shift)) % whole;
        // The error that the parties' shares have, none of them below 0.
        let addend = (whole - 1 - low + error + input.error as i64) >> input.guard;
        assert!((0..=1 << last.shift).contains(&addend));
        (value + addend) >> last.shift
    });
    rest.apply(&rounded.collect::<Vec<_>>())
}

/// The results of a program on windows of values, each with an error, and the server's shares of
/// these.
fn opened(
    program: Program,
    input: Input,
    output: Modulus,
    windows: &[Vec<(i64, i64)>],
    random: &mut Random,
) -> Vec<(i64, Vec<u32>)> {
    let program = Arc::new(program);
    let modulus = match input.prime {
        Some(prime) => Modulus::prime(prime).unwrap(),
        None => Modulus::power_of_two(input.bits).unwrap(),
    };
    let shares: Vec<[Vec<u32>; 2]> = (0..windows[0].len())
        .map(|place| {
            let server: Vec<u32> = windows
                .iter()
                .map(|_| (random.below(modulus.neg(1) + 1)) as u32)
                .collect();
            let client = windows.iter().zip(&server).map(|(window, share)| {
                let (value, error) = window[place];
                let value = modulus.from_i64((value << input.guard) + error);
                modulus.sub(value, (*share).into()) as u32
            });
            let client = client.collect();
            [server, client]
        })
        .collect();
    let of = |party: usize| -> Vec<Vec<u32>> {
        shares.iter().map(|shares| shares[party].clone()).collect()
    };
    let (server, client) = (of(0), of(1));
    let dealt = deal(&program, windows.len(), || random.block());
    let outputs = run(&program, [&server, &client], dealt);
    let element = |element: usize| {
        let [x, y] = [0, 1].map(|party| outputs[party][element]);
        let words = server.iter().map(|words| words[element]);
        (output.centre(output.add(x, y)), words.collect())
    };
    (0..windows.len()).map(element).collect()
}

/// The bump of a SiLU in pieces, as networks have it.
pub fn silu(count: i32, drop: u32) -> (Vec<i32>, Vec<i32>) {
    let unit = f64::from(count << drop) / 16.0;
    let bump = |x: f64| (-unit * (x / unit).abs() / (1.0 + (x / unit).abs().exp())).round() as i32;
    let at = |place: i32| bump(f64::from((place - count / 2) << drop));
    let values: Vec<i32> = (0..=count).map(at).collect();
    let rises = values.windows(2).map(|ends| ends[1] - ends[0]).collect();
    (values[..count as usize].into(), rises)
}
