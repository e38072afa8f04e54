//! A set-up in the other direction, from OTs of a connection: its receiver becomes the sender.
//!
//! A base OT is two OTs of the connection with one choice, whose random strings are the halves of
//! its keys. A receiver that gives the two different choices knows neither key. Two messages, of
//! 256 OTs and of [`TREES_BYTES`]. Nothing is revealed, and the assumptions are those of the
//! connection's OTs.

use pronghorn_ring::random::{Prg, Seed};
use zeroize::Zeroizing;

use super::{Key, OtParameters, ReceiverSetup, SUMS, SenderSetup, grow_roots, name_of};
use crate::{
    Block,
    ot::{
        CotReceiver, CotSender, OtError,
        error::check_length,
        transfer::{receive_random, send_random},
    },
};

/// OTs of the connection that a set-up takes.
pub const OTS: usize = 2 * Block::BITS;

/// Bytes of the answer.
pub const TREES_BYTES: usize = SUMS;

const TREES: &str = "the trees of the reverse OT set-up";

/// The sender to be, which waits for the answer. Wiped on drop; no Debug.
pub struct BaseSender {
    parameters: OtParameters,
    delta: Zeroizing<Block>,
    keys: Zeroizing<Vec<Key>>,
    sent: Vec<u8>,
    session: [u8; 32],
}

impl BaseSender {
    /// Takes OTs of the connection, whose message it appends to `out`. `seed` is fresh, and `Delta`
    /// comes from it.
    ///
    /// # Errors
    /// The connection is exhausted.
    pub fn start(
        parameters: OtParameters,
        ots: &mut CotReceiver,
        seed: &Seed,
        out: &mut Vec<u8>,
    ) -> Result<Self, OtError> {
        let prg = Prg::new(seed, "pronghorn ot reverse set-up of the sender");
        let mut delta = Zeroizing::new([0; 16]);
        prg.stream(0).fill(&mut *delta);
        let delta = Zeroizing::new(Block::from_bytes(*delta).with_lsb());
        // A key for each bit that delta does not have, in two halves.
        let choices = Zeroizing::new([(*delta ^ Block::ONES).to_bytes(); 2]);
        let mut strings = Zeroizing::new(vec![Block::ZERO; OTS]);
        let start = out.len();
        let first = ots.extend(choices.as_flattened(), &mut strings, out)?;
        receive_random(ots, first, &mut strings);
        Ok(Self {
            parameters,
            delta,
            keys: keys(&strings),
            sent: out[start..].to_vec(),
            session: *ots.connection(),
        })
    }

    /// The set-up, by the answer.
    ///
    /// # Errors
    /// The answer has another length.
    pub fn finish(self, answer: &[u8]) -> Result<SenderSetup, OtError> {
        check_length(TREES, answer, TREES_BYTES)?;
        let name = name_of(&self.session, &self.sent, answer);
        Ok(SenderSetup::grow(
            self.parameters,
            name,
            *self.delta,
            &self.keys,
            answer,
        ))
    }
}

/// The receiver's set-up, from the message of [`BaseSender::start`]; appends the answer to `out`.
/// `seed` is fresh.
///
/// # Errors
/// The message is refused: one that fails the check of the connection burns its set-up.
pub fn respond(
    parameters: OtParameters,
    ots: &mut CotSender,
    message: &[u8],
    seed: &Seed,
    out: &mut Vec<u8>,
) -> Result<ReceiverSetup, OtError> {
    let mut zeros = Zeroizing::new(vec![Block::ZERO; OTS]);
    let mut ones = Zeroizing::new(vec![Block::ZERO; OTS]);
    let first = ots.extend(message, &mut zeros)?;
    send_random(ots, first, &mut zeros, &mut ones)?;
    let (zeros, ones) = (keys(&zeros), keys(&ones));
    let pairs = zeros.iter().zip(ones.iter());
    let pairs = pairs.map(|(zero, one)| [*zero, *one]);
    let pairs: Zeroizing<Vec<[Key; 2]>> = Zeroizing::new(pairs.collect());
    let prg = Prg::new(seed, "pronghorn ot reverse set-up of the receiver");
    let (width, start) = (parameters.width, out.len());
    let roots = grow_roots(width, &prg, &pairs, out);
    let name = name_of(ots.connection(), message, &out[start..]);
    Ok(ReceiverSetup { width, name, roots })
}

/// The keys whose halves are the strings: the first of all keys come first.
fn keys(strings: &[Block]) -> Zeroizing<Vec<Key>> {
    let (first, second) = strings.split_at(Block::BITS);
    let key = |(first, second): (&Block, &Block)| -> Key {
        bytemuck::cast([first.to_bytes(), second.to_bytes()])
    };
    Zeroizing::new(first.iter().zip(second).map(key).collect())
}
