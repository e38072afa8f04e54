//! Random OTs of a program: each is used once, for one product of 64 elements at a time.
//!
//! OT `i` of element `e` of a batch is number `64 lanes i + e`: a function of the product and the
//! element, the same for any number of threads. An OT of several bits of choice takes as many
//! numbers, and its strings have the first.

use pronghorn_ring::bits;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::program::{MOST_WIDTH, Ot, Ots, Party, Program, Strings};
use crate::{
    Block,
    circuit::Modulus,
    ot::{
        OtError,
        transfer::{CorrelatedReceiver, CorrelatedSender, residue},
    },
};

/// Elements in a word of a plane.
pub const LANE: usize = u64::BITS as usize;

/// Strings that are made at a time, so that they stay in the cache.
const STEP: usize = LANE << MOST_WIDTH;

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
        Planes::bytes(Side::Sender, sent, elements)
            + Planes::bytes(Side::Receiver, received, elements)
            + 8 * received.single * lanes(elements)
    }
}

/// The sender's strings, of all choices. Wiped on drop; no Debug.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Sent {
    pub(super) strings: Planes,
}

/// The receiver's choices, a plane for each bit, and the strings that they chose. Wiped on drop; no
/// Debug.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Received {
    pub(super) choices: Vec<u64>,
    pub(super) strings: Planes,
}

/// The strings of all OTs of a direction, in planes of bits and in residues: at the sender a plane
/// or a word for each choice.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(super) struct Planes {
    pub bits: Vec<u64>,
    pub words: Vec<u64>,
}

/// Who has the strings.
#[derive(Clone, Copy)]
enum Side {
    Sender,
    Receiver,
}

impl Side {
    fn planes(self, ots: &Ots) -> usize {
        match self {
            Self::Sender => ots.sent_planes,
            Self::Receiver => ots.received_planes,
        }
    }

    fn words(self, ots: &Ots) -> usize {
        match self {
            Self::Sender => 2 * ots.words,
            Self::Receiver => ots.words,
        }
    }

    /// The modulus of each word.
    fn moduli(self, ots: &Ots) -> impl Iterator<Item = Modulus> + '_ {
        let times = match self {
            Self::Sender => 2,
            Self::Receiver => 1,
        };
        (0..times).flat_map(|_| ots.all.iter().filter_map(|ot| ot.strings.modulus()))
    }

    /// Strings of an OT.
    fn strings(self, ot: &Ot) -> usize {
        match self {
            Self::Sender => 1 << ot.width,
            Self::Receiver => 1,
        }
    }
}

/// Some OTs of one product: those of some lanes of the batch.
struct Piece<'a> {
    ot: &'a Ot,
    /// Its index among those of the direction.
    index: usize,
    /// Lanes of a batch.
    lanes: usize,
    /// The first of these lanes.
    lane: usize,
}

impl Piece<'_> {
    /// Where the correlated blocks of a bit of the choice are.
    fn blocks<'a>(&self, bit: u32, blocks: &'a [Block]) -> &'a [Block] {
        let row = (self.ot.first + bit as usize) * self.lanes;
        &blocks[(row + self.lane) * LANE..]
    }

    /// The sum of the blocks of all bits, each times its power of `x`, into `out`.
    fn combined(&self, blocks: &[Block], out: &mut [Block]) {
        let highest = self.ot.width - 1;
        let count = out.len();
        out.copy_from_slice(&self.blocks(highest, blocks)[..count]);
        for bit in (0..highest).rev() {
            for (out, &block) in out.iter_mut().zip(self.blocks(bit, blocks)) {
                *out = out.doubled() ^ block;
            }
        }
    }

    /// The number of the first OT.
    fn number(&self, first: u64) -> u64 {
        first + ((self.ot.first * self.lanes + self.lane) * LANE) as u64
    }
}

impl Planes {
    /// `fill` writes strings of a piece, one choice after the other, of as many elements each.
    fn made(
        side: Side,
        ots: &Ots,
        elements: usize,
        mut fill: impl FnMut(&Piece, &mut [Block]),
    ) -> Self {
        let lanes = lanes(elements);
        let mut planes = Self {
            bits: vec![0; side.planes(ots) * lanes],
            words: vec![0; side.words(ots) * elements],
        };
        let mut strings = Zeroizing::new([Block::ZERO; STEP]);
        for (index, ot) in ots.all.iter().enumerate() {
            let choices = side.strings(ot);
            let step = STEP / LANE / choices;
            for lane in (0..lanes).step_by(step) {
                let piece = Piece {
                    ot,
                    index,
                    lanes,
                    lane,
                };
                let count = step.min(lanes - lane) * LANE;
                let strings = &mut strings[..choices * count];
                fill(&piece, strings);
                for (choice, strings) in strings.chunks(count).enumerate() {
                    planes.put(side, (ots, &piece), elements, choice, strings);
                }
            }
        }
        planes
    }

    /// Puts the strings of a choice where they belong.
    fn put(
        &mut self,
        side: Side,
        (ots, piece): (&Ots, &Piece),
        elements: usize,
        choice: usize,
        strings: &[Block],
    ) {
        let lanes = piece.lanes;
        match (piece.ot.strings, side) {
            (Strings::Bits { count, sent, .. }, Side::Sender) => {
                let planes = &mut self.bits[(sent + choice * count) * lanes..][..count * lanes];
                low_bits(strings, planes, (lanes, piece.lane));
            }
            (
                Strings::Bits {
                    count, received, ..
                },
                Side::Receiver,
            ) => {
                let planes = &mut self.bits[received * lanes..][..count * lanes];
                low_bits(strings, planes, (lanes, piece.lane));
            }
            (Strings::Word { modulus, at }, _) => {
                let words = &mut self.words[(choice * ots.words + at) * elements..][..elements];
                for (word, &block) in words[piece.lane * LANE..].iter_mut().zip(strings) {
                    *word = residue(modulus, block);
                }
            }
        }
    }
}

/// The lowest bits of blocks, into planes of `lanes` words, from word `first` on.
fn low_bits(blocks: &[Block], planes: &mut [u64], (lanes, first): (usize, usize)) {
    for (lane, blocks) in (first..).zip(blocks.chunks_exact(LANE)) {
        for (group, blocks) in blocks.chunks_exact(8).enumerate() {
            for (byte, planes) in planes.chunks_mut(8 * lanes).enumerate() {
                let bytes: [u8; 8] = std::array::from_fn(|i| blocks[i].to_bytes()[byte]);
                let bits = transposed(u64::from_le_bytes(bytes)).to_le_bytes();
                for (plane, bits) in planes.chunks_exact_mut(lanes).zip(bits) {
                    plane[lane] |= u64::from(bits) << (8 * group);
                }
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
    /// From correlated blocks, one an OT of one bit; the first of them has number `first`.
    ///
    /// # Errors
    /// [`OtError::Burnt`] where a check of the sender failed.
    ///
    /// # Panics
    /// Unless there are [`Program::batch_ots`] of them.
    pub fn of(
        program: &Program,
        party: Party,
        elements: usize,
        sender: &impl CorrelatedSender,
        (first, blocks): (u64, &[Block]),
    ) -> Result<Self, OtError> {
        sender.check_usable()?;
        assert_eq!(blocks.len(), program.batch_ots(party, elements));
        let mut multiples = Zeroizing::new([Block::ZERO; 1 << MOST_WIDTH]);
        for choice in 1..multiples.len() {
            let odd = sender.delta().masked(choice & 1 == 1);
            multiples[choice] = multiples[choice / 2].doubled() ^ odd;
        }
        let fill = |piece: &Piece, strings: &mut [Block]| {
            let width = piece.ot.width;
            let count = strings.len() >> width;
            let (zeros, others) = strings.split_at_mut(count);
            piece.combined(blocks, zeros);
            for (multiple, others) in multiples[1..].iter().zip(others.chunks_mut(count)) {
                for (other, &zero) in others.iter_mut().zip(&*zeros) {
                    *other = zero ^ *multiple;
                }
            }
            let number = piece.number(first);
            sender.hash().hash_strings(width, number, count, strings);
        };
        let ots = &program.ots[party as usize];
        let strings = Planes::made(Side::Sender, ots, elements, fill);
        Ok(Self { strings })
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

    /// From the choices, packed, lowest bit first, and correlated blocks, one an OT of one bit; the
    /// first of them has number `first`.
    ///
    /// # Panics
    /// Unless there are [`Program::batch_ots`] of both.
    pub fn of(
        program: &Program,
        sender: Party,
        elements: usize,
        receiver: &impl CorrelatedReceiver,
        (first, choices, blocks): (u64, &[u8], &[Block]),
    ) -> Self {
        let count = program.batch_ots(sender, elements);
        assert_eq!((8 * choices.len(), blocks.len()), (count, count));
        let fill = |piece: &Piece, strings: &mut [Block]| {
            let (width, count) = (piece.ot.width, strings.len());
            piece.combined(blocks, strings);
            let number = piece.number(first);
            receiver.hash().hash_strings(width, number, count, strings);
        };
        let ots = &program.ots[sender as usize];
        Self {
            choices: packed_lanes(choices),
            strings: Planes::made(Side::Receiver, ots, elements, fill),
        }
    }
}

fn packed_lanes(choices: &[u8]) -> Vec<u64> {
    let (lanes, _) = choices.as_chunks();
    lanes
        .iter()
        .map(|bytes| u64::from_le_bytes(*bytes))
        .collect()
}

impl Planes {
    fn write(&self, side: Side, ots: &Ots, elements: usize, out: &mut Vec<u8>) {
        self.bits
            .iter()
            .for_each(|lane| out.extend_from_slice(&lane.to_le_bytes()));
        let words = self.words.chunks(elements.max(1));
        for (modulus, words) in side.moduli(ots).zip(words) {
            bits::pack(words, modulus.bits(), out);
        }
    }

    /// Takes the planes of these OTs off the front; `None` where the bytes are not that.
    fn read(side: Side, ots: &Ots, elements: usize, bytes: &mut &[u8]) -> Option<Self> {
        let mut planes = Self {
            bits: read_lanes(side.planes(ots) * lanes(elements), bytes)?,
            words: vec![0; side.words(ots) * elements],
        };
        let words = planes.words.chunks_mut(elements.max(1));
        for (modulus, words) in side.moduli(ots).zip(words) {
            let packed = bits::packed_len(elements, modulus.bits());
            let (packed, rest) = bytes.split_at_checked(packed)?;
            *bytes = rest;
            bits::unpack(packed, modulus.bits(), words).ok()?;
            let most = modulus.neg(1);
            if words.iter().any(|&word| word > most) {
                return None;
            }
        }
        Some(planes)
    }

    /// Bytes that [`write`](Self::write) takes.
    fn bytes(side: Side, ots: &Ots, elements: usize) -> usize {
        let words = side.moduli(ots);
        let words = words.map(|modulus| bits::packed_len(elements, modulus.bits()));
        8 * side.planes(ots) * lanes(elements) + words.sum::<usize>()
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
    pub fn write(&self, program: &Program, sender: Party, elements: usize, out: &mut Vec<u8>) {
        let ots = &program.ots[sender as usize];
        self.strings.write(Side::Sender, ots, elements, out);
    }

    /// Takes what [`write`](Self::write) wrote off the front; `None` where it is not that.
    pub fn read(
        program: &Program,
        sender: Party,
        elements: usize,
        bytes: &mut &[u8],
    ) -> Option<Self> {
        let ots = &program.ots[sender as usize];
        let strings = Planes::read(Side::Sender, ots, elements, bytes)?;
        Some(Self { strings })
    }
}

impl Received {
    /// Appends all of it, for a store that hands it out once.
    pub fn write(&self, program: &Program, sender: Party, elements: usize, out: &mut Vec<u8>) {
        self.choices
            .iter()
            .for_each(|lane| out.extend_from_slice(&lane.to_le_bytes()));
        let ots = &program.ots[sender as usize];
        self.strings.write(Side::Receiver, ots, elements, out);
    }

    /// Takes what [`write`](Self::write) wrote off the front; `None` where it is not that.
    pub fn read(
        program: &Program,
        sender: Party,
        elements: usize,
        bytes: &mut &[u8],
    ) -> Option<Self> {
        let ots = &program.ots[sender as usize];
        let choices = read_lanes(ots.single * lanes(elements), bytes)?;
        let mut choices = Zeroizing::new(choices);
        let strings = Planes::read(Side::Receiver, ots, elements, bytes)?;
        let choices = std::mem::take(&mut *choices);
        Some(Self { choices, strings })
    }
}

impl Strings {
    /// The modulus of a residue.
    fn modulus(&self) -> Option<Modulus> {
        match *self {
            Self::Bits { .. } => None,
            Self::Word { modulus, .. } => Some(modulus),
        }
    }
}

/// Random strings and choices of a direction, as a trusted party deals them: for tests and
/// measurements.
pub struct Dealer<'a> {
    /// The program.
    pub program: &'a Program,
    /// The sender of the OTs.
    pub sender: Party,
    /// Elements of the batch.
    pub elements: usize,
}

impl Dealer<'_> {
    /// What both parties get, where `string(ot, choice, element)` and `choice(ot, element)` are the
    /// coins of the OTs of [`Program::ot_widths`]. Elements are those of whole lanes.
    pub fn deal(
        &self,
        string: impl Fn(usize, usize, usize) -> Block,
        choice: impl Fn(usize, usize) -> usize,
    ) -> (Sent, Received) {
        let ots = &self.program.ots[self.sender as usize];
        let fill = |piece: &Piece, strings: &mut [Block]| {
            let count = strings.len() >> piece.ot.width;
            for (chosen, strings) in strings.chunks_mut(count).enumerate() {
                for (string_of, element) in strings.iter_mut().zip(piece.lane * LANE..) {
                    *string_of = string(piece.index, chosen, element);
                }
            }
        };
        let sent = Planes::made(Side::Sender, ots, self.elements, fill);
        let fill = |piece: &Piece, strings: &mut [Block]| {
            for (string_of, element) in strings.iter_mut().zip(piece.lane * LANE..) {
                let chosen = choice(piece.index, element);
                *string_of = string(piece.index, chosen, element);
            }
        };
        let received = Planes::made(Side::Receiver, ots, self.elements, fill);
        let lanes = lanes(self.elements);
        let mut choices = vec![0; ots.single * lanes];
        for (index, ot) in ots.all.iter().enumerate() {
            for element in 0..lanes * LANE {
                let choice = choice(index, element) as u64;
                for bit in 0..ot.width as usize {
                    let lane = (ot.first + bit) * lanes + element / LANE;
                    choices[lane] |= (choice >> bit & 1) << (element % LANE);
                }
            }
        }
        let sent = Sent { strings: sent };
        let received = Received {
            choices,
            strings: received,
        };
        (sent, received)
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
    [Party::Server, Party::Client].map(|sender| {
        let ots = program.ot_widths(sender).count();
        let count = lanes(elements) * LANE;
        let mut blocks = |count: usize| -> Zeroizing<Vec<Block>> {
            let blocks = (0..count).map(|_| Block::from_u128(random()));
            Zeroizing::new(blocks.collect())
        };
        let (strings, choices) = (blocks((ots * count) << MOST_WIDTH), blocks(ots * count));
        let widths: Vec<u32> = program.ot_widths(sender).map(|(width, _)| width).collect();
        let dealer = Dealer {
            program,
            sender,
            elements,
        };
        dealer.deal(
            |ot, choice, element| strings[(ot * count + element) << MOST_WIDTH | choice],
            |ot, element| {
                let choice = choices[ot * count + element].to_bytes()[0];
                usize::from(choice) & ((1 << widths[ot]) - 1)
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plane `b` has bit `b` of every block, for strings of any width: parties that hold the same wrong
    /// masks would get right results, and protect nothing.
    #[test]
    fn every_bit_of_a_string_has_its_plane() {
        let mut state = 1_u128;
        let mut block = || {
            state = state.wrapping_mul(0x0da9_4204_2e4d_d58b_5b87_c2f6_9e37_79b9);
            state = state.wrapping_add(0x1405_7b7e_f767_814f);
            Block::from_u128(state >> 32 ^ state << 77)
        };
        for count in [1, 2, 7, 8, 9, 16, 33, 63, 64] {
            for (lanes, first) in [(1, 0), (3, 0), (5, 2)] {
                let blocks: Vec<Block> = (0..(lanes - first) * LANE).map(|_| block()).collect();
                let mut planes = vec![0; count * lanes];
                low_bits(&blocks, &mut planes, (lanes, first));
                for (index, &found) in planes.iter().enumerate() {
                    let (bit, lane) = (index / lanes, index % lanes);
                    let wanted = match lane.checked_sub(first) {
                        None => 0,
                        Some(lane) => (0..LANE).fold(0, |word, element| {
                            let string = blocks[lane * LANE + element].to_u128();
                            word | ((string >> bit & 1) as u64) << element
                        }),
                    };
                    assert_eq!(
                        found, wanted,
                        "bit {bit} of {count}, lane {lane} of {lanes}"
                    );
                }
                // No two planes are alike.
                let mut all: Vec<&[u64]> = planes.chunks(lanes).collect();
                all.sort_unstable();
                all.dedup();
                assert_eq!(all.len(), count);
            }
        }
    }
}
