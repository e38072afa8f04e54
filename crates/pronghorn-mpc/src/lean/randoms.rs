//! Random OTs of a program: each is used once, for one product of 64 elements at a time.
//!
//! OT `i` of element `e` of a batch is number `64 lanes i + e`: a function of the product and the
//! element, the same for any number of threads.

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::program::{Ots, Party, Program, Strings};
use crate::{Block, circuit::Modulus, ot::transfer::residue};

/// Elements in a word of a plane.
pub const LANE: usize = u64::BITS as usize;

/// Words of a plane of so many elements.
pub(super) fn lanes(elements: usize) -> usize {
    elements.div_ceil(LANE)
}

impl Program {
    /// OTs whose sender is `party`, for a batch of so many elements.
    pub fn batch_ots(&self, sender: Party, elements: usize) -> usize {
        self.ots(sender) * lanes(elements) * LANE
    }

    /// Bytes that [`Sent::write`] and [`Received::write`] of a party take together.
    pub fn stored_bytes(&self, party: Party, elements: usize) -> usize {
        let [sent, received] = [party, party.peer()].map(|sender| &self.ots[sender as usize]);
        2 * Planes::bytes(sent, elements)
            + Planes::bytes(received, elements)
            + 8 * received.strings.len() * lanes(elements)
    }
}

/// The sender's strings: for each OT that of choice 0, and what that of choice 1 has beyond it.
/// Wiped on drop; no Debug.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Sent {
    pub(super) zeros: Planes,
    pub(super) differences: Planes,
}

/// The receiver's choices, and the strings that they chose. Wiped on drop; no Debug.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Received {
    pub(super) choices: Vec<u64>,
    pub(super) strings: Planes,
}

/// The strings of all OTs of a direction, in planes of bits and in residues.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(super) struct Planes {
    pub bits: Vec<u64>,
    pub words: Vec<u32>,
}

impl Planes {
    /// From a block an OT, hashed.
    fn from_blocks(ots: &Ots, elements: usize, blocks: &[Block]) -> Self {
        let lanes = lanes(elements);
        let mut planes = Self {
            bits: vec![0; ots.planes * lanes],
            words: vec![0; ots.words * elements],
        };
        for (strings, blocks) in ots.strings.iter().zip(blocks.chunks((lanes * LANE).max(1))) {
            match *strings {
                Strings::Bits { count, at } => {
                    let bits = &mut planes.bits[at * lanes..][..count * lanes];
                    low_bits(blocks, bits, lanes);
                }
                Strings::Word { modulus, at } => {
                    let words = &mut planes.words[at * elements..][..elements];
                    for (word, &block) in words.iter_mut().zip(blocks) {
                        *word = residue(modulus, block) as u32;
                    }
                }
            }
        }
        planes
    }
}

/// The lowest bits of blocks, in planes of `lanes` words.
fn low_bits(blocks: &[Block], planes: &mut [u64], lanes: usize) {
    for (lane, blocks) in blocks.chunks_exact(LANE).enumerate() {
        for (group, blocks) in blocks.chunks_exact(8).enumerate() {
            let bytes: [u8; 8] = std::array::from_fn(|i| blocks[i].to_bytes()[0]);
            let bits = transposed(u64::from_le_bytes(bytes)).to_le_bytes();
            for (plane, bits) in planes.chunks_exact_mut(lanes).zip(bits) {
                plane[lane] |= u64::from(bits) << (8 * group);
            }
        }
    }
}

/// The 8 x 8 matrix of bits, transposed (Warren, "Hacker's Delight", section 7-3).
fn transposed(mut x: u64) -> u64 {
    for (by, mask) in [
        (7, 0x00aa_00aa_00aa_00aa),
        (14, 0x0000_cccc_0000_cccc),
        (28, 0x0000_0000_f0f0_f0f0),
    ] {
        let swapped = (x ^ (x >> by)) & mask;
        x ^= swapped ^ (swapped << by);
    }
    x
}

impl Sent {
    /// From the strings of both choices, hashed, one block an OT.
    ///
    /// # Panics
    /// Unless there are [`Program::batch_ots`] of each.
    pub fn from_blocks(
        program: &Program,
        sender: Party,
        elements: usize,
        [zeros, ones]: [&[Block]; 2],
    ) -> Self {
        let ots = &program.ots[sender as usize];
        for blocks in [zeros, ones] {
            assert_eq!(blocks.len(), program.batch_ots(sender, elements));
        }
        let zeros = Planes::from_blocks(ots, elements, zeros);
        let mut differences = Planes::from_blocks(ots, elements, ones);
        for (one, zero) in differences.bits.iter_mut().zip(&zeros.bits) {
            *one ^= zero;
        }
        let moduli = ots.strings.iter().filter_map(Strings::modulus);
        let words = differences.words.chunks_mut(elements.max(1));
        for ((modulus, ones), zeros) in moduli.zip(words).zip(zeros.words.chunks(elements.max(1))) {
            for (one, &zero) in ones.iter_mut().zip(zeros) {
                *one = modulus.sub((*one).into(), zero.into()) as u32;
            }
        }
        Self { zeros, differences }
    }
}

impl Received {
    /// Of a program without products.
    pub fn nothing() -> Self {
        Self {
            choices: Vec::new(),
            strings: Planes {
                bits: Vec::new(),
                words: Vec::new(),
            },
        }
    }

    /// From the choices, packed, lowest bit first, and the strings that they chose, hashed.
    ///
    /// # Panics
    /// Unless there are [`Program::batch_ots`] of both.
    pub fn from_blocks(
        program: &Program,
        sender: Party,
        elements: usize,
        choices: &[u8],
        blocks: &[Block],
    ) -> Self {
        let count = program.batch_ots(sender, elements);
        assert_eq!((8 * choices.len(), blocks.len()), (count, count));
        let (choices, _) = choices.as_chunks();
        let choices = choices.iter().map(|bytes| u64::from_le_bytes(*bytes));
        Self {
            choices: choices.collect(),
            strings: Planes::from_blocks(&program.ots[sender as usize], elements, blocks),
        }
    }
}

impl Planes {
    fn write(&self, out: &mut Vec<u8>) {
        self.bits
            .iter()
            .for_each(|lane| out.extend_from_slice(&lane.to_le_bytes()));
        self.words
            .iter()
            .for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    }

    /// Takes the planes of these OTs off the front; `None` where there are too few bytes.
    fn read(ots: &Ots, elements: usize, bytes: &mut &[u8]) -> Option<Self> {
        let bits = read_lanes(ots.planes * lanes(elements), bytes)?;
        let (words, rest) = bytes.split_at_checked(4 * ots.words * elements)?;
        *bytes = rest;
        let words = words
            .as_chunks()
            .0
            .iter()
            .map(|word| u32::from_le_bytes(*word));
        let planes = Self {
            bits,
            words: words.collect(),
        };
        let moduli = ots.strings.iter().filter_map(Strings::modulus);
        let mut residues = moduli.zip(planes.words.chunks(elements.max(1)));
        let valid = residues.all(|(modulus, words)| {
            let most = modulus.neg(1);
            words.iter().all(|&word| u64::from(word) <= most)
        });
        valid.then_some(planes)
    }

    /// Bytes that [`write`](Self::write) takes.
    fn bytes(ots: &Ots, elements: usize) -> usize {
        8 * ots.planes * lanes(elements) + 4 * ots.words * elements
    }
}

fn read_lanes(count: usize, bytes: &mut &[u8]) -> Option<Vec<u64>> {
    let (lanes, rest) = bytes.split_at_checked(8 * count)?;
    *bytes = rest;
    let lanes = lanes.as_chunks().0.iter();
    Some(lanes.map(|lane| u64::from_le_bytes(*lane)).collect())
}

impl Sent {
    /// Appends all of it, for a store that hands it out once.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.zeros.write(out);
        self.differences.write(out);
    }

    /// Takes what [`write`](Self::write) wrote off the front; `None` where it is not that.
    pub fn read(
        program: &Program,
        sender: Party,
        elements: usize,
        bytes: &mut &[u8],
    ) -> Option<Self> {
        let ots = &program.ots[sender as usize];
        let zeros = Planes::read(ots, elements, bytes)?;
        let differences = Planes::read(ots, elements, bytes)?;
        Some(Self { zeros, differences })
    }
}

impl Received {
    /// Appends all of it, for a store that hands it out once.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.choices
            .iter()
            .for_each(|lane| out.extend_from_slice(&lane.to_le_bytes()));
        self.strings.write(out);
    }

    /// Takes what [`write`](Self::write) wrote off the front; `None` where it is not that.
    pub fn read(
        program: &Program,
        sender: Party,
        elements: usize,
        bytes: &mut &[u8],
    ) -> Option<Self> {
        let ots = &program.ots[sender as usize];
        let choices = read_lanes(ots.strings.len() * lanes(elements), bytes)?;
        let mut choices = Zeroizing::new(choices);
        let strings = Planes::read(ots, elements, bytes)?;
        let choices = std::mem::take(&mut *choices);
        Some(Self { choices, strings })
    }
}

impl Strings {
    /// The modulus of a residue.
    pub fn modulus(&self) -> Option<Modulus> {
        match *self {
            Self::Bits { .. } => None,
            Self::Word { modulus, .. } => Some(modulus),
        }
    }
}

/// OTs of both directions, as a trusted party would deal them: for tests and measurements.
///
/// `random` gives 128 random bits.
pub fn deal(
    program: &Program,
    elements: usize,
    mut random: impl FnMut() -> u128,
) -> [(Sent, Received); 2] {
    let mut direction = |sender: Party| {
        let count = program.batch_ots(sender, elements);
        let mut blocks = || -> Zeroizing<Vec<Block>> {
            let blocks = (0..count).map(|_| Block::from_u128(random()));
            Zeroizing::new(blocks.collect())
        };
        let (zeros, ones, choices) = (blocks(), blocks(), blocks());
        let chosen: Vec<Block> = (0..count)
            .map(|ot| match choices[ot].lsb() {
                false => zeros[ot],
                true => ones[ot],
            })
            .collect();
        let bit = |byte: usize, bit: usize| u8::from(choices[8 * byte + bit].lsb()) << bit;
        let bytes: Vec<u8> = (0..count / 8)
            .map(|byte| (0..8).fold(0, |sum, place| sum | bit(byte, place)))
            .collect();
        (
            Sent::from_blocks(program, sender, elements, [&zeros, &ones]),
            Received::from_blocks(program, sender, elements, &bytes, &chosen),
        )
    };
    [direction(Party::Server), direction(Party::Client)]
}
