//! Whole rounds: against the relation, against a plain twin, and with parties that cheat.

mod cheats;
mod twin;

use super::*;
use crate::{
    Block,
    ot::{CotReceiver, CotSender, OtError, OtHash, extension::tests::pair, transfer},
};
use pronghorn_ring::{SimdLevel, random::Seed};

/// Small sets with the ratio of the shipped ones. They hide nothing.
const TOY: LpnParameters = LpnParameters::new(11, 260, 4);
const TOYS: Chain = Chain::new(&[TOY]);
const TINY: LpnParameters = LpnParameters::new(9, 400, 2);
const CHANGING: Chain = Chain::new(&[LpnParameters::new(10, 480, 3), TOY, TINY]);

const DELTA: Block = Block::from_u128(0x8123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978 | 1);
const WIDTH: usize = 1;

fn seeds() -> [Seed; 2] {
    [[21; 32], [22; 32]].map(Seed::from_bytes)
}

/// Both parties of a run.
struct Run {
    sender: SilentSender,
    receiver: SilentReceiver,
    /// All messages.
    messages: Vec<Vec<u8>>,
}

impl Run {
    fn begin(chain: Chain) -> Self {
        let level = SimdLevel::detect();
        Self::begin_with(chain, [level; 2], &mut pair(DELTA, WIDTH))
    }

    fn begin_with(
        chain: Chain,
        levels: [SimdLevel; 2],
        (ot_sender, ot_receiver): &mut (CotSender, CotReceiver),
    ) -> Self {
        let [seed, other] = seeds();
        let mut message = b"kept".to_vec();
        let receiver =
            SilentReceiver::begin_at(levels[0], chain, ot_receiver, &seed, &mut message).unwrap();
        assert_eq!(
            message.len() - 4,
            ot_sender.message_bytes(chain.set(0).base())
        );
        let sender =
            SilentSender::begin_at(levels[1], chain, ot_sender, &other, &message[4..]).unwrap();
        Self {
            sender,
            receiver,
            messages: vec![message],
        }
    }

    fn round(&mut self) {
        let [mut corrections, mut challenge, mut answer] = [const { Vec::new() }; 3];
        let expected = self.sender.round_bytes();
        assert_eq!(expected, self.receiver.round_bytes());
        self.sender.round(&mut corrections).unwrap();
        assert_eq!(corrections.len(), expected);
        self.receiver.take_round(&corrections).unwrap();
        self.receiver.challenge(&mut challenge).unwrap();
        self.sender.answer(&challenge, &mut answer).unwrap();
        self.receiver.verify(&answer).unwrap();
        let set = self.sender.set();
        assert_eq!(
            corrections.len() + challenge.len() + answer.len(),
            set.round_bytes()
        );
        self.messages.extend([corrections, challenge, answer]);
    }

    /// Takes OTs and checks them; the blocks of both parties.
    fn take(&mut self, count: usize) -> [Vec<Block>; 2] {
        let mut blocks = [vec![Block::ZERO; count], vec![Block::ZERO; count]];
        let [q, t] = &mut blocks;
        let (first, left) = (self.sender.made(), self.sender.left());
        assert_eq!(self.sender.take(q).unwrap(), first);
        assert_eq!(self.receiver.take(t).unwrap(), first);
        assert_eq!(
            [self.sender.left(), self.receiver.left()],
            [left - count; 2]
        );
        for (q, t) in q.iter().zip(t) {
            assert!(!q.lsb() && *q == *t ^ DELTA.masked(t.lsb()));
        }
        blocks
    }

    fn take_all(&mut self) -> [Vec<Block>; 2] {
        self.take(self.sender.left())
    }
}

fn distinct(mut blocks: Vec<Block>) -> bool {
    let count = blocks.len();
    blocks.sort_unstable_by_key(|block| block.to_u128());
    blocks.dedup();
    blocks.len() == count
}

#[test]
fn blocks_differ_by_delta_where_the_choice_is_one() {
    let levels = SimdLevel::available();
    for (i, &level) in levels.iter().enumerate() {
        let other = levels[(i + 1) % levels.len()];
        let mut run = Run::begin_with(TOYS, [level, other], &mut pair(DELTA, 3));
        for round in 0..4 {
            run.round();
            assert_eq!(run.sender.left(), TOYS.usable(round));
            run.take_all();
        }
        assert_eq!(run.sender.made(), 4 * TOYS.usable(0) as u64);
    }
}

#[test]
fn every_level_gives_the_same_messages_and_blocks() {
    let all: Vec<_> = SimdLevel::available()
        .into_iter()
        .map(|level| {
            let chain = Chain::ALL[0];
            let mut run = Run::begin_with(chain, [level; 2], &mut pair(DELTA, 2));
            run.round();
            (run.take_all(), run.messages)
        })
        .collect();
    assert!(all.iter().all(|found| *found == all[0]));
}

/// Rounds of every shipped set, the last one twice.
#[test]
fn chains_of_shipped_sets() {
    let mut run = Run::begin(Chain::ALL[2]);
    for round in 0..4 {
        run.round();
        let set = run.sender.set();
        assert_eq!(set, Chain::ALL[2].set(round));
        let usable = Chain::ALL[2].usable(round);
        run.take(usable / 3);
        let [_, t] = run.take_all();
        let ones = t.iter().filter(|t| t.lsb()).count();
        // Six standard deviations.
        assert!(ones.abs_diff(t.len() / 2) < 3 * t.len().isqrt());
    }
}

#[test]
fn chains_change_their_sets() {
    let mut run = Run::begin(CHANGING);
    for round in 0..6 {
        run.round();
        assert_eq!(run.sender.set(), CHANGING.set(round));
        run.take_all();
    }
}

#[test]
fn pieces_are_the_whole() {
    let mut whole = Run::begin(TOYS);
    let mut pieces = Run::begin(TOYS);
    for _ in 0..2 {
        whole.round();
        pieces.round();
        let all = whole.take_all();
        let mut found = [Vec::new(), Vec::new()];
        // Within a tree, to its end, whole trees, across trees.
        for count in [1, 3, 0, 12, 16, 32, 5, 11, 7, 100, 64].into_iter().cycle() {
            let count = pieces.sender.left().min(count);
            let blocks = pieces.take(count);
            found
                .iter_mut()
                .zip(blocks)
                .for_each(|(all, blocks)| all.extend(blocks));
            if pieces.sender.left() == 0 {
                break;
            }
        }
        assert!(all == found);
    }
}

#[test]
fn rounds_and_runs_share_nothing() {
    let mut connection = pair(DELTA, WIDTH);
    let mut all = Vec::new();
    for _ in 0..2 {
        // The seeds are those of the run before, but the place in the connection is not.
        let mut run = Run::begin_with(TOYS, [SimdLevel::detect(); 2], &mut connection);
        for _ in 0..3 {
            run.round();
            all.extend_from_slice(&run.sender.stream.base);
            let [q, _] = run.take_all();
            all.extend(q);
        }
    }
    // The base of a round is no OT of the user in any round.
    assert!(distinct(all.clone()));
    for bit in 1..128 {
        let ones = all.iter().filter(|q| q.to_u128() >> bit & 1 == 1).count();
        assert!(
            ones.abs_diff(all.len() / 2) < 3 * all.len().isqrt(),
            "bit {bit}"
        );
    }
}

#[test]
fn hash_has_a_key_of_its_own() {
    let mut connection = pair(DELTA, WIDTH);
    let levels = [SimdLevel::detect(); 2];
    let (first, second) = (
        Run::begin_with(TOYS, levels, &mut connection),
        Run::begin_with(TOYS, levels, &mut connection),
    );
    let hash = |hash: &OtHash| {
        let mut block = [Block::ONES];
        hash.hash(0, &mut block);
        block[0]
    };
    let all = [
        first.sender.hash(),
        second.sender.hash(),
        connection.0.hash(),
    ]
    .map(hash);
    assert!(distinct(all.to_vec()));
    assert!(hash(first.receiver.hash()) == all[0]);
}

/// Random and chosen OTs of a run, by the transfers.
#[test]
fn transfers_take_the_blocks() {
    let mut run = Run::begin(TOYS);
    run.round();
    let first = run.sender.made();
    let [mut q, mut t] = run.take(203);
    let mut bits = Vec::new();
    choices(&t, &mut bits);
    assert_eq!(bits.len(), 26);
    let choice = |j: usize| bits[j / 8] >> (j % 8) & 1 == 1;
    assert!((0..203).all(|j| choice(j) == t[j].lsb()) && bits[25] >> 3 == 0);

    let strings = [0u64, 1].map(|b| (0..203).map(|j| 2 * j + b).collect::<Vec<u64>>());
    let (mut message, mut found) = (Vec::new(), vec![0; 203]);
    let [zeros, ones] = &strings;
    transfer::send_chosen(&run.sender, first, &q, zeros, ones, 9, &mut message).unwrap();
    let receiver = &run.receiver;
    transfer::receive_chosen(receiver, first, &t, &bits, 9, &message, &mut found).unwrap();
    assert!((0..203).all(|j| found[j] == strings[usize::from(choice(j))][j]));

    let mut other = vec![Block::ZERO; 203];
    transfer::send_random(&run.sender, first, &mut q, &mut other).unwrap();
    transfer::receive_random(&run.receiver, first, &mut t);
    assert!((0..203).all(|j| t[j] == if choice(j) { other[j] } else { q[j] }));
    assert!(distinct([q, other].concat()));
}

/// What goes over the wire, and the blocks, for one set of seeds: a change breaks peers.
#[test]
fn messages_and_blocks_stay_what_they_were() {
    let mut run = Run::begin(TOYS);
    run.round();
    let first = run.take_all();
    run.round();
    let second = run.take_all();
    let hash = |bytes: &[u8]| blake3::hash(bytes).to_hex()[..16].to_string();
    let messages: Vec<String> = run.messages.iter().map(|message| hash(message)).collect();
    let blocks = [first, second].map(|[q, _]| hash(bytemuck::cast_slice(&q)));
    assert_eq!(messages, KNOWN_MESSAGES);
    assert_eq!(blocks, KNOWN_BLOCKS);
}

const KNOWN_MESSAGES: [&str; 7] = [
    "39d56f1129a91ae5",
    "03ed7ec07a5c17ac",
    "2531a352cb133c14",
    "aeacd10c2bb59698",
    "f49aff3414b0152b",
    "5f4f4cb3667cd0f9",
    "3ddd422e119836e0",
];
const KNOWN_BLOCKS: [&str; 2] = ["0209cca100d10fc6", "d6344ab0da537da5"];

#[test]
fn calls_out_of_turn_change_nothing() {
    let mut run = Run::begin(TOYS);
    let mut out = Vec::new();
    let out_of_turn = |result| assert!(matches!(result, Err(OtError::OutOfTurn { .. })));
    let mut block = [Block::ZERO];
    out_of_turn(run.sender.answer(&[0; 48], &mut out));
    out_of_turn(run.sender.take(&mut block).map(drop));
    out_of_turn(run.receiver.challenge(&mut out));
    out_of_turn(run.receiver.verify(&[0; 32]));
    out_of_turn(run.receiver.take(&mut block).map(drop));
    assert!(out.is_empty());

    let (mut corrections, mut challenge, mut answer) = (Vec::new(), Vec::new(), Vec::new());
    run.sender.round(&mut corrections).unwrap();
    out_of_turn(run.sender.round(&mut out));
    out_of_turn(run.sender.take(&mut block).map(drop));
    run.receiver.take_round(&corrections).unwrap();
    out_of_turn(run.receiver.take_round(&corrections));
    out_of_turn(run.receiver.verify(&[0; 32]));
    out_of_turn(run.receiver.take(&mut block).map(drop));
    run.receiver.challenge(&mut challenge).unwrap();
    out_of_turn(run.receiver.challenge(&mut out));
    out_of_turn(run.receiver.take(&mut block).map(drop));
    run.sender.answer(&challenge, &mut answer).unwrap();
    out_of_turn(run.sender.answer(&challenge, &mut out));
    run.receiver.verify(&answer).unwrap();
    out_of_turn(run.receiver.verify(&answer));
    assert!(out.is_empty());

    // Not before all OTs of the round are taken.
    run.take(run.sender.left() - 1);
    out_of_turn(run.sender.round(&mut out));
    out_of_turn(run.receiver.take_round(&corrections));
    let spent = run.sender.take(&mut [Block::ZERO; 2]);
    assert!(matches!(
        spent,
        Err(OtError::RoundSpent { wanted: 2, left: 1 })
    ));
    let spent = run.receiver.take(&mut [Block::ZERO; 2]);
    assert!(matches!(
        spent,
        Err(OtError::RoundSpent { wanted: 2, left: 1 })
    ));
    run.take(1);
    // A round's corrections once more.
    let repeated = run.receiver.take_round(&corrections);
    assert!(matches!(
        repeated,
        Err(OtError::Position {
            found: 0,
            expected: 1,
            ..
        })
    ));
    run.round();
    run.take_all();
}

#[test]
fn wrong_lengths_are_refused_and_change_nothing() {
    fn wrong(message: &[u8]) -> [Vec<u8>; 3] {
        [message[1..].to_vec(), [message, &[0]].concat(), Vec::new()]
    }
    let mut run = Run::begin(TOYS);
    let (mut corrections, mut challenge, mut answer) = (Vec::new(), Vec::new(), Vec::new());
    run.sender.round(&mut corrections).unwrap();
    for message in wrong(&corrections) {
        let result = run.receiver.take_round(&message);
        assert!(matches!(result, Err(OtError::Length { .. })));
    }
    run.receiver.take_round(&corrections).unwrap();
    run.receiver.challenge(&mut challenge).unwrap();
    for message in wrong(&challenge) {
        let result = run.sender.answer(&message, &mut answer);
        assert!(matches!(result, Err(OtError::Length { .. })) && answer.is_empty());
    }
    run.sender.answer(&challenge, &mut answer).unwrap();
    for message in wrong(&answer) {
        let result = run.receiver.verify(&message);
        assert!(matches!(result, Err(OtError::Length { .. })));
    }
    run.receiver.verify(&answer).unwrap();
    run.take_all();
    let mut connection = pair(DELTA, WIDTH);
    let result = SilentSender::begin(TOYS, &mut connection.0, &seeds()[0], &[0; 100]);
    assert!(matches!(result, Err(OtError::Length { .. })));
    // Parties with different chains.
    let [seed, other] = seeds();
    let mut message = Vec::new();
    SilentReceiver::begin(TOYS, &mut connection.1, &seed, &mut message).unwrap();
    let chain = Chain::new(const { &[TINY] });
    let result = SilentSender::begin(chain, &mut connection.0, &other, &message);
    assert!(matches!(result, Err(OtError::Length { .. })));
}

#[test]
fn burnt_set_ups_end_the_run() {
    let mut connection = pair(DELTA, WIDTH);
    let mut run = Run::begin_with(TOYS, [SimdLevel::detect(); 2], &mut connection);
    run.round();
    connection.0.burnt().set();
    let mut out = Vec::new();
    let results = [
        run.sender.take(&mut [Block::ZERO]).map(drop),
        run.sender.round(&mut out),
        run.sender.answer(&[0; 48], &mut out),
        run.sender.check_usable(),
    ];
    for result in results {
        assert!(matches!(result, Err(OtError::Burnt)));
    }
}
