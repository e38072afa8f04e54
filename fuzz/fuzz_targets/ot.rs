//! Oblivious transfer between connected parties: the extension's message, and those of what is made
//! of its OTs.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use pronghorn_fuzz::{Patch, Splice, edited, patched};
use pronghorn_mpc::{
    Block,
    machine::Machine,
    ot::{
        BaseOt, CotReceiver, CotSender, OtError, OtParameters, ReceiverSetup, SenderSetup,
        SetupReceiver, SetupSender, transfer,
    },
};
use pronghorn_ring::{Modulus, PowerOfTwo, Prime, random::Seed};

fn exchange(first: &mut impl Machine<Error = OtError>, second: &mut impl Machine<Error = OtError>) {
    let (mut there, mut back) = (Vec::new(), Vec::new());
    first.send(&mut there).expect("it starts");
    second.receive(&there).expect("it is honest");
    second.send(&mut back).expect("it has an answer");
    first.receive(&back).expect("it is honest");
}

/// Both parties' stored set-ups.
static SET_UP: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| {
    let parameters = OtParameters::new(BaseOt::Ristretto, 4).expect("a width");
    let seed = |byte| Seed::from_bytes([byte; 32]);
    let mut sender = SetupSender::new(parameters, [7; 32], &seed(1));
    let mut receiver = SetupReceiver::new(parameters, [7; 32], &seed(2));
    exchange(&mut sender, &mut receiver);
    [
        sender.into_setup().expect("it is done").to_bytes().to_vec(),
        receiver
            .into_setup()
            .expect("it is done")
            .to_bytes()
            .to_vec(),
    ]
});

#[derive(Arbitrary, Debug)]
enum Then {
    Nothing,
    Chosen { width: u8 },
    Products { power_of_two: Option<u8>, prime: u8 },
    Corrections,
}

#[derive(Arbitrary, Debug)]
struct Input {
    choices: Vec<u8>,
    /// Less than the bits of the choices by this.
    fewer: u8,
    extension: Vec<Patch>,
    then: Then,
    patches: Vec<Patch>,
    splices: Vec<Splice>,
}

/// OTs of both parties.
struct Ots {
    sender: CotSender,
    receiver: CotReceiver,
    first: u64,
    choices: Vec<u8>,
    q: Vec<Block>,
    t: Vec<Block>,
}

impl Ots {
    fn choice(&self, j: usize) -> bool {
        self.choices[j / 8] >> (j % 8) & 1 == 1
    }
}

/// `None` where the sender refuses what the receiver's message became.
fn ots(input: &Input) -> Option<Ots> {
    let sender = SenderSetup::from_bytes(&SET_UP[0]).expect("it is whole");
    let receiver = ReceiverSetup::from_bytes(&SET_UP[1]).expect("it is whole");
    let mut connecting = sender.connect().expect("there is randomness");
    let mut answering = receiver.connect().expect("there is randomness");
    exchange(&mut connecting, &mut answering);
    let mut cot_sender = connecting.into_sender().expect("it is done");
    let mut cot_receiver = answering.into_receiver().expect("it is done");

    let choices = input.choices[..input.choices.len().min(600)].to_vec();
    let count = (8 * choices.len()).saturating_sub(usize::from(input.fewer % 8));
    let (mut q, mut t) = (vec![Block::ZERO; count], vec![Block::ZERO; count]);
    let mut good = Vec::new();
    cot_receiver
        .extend(&choices, &mut t, &mut good)
        .expect("there are OTs left");
    assert_eq!(good.len(), cot_sender.message_bytes(count));
    let message = patched(good.clone(), &input.extension);
    let result = cot_sender.extend(&message, &mut q);
    assert_eq!(result.is_ok(), message == good);
    match result {
        Ok(first) => {
            let ots = Ots {
                sender: cot_sender,
                receiver: cot_receiver,
                first,
                choices,
                q,
                t,
            };
            let delta = ots.sender.delta();
            assert!((0..count).all(|j| ots.q[j] == ots.t[j] ^ delta.masked(ots.choice(j))));
            Some(ots)
        }
        Err(OtError::Inconsistent) => {
            assert!(q.iter().all(|&q| q == Block::ZERO) && cot_sender.delta() == Block::ZERO);
            assert!(matches!(sender.connect(), Err(OtError::Burnt)));
            None
        }
        Err(_) => {
            // Nothing has changed.
            cot_sender.extend(&good, &mut q).expect("it is honest");
            None
        }
    }
}

fuzz_target!(|input: Input| {
    let Some(mut ots) = ots(&input) else { return };
    let change = |bytes: &Vec<u8>| edited(patched(bytes.clone(), &input.patches), &input.splices);
    let count = ots.q.len();
    let words =
        |factor: u64| -> Vec<u64> { (0..count as u64).map(|j| j.wrapping_mul(factor)).collect() };
    match input.then {
        Then::Nothing => {}
        Then::Chosen { width } => {
            let (width, strings) = (width.into(), [words(0x9e37_79b9_7f4a_7c15), words(3)]);
            let (mut good, mut out) = (Vec::new(), vec![0; count]);
            let Ots {
                sender,
                receiver,
                first,
                choices,
                q,
                t,
            } = &ots;
            let sent = transfer::send_chosen(
                sender,
                *first,
                q,
                &strings[0],
                &strings[1],
                width,
                &mut good,
            );
            assert_eq!(sent.is_ok(), (1..=64).contains(&width));
            let message = change(&good);
            let got =
                transfer::receive_chosen(receiver, *first, t, choices, width, &message, &mut out);
            if sent.is_ok() && message == good {
                got.expect("it is honest");
                let mask = u64::MAX >> (64 - width);
                assert!(
                    (0..count).all(|j| out[j] == strings[usize::from(ots.choice(j))][j] & mask)
                );
            }
        }
        Then::Products {
            power_of_two: Some(bits),
            ..
        } => {
            let modulus = PowerOfTwo::<u64>::new(u32::from(bits) % 64 + 1).expect("1 to 64 bits");
            products(&ots, modulus, change);
        }
        Then::Products { prime, .. } => {
            let primes = [3, 5, 509, 65_537, 1_032_193, 4_611_686_018_427_387_847];
            let prime = primes[usize::from(prime) % primes.len()];
            products(&ots, Prime::<u64>::new(prime).expect("a prime"), change);
        }
        Then::Corrections => {
            let message = change(&vec![0; count.div_ceil(8)]);
            let before = ots.q.clone();
            let result = transfer::apply_corrections(&ots.sender, &message, &mut ots.q);
            assert_eq!(result.is_ok(), message.len() == count.div_ceil(8));
            let delta = ots.sender.delta();
            for j in 0..count {
                let flipped = result.is_ok() && message[j / 8] >> (j % 8) & 1 == 1;
                assert!(ots.q[j] == before[j] ^ delta.masked(flipped));
            }
        }
    }
});

fn products<M: Modulus<u64>>(ots: &Ots, modulus: M, change: impl Fn(&Vec<u8>) -> Vec<u8>) {
    let count = ots.q.len();
    let Ots {
        sender,
        receiver,
        first,
        choices,
        q,
        t,
    } = ots;
    let factors: Vec<u64> = (0..count as i64)
        .map(|j| modulus.from_i64(1 - 7 * j))
        .collect();
    let (mut good, mut shares) = (Vec::new(), [vec![0; count], vec![0; count]]);
    transfer::send_products(
        sender,
        *first,
        q,
        &factors,
        modulus,
        &mut shares[0],
        &mut good,
    )
    .expect("the slices fit");
    let message = change(&good);
    let got = transfer::receive_products(
        receiver,
        *first,
        t,
        choices,
        modulus,
        &message,
        &mut shares[1],
    );
    if got.is_ok() {
        let most = modulus.neg(1);
        assert!(shares.iter().flatten().all(|&share| share <= most));
    }
    if message == good {
        got.expect("it is honest");
        for j in 0..count {
            let product = modulus.add(shares[0][j], shares[1][j]);
            assert_eq!(product, if ots.choice(j) { factors[j] } else { 0 });
        }
    }
}
