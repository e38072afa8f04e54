//! Programs on shared bits and words: what both parties compute, level by level.
//!
//! A [`Plane`] is a bit of every element, the sum of the parties' bits. A [`Word`] is a number of
//! every element, the sum of the parties' residues. Each party may also use its own half alone: a
//! product of a bit at one party with bits, or a word, at the other.
//!
//! Local instructions cost nothing on the wire. Products take random OTs and one message of each
//! party. The [`Builder`] puts each product in the earliest level that has its factors, so the
//! number of levels is the depth.

use super::slots::{Places, Slots};
use crate::circuit::Modulus;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The model owner. Sends first.
    Server,
    /// The data owner.
    Client,
}

impl Party {
    /// The other.
    pub fn peer(self) -> Self {
        match self {
            Self::Server => Self::Client,
            Self::Client => Self::Server,
        }
    }

    /// The party whose message of a level comes first.
    pub fn first_of(level: usize) -> Self {
        match level % 2 {
            0 => Self::Server,
            _ => Self::Client,
        }
    }
}

/// A shared bit of every element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plane(pub(super) u32);

/// A shared residue of every element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub(super) u32);

/// An instruction without a message: each party applies it to its own halves.
#[derive(Clone, Debug)]
pub(super) enum Local {
    /// A bit of the word's residue.
    Bit { word: Word, bit: u32, out: Plane },
    /// A sum of bits, and of 1.
    Xor {
        terms: Vec<Plane>,
        one: bool,
        out: Plane,
    },
    /// `constant + sum of coefficient * word`, modulo the modulus of `out`.
    Sum {
        terms: Vec<(Word, i64)>,
        constant: i64,
        out: Word,
    },
    /// The residue without its lowest bits.
    Shift { word: Word, by: u32, out: Word },
    /// The residue at the client, and minus it at the server.
    Opposite { word: Word, out: Word },
    /// A party's own bit as a number; 0 at the other party where only one is named.
    Number {
        bit: Plane,
        of: Option<Party>,
        out: Word,
    },
    /// The residue where the party's own bit is 1, else 0.
    Pick { bit: Plane, word: Word, out: Word },
    /// The residue, negated where the party's own bit is 1.
    Signed { bit: Plane, word: Word, out: Word },
}

/// An instruction with a message of each party.
#[derive(Clone, Debug)]
pub(super) enum Product {
    /// Carries of a few bits of the sum of the parties' residues, and whether they pass one on. An
    /// OT of `2^width` strings; the receiver sends `width` bits, then the sender one for each result
    /// and string but the first.
    Leaf {
        receiver: Party,
        /// Each party's own, lowest first.
        bits: Vec<Plane>,
        /// What each result is.
        of: Vec<Prefix>,
        out: Vec<Plane>,
        ot: usize,
    },
    /// A shared bit times each of other shared bits. An OT in each direction, and `1 + rights` bits
    /// from each party.
    And {
        left: Plane,
        rights: Vec<Plane>,
        out: Vec<Plane>,
        /// By the party that is the OT's sender.
        ots: [usize; 2],
    },
    /// The bit of the one party times the residue of the other. One OT, a residue and a bit.
    Word {
        receiver: Party,
        choice: Plane,
        word: Word,
        out: Word,
        ot: usize,
    },
}

/// A result of a leaf: of so many of its bits, from the lowest.
#[derive(Clone, Copy, Debug)]
pub(super) enum Prefix {
    /// Whether they make a carry.
    Generate(usize),
    /// Whether they pass one on.
    Propagate(usize),
}

/// What is done before the parties' messages of a level, and what these are for.
#[derive(Clone, Debug, Default)]
pub(super) struct Level {
    pub locals: Vec<Local>,
    pub products: Vec<Product>,
}

/// A random OT: the receiver has one string, of a random choice, the sender those of all choices.
/// OTs of several bits of choice are made of as many OTs of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ot {
    /// Bits of the choice.
    pub width: u32,
    /// The number of its first OT of one bit.
    pub first: usize,
    pub strings: Strings,
}

/// The strings of an OT.
#[derive(Clone, Copy, Debug)]
pub(super) enum Strings {
    /// So many bits each: from plane `received` on at the receiver, and from `sent` on at the
    /// sender, string by string.
    Bits {
        count: usize,
        sent: usize,
        received: usize,
    },
    /// A residue, at word `at` of each string's words.
    Word { modulus: Modulus, at: usize },
}

/// Most bits of a string in planes.
pub(super) const MOST_STRINGS: usize = 64;

/// Most bits of a choice.
pub(super) const MOST_WIDTH: usize = 4;

/// The OTs of one direction, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Ots {
    pub all: Vec<Ot>,
    /// OTs of one bit that these take.
    pub single: usize,
    /// Planes of all strings, at the sender and at the receiver.
    pub sent_planes: usize,
    pub received_planes: usize,
    /// Words of strings of one choice.
    pub words: usize,
}

impl Ots {
    fn bits(&mut self, width: usize, count: usize) -> usize {
        // Strings come from the lowest half of a block: further bits would not be masked.
        assert!(
            count <= MOST_STRINGS && width <= MOST_WIDTH,
            "an OT has at most {MOST_STRINGS} bits for {MOST_WIDTH} of choice"
        );
        let (sent, received) = (self.sent_planes, self.received_planes);
        self.sent_planes += count << width;
        self.received_planes += count;
        let strings = Strings::Bits {
            count,
            sent,
            received,
        };
        self.push(width, strings)
    }

    fn word(&mut self, modulus: Modulus) -> usize {
        let at = self.words;
        self.words += 1;
        self.push(1, Strings::Word { modulus, at })
    }

    fn push(&mut self, width: usize, strings: Strings) -> usize {
        self.all.push(Ot {
            width: width as u32,
            first: self.single,
            strings,
        });
        self.single += width;
        self.all.len() - 1
    }
}

/// A program, the same for both parties.
#[derive(Clone, Debug)]
pub struct Program {
    pub(super) inputs: Vec<Word>,
    /// The result, and where a program has several, the others.
    pub(super) outputs: Vec<Word>,
    /// Levels of a cascade before it.
    start: usize,
    /// Where planes and words are.
    pub(super) planes: Slots,
    pub(super) words: Slots,
    /// The modulus of each word.
    pub(super) moduli: Vec<Modulus>,
    /// The last one has no products.
    pub(super) levels: Vec<Level>,
    /// By the sender of the OTs.
    pub(super) ots: [Ots; 2],
}

impl Program {
    /// Shared words that it takes, each of every element.
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The modulus of an input.
    pub fn input_modulus(&self, index: usize) -> Modulus {
        self.moduli[self.inputs[index].0 as usize]
    }

    /// The modulus of the output.
    pub fn output_modulus(&self) -> Modulus {
        self.moduli[self.outputs[0].0 as usize]
    }

    /// Levels: messages one after the other, the first of the server. One more where the first
    /// does not ride with a message before it.
    pub fn levels(&self) -> usize {
        self.levels.len() - 1
    }

    /// The party that speaks first in a level.
    pub fn speaks_first(&self, level: usize) -> Party {
        Party::first_of(self.start + level)
    }

    /// Whether a party needs the OTs that it sends in a level. The server has none of the client's
    /// before its first message.
    pub(super) fn has_sent(&self, level: usize, party: Party) -> bool {
        self.start + level > 0 || party == Party::Client
    }

    /// OTs of one bit of choice, of an element, whose sender is `party`.
    pub fn ots(&self, sender: Party) -> usize {
        self.ots[sender as usize].single
    }

    /// The bits of choice, and those of each string, of all OTs of an element.
    pub fn ot_widths(&self, sender: Party) -> impl Iterator<Item = (u32, u32)> {
        self.ots[sender as usize].all.iter().map(|ot| {
            let bits = match ot.strings {
                Strings::Bits { count, .. } => count as u32,
                Strings::Word { modulus, .. } => modulus.bits(),
            };
            (ot.width, bits)
        })
    }

    /// Bits of an element that `party` sends in a level.
    pub fn bits(&self, level: usize, party: Party) -> usize {
        let bits = |product: &Product| {
            let Sent { planes, word } = self.sent(product, party);
            planes + word.map_or(0, |modulus| modulus.bits() as usize)
        };
        self.levels[level].products.iter().map(bits).sum()
    }

    /// Bits of an element that both parties send in all levels.
    pub fn all_bits(&self) -> usize {
        let level = |level| self.bits(level, Party::Server) + self.bits(level, Party::Client);
        (0..self.levels()).map(level).sum()
    }

    /// What a party sends for a product.
    pub(super) fn sent(&self, product: &Product, party: Party) -> Sent {
        let planes = |planes| Sent { planes, word: None };
        match product {
            Product::Leaf { receiver, bits, .. } if *receiver == party => planes(bits.len()),
            Product::Leaf { bits, out, .. } => planes(((1 << bits.len()) - 1) * out.len()),
            Product::Word { receiver, .. } if *receiver == party => planes(1),
            Product::And { rights, .. } => planes(1 + rights.len()),
            Product::Word { word, .. } => Sent {
                planes: 0,
                word: Some(self.moduli[word.0 as usize]),
            },
        }
    }
}

/// A party's part of a product's messages, for one element.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    pub planes: usize,
    pub word: Option<Modulus>,
}

/// Makes a program.
#[derive(Default)]
pub(super) struct Builder {
    inputs: Vec<Word>,
    /// The level from which each plane and word is known.
    planes: Vec<usize>,
    words: Vec<usize>,
    moduli: Vec<Modulus>,
    locals: Vec<(usize, Local)>,
    products: Vec<(usize, Product)>,
    /// Levels of a cascade before it.
    start: usize,
}

/// The first level that products with the server as the sender of OTs can be in: in its first
/// message the server has no OTs of the client's yet.
const SERVER_SENDS: usize = 1;

impl Builder {
    /// For a program that follows so many levels of a cascade. Behind the first the server has the
    /// client's OTs.
    pub fn behind(start: usize) -> Self {
        Self {
            start,
            ..Self::default()
        }
    }

    fn plane(&mut self, level: usize) -> Plane {
        self.planes.push(level);
        Plane(self.planes.len() as u32 - 1)
    }

    fn word(&mut self, level: usize, modulus: Modulus) -> Word {
        self.words.push(level);
        self.moduli.push(modulus);
        Word(self.words.len() as u32 - 1)
    }

    fn at(&self, planes: &[Plane], words: &[Word]) -> usize {
        let planes = planes.iter().map(|plane| self.planes[plane.0 as usize]);
        let words = words.iter().map(|word| self.words[word.0 as usize]);
        planes.chain(words).max().unwrap_or(0)
    }

    /// The level from which a plane is known.
    pub fn level(&self, plane: Plane) -> usize {
        self.planes[plane.0 as usize]
    }

    pub fn modulus(&self, word: Word) -> Modulus {
        self.moduli[word.0 as usize]
    }

    pub fn input(&mut self, modulus: Modulus) -> Word {
        let word = self.word(0, modulus);
        self.inputs.push(word);
        word
    }

    pub fn bit(&mut self, word: Word, bit: u32) -> Plane {
        let level = self.at(&[], &[word]);
        let out = self.plane(level);
        self.locals.push((level, Local::Bit { word, bit, out }));
        out
    }

    /// The sum of bits.
    pub fn xor(&mut self, terms: &[Plane]) -> Plane {
        self.xor_with(terms, false)
    }

    pub fn not(&mut self, plane: Plane) -> Plane {
        self.xor_with(&[plane], true)
    }

    /// The sum of bits, and of 1 where asked for.
    pub fn xor_with(&mut self, terms: &[Plane], one: bool) -> Plane {
        let level = self.at(terms, &[]);
        let out = self.plane(level);
        let terms = terms.to_vec();
        self.locals.push((level, Local::Xor { terms, one, out }));
        out
    }

    /// `constant + sum of coefficient * word` modulo `modulus`. A term modulo another number is
    /// right where its coefficient makes it a multiple of the modulus.
    pub fn sum(&mut self, terms: &[(Word, i64)], constant: i64, modulus: Modulus) -> Word {
        let words: Vec<Word> = terms.iter().map(|(word, _)| *word).collect();
        let level = self.at(&[], &words);
        let out = self.word(level, modulus);
        let terms = terms.to_vec();
        self.locals.push((
            level,
            Local::Sum {
                terms,
                constant,
                out,
            },
        ));
        out
    }

    /// Each party's residue without its lowest bits, modulo `modulus`.
    pub fn shift(&mut self, word: Word, by: u32, modulus: Modulus) -> Word {
        let level = self.at(&[], &[word]);
        let out = self.word(level, modulus);
        self.locals.push((level, Local::Shift { word, by, out }));
        out
    }

    /// The client's residue, and minus the server's.
    pub fn opposite(&mut self, word: Word) -> Word {
        let level = self.at(&[], &[word]);
        let out = self.word(level, self.modulus(word));
        self.locals.push((level, Local::Opposite { word, out }));
        out
    }

    /// Each party's own bit as a number, or that of one party.
    pub fn number(&mut self, bit: Plane, of: Option<Party>, modulus: Modulus) -> Word {
        let level = self.level(bit);
        let out = self.word(level, modulus);
        self.locals.push((level, Local::Number { bit, of, out }));
        out
    }

    /// Each party's residue where its own bit is 1, else 0.
    pub fn pick(&mut self, bit: Plane, word: Word) -> Word {
        let level = self.at(&[bit], &[word]);
        let out = self.word(level, self.modulus(word));
        self.locals.push((level, Local::Pick { bit, word, out }));
        out
    }

    /// Each party's residue, negated where its own bit is 1.
    pub fn signed(&mut self, bit: Plane, word: Word) -> Word {
        let level = self.at(&[bit], &[word]);
        let out = self.word(level, self.modulus(word));
        self.locals.push((level, Local::Signed { bit, word, out }));
        out
    }

    fn level_of_product(&self, receiver: Option<Party>, planes: &[Plane], words: &[Word]) -> usize {
        let level = self.at(planes, words);
        match receiver {
            Some(Party::Server) => level,
            Some(Party::Client) | None if self.start > 0 => level,
            Some(Party::Client) | None => level.max(SERVER_SENDS),
        }
    }

    /// Carries of a few bits of a sum, lowest first, and whether they pass one on. The receiver
    /// speaks first.
    pub fn leaf(&mut self, bits: &[Plane], of: &[Prefix]) -> Vec<Plane> {
        let level = self.at(bits, &[]);
        let out: Vec<Plane> = of.iter().map(|_| self.plane(level + 1)).collect();
        let product = Product::Leaf {
            receiver: Party::first_of(self.start + level),
            bits: bits.to_vec(),
            of: of.to_vec(),
            out: out.clone(),
            ot: 0,
        };
        self.products.push((level, product));
        out
    }

    /// A shared bit times each of other shared bits, at most [`MOST_STRINGS`].
    pub fn and(&mut self, left: Plane, rights: &[Plane]) -> Vec<Plane> {
        let factors: Vec<Plane> = rights.iter().copied().chain([left]).collect();
        let level = self.level_of_product(None, &factors, &[]);
        let out: Vec<Plane> = rights.iter().map(|_| self.plane(level + 1)).collect();
        let product = Product::And {
            left,
            rights: rights.to_vec(),
            out: out.clone(),
            ots: [0; 2],
        };
        self.products.push((level, product));
        out
    }

    /// The receiver's own bit times the sender's own residue, shared.
    pub fn product(&mut self, receiver: Party, choice: Plane, word: Word) -> Word {
        let level = self.level_of_product(Some(receiver), &[choice], &[word]);
        let out = self.word(level + 1, self.modulus(word));
        let product = Product::Word {
            receiver,
            choice,
            word,
            out,
            ot: 0,
        };
        self.products.push((level, product));
        out
    }

    /// The program with this result.
    pub fn finish(self, output: Word) -> Program {
        self.finish_all(vec![output])
    }

    /// The program with these results, one or more.
    pub fn finish_all(self, outputs: Vec<Word>) -> Program {
        let products = self.products.iter().map(|(level, _)| level + 1);
        let depth = products.max().unwrap_or(0);
        let mut levels = vec![Level::default(); depth + 1];
        for (level, local) in self.locals {
            levels[level].locals.push(local);
        }
        let mut ots = [Ots::default(), Ots::default()];
        // OTs are numbered in the order of use.
        let mut products = self.products;
        products.sort_by_key(|(level, _)| *level);
        for (level, mut product) in products {
            match &mut product {
                Product::Leaf {
                    receiver,
                    bits,
                    out,
                    ot,
                    ..
                } => *ot = ots[receiver.peer() as usize].bits(bits.len(), out.len()),
                Product::And {
                    rights, ots: both, ..
                } => {
                    for (ot, ots) in both.iter_mut().zip(&mut ots) {
                        *ot = ots.bits(1, rights.len());
                    }
                }
                Product::Word {
                    receiver, word, ot, ..
                } => {
                    let modulus = self.moduli[word.0 as usize];
                    *ot = ots[receiver.peer() as usize].word(modulus);
                }
            }
            levels[level].products.push(product);
        }
        let counts = [self.planes.len(), self.words.len()];
        let places = Places::of(&levels, counts, (&self.inputs, &outputs));
        Program {
            inputs: self.inputs,
            outputs,
            start: self.start,
            planes: places.planes.slots,
            words: places.words.slots,
            moduli: self.moduli,
            levels,
            ots,
        }
    }
}
