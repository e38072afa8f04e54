//! One party's run of a program, for a batch of elements.

use std::{ops::Range, sync::Arc};

use pronghorn_ring::bits;
use thiserror::Error;
use zeroize::{ZeroizeOnDrop, Zeroizing};

use super::{
    program::{Local, Party, Plane, Product, Program, Strings, Word},
    randoms::{LANE, Received, Sent, lanes},
};
use crate::circuit::Modulus;

/// A message that is not one of the program's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LeanError {
    /// A message of the wrong length.
    #[error("level {level} has {found} bytes, expected {expected}")]
    Length {
        /// The level.
        level: usize,
        /// Bytes found.
        found: usize,
        /// Bytes expected.
        expected: usize,
    },
    /// A residue that is not below the modulus.
    #[error("level {level}: a number is not below the modulus")]
    Residue {
        /// The level.
        level: usize,
    },
    /// A level that is not the next.
    #[error("level {level} came out of turn")]
    OutOfTurn {
        /// The level.
        level: usize,
    },
}

impl LeanError {
    /// The error of a program that so many levels of others come before.
    pub(super) fn after(mut self, levels: usize) -> Self {
        match &mut self {
            Self::Length { level, .. } | Self::Residue { level } | Self::OutOfTurn { level } => {
                *level += levels;
            }
        }
        self
    }
}

impl Program {
    /// Bytes that `party` sends in a level, for a batch of so many elements.
    pub fn bytes(&self, level: usize, party: Party, elements: usize) -> usize {
        let bytes = |product: &Product| {
            let sent = self.sent(product, party);
            let word = |modulus: Modulus| bits::packed_len(elements, modulus.bits());
            sent.planes * elements.div_ceil(8) + sent.word.map_or(0, word)
        };
        self.levels[level].products.iter().map(bytes).sum()
    }

    /// Bytes that either party holds for a batch of so many elements.
    pub fn memory(&self, elements: usize) -> usize {
        let lanes = 8 * lanes(elements);
        let [server, client] = &self.ots;
        // A direction's strings twice at the sender, once with the choices at the receiver.
        let planes = self.planes
            + 2 * server.planes.max(client.planes)
            + server.planes.min(client.planes)
            + server.strings.len().max(client.strings.len());
        let words = self.moduli.len() + 3 * server.words.max(client.words);
        planes * lanes + words * 4 * elements
    }
}

/// One party's run. Levels alternate: [`make`](Self::make) a level, then [`take`](Self::take) the
/// peer's part of it. Wiped on drop; no Debug.
pub struct Evaluation {
    program: Arc<Program>,
    party: Party,
    elements: usize,
    lanes: usize,
    planes: Zeroizing<Vec<u64>>,
    words: Zeroizing<Vec<u32>>,
    /// Absent at a server that has not heard of the client's OTs yet.
    sent: Option<Sent>,
    received: Received,
    made: usize,
    taken: usize,
}

impl Evaluation {
    /// With this party's residues: `inputs[i]` for input `i`, and the OTs that it receives. Those
    /// that it sends come by [`provide`](Self::provide), at the server after the first level.
    ///
    /// # Panics
    /// Unless there are as many inputs as the program takes, all of one length.
    pub fn new(program: Arc<Program>, party: Party, inputs: &[&[u32]], received: Received) -> Self {
        assert_eq!(inputs.len(), program.inputs());
        let elements = inputs.first().map_or(0, |input| input.len());
        let lanes = lanes(elements);
        let mut words = Zeroizing::new(vec![0; program.moduli.len() * elements]);
        for (word, input) in program.inputs.iter().zip(inputs) {
            let modulus = program.moduli[word.0 as usize];
            let out = &mut words[word.0 as usize * elements..][..elements];
            for (out, &word) in out.iter_mut().zip(*input) {
                *out = reduced(modulus, word.into());
            }
        }
        Self {
            planes: Zeroizing::new(vec![0; program.planes * lanes]),
            words,
            program,
            party,
            elements,
            lanes,
            sent: None,
            received,
            made: 0,
            taken: 0,
        }
    }

    /// The OTs that this party sends.
    pub fn provide(&mut self, sent: Sent) {
        self.sent = Some(sent);
    }

    /// Elements of the batch.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Whether all levels are made.
    pub fn is_done(&self) -> bool {
        self.made == self.program.levels()
    }

    /// Whether the peer's parts of all levels are taken.
    pub(super) fn is_taken(&self) -> bool {
        self.taken == self.program.levels()
    }

    /// Levels made so far: the next one to make.
    pub fn made(&self) -> usize {
        self.made
    }

    /// Appends this party's part of the next level.
    ///
    /// # Errors
    /// All levels are made, or the peer's part of the last is missing.
    pub fn make(&mut self, out: &mut Vec<u8>) -> Result<(), LeanError> {
        let level = self.made;
        let needs_sent = level > 0 || self.party == Party::Client;
        let ready = self.sent.is_some() || !needs_sent;
        if level != self.taken || level >= self.program.levels() || !ready {
            return Err(LeanError::OutOfTurn { level });
        }
        let program = self.program.clone();
        self.locals(&program.levels[level].locals);
        let sizes = self.program.bytes(level, self.party, self.elements);
        out.reserve(sizes);
        for product in &program.levels[level].products {
            self.send(product, out);
        }
        self.made += 1;
        Ok(())
    }

    /// Takes the peer's part of a level that this party has made.
    ///
    /// # Errors
    /// The part is of another length, or holds a number that is no residue.
    pub fn take(&mut self, message: &[u8]) -> Result<(), LeanError> {
        let level = self.taken;
        if level >= self.made {
            return Err(LeanError::OutOfTurn { level });
        }
        let expected = self.program.bytes(level, self.party.peer(), self.elements);
        if message.len() != expected {
            return Err(LeanError::Length {
                level,
                found: message.len(),
                expected,
            });
        }
        let program = self.program.clone();
        let mut rest = message;
        for product in &program.levels[level].products {
            self.receive(product, &mut rest)
                .ok_or(LeanError::Residue { level })?;
        }
        self.taken += 1;
        if self.taken == program.levels() {
            self.locals(&program.levels[self.taken].locals);
        }
        Ok(())
    }

    /// This party's residues of the result.
    ///
    /// # Errors
    /// Levels are missing.
    pub fn output(&mut self) -> Result<&[u32], LeanError> {
        Ok(self.outputs()?.swap_remove(0))
    }

    /// This party's residues of all results.
    ///
    /// # Errors
    /// Levels are missing.
    pub(super) fn outputs(&mut self) -> Result<Vec<&[u32]>, LeanError> {
        let level = self.taken;
        if level != self.program.levels() {
            return Err(LeanError::OutOfTurn { level });
        }
        if level == 0 {
            let program = self.program.clone();
            self.locals(&program.levels[0].locals);
        }
        let outputs = self.program.outputs.iter();
        Ok(outputs.map(|&word| self.word(word)).collect())
    }

    fn plane_range(&self, plane: Plane) -> Range<usize> {
        let first = plane.0 as usize * self.lanes;
        first..first + self.lanes
    }

    fn plane(&self, plane: Plane) -> &[u64] {
        &self.planes[self.plane_range(plane)]
    }

    fn word_range(&self, word: Word) -> Range<usize> {
        let first = word.0 as usize * self.elements;
        first..first + self.elements
    }

    fn word(&self, word: Word) -> &[u32] {
        &self.words[self.word_range(word)]
    }

    fn modulus(&self, word: Word) -> Modulus {
        self.program.moduli[word.0 as usize]
    }

    /// Writes a plane, which comes behind those that it is made of.
    fn set_plane(&mut self, out: Plane, each: impl Fn(&[u64], &mut [u64])) {
        let range = self.plane_range(out);
        let (before, after) = self.planes.split_at_mut(range.start);
        each(before, &mut after[..self.lanes]);
    }

    /// Writes a word, which comes behind those that it is made of.
    fn set_word(&mut self, out: Word, each: impl Fn(&[u32], &[u64], &mut [u32])) {
        let range = self.word_range(out);
        let (before, after) = self.words.split_at_mut(range.start);
        each(before, &self.planes, &mut after[..self.elements]);
    }

    fn locals(&mut self, locals: &[Local]) {
        for local in locals {
            self.local(local);
        }
    }

    fn local(&mut self, local: &Local) {
        let (lanes, server) = (self.lanes, self.party == Party::Server);
        match *local {
            Local::Bit { word, bit, out } => {
                let words = self.word_range(word);
                let range = self.plane_range(out);
                let words = &self.words[words];
                for (lane, words) in self.planes[range].iter_mut().zip(words.chunks(LANE)) {
                    let bits = words.iter().rev();
                    *lane = bits.fold(0, |lane, word| lane << 1 | u64::from(word >> bit & 1));
                }
            }
            Local::Xor {
                ref terms,
                one,
                out,
            } => self.set_plane(out, |planes, out| {
                out.fill(if one && server { u64::MAX } else { 0 });
                for term in terms {
                    let term = &planes[term.0 as usize * lanes..][..lanes];
                    out.iter_mut()
                        .zip(term)
                        .for_each(|(out, term)| *out ^= term);
                }
            }),
            Local::OwnAnd { factors, out } => self.set_plane(out, |planes, out| {
                let [x, y] = factors.map(|factor| &planes[factor.0 as usize * lanes..][..lanes]);
                for (out, (x, y)) in out.iter_mut().zip(x.iter().zip(y)) {
                    *out = x & y;
                }
            }),
            Local::Sum {
                ref terms,
                constant,
                out,
            } => self.sum(terms, if server { constant } else { 0 }, out),
            Local::Shift { word, by, out } => {
                let modulus = self.modulus(out);
                self.map(word, out, |word| reduced(modulus, u64::from(word) >> by));
            }
            Local::Opposite { word, out } => {
                let modulus = self.modulus(out);
                let negate = |word: u32| match server {
                    true => modulus.neg(word.into()) as u32,
                    false => word,
                };
                self.map(word, out, negate);
            }
            Local::Number { bit, of, out } => {
                let counts = of.is_none_or(|of| of == self.party);
                self.set_word(out, |_, planes, out| {
                    let plane = &planes[bit.0 as usize * lanes..][..lanes];
                    for (element, out) in out.iter_mut().enumerate() {
                        *out = if counts {
                            bit_of(plane, element) as u32
                        } else {
                            0
                        };
                    }
                });
            }
            Local::Pick { bit, word, out } => {
                let picked = |word: u32, bit: u64| word & (bit as u32).wrapping_neg();
                self.map_with(bit, word, out, picked);
            }
            Local::Signed { bit, word, out } => {
                let modulus = self.modulus(out);
                self.map_with(bit, word, out, |word, bit| {
                    let mask = (bit as u32).wrapping_neg();
                    word ^ (word ^ modulus.neg(word.into()) as u32) & mask
                });
            }
        }
    }

    fn map(&mut self, word: Word, out: Word, each: impl Fn(u32) -> u32) {
        let range = self.word_range(word);
        self.set_word(out, |words, _, out| {
            for (out, &word) in out.iter_mut().zip(&words[range.clone()]) {
                *out = each(word);
            }
        });
    }

    fn map_with(&mut self, bit: Plane, word: Word, out: Word, each: impl Fn(u32, u64) -> u32) {
        let (range, bits) = (self.word_range(word), self.plane_range(bit));
        self.set_word(out, |words, planes, out| {
            let plane = &planes[bits.clone()];
            for (element, (out, &word)) in out.iter_mut().zip(&words[range.clone()]).enumerate() {
                *out = each(word, bit_of(plane, element));
            }
        });
    }

    fn sum(&mut self, terms: &[(Word, i64)], constant: i64, out: Word) {
        let (modulus, elements) = (self.modulus(out), self.elements);
        let constant = modulus.from_i64(constant);
        self.set_word(out, |words, _, out| {
            out.fill(constant as u32);
            for &(term, coefficient) in terms {
                let term = &words[term.0 as usize * elements..][..elements];
                let coefficient = modulus.from_i64(coefficient);
                for (out, &term) in out.iter_mut().zip(term) {
                    *out = times_plus(modulus, term, coefficient, *out);
                }
            }
        });
    }

    /// The strings of an OT that this party sends or receives.
    fn strings(&self, sender: Party, ot: usize) -> Strings {
        self.program.ots[sender as usize].strings[ot]
    }

    /// The strings of the OTs that this party sends, from a place on: what a choice of 1 adds, and
    /// those of choice 0.
    fn sent_planes(&self, at: usize) -> [&[u64]; 2] {
        self.sent.as_ref().map_or([&[]; 2], |sent| {
            [&sent.differences, &sent.zeros].map(|planes| &planes.bits[at * self.lanes..])
        })
    }

    /// The same for residues.
    fn sent_words(&self, at: usize) -> [&[u32]; 2] {
        self.sent.as_ref().map_or([&[]; 2], |sent| {
            [&sent.differences, &sent.zeros].map(|planes| &planes.words[at * self.elements..])
        })
    }

    fn choices(&self, ot: usize) -> &[u64] {
        &self.received.choices[ot * self.lanes..][..self.lanes]
    }

    fn send(&self, product: &Product, out: &mut Vec<u8>) {
        let (party, lanes, elements) = (self.party, self.lanes, self.elements);
        match *product {
            Product::Bits {
                receiver,
                choice,
                ot,
                ..
            }
            | Product::Word {
                receiver,
                choice,
                ot,
                ..
            } if receiver == party => {
                let masked = self.plane(choice).iter().zip(self.choices(ot));
                write_plane(masked.map(|(y, r)| y ^ r), elements, out);
            }
            Product::Bits {
                ref strings, ot, ..
            } => {
                let Strings::Bits { at, .. } = self.strings(party, ot) else {
                    return;
                };
                let differences = self.sent_planes(at)[0].chunks(lanes);
                for (&string, difference) in strings.iter().zip(differences) {
                    let masked = self.plane(string).iter().zip(difference);
                    write_plane(masked.map(|(w, u)| w ^ u), elements, out);
                }
            }
            Product::And {
                left,
                ref rights,
                ots,
                ..
            } => {
                let masked = self
                    .plane(left)
                    .iter()
                    .zip(self.choices(ots[party.peer() as usize]));
                write_plane(masked.map(|(x, a)| x ^ a), elements, out);
                let Strings::Bits { at, .. } = self.strings(party, ots[party as usize]) else {
                    return;
                };
                let masks = self.sent_planes(at)[0].chunks(lanes);
                for (&right, mask) in rights.iter().zip(masks) {
                    let masked = self.plane(right).iter().zip(mask);
                    write_plane(masked.map(|(y, b)| y ^ b), elements, out);
                }
            }
            Product::Word { word, ot, .. } => {
                let Strings::Word { modulus, at } = self.strings(party, ot) else {
                    return;
                };
                let [differences, _] = self.sent_words(at);
                let masked = self.word(word).iter().zip(differences);
                let masked = masked.map(|(&w, &u)| modulus.sub(w.into(), u.into()) as u32);
                let masked: Zeroizing<Vec<u32>> = Zeroizing::new(masked.collect());
                bits::pack(&masked, modulus.bits(), out);
            }
        }
    }

    /// Completes a product with the peer's part of its messages; `None` where that holds a number
    /// that is no residue.
    fn receive(&mut self, product: &Product, rest: &mut &[u8]) -> Option<()> {
        match *product {
            Product::Bits {
                receiver,
                ref strings,
                ref out,
                ot,
                ..
            } => match receiver == self.party {
                true => self.receive_bits(ot, out, rest),
                false => self.sent_bits(ot, strings, out, rest),
            },
            Product::And {
                left,
                ref rights,
                ref out,
                ots,
            } => self.receive_and((left, rights), ots, out, rest),
            Product::Word {
                receiver,
                choice,
                word,
                out,
                ot,
            } => match receiver == self.party {
                true => return self.receive_word(choice, ot, out, rest),
                false => self.sent_word(word, ot, out, rest),
            },
        }
        Some(())
    }

    /// The receiver's share of `y w` is `r e + w_r`.
    fn receive_bits(&mut self, ot: usize, out: &[Plane], rest: &mut &[u8]) {
        let (lanes, elements) = (self.lanes, self.elements);
        let Strings::Bits { at, .. } = self.strings(self.party.peer(), ot) else {
            return;
        };
        for (index, &out) in out.iter().enumerate() {
            let corrections = read_plane(rest, elements);
            let range = self.plane_range(out);
            let strings = &self.received.strings.bits[(at + index) * lanes..];
            let choices = &self.received.choices[ot * lanes..];
            let planes = self.planes[range].iter_mut().zip(corrections);
            for (((out, e), w), r) in planes.zip(strings).zip(choices) {
                *out = r & e ^ w;
            }
        }
    }

    /// The sender's is `f w + w_0`.
    fn sent_bits(&mut self, ot: usize, strings: &[Plane], out: &[Plane], rest: &mut &[u8]) {
        let lanes = self.lanes;
        let Strings::Bits { at, .. } = self.strings(self.party, ot) else {
            return;
        };
        let flips: Vec<u64> = read_plane(rest, self.elements).collect();
        for (index, (&string, &out)) in strings.iter().zip(out).enumerate() {
            let range = self.plane_range(out);
            let from = self.plane_range(string);
            let Some(sent) = &self.sent else { return };
            let zeros = &sent.zeros.bits[(at + index) * lanes..];
            let (before, after) = self.planes.split_at_mut(range.start);
            let own = before[from].iter().zip(&flips).zip(zeros);
            for (out, ((w, f), zero)) in after[..lanes].iter_mut().zip(own) {
                *out = f & w ^ zero;
            }
        }
    }

    /// `x y = X Y + X b + Y a + a b`, where `X = x + a` and `Y = y + b` are open, and `a b` is
    /// shared by the OTs: `a` is the receiver's choice, and `b` the difference of the sender's
    /// strings.
    fn receive_and(
        &mut self,
        (left, rights): (Plane, &[Plane]),
        ots: [usize; 2],
        out: &[Plane],
        rest: &mut &[u8],
    ) {
        let (lanes, elements, party) = (self.lanes, self.elements, self.party);
        let (own, theirs) = (ots[party as usize], ots[party.peer() as usize]);
        let (Strings::Bits { at, .. }, Strings::Bits { at: from, .. }) =
            (self.strings(party, own), self.strings(party.peer(), theirs))
        else {
            return;
        };
        let masks = Zeroizing::new(self.choices(theirs).to_vec());
        let opened: Vec<u64> = read_plane(rest, elements)
            .zip(self.plane(left))
            .zip(masks.iter())
            .map(|((peer, x), a)| peer ^ x ^ a)
            .collect();
        for (index, (&right, &out)) in rights.iter().zip(out).enumerate() {
            let peer = read_plane(rest, elements);
            let (range, right) = (self.plane_range(out), self.plane_range(right));
            let (before, after) = self.planes.split_at_mut(range.start);
            let Some(sent) = &self.sent else { return };
            let differences = &sent.differences.bits[(at + index) * lanes..];
            let zeros = &sent.zeros.bits[(at + index) * lanes..];
            let strings = &self.received.strings.bits[(from + index) * lanes..];
            let both = peer.zip(&before[right]).zip(&opened).zip(masks.iter());
            let ots = differences.iter().zip(zeros).zip(strings);
            for (out, ((((peer, y), x), a), ((b, zero), string))) in
                after[..lanes].iter_mut().zip(both.zip(ots))
            {
                let opened = peer ^ y ^ b;
                let open = match party {
                    Party::Server => x & opened,
                    Party::Client => 0,
                };
                *out = open ^ x & b ^ opened & a ^ a & b ^ zero ^ string;
            }
        }
    }

    /// `(1 - 2 f) (r e + w_r)` for the receiver, whose `f` is the sum of its bit and its choice.
    fn receive_word(
        &mut self,
        choice: Plane,
        ot: usize,
        out: Word,
        rest: &mut &[u8],
    ) -> Option<()> {
        let (lanes, elements) = (self.lanes, self.elements);
        let Strings::Word { modulus, at } = self.strings(self.party.peer(), ot) else {
            return None;
        };
        let (packed, after) = rest.split_at(bits::packed_len(elements, modulus.bits()));
        *rest = after;
        let mut corrections = vec![0u32; elements];
        bits::unpack(packed, modulus.bits(), &mut corrections).ok()?;
        let most = modulus.neg(1) as u32;
        if corrections.iter().any(|&word| word > most) {
            return None;
        }
        let (range, bits) = (self.word_range(out), self.plane_range(choice));
        let plane = &self.planes[bits];
        let choices = &self.received.choices[ot * lanes..];
        let strings = &self.received.strings.words[at * elements..];
        let shares = self.words[range].iter_mut().zip(corrections).zip(strings);
        for (element, ((out, correction), &string)) in shares.enumerate() {
            let r = bit_of(choices, element);
            let f = bit_of(plane, element) ^ r;
            let chosen = correction & (r as u32).wrapping_neg();
            let share = modulus.add(chosen.into(), string.into());
            *out = negated(modulus, share, f) as u32;
        }
        Some(())
    }

    /// `f w - (1 - 2 f) w_0` for the sender.
    fn sent_word(&mut self, word: Word, ot: usize, out: Word, rest: &mut &[u8]) {
        let elements = self.elements;
        let Strings::Word { modulus, at } = self.strings(self.party, ot) else {
            return;
        };
        let flips: Vec<u64> = read_plane(rest, elements).collect();
        let (range, from) = (self.word_range(out), self.word_range(word));
        let Some(sent) = &self.sent else { return };
        let (before, after) = self.words.split_at_mut(range.start);
        let zeros = &sent.zeros.words[at * elements..];
        let own = before[from].iter().zip(zeros).enumerate();
        for (out, (element, (&word, &zero))) in after[..elements].iter_mut().zip(own) {
            let f = bit_of(&flips, element);
            let word = u64::from(word) & f.wrapping_neg();
            let zero = negated(modulus, zero.into(), f);
            *out = modulus.sub(word, zero) as u32;
        }
    }
}

/// Its fields wipe themselves.
impl ZeroizeOnDrop for Evaluation {}

fn reduced(modulus: Modulus, word: u64) -> u32 {
    match modulus {
        Modulus::PowerOfTwo(modulus) => modulus.reduce(word) as u32,
        Modulus::Prime(_) => modulus.from_i64(word as i64) as u32,
    }
}

/// `term * coefficient + sum`.
#[inline]
fn times_plus(modulus: Modulus, term: u32, coefficient: u64, sum: u32) -> u32 {
    match modulus {
        Modulus::PowerOfTwo(modulus) => {
            let sum = u64::from(term)
                .wrapping_mul(coefficient)
                .wrapping_add(sum.into());
            modulus.reduce(sum) as u32
        }
        Modulus::Prime(_) => {
            let term = modulus.from_i64(term.into());
            modulus.add(modulus.mul(term, coefficient), sum.into()) as u32
        }
    }
}

/// Minus the residue where the bit is 1.
#[inline]
fn negated(modulus: Modulus, residue: u64, bit: u64) -> u64 {
    residue ^ (residue ^ modulus.neg(residue)) & bit.wrapping_neg()
}

#[inline]
fn bit_of(plane: &[u64], element: usize) -> u64 {
    plane[element / LANE] >> (element % LANE) & 1
}

/// Appends the bits of `elements` elements. Those behind the last are masked like all others.
fn write_plane(plane: impl Iterator<Item = u64>, elements: usize, out: &mut Vec<u8>) {
    let end = out.len() + elements.div_ceil(8);
    for lane in plane {
        let bytes = lane.to_le_bytes();
        let left = end - out.len();
        out.extend_from_slice(&bytes[..left.min(bytes.len())]);
    }
}

/// Takes a plane of `elements` elements off the front.
fn read_plane<'a>(rest: &mut &'a [u8], elements: usize) -> impl Iterator<Item = u64> + use<'a> {
    let (plane, after) = rest.split_at(elements.div_ceil(8));
    *rest = after;
    plane.chunks(8).map(|chunk| {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(bytes)
    })
}
