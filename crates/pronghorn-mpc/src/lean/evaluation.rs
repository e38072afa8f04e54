//! One party's run of a program, for a batch of elements.

use std::{ops::Range, sync::Arc};

use pronghorn_ring::bits;
use subtle::{Choice, ConditionallySelectable};
use thiserror::Error;
use zeroize::{ZeroizeOnDrop, Zeroizing};

use super::{
    program::{Local, MOST_WIDTH, Ot, Ots, Party, Plane, Prefix, Product, Program, Strings, Word},
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
        let held = |sent: &Ots, received: &Ots| {
            let planes = sent.sent_planes + received.received_planes + received.single;
            planes * lanes + (2 * sent.words + received.words) * 8 * elements
        };
        let strings = held(server, client).max(held(client, server));
        let replies = (0..self.levels()).map(|level| self.replies(level)).max();
        let planes = self.planes.count() + replies.unwrap_or(0);
        strings + planes * lanes + (self.words.count() + 1) * 8 * elements
    }

    /// Planes of the strings of the leaves of a level.
    fn replies(&self, level: usize) -> usize {
        let leaf = |product: &Product| match product {
            Product::Leaf { receiver, .. } => self.sent(product, receiver.peer()).planes,
            _ => 0,
        };
        self.levels[level].products.iter().map(leaf).sum()
    }
}

/// One party's run, level by level. The [first](Party::first_of) to speak in a level
/// [makes](Self::make) its part of it, then [takes](Self::take) the peer's. The other takes first.
/// Wiped on drop; no Debug.
pub struct Evaluation {
    program: Arc<Program>,
    party: Party,
    elements: usize,
    lanes: usize,
    planes: Zeroizing<Vec<u64>>,
    words: Zeroizing<Vec<u64>>,
    /// A plane or word that is made of others, until it has its place.
    made_now: Zeroizing<Vec<u64>>,
    /// Absent at a server that has not heard of the client's OTs yet.
    sent: Option<Sent>,
    received: Received,
    /// The strings of a level's leaves, masked, until they are sent.
    replies: Vec<u64>,
    made: usize,
    taken: usize,
    /// Whether the results are there: their makers' places may hold other words since.
    is_finished: bool,
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
        let mut words = Zeroizing::new(vec![0; program.words.count() * elements]);
        for (word, input) in program.inputs.iter().zip(inputs) {
            let modulus = program.moduli[word.0 as usize];
            let out = &mut words[program.words.of(word.0) * elements..][..elements];
            for (out, &word) in out.iter_mut().zip(*input) {
                *out = reduced(modulus, word.into());
            }
        }
        Self {
            planes: Zeroizing::new(vec![0; program.planes.count() * lanes]),
            words,
            made_now: Zeroizing::new(vec![0; elements]),
            program,
            party,
            elements,
            lanes,
            sent: None,
            received,
            replies: Vec::new(),
            made: 0,
            taken: 0,
            is_finished: false,
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

    /// Whether both parties' parts of all levels are there.
    pub(super) fn is_complete(&self) -> bool {
        self.is_done() && self.taken == self.program.levels()
    }

    /// Levels made so far: the next one to make.
    pub fn made(&self) -> usize {
        self.made
    }

    /// Appends this party's part of the next level.
    ///
    /// # Errors
    /// All levels are made, or a part of the peer's is missing.
    pub fn make(&mut self, out: &mut Vec<u8>) -> Result<(), LeanError> {
        let level = self.made;
        let first = self.program.speaks_first(level) == self.party;
        let taken = level + usize::from(!first);
        if self.taken != taken || !self.is_ready(level) {
            return Err(LeanError::OutOfTurn { level });
        }
        let program = self.program.clone();
        if first {
            self.locals(&program.levels[level].locals);
        }
        out.reserve(self.program.bytes(level, self.party, self.elements));
        let mut replies = std::mem::take(&mut self.replies);
        let mut rest = &replies[..];
        for product in &program.levels[level].products {
            self.send(product, &mut rest, out);
        }
        replies.clear();
        self.replies = replies;
        self.made += 1;
        Ok(())
    }

    /// Takes the peer's part of a level.
    ///
    /// # Errors
    /// This party is first and has not made its part, the peer's part is of another length, or it
    /// holds a number that is no residue.
    pub fn take(&mut self, message: &[u8]) -> Result<(), LeanError> {
        let level = self.taken;
        let first = self.program.speaks_first(level) == self.party;
        let made = level + usize::from(first);
        if self.made != made || !self.is_ready(level) {
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
        if !first {
            self.locals(&program.levels[level].locals);
        }
        let mut rest = message;
        for product in &program.levels[level].products {
            self.receive(product, &mut rest)
                .ok_or(LeanError::Residue { level })?;
        }
        self.taken += 1;
        Ok(())
    }

    /// Whether there is such a level, and the OTs that this party sends in it.
    fn is_ready(&self, level: usize) -> bool {
        let needs_sent = self.program.has_sent(level, self.party);
        level < self.program.levels() && (self.sent.is_some() || !needs_sent)
    }

    /// This party's residues of the result.
    ///
    /// # Errors
    /// Levels are missing.
    pub fn output(&mut self) -> Result<&[u64], LeanError> {
        Ok(self.outputs()?.swap_remove(0))
    }

    /// This party's residues of all results.
    ///
    /// # Errors
    /// Levels are missing.
    pub(super) fn outputs(&mut self) -> Result<Vec<&[u64]>, LeanError> {
        let level = self.taken.min(self.made);
        if level != self.program.levels() {
            return Err(LeanError::OutOfTurn { level });
        }
        let program = self.program.clone();
        if !self.is_finished {
            self.is_finished = true;
            self.locals(&program.levels[level].locals);
        }
        let outputs = program.outputs.iter();
        Ok(outputs.map(|&word| self.word(word)).collect())
    }

    fn plane_range(&self, plane: Plane) -> Range<usize> {
        let first = self.program.planes.of(plane.0) * self.lanes;
        first..first + self.lanes
    }

    fn plane(&self, plane: Plane) -> &[u64] {
        &self.planes[self.plane_range(plane)]
    }

    fn word_range(&self, word: Word) -> Range<usize> {
        let first = self.program.words.of(word.0) * self.elements;
        first..first + self.elements
    }

    fn word(&self, word: Word) -> &[u64] {
        &self.words[self.word_range(word)]
    }

    fn modulus(&self, word: Word) -> Modulus {
        self.program.moduli[word.0 as usize]
    }

    /// Writes a plane, made of others.
    fn set_plane(&mut self, out: Plane, each: impl Fn(&Self, &mut [u64])) {
        let (range, count) = (self.plane_range(out), self.lanes);
        self.set(count, each, |party, made| {
            party.planes[range].copy_from_slice(made);
        });
    }

    /// Writes a word, made of others.
    fn set_word(&mut self, out: Word, each: impl Fn(&Self, &mut [u64])) {
        let (range, count) = (self.word_range(out), self.elements);
        self.set(count, each, |party, made| {
            party.words[range].copy_from_slice(made);
        });
    }

    fn set(
        &mut self,
        count: usize,
        each: impl Fn(&Self, &mut [u64]),
        put: impl FnOnce(&mut Self, &[u64]),
    ) {
        let mut made = std::mem::take(&mut self.made_now);
        each(self, &mut made[..count]);
        put(self, &made[..count]);
        self.made_now = made;
    }

    fn locals(&mut self, locals: &[Local]) {
        for local in locals {
            self.local(local);
        }
    }

    fn local(&mut self, local: &Local) {
        let server = self.party == Party::Server;
        match *local {
            Local::Bit { word, bit, out } => {
                let words = self.word_range(word);
                let range = self.plane_range(out);
                let words = &self.words[words];
                for (lane, words) in self.planes[range].iter_mut().zip(words.chunks(LANE)) {
                    let bits = words.iter().rev();
                    *lane = bits.fold(0, |lane, word| lane << 1 | word >> bit & 1);
                }
            }
            Local::Xor {
                ref terms,
                one,
                out,
            } => self.set_plane(out, |party, out| {
                out.fill(if one && server { u64::MAX } else { 0 });
                for &term in terms {
                    out.iter_mut()
                        .zip(party.plane(term))
                        .for_each(|(out, term)| *out ^= term);
                }
            }),
            Local::Sum {
                ref terms,
                constant,
                out,
            } => self.sum(terms, if server { constant } else { 0 }, out),
            Local::Shift { word, by, out } => {
                let modulus = self.modulus(out);
                self.map(word, out, |word| reduced(modulus, word >> by));
            }
            Local::Opposite { word, out } => {
                let modulus = self.modulus(out);
                let negate = |word: u64| match server {
                    true => modulus.neg(word),
                    false => word,
                };
                self.map(word, out, negate);
            }
            Local::Number { bit, of, out } => {
                let counts = of.is_none_or(|of| of == self.party);
                self.set_word(out, |party, out| {
                    let plane = party.plane(bit);
                    for (element, out) in out.iter_mut().enumerate() {
                        *out = if counts { bit_of(plane, element) } else { 0 };
                    }
                });
            }
            Local::Pick { bit, word, out } => {
                // A plain mask becomes a branch in compiled code.
                let picked = |word: u64, bit: u64| {
                    u64::conditional_select(&0, &word, Choice::from(bit as u8))
                };
                self.map_with(bit, word, out, picked);
            }
            Local::Signed { bit, word, out } => {
                let modulus = self.modulus(out);
                self.map_with(bit, word, out, |word, bit| negated(modulus, word, bit));
            }
        }
    }

    fn map(&mut self, word: Word, out: Word, each: impl Fn(u64) -> u64) {
        self.set_word(out, |party, out| {
            for (out, &word) in out.iter_mut().zip(party.word(word)) {
                *out = each(word);
            }
        });
    }

    fn map_with(&mut self, bit: Plane, word: Word, out: Word, each: impl Fn(u64, u64) -> u64) {
        self.set_word(out, |party, out| {
            let plane = party.plane(bit);
            for (element, (out, &word)) in out.iter_mut().zip(party.word(word)).enumerate() {
                *out = each(word, bit_of(plane, element));
            }
        });
    }

    fn sum(&mut self, terms: &[(Word, i64)], constant: i64, out: Word) {
        let modulus = self.modulus(out);
        let constant = modulus.from_i64(constant);
        self.set_word(out, |party, out| {
            out.fill(constant);
            for &(term, coefficient) in terms {
                let coefficient = modulus.from_i64(coefficient);
                for (out, &term) in out.iter_mut().zip(party.word(term)) {
                    *out = times_plus(modulus, term, coefficient, *out);
                }
            }
        });
    }

    /// An OT whose sender is `sender`.
    fn ot(&self, sender: Party, ot: usize) -> Ot {
        self.program.ots[sender as usize].all[ot]
    }

    /// The choices of an OT that this party receives: a plane for each bit, the lowest first.
    fn choices(&self, ot: usize) -> &[u64] {
        let ot = self.ot(self.party.peer(), ot);
        let (first, width) = (ot.first * self.lanes, ot.width as usize);
        &self.received.choices[first..][..width * self.lanes]
    }

    /// The strings of both choices of an OT that this party sends, one plane after the other.
    fn sent_planes(&self, ot: usize) -> [&[u64]; 2] {
        let (Strings::Bits { count, sent, .. }, Some(planes)) =
            (self.ot(self.party, ot).strings, &self.sent)
        else {
            return [&[]; 2];
        };
        let of = |choice| &planes.strings.bits[(sent + choice * count) * self.lanes..];
        [of(0), of(1)]
    }

    /// The strings of an OT that this party receives.
    fn received_planes(&self, ot: usize) -> &[u64] {
        match self.ot(self.party.peer(), ot).strings {
            Strings::Bits { received, .. } => &self.received.strings.bits[received * self.lanes..],
            Strings::Word { .. } => &[],
        }
    }

    /// The residues of both choices of an OT that this party sends.
    fn sent_words(&self, at: usize) -> [&[u64]; 2] {
        let words = self.program.ots[self.party as usize].words;
        self.sent.as_ref().map_or([&[]; 2], |sent| {
            [at, words + at].map(|at| &sent.strings.words[at * self.elements..][..self.elements])
        })
    }

    fn send(&self, product: &Product, replies: &mut &[u64], out: &mut Vec<u8>) {
        let (party, lanes, elements) = (self.party, self.lanes, self.elements);
        match *product {
            Product::Leaf {
                receiver,
                ref bits,
                ot,
                ..
            } if receiver == party => {
                for (&bit, choices) in bits.iter().zip(self.choices(ot).chunks(lanes)) {
                    let masked = self.plane(bit).iter().zip(choices);
                    write_plane(masked.map(|(y, r)| y ^ r), elements, out);
                }
            }
            Product::Leaf { .. } => {
                let planes = self.program.sent(product, party).planes;
                let (now, later) = replies.split_at(planes * lanes);
                *replies = later;
                for plane in now.chunks(lanes) {
                    write_plane(plane.iter().copied(), elements, out);
                }
            }
            Product::Word {
                receiver,
                choice,
                ot,
                ..
            } if receiver == party => {
                let masked = self.plane(choice).iter().zip(self.choices(ot));
                write_plane(masked.map(|(y, r)| y ^ r), elements, out);
            }
            Product::And {
                left,
                ref rights,
                ots,
                ..
            } => {
                let choices = self.choices(ots[party.peer() as usize]);
                let masked = self.plane(left).iter().zip(choices);
                write_plane(masked.map(|(x, a)| x ^ a), elements, out);
                let [zeros, ones] = self.sent_planes(ots[party as usize]);
                let masks = zeros.chunks(lanes).zip(ones.chunks(lanes));
                for (&right, (zeros, ones)) in rights.iter().zip(masks) {
                    let masked = self.plane(right).iter().zip(zeros.iter().zip(ones));
                    let masked = masked.map(|(y, (zero, one))| y ^ zero ^ one);
                    write_plane(masked, elements, out);
                }
            }
            Product::Word { word, ot, .. } => {
                let Strings::Word { modulus, at } = self.ot(party, ot).strings else {
                    return;
                };
                let [zeros, ones] = self.sent_words(at);
                let masked = self.word(word).iter().zip(zeros.iter().zip(ones));
                let masked =
                    masked.map(|(&w, (&zero, &one))| modulus.sub(w, modulus.sub(one, zero)));
                let masked: Zeroizing<Vec<u64>> = Zeroizing::new(masked.collect());
                bits::pack(&masked, modulus.bits(), out);
            }
        }
    }

    /// Completes a product with the peer's part of its messages; `None` where that holds a number
    /// that is no residue.
    fn receive(&mut self, product: &Product, rest: &mut &[u8]) -> Option<()> {
        match *product {
            Product::Leaf {
                receiver,
                ref bits,
                ref of,
                ref out,
                ot,
            } => match receiver == self.party {
                true => self.receive_leaf(ot, out, rest),
                false => self.send_leaf((bits, of), ot, out, rest),
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

    /// The receiver's share is the string sent for its choice `r`, unmasked; that of choice 0 is
    /// the mask itself.
    fn receive_leaf(&mut self, ot: usize, out: &[Plane], rest: &mut &[u8]) {
        let (lanes, elements, count) = (self.lanes, self.elements, out.len());
        let mut sums = Zeroizing::new(self.received_planes(ot)[..count * lanes].to_vec());
        let choices = self.choices(ot);
        for choice in 1..1 << self.ot(self.party.peer(), ot).width {
            for sums in sums.chunks_mut(lanes) {
                for (lane, string) in read_plane(rest, elements).enumerate() {
                    sums[lane] ^= string & is_value(choices, (lanes, lane), choice);
                }
            }
        }
        for (&out, sums) in out.iter().zip(sums.chunks(lanes)) {
            let range = self.plane_range(out);
            self.planes[range].copy_from_slice(sums);
        }
    }

    /// With the receiver's `f = y + r`, the string for its choice `v` is the table's entry of
    /// `v + f`, masked. The sender's share is such that the string for choice 0 is 0.
    fn send_leaf(
        &mut self,
        (bits, of): (&[Plane], &[Prefix]),
        ot: usize,
        out: &[Plane],
        rest: &mut &[u8],
    ) {
        let (lanes, width, count) = (self.lanes, bits.len(), out.len());
        let Strings::Bits { sent, .. } = self.ot(self.party, ot).strings else {
            return;
        };
        let mut flips = [0; MOST_WIDTH].map(|_| Vec::new());
        for flips in &mut flips[..width] {
            flips.extend(read_plane(rest, self.elements));
        }
        let first = self.replies.len();
        self.replies
            .resize(first + ((1 << width) - 1) * count * lanes, 0);
        let Some(planes) = &self.sent else { return };
        let masks = &planes.strings.bits[sent * lanes..];
        let mut own = Zeroizing::new([0; MOST_WIDTH]);
        let mut tables = Zeroizing::new([[[0; 1 << MOST_WIDTH]; 2]; MOST_WIDTH]);
        let mut f = [0; MOST_WIDTH];
        let prefixes = prefixes(of);
        for lane in 0..lanes {
            for (bit, &plane) in bits.iter().enumerate() {
                own[bit] = self.plane(plane)[lane];
                f[bit] = flips[bit][lane];
            }
            for &prefix in &prefixes {
                carries(&own[..prefix], &f[..prefix], &mut tables[prefix - 1]);
            }
            for (part, of) in of.iter().enumerate() {
                let (prefix, kind) = of.place();
                let entry = |choice: usize| tables[prefix - 1][kind][choice & ((1 << prefix) - 1)];
                let share = entry(0) ^ masks[part * lanes + lane];
                let place = self.plane_range(out[part]).start + lane;
                self.planes[place] = share;
                for choice in 1..1 << width {
                    let mask = masks[(choice * count + part) * lanes + lane];
                    let reply = first + ((choice - 1) * count + part) * lanes + lane;
                    self.replies[reply] = entry(choice) ^ mask ^ share;
                }
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
        let masks = Zeroizing::new(self.choices(theirs).to_vec());
        let opened: Vec<u64> = read_plane(rest, elements)
            .zip(self.plane(left))
            .zip(masks.iter())
            .map(|((peer, x), a)| peer ^ x ^ a)
            .collect();
        for (index, (&right, &out)) in rights.iter().zip(out).enumerate() {
            let peer = read_plane(rest, elements);
            let mut made = Zeroizing::new(vec![0; lanes]);
            let [zeros, ones] = self.sent_planes(own).map(|planes| &planes[index * lanes..]);
            let strings = &self.received_planes(theirs)[index * lanes..];
            let both = peer.zip(self.plane(right)).zip(&opened).zip(masks.iter());
            let ots = ones.iter().zip(zeros).zip(strings);
            for (made, ((((peer, y), x), a), ((one, zero), string))) in
                made.iter_mut().zip(both.zip(ots))
            {
                let b = one ^ zero;
                let opened = peer ^ y ^ b;
                let open = match party {
                    Party::Server => x & opened,
                    Party::Client => 0,
                };
                *made = open ^ x & b ^ opened & a ^ a & b ^ zero ^ string;
            }
            let range = self.plane_range(out);
            self.planes[range].copy_from_slice(&made);
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
        let Strings::Word { modulus, at } = self.ot(self.party.peer(), ot).strings else {
            return None;
        };
        let (packed, after) = rest.split_at(bits::packed_len(elements, modulus.bits()));
        *rest = after;
        let mut corrections = vec![0u64; elements];
        bits::unpack(packed, modulus.bits(), &mut corrections).ok()?;
        let most = modulus.neg(1);
        if corrections.iter().any(|&word| word > most) {
            return None;
        }
        let (range, bits) = (self.word_range(out), self.plane_range(choice));
        let plane = &self.planes[bits];
        let first = self.ot(self.party.peer(), ot).first;
        let choices = &self.received.choices[first * lanes..];
        let strings = &self.received.strings.words[at * elements..];
        let shares = self.words[range].iter_mut().zip(corrections).zip(strings);
        for (element, ((out, correction), &string)) in shares.enumerate() {
            let r = bit_of(choices, element);
            let f = bit_of(plane, element) ^ r;
            let share = modulus.add(correction & r.wrapping_neg(), string);
            *out = negated(modulus, share, f);
        }
        Some(())
    }

    /// `f w - (1 - 2 f) w_0` for the sender.
    fn sent_word(&mut self, word: Word, ot: usize, out: Word, rest: &mut &[u8]) {
        let elements = self.elements;
        let Strings::Word { modulus, at } = self.ot(self.party, ot).strings else {
            return;
        };
        let flips: Vec<u64> = read_plane(rest, elements).collect();
        self.set_word(out, |party, out| {
            let Some(sent) = &party.sent else { return };
            let zeros = &sent.strings.words[at * elements..];
            let own = party.word(word).iter().zip(zeros).enumerate();
            for (out, (element, (&word, &zero))) in out.iter_mut().zip(own) {
                let f = bit_of(&flips, element);
                *out = modulus.sub(word & f.wrapping_neg(), negated(modulus, zero, f));
            }
        });
    }
}

impl Prefix {
    /// How many bits it is of, and its place among [`carries`].
    fn place(self) -> (usize, usize) {
        match self {
            Self::Generate(bits) => (bits, 0),
            Self::Propagate(bits) => (bits, 1),
        }
    }
}

/// The numbers of bits that results of a leaf are of.
fn prefixes(of: &[Prefix]) -> Vec<usize> {
    let mut prefixes: Vec<usize> = of.iter().map(|of| of.place().0).collect();
    prefixes.sort_unstable();
    prefixes.dedup();
    prefixes
}

/// Its fields wipe themselves; replies are masked.
impl ZeroizeOnDrop for Evaluation {}

/// All ones where the bits of a lane, a plane each, are those of `value`.
#[inline]
fn is_value(planes: &[u64], (lanes, lane): (usize, usize), value: usize) -> u64 {
    let bits = planes.chunks(lanes).enumerate();
    bits.fold(u64::MAX, |all, (bit, plane)| {
        let wanted = ((value >> bit & 1) as u64).wrapping_neg();
        all & !(plane[lane] ^ wanted)
    })
}

/// By each `v`: whether the own number and `v + flips` (bitwise) make a carry, and whether they
/// pass one on.
#[inline]
fn carries(own: &[u64], flips: &[u64], out: &mut [[u64; 1 << MOST_WIDTH]; 2]) {
    let count = 1usize << own.len();
    let [generate, propagate] = out;
    let mut sum = 0;
    for value in 0..count {
        // The carry of `value` is that of `value - 1`, and where that one passes.
        generate[value] = sum;
        propagate[value] = is_value(own, (1, 0), count - 1 - value);
        sum ^= propagate[value];
    }
    for (bit, flips) in flips.iter().enumerate() {
        for value in (0..count).filter(|value| value >> bit & 1 == 0) {
            for table in [&mut *generate, &mut *propagate] {
                let swapped = (table[value] ^ table[value | 1 << bit]) & flips;
                table[value] ^= swapped;
                table[value | 1 << bit] ^= swapped;
            }
        }
    }
}

fn reduced(modulus: Modulus, word: u64) -> u64 {
    match modulus {
        Modulus::PowerOfTwo(modulus) => modulus.reduce(word),
        Modulus::Prime(_) => modulus.from_i64(word as i64),
    }
}

/// `term * coefficient + sum`.
#[inline]
fn times_plus(modulus: Modulus, term: u64, coefficient: u64, sum: u64) -> u64 {
    match modulus {
        Modulus::PowerOfTwo(modulus) => {
            modulus.reduce(term.wrapping_mul(coefficient).wrapping_add(sum))
        }
        Modulus::Prime(_) => {
            let term = modulus.from_i64(term as i64);
            modulus.add(modulus.mul(term, coefficient), sum)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_leaves_are_carries_of_sums() {
        for width in 1..=MOST_WIDTH {
            let bits = |value: usize| -> Vec<u64> {
                let bit = |bit| ((value >> bit & 1) as u64).wrapping_neg();
                (0..width).map(bit).collect()
            };
            let values = 1 << width;
            for (own, flips) in (0..values).flat_map(|x| (0..values).map(move |y| (x, y))) {
                let mut tables = [[0; 1 << MOST_WIDTH]; 2];
                carries(&bits(own), &bits(flips), &mut tables);
                let [generate, propagate] = tables;
                for value in 0..values {
                    let sum = own + (value ^ flips);
                    assert_eq!(generate[value] != 0, sum >= values, "{own} {flips} {value}");
                    assert_eq!(propagate[value] != 0, sum == values - 1);
                }
            }
        }
    }
}
