//! Endemic OT from Diffie-Hellman over ristretto255.

use curve25519_dalek::{
    RistrettoPoint, Scalar, ristretto::CompressedRistretto, traits::IsIdentity,
};
use pronghorn_ring::random::Stream;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::{Key, Tag, choice, push_in_order};
use crate::{
    Block,
    ot::error::{OtError, check_length},
};

const POINT: usize = 32;
/// Bytes of the receiver's message for one OT: `R_0` and `R_1`.
pub(super) const RECEIVER_BYTES: usize = 2 * POINT;
/// Bytes of the sender's message: `A`.
pub(super) const SENDER_BYTES: usize = POINT;

const MASK: &str = "pronghorn ot base ristretto mask of a public key";
const KEY: &str = "pronghorn ot base ristretto key";

/// The receiver between the messages.
#[derive(ZeroizeOnDrop)]
pub(super) struct Receiver {
    #[zeroize(skip)]
    session: [u8; 32],
    choices: Block,
    secrets: Vec<Scalar>,
    /// The message it sent.
    #[zeroize(skip)]
    sent: Vec<u8>,
}

impl Receiver {
    pub fn start(
        session: &[u8; 32],
        count: usize,
        choices: Block,
        stream: &mut Stream,
        out: &mut Vec<u8>,
    ) -> Self {
        let start = out.len();
        let mut secrets = Vec::with_capacity(count);
        for index in 0..count {
            let choice = choice(choices, index);
            let mut secret = Scalar::from_bytes_mod_order_wide(&wide(stream));
            let mut other = RistrettoPoint::from_uniform_bytes(&wide(stream));
            let other_bytes = Zeroizing::new(other.compress().to_bytes());
            let mut key = RistrettoPoint::mul_base(&secret);
            let mut masked = key - mask(Tag::new(session, index, choice), &*other_bytes);
            let masked_bytes = Zeroizing::new(masked.compress().to_bytes());
            push_in_order(&*masked_bytes, &*other_bytes, choice, out);
            secrets.push(secret);
            secret.zeroize();
            for point in [&mut other, &mut key, &mut masked] {
                point.zeroize();
            }
        }
        Self {
            session: *session,
            choices,
            secrets,
            sent: out[start..].to_vec(),
        }
    }

    pub fn finish(self, message: &[u8]) -> Result<Zeroizing<Vec<Key>>, OtError> {
        check_length("the sender's base OT key", message, SENDER_BYTES)?;
        let public = point(message, 0, "the sender's key")?;
        let sent = self.sent.chunks_exact(RECEIVER_BYTES);
        let mut keys = Zeroizing::new(Vec::with_capacity(self.secrets.len()));
        for (index, (secret, sent)) in self.secrets.iter().zip(sent).enumerate() {
            let tag = Tag::new(&self.session, index, choice(self.choices, index));
            keys.push(agree(tag, secret, &public, message, sent));
        }
        Ok(keys)
    }
}

pub(super) fn respond(
    session: &[u8; 32],
    count: usize,
    message: &[u8],
    stream: &mut Stream,
    out: &mut Vec<u8>,
) -> Result<Zeroizing<Vec<[Key; 2]>>, OtError> {
    check_length(
        "the receiver's base OT keys",
        message,
        count * RECEIVER_BYTES,
    )?;
    let mut secret = Scalar::from_bytes_mod_order_wide(&wide(stream));
    let public = RistrettoPoint::mul_base(&secret).compress().to_bytes();
    let mut keys = Zeroizing::new(Vec::with_capacity(count));
    for (index, sent) in message.chunks_exact(RECEIVER_BYTES).enumerate() {
        let (zero, one) = sent.split_at(POINT);
        let [tag_zero, tag_one] =
            [0, 1].map(|key| Tag::new(session, index, subtle::Choice::from(key)));
        let pk_zero = point(zero, index, "R_0")? + mask(tag_zero, one);
        let pk_one = point(one, index, "R_1")? + mask(tag_one, zero);
        keys.push([
            agree(tag_zero, &secret, &pk_zero, &public, sent),
            agree(tag_one, &secret, &pk_one, &public, sent),
        ]);
    }
    secret.zeroize();
    out.extend_from_slice(&public);
    Ok(keys)
}

/// `H_b(other)`.
fn mask(tag: Tag, other: &[u8]) -> RistrettoPoint {
    let mut bytes = Zeroizing::new([0; 64]);
    let mut hasher = tag.hasher(MASK, &[other]);
    let mut output = hasher.finalize_xof();
    output.fill(&mut *bytes);
    output.zeroize();
    hasher.zeroize();
    RistrettoPoint::from_uniform_bytes(&bytes)
}

/// The key both parties get from `secret * public`.
fn agree(
    tag: Tag,
    secret: &Scalar,
    public: &RistrettoPoint,
    sender: &[u8],
    receiver: &[u8],
) -> Key {
    let mut shared = secret * public;
    let mut bytes = shared.compress();
    let key = tag.key(KEY, &[sender, receiver, bytes.as_bytes()]);
    shared.zeroize();
    bytes.zeroize();
    key
}

fn wide(stream: &mut Stream) -> Zeroizing<[u8; 64]> {
    let mut bytes = Zeroizing::new([0; 64]);
    stream.fill(&mut *bytes);
    bytes
}

/// The point that 32 bytes of the peer encode. Zero is refused: a product with it tells nothing of
/// the secret.
fn point(bytes: &[u8], index: usize, field: &'static str) -> Result<RistrettoPoint, OtError> {
    CompressedRistretto::from_slice(bytes)
        .ok()
        .and_then(|point| point.decompress())
        .filter(|point| !point.is_identity())
        .ok_or(OtError::Point { index, field })
}
