//! Uses of correlated OTs, each of them for one thing: random strings, chosen strings, products.
//! And how OTs with random choices, made ahead, are put to use for choices that come later.
//!
//! All of these take the OTs from an extension or from silent OT: `first` is the number that
//! [`CotSender::extend`], [`CotReceiver::extend`], [`SilentSender::take`] or
//! [`SilentReceiver::take`] gave for the first block of the slice (plus the blocks before it, where
//! a slice is used in pieces), and both parties use the same ranges in the same way. A block that
//! went into one of these is used up: its string would be used twice.
//!
//! Strings are of `width` bits, 1 to 64, and packed for the wire ([`pronghorn_ring::bits`]).

use pronghorn_ring::{Modulus, bits};
use zeroize::{Zeroize, Zeroizing};

use super::{
    CotReceiver, CotSender, OtHash, SilentReceiver, SilentSender,
    error::{OtError, check_count, check_length},
};
use crate::{Block, aes::Aes128, circuit};

/// The party with `Delta`, as far as the transfers need it: of an extension or of silent OT.
pub trait CorrelatedSender {
    /// Checks that its OTs may be used.
    ///
    /// # Errors
    /// [`OtError::Burnt`] otherwise.
    fn check_usable(&self) -> Result<(), OtError>;

    /// The correlation.
    fn delta(&self) -> Block;

    /// The hash that makes random strings of its blocks.
    fn hash(&self) -> &OtHash;
}

/// The party with the choices, as far as the transfers need it.
pub trait CorrelatedReceiver {
    /// The hash that makes random strings of its blocks.
    fn hash(&self) -> &OtHash;
}

/// The traits by the methods of these names.
macro_rules! correlated {
    ($Sender:ty, $Receiver:ty) => {
        impl CorrelatedSender for $Sender {
            fn check_usable(&self) -> Result<(), OtError> {
                self.check_usable()
            }
            fn delta(&self) -> Block {
                self.delta()
            }
            fn hash(&self) -> &OtHash {
                self.hash()
            }
        }
        impl CorrelatedReceiver for $Receiver {
            fn hash(&self) -> &OtHash {
                self.hash()
            }
        }
    };
}

correlated!(CotSender, CotReceiver);
correlated!(SilentSender, SilentReceiver);

/// OTs that are hashed at a time, so that the strings stay in the cache.
const STEP: usize = 512;

/// OTs made ahead, receiver: appends one bit an OT, the sums of the choices they were `made` with
/// and those `wanted` (both packed, lowest bit first). The choices made must have been random and
/// are used up; the bits tell nothing then.
///
/// # Errors
/// When the two are not of one length.
pub fn correct_choices(made: &[u8], wanted: &[u8], out: &mut Vec<u8>) -> Result<(), OtError> {
    check_count("choices (bytes)", wanted.len(), made.len())?;
    let sums = made.iter().zip(wanted).map(|(made, wanted)| made ^ wanted);
    out.extend(sums);
    Ok(())
}

/// OTs made ahead, sender: turns each `q` into `q + correction Delta`. With the receiver's blocks
/// as they were, the OTs are then those of the choices wanted: `q = t + wanted Delta`.
///
/// # Errors
/// When the message has not a bit for each OT, in whole bytes, or the set-up is [`OtError::Burnt`].
pub fn apply_corrections(
    sender: &impl CorrelatedSender,
    message: &[u8],
    q: &mut [Block],
) -> Result<(), OtError> {
    sender.check_usable()?;
    check_length("the corrections of choices", message, q.len().div_ceil(8))?;
    let delta = sender.delta();
    for (j, q) in q.iter_mut().enumerate() {
        *q ^= delta.masked(message[j / 8] >> (j % 8) & 1 == 1);
    }
    Ok(())
}

/// Random OT, sender: turns each `q` into the string of choice 0, and `ones` into those of
/// choice 1.
///
/// # Errors
/// Unless the slices are of one length, or when the set-up is [`OtError::Burnt`].
pub fn send_random(
    sender: &impl CorrelatedSender,
    first: u64,
    q: &mut [Block],
    ones: &mut [Block],
) -> Result<(), OtError> {
    sender.check_usable()?;
    check_count("strings of choice 1", ones.len(), q.len())?;
    pads(sender.hash(), sender.delta(), first, q, ones);
    Ok(())
}

/// Random OT, receiver: turns each `t` into the string of its choice.
pub fn receive_random(receiver: &impl CorrelatedReceiver, first: u64, t: &mut [Block]) {
    receiver.hash().hash(first, t);
}

fn pads(hash: &OtHash, delta: Block, first: u64, zeros: &mut [Block], ones: &mut [Block]) {
    for (one, zero) in ones.iter_mut().zip(&*zeros) {
        *one = *zero ^ delta;
    }
    hash.hash(first, zeros);
    hash.hash(first, ones);
}

/// Chosen OT, sender: for each `q`, the receiver gets the string of `zeros` or of `ones` of its
/// choice, and learns nothing of the other. Appends `2 width` bits an OT to `out`; bits of strings
/// above `width` are ignored.
///
/// # Errors
/// When `width` is not 1 to 64, the slices are not of one length, or the set-up is
/// [`OtError::Burnt`].
pub fn send_chosen(
    sender: &impl CorrelatedSender,
    first: u64,
    q: &[Block],
    zeros: &[u64],
    ones: &[u64],
    width: u32,
    out: &mut Vec<u8>,
) -> Result<(), OtError> {
    sender.check_usable()?;
    let mask = string_mask(width)?;
    check_count("strings of choice 0", zeros.len(), q.len())?;
    check_count("strings of choice 1", ones.len(), q.len())?;
    let mut masked_zeros = Zeroizing::new(zeros.to_vec());
    let mut masked_ones = Zeroizing::new(ones.to_vec());
    for_pads_of_sender(sender, first, q, |j, zero, one| {
        masked_zeros[j] = (masked_zeros[j] ^ low_word(zero)) & mask;
        masked_ones[j] = (masked_ones[j] ^ low_word(one)) & mask;
    });
    bits::pack(&masked_zeros, width, out);
    bits::pack(&masked_ones, width, out);
    Ok(())
}

/// Bytes of the message of [`send_chosen`].
pub fn chosen_bytes(count: usize, width: u32) -> usize {
    bits::packed_len(count, width).saturating_mul(2)
}

/// Chosen OT, receiver: fills `out` with the strings of `choices`, which are the bits the OTs were
/// made with (packed, lowest bit first).
///
/// # Errors
/// When `width` is not 1 to 64, the slices do not go together, or the message is malformed.
pub fn receive_chosen(
    receiver: &impl CorrelatedReceiver,
    first: u64,
    t: &[Block],
    choices: &[u8],
    width: u32,
    message: &[u8],
    out: &mut [u64],
) -> Result<(), OtError> {
    const MESSAGE: &str = "the strings of the OT";
    let mask = string_mask(width)?;
    check_count("choices (bytes)", choices.len(), t.len().div_ceil(8))?;
    check_count("strings", out.len(), t.len())?;
    check_length(MESSAGE, message, chosen_bytes(t.len(), width))?;
    let (zeros, ones) = message.split_at(message.len() / 2);
    let mut other = Zeroizing::new(vec![0; t.len()]);
    let packing = |source| OtError::Packing {
        message: MESSAGE,
        source,
    };
    bits::unpack(zeros, width, out).map_err(packing)?;
    bits::unpack(ones, width, &mut other).map_err(packing)?;
    for_pads_of_receiver(receiver, first, t, |j, pad| {
        let chosen = out[j] ^ (out[j] ^ other[j]) & choice_mask(choices, j);
        out[j] = chosen ^ low_word(pad) & mask;
    });
    Ok(())
}

/// Products of a factor of the sender and a choice bit of the receiver, in shares: fills `share`
/// with the sender's, such that `share_sender + share_receiver = factor * choice` modulo `modulus`.
/// `factors` has a residue for each `q`, or a vector of as many for each, one after the other.
/// Appends `modulus.bits()` bits a factor to `out`; half of what choosing between `-share` and
/// `factor - share` would take, since the hash determines the share.
///
/// Shares are within 2^-62 of uniform for a prime modulus of 62 bits, closer for smaller ones,
/// uniform for powers of two. For a vector, the OT's string is the key of AES in counter mode:
/// COT with long strings, as usual (Asharov, Lindell, Schneider and Zohner, CCS 2013, section 5.4).
///
/// # Errors
/// When the slices do not go together, or the set-up is [`OtError::Burnt`].
pub fn send_products<M: Modulus<u64>>(
    sender: &impl CorrelatedSender,
    first: u64,
    q: &[Block],
    factors: &[u64],
    modulus: M,
    share: &mut [u64],
    out: &mut Vec<u8>,
) -> Result<(), OtError> {
    sender.check_usable()?;
    let run = run("factors", factors.len(), q.len())?;
    check_count("shares", share.len(), factors.len())?;
    let residue = Residue::new(modulus);
    let mut corrections = Zeroizing::new(vec![0; factors.len()]);
    let [mut zeros, mut ones] = [0, 1].map(|_| Strings::new(run));
    for_pads_of_sender(sender, first, q, |j, zero, one| {
        let number = first + j as u64;
        let strings = zeros.of(number, zero).iter().zip(ones.of(number, one));
        for (place, (&zero, &one)) in (j * run..).zip(strings) {
            let (zero, one) = (residue.of(zero), residue.of(one));
            share[place] = modulus.neg(zero);
            corrections[place] = modulus.sub(modulus.add(zero, factors[place]), one);
        }
    });
    bits::pack(&corrections, modulus.bits(), out);
    Ok(())
}

/// Values for each OT; as many for all.
fn run(what: &'static str, values: usize, ots: usize) -> Result<usize, OtError> {
    match values.checked_div(ots).unwrap_or(0) {
        0 => check_count(what, values, ots).map(|()| 1),
        run => check_count(what, values, run * ots).map(|()| run),
    }
}

/// The strings of a vector of products, from that of their OT. Wiped on drop.
struct Strings(Zeroizing<Vec<Block>>);

impl Strings {
    fn new(run: usize) -> Self {
        Self(Zeroizing::new(vec![Block::ZERO; run]))
    }

    /// The string itself for one product; for several the key of a counter, which begins with the
    /// number of the OT: no two OTs of a set-up encrypt the same, so that a guessed key tests one.
    #[inline]
    fn of(&mut self, number: u64, string: Block) -> &[Block] {
        match self.0.as_mut_slice() {
            [one] => *one = string,
            several => {
                let start = u128::from(number) << 64;
                let counter = (start..).map(Block::from_u128);
                several
                    .iter_mut()
                    .zip(counter)
                    .for_each(|(block, i)| *block = i);
                Aes128::new(string).encrypt(several);
            }
        }
        &self.0
    }
}

/// Bytes of the message of [`send_products`] for so many factors.
pub fn product_bytes<M: Modulus<u64>>(count: usize, modulus: M) -> usize {
    bits::packed_len(count, modulus.bits())
}

/// The receiver's part of [`send_products`]; `choices` are the bits the OTs were made with (packed,
/// lowest bit first).
///
/// # Errors
/// When the slices do not go together, or the message is malformed.
pub fn receive_products<M: Modulus<u64>>(
    receiver: &impl CorrelatedReceiver,
    first: u64,
    t: &[Block],
    choices: &[u8],
    modulus: M,
    message: &[u8],
    share: &mut [u64],
) -> Result<(), OtError> {
    const MESSAGE: &str = "the corrections of the products";
    check_count("choices (bytes)", choices.len(), t.len().div_ceil(8))?;
    let run = run("shares", share.len(), t.len())?;
    let packing = |source| OtError::Packing {
        message: MESSAGE,
        source,
    };
    bits::unpack(message, modulus.bits(), share).map_err(packing)?;
    let most = modulus.neg(1);
    if let Some(index) = share.iter().position(|&word| word > most) {
        return Err(OtError::Residue {
            message: MESSAGE,
            index,
        });
    }
    let residue = Residue::new(modulus);
    let mut strings = Strings::new(run);
    for_pads_of_receiver(receiver, first, t, |j, pad| {
        let choice = choice_mask(choices, j);
        let strings = strings.of(first + j as u64, pad);
        for (share, &string) in share[j * run..].iter_mut().zip(strings) {
            *share = modulus.add(residue.of(string), *share & choice);
        }
    });
    Ok(())
}

/// Residues of random blocks.
struct Residue<M> {
    modulus: M,
    /// `2^63`.
    step: u64,
}

impl<M: Modulus<u64>> Residue<M> {
    fn new(modulus: M) -> Self {
        let half = modulus.from_i64(1 << 62);
        Self {
            modulus,
            step: modulus.add(half, half),
        }
    }

    /// The block without its bits 63 and 127, as a number of 126 bits, modulo the modulus.
    #[inline]
    fn of(&self, block: Block) -> u64 {
        let [low, high] = words(block).map(|word| self.modulus.from_i64((word << 1 >> 1) as i64));
        self.modulus.add(low, self.modulus.mul(high, self.step))
    }
}

/// The residue of a random block, within `2^-62` of uniform.
pub(crate) fn residue(modulus: circuit::Modulus, block: Block) -> u64 {
    match modulus {
        circuit::Modulus::PowerOfTwo(modulus) => modulus.reduce(low_word(block)),
        circuit::Modulus::Prime(modulus) => Residue::new(modulus).of(block),
    }
}

fn words(block: Block) -> [u64; 2] {
    bytemuck::cast::<Block, [u64; 2]>(block).map(u64::from_le)
}

fn low_word(block: Block) -> u64 {
    words(block)[0]
}

fn string_mask(width: u32) -> Result<u64, OtError> {
    match width {
        1..=64 => Ok(u64::MAX >> (64 - width)),
        _ => Err(OtError::Range {
            field: "the width of the strings",
            found: width.into(),
            least: 1,
            most: 64,
        }),
    }
}

/// All ones where choice `j` is 1, else zero.
fn choice_mask(choices: &[u8], j: usize) -> u64 {
    u64::from(choices[j / 8] >> (j % 8) & 1).wrapping_neg()
}

/// Calls `each(j, string of choice 0, string of choice 1)` for every OT.
fn for_pads_of_sender(
    sender: &impl CorrelatedSender,
    first: u64,
    q: &[Block],
    mut each: impl FnMut(usize, Block, Block),
) {
    let (mut zeros, mut ones) = ([Block::ZERO; STEP], [Block::ZERO; STEP]);
    for (start, q) in (0..).step_by(STEP).zip(q.chunks(STEP)) {
        let (zeros, ones) = (&mut zeros[..q.len()], &mut ones[..q.len()]);
        zeros.copy_from_slice(q);
        pads(
            sender.hash(),
            sender.delta(),
            first + start as u64,
            zeros,
            ones,
        );
        for (j, (zero, one)) in (start..).zip(zeros.iter().zip(&*ones)) {
            each(j, *zero, *one);
        }
    }
    zeros.zeroize();
    ones.zeroize();
}

/// Calls `each(j, string of its choice)` for every OT.
fn for_pads_of_receiver(
    receiver: &impl CorrelatedReceiver,
    first: u64,
    t: &[Block],
    mut each: impl FnMut(usize, Block),
) {
    let mut strings = [Block::ZERO; STEP];
    for (start, t) in (0..).step_by(STEP).zip(t.chunks(STEP)) {
        let strings = &mut strings[..t.len()];
        strings.copy_from_slice(t);
        receive_random(receiver, first + start as u64, strings);
        for (j, string) in (start..).zip(&*strings) {
            each(j, *string);
        }
    }
    strings.zeroize();
}
