//! What a party sees is uniform, whatever the values are: all coins of its peer, one by one.

use std::{collections::BTreeMap, sync::Arc};

use pronghorn_mpc::{
    Block,
    circuit::{Modulus, Rectifier},
    lean::{Evaluation, Input, LANE, Party, Program, Received, Sent},
};

use crate::common::{Random, activation};

/// The strings of each OT of an element, as bits of its random OTs.
#[derive(Clone, Default)]
struct Coins {
    /// By OT: the strings of both choices, and the choice.
    ots: Vec<[u64; 3]>,
}

impl Coins {
    fn sent(&self, program: &Program, sender: Party) -> Sent {
        let blocks = |choice: usize| self.blocks(|ot| ot[choice]);
        Sent::from_blocks(program, sender, 1, [&blocks(0), &blocks(1)])
    }

    fn received(&self, program: &Program, sender: Party) -> Received {
        let blocks = self.blocks(|ot| ot[ot[2] as usize]);
        let choices: Vec<u8> = (self.ots.iter())
            .flat_map(|ot| [ot[2] as u8, 0, 0, 0, 0, 0, 0, 0])
            .collect();
        Received::from_blocks(program, sender, 1, &choices, &blocks)
    }

    /// A lane an OT, whose first block is the one that is used.
    fn blocks(&self, of: impl Fn(&[u64; 3]) -> u64) -> Vec<Block> {
        let mut blocks = vec![Block::ZERO; self.ots.len() * LANE];
        for (ot, block) in self.ots.iter().zip(blocks.iter_mut().step_by(LANE)) {
            *block = Block::from_u128(of(ot).into());
        }
        blocks
    }
}

fn evaluation(program: &Arc<Program>, party: Party, input: u32, coins: &[Coins; 2]) -> Evaluation {
    let own = coins[party as usize].sent(program, party);
    let peer = party.peer();
    let received = coins[peer as usize].received(program, peer);
    let mut evaluation = Evaluation::new(program.clone(), party, &[&[input]], received);
    evaluation.provide(own);
    evaluation
}

/// What a party sees, and both outputs.
fn view(
    program: &Arc<Program>,
    party: Party,
    inputs: [u32; 2],
    coins: &[Coins; 2],
) -> (Vec<u8>, [u32; 2]) {
    let mut parties = [Party::Server, Party::Client]
        .map(|party| evaluation(program, party, inputs[party as usize], coins));
    let mut view = Vec::new();
    for _ in 0..program.levels() {
        let messages = parties.each_mut().map(|party| {
            let mut message = Vec::new();
            party.make(&mut message).unwrap();
            message
        });
        view.extend_from_slice(&messages[party.peer() as usize]);
        parties[0].take(&messages[1]).unwrap();
        parties[1].take(&messages[0]).unwrap();
    }
    (
        view,
        parties.each_mut().map(|party| party.output().unwrap()[0]),
    )
}

/// The bits of the strings of each OT.
fn widths(program: &Program, sender: Party) -> Vec<u32> {
    (0..program.ots(sender))
        .map(|ot| program.string_bits(sender, ot))
        .collect()
}

/// Counts how often each view comes, over all coins that the party does not know.
fn assert_uniform(program: Program, party: Party, values: &[i64], seed: u64) {
    let program = Arc::new(program);
    let mut random = Random(seed);
    let bits = program.input_modulus(0).bits();
    let widths = [Party::Server, Party::Client].map(|sender| widths(&program, sender));
    // Unknown: the string not chosen of each OT received, the choice of each OT sent.
    let unknown: u32 =
        widths[party.peer() as usize].iter().sum::<u32>() + widths[party as usize].len() as u32;
    assert!(unknown <= 20, "{unknown} unknown bits");
    for &value in values {
        let own = random.below(1 << bits) as u32;
        let peer = (value as u32).wrapping_sub(own) & (u32::MAX >> (32 - bits));
        let mut coins = [Coins::default(), Coins::default()];
        for (coins, widths) in coins.iter_mut().zip(&widths) {
            let ots = widths.iter().map(|&width| {
                let string = |random: &mut Random| random.below(1 << width);
                [string(&mut random), string(&mut random), random.below(2)]
            });
            coins.ots = ots.collect();
        }
        let inputs = match party {
            Party::Server => [own, peer],
            Party::Client => [peer, own],
        };
        let mut seen: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for guess in 0..1u64 << unknown {
            let mut guess = guess;
            let mut take = |width: u32| {
                let taken = guess & ((1 << width) - 1);
                guess >>= width;
                taken
            };
            let mut coins = coins.clone();
            for (ot, &width) in coins[party.peer() as usize]
                .ots
                .iter_mut()
                .zip(&widths[party.peer() as usize])
            {
                ot[1 - ot[2] as usize] = take(width);
            }
            for ot in &mut coins[party as usize].ots {
                ot[2] = take(1);
            }
            let (view, outputs) = view(&program, party, inputs, &coins);
            let modulus = program.output_modulus();
            let sum = modulus.centre(modulus.add(outputs[0].into(), outputs[1].into()));
            assert_eq!(sum, value.max(0));
            *seen.entry(view).or_default() += 1;
        }
        let counts: Vec<u64> = seen.values().copied().collect();
        assert!(
            counts.iter().all(|count| *count == counts[0]),
            "{party:?} {value}"
        );
        // As many views as the messages have bits: none is impossible.
        let message: usize = (0..program.levels())
            .map(|level| program.bits(level, party.peer()))
            .sum();
        assert_eq!(counts.len(), 1 << message);
    }
}

fn relu(bits: u32, output: Modulus) -> Program {
    let input = Input {
        bits,
        guard: 0,
        error: 0,
        low: -(1 << (bits - 1)),
        high: (1 << (bits - 1)) - 1,
    };
    Program::activation(&activation(1, Rectifier::Relu, None), input, output).unwrap()
}

#[test]
fn views_of_a_relu_are_uniform() {
    for (bits, output) in [(2, 2), (2, 3)] {
        let output = Modulus::power_of_two(output).unwrap();
        for party in [Party::Server, Party::Client] {
            assert_uniform(relu(bits, output), party, &[-2, -1, 0, 1], 7);
        }
    }
}
