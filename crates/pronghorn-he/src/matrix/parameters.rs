//! The ring, and how messages and answers are encoded.

use pronghorn_ring::{
    bits::packed_len,
    rns::primes,
    security::{SecurityLevel, max_log_q},
};

use super::{
    MatrixError,
    layout::{Layout, Side, Sizes, Widths},
};
use crate::{
    noise,
    rns::{self, Scheme},
    shares::{self, ShareEncoding},
};

/// Degrees, smallest first.
const DEGREES: [usize; 2] = [2048, 4096];

/// Bits of the prime that stays above those of the shares: room for what its division rounds, and
/// for bits that are dropped.
const ROOM: u32 = 12;

/// Bits of noise that the prime that goes leaves.
const LEFT: u32 = 10;

/// Bits of the smallest prime: such a prime has a transform.
const LEAST: u32 = 18;

/// Most answers that one key serves: each is a sample of RLWE with a secret of its own, under the
/// one `a` of the key.
pub const MOST_ANSWERS: usize = 1 << 20;

/// All numbers of a product of two shared matrices. Both parties compute them from public ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    degree: usize,
    primes: [u64; 2],
    encoding: ShareEncoding,
    bits: u32,
    guard: u32,
    dropped: Dropped,
    layouts: [Layout; 2],
}

/// A setting with the tables of its ring: some hundred kilobytes.
#[derive(Clone)]
pub struct Parameters {
    setting: Setting,
    ring: rns::Parameters<u64>,
    /// `2^-bits` modulo each prime.
    inverses: [u64; 2],
}

/// Low bits that an answer's coefficients lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Of `a`.
    pub a: u32,
    /// Of `b`.
    pub b: u32,
}

/// Numbers that determine the rest.
struct Draft {
    degree: usize,
    bits: [u32; 2],
    layouts: [Layout; 2],
}

impl Draft {
    /// Blocks depend on the widths, these on the noise, which depends on the blocks: with the
    /// noise of the last blocks, twice.
    fn new(degree: usize, sizes: Sizes, value: u32, guard: u32) -> Option<Self> {
        let kept = (value + guard + ROOM).max(LEAST);
        let mut gone = value + ROOM;
        let mut made = None;
        for _ in 0..2 {
            let widths = Widths {
                factor: kept + gone,
                a: kept - 1,
                b: value + guard + 2,
            };
            let [left, right] =
                [Side::Left, Side::Right].map(|side| Layout::choose(degree, side, sizes, widths));
            let layouts = [left?, right?];
            gone = (noise_of(degree, &layouts, value).log2().ceil() as u32)
                .saturating_sub(LEFT)
                .max(LEAST);
            made = Some(Self {
                degree,
                bits: [kept, gone],
                layouts,
            });
        }
        let (made, answers) = (made?, MOST_ANSWERS.ilog2());
        // A hybrid over the answers costs the logarithm of their number in bits, and the bits of
        // attacks are about in inverse proportion to those of the modulus.
        let limit = max_log_q(degree, SecurityLevel::Bits128)?;
        let bits: u32 = made.bits.iter().sum();
        (bits * (128 + answers) <= limit * 128).then_some(made)
    }

    /// Bytes of a product, both ways.
    fn bytes(&self) -> usize {
        let widths = Widths {
            factor: self.bits.iter().sum(),
            a: self.bits[0] - 1,
            b: self.bits[0] - ROOM + 2,
        };
        self.layouts.iter().map(|layout| layout.bytes(widths)).sum()
    }
}

/// The most that the noise of both answers' coefficients adds up to before a prime goes, exceeded
/// with a probability of at most `2^-61`: errors times the factor in the clear, the rounding of
/// messages, and the encryptions of zero, whose one error that is no product is below what the
/// [room](Dropped::within) leaves.
fn noise_of(degree: usize, layouts: &[Layout; 2], bits: u32) -> f64 {
    let of = |layout: &Layout| {
        let (count, most) = (layout.clear_elements() as f64, f64::from(bits - 1).exp2());
        let errors = noise::linear_bound(count * most, count.sqrt() * most) as f64;
        errors + count * most / 2.0 + shares::zero_bound(degree) as f64
    };
    layouts.iter().map(of).sum()
}

impl Setting {
    /// For shares modulo `2^bits`, and answers with `guard` bits more: the degree and the blocks
    /// whose messages are shortest.
    ///
    /// # Errors
    /// When a size is zero, the words of answers have more than 32 bits, or no parameters of at
    /// least 128 bits of security have room.
    pub fn new(sizes: Sizes, bits: u32, guard: u32) -> Result<Self, MatrixError> {
        let width = bits.checked_add(guard);
        if bits == 0 || width.is_none_or(|width| width > 32) {
            return Err(MatrixError::Bits { bits, guard });
        }
        let drafts = DEGREES.into_iter();
        let drafts = drafts.filter_map(|degree| Draft::new(degree, sizes, bits, guard));
        let draft = drafts.min_by_key(Draft::bytes);
        Self::of(draft.ok_or(MatrixError::Room { sizes, bits })?, bits, guard)
    }

    fn of(draft: Draft, bits: u32, guard: u32) -> Result<Self, MatrixError> {
        let Draft {
            degree, layouts, ..
        } = draft;
        let primes = primes(degree, &draft.bits).map_err(rns::ParameterError::from)?;
        let &[first, second] = primes.as_slice() else {
            return Err(MatrixError::Bits { bits, guard });
        };
        let encoding = ShareEncoding::new(first, bits, guard);
        let encoding = encoding.ok_or(MatrixError::Bits { bits, guard })?;
        let noise = noise_of(degree, &layouts, bits) / second as f64;
        let dropped = Dropped::within(encoding.noise_room() as f64 - noise, degree);
        Ok(Self {
            degree,
            primes: [first, second],
            dropped: dropped.ok_or(MatrixError::Bits { bits, guard })?,
            encoding,
            bits,
            guard,
            layouts,
        })
    }

    /// Coefficients of a polynomial.
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// Bits of the shares of factors.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Of answers, modulo the first prime.
    pub fn encoding(&self) -> &ShareEncoding {
        &self.encoding
    }

    /// Low bits that answers lack.
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// The client's first factor encrypted, then its second.
    pub fn layouts(&self) -> &[Layout; 2] {
        &self.layouts
    }

    /// Bits on the wire.
    pub fn widths(&self) -> Widths {
        let bits = self.limb_widths();
        Widths {
            factor: bits[0] + bits[1],
            a: bits[0] - self.dropped.a,
            b: bits[0] - self.dropped.b,
        }
    }

    /// Bits of each prime.
    pub fn limb_widths(&self) -> [u32; 2] {
        self.primes.map(|prime| u64::BITS - prime.leading_zeros())
    }

    /// Bytes of a client's key, of a ciphertext of a factor, and of an answer of so many elements.
    pub fn key_bytes(&self) -> usize {
        // Behind the public key comes the seed of the factors' `a`.
        rns::wire::PUBLIC_KEY_HEAD + self.factor_bytes() + 32
    }

    /// Bytes of a ciphertext of a factor.
    pub fn factor_bytes(&self) -> usize {
        let widths = self.limb_widths().into_iter();
        widths.map(|width| packed_len(self.degree, width)).sum()
    }

    /// Bytes of an answer of a layout.
    pub fn answer_bytes(&self, layout: usize, answer: usize) -> usize {
        let (widths, elements) = (self.widths(), self.layouts[layout].elements(answer));
        packed_len(self.degree, widths.a) + packed_len(elements, widths.b)
    }
}

impl Parameters {
    /// With the tables of the ring.
    ///
    /// # Errors
    /// When the ring is refused.
    pub fn new(setting: &Setting) -> Result<Self, MatrixError> {
        let &Setting {
            degree,
            primes,
            bits,
            guard,
            ..
        } = setting;
        let scheme = Scheme {
            hash: hash(degree, &primes, bits, guard),
            digit_bits: None,
            single_limbs: false,
            insecure: false,
        };
        let ring = rns::Parameters::of_scheme(degree, &primes, &[], &scheme)?;
        let inverse = |limb: usize| {
            let q = ring.basis().prime(limb);
            let power = q.inverse((1u64 << bits) % q.value());
            power.ok_or(MatrixError::Bits { bits, guard })
        };
        Ok(Self {
            inverses: [inverse(0)?, inverse(1)?],
            setting: setting.clone(),
            ring,
        })
    }

    /// Its numbers.
    pub fn setting(&self) -> &Setting {
        &self.setting
    }

    /// The ring of both primes.
    pub fn ring(&self) -> &rns::Parameters<u64> {
        &self.ring
    }

    /// A sum of two words of answers, modulo the first prime.
    pub fn add(&self, x: u64, y: u64) -> u64 {
        self.ring.basis().prime(0).add(x, y)
    }

    /// `round(Q m / 2^bits)` modulo the prime of a limb: `2^bits` times it is `Q m` less a centred
    /// remainder, and `Q` is zero.
    pub(super) fn encode(&self, limb: usize, share: i32) -> u64 {
        let basis = self.ring.basis();
        let (mask, half) = (
            u64::MAX >> (64 - self.setting.bits),
            1u64 << (self.setting.bits - 1),
        );
        let modulus = basis.prime(0).value().wrapping_mul(basis.prime(1).value());
        let product = modulus.wrapping_mul(u64::from(share as u32));
        // In `-2^(bits-1) .. 2^(bits-1)`.
        let centred = (product.wrapping_add(half) & mask) as i64 - half as i64;
        let q = basis.prime(limb);
        q.mul(q.from_i64(-centred), self.inverses[limb])
    }
}

impl Dropped {
    /// As many bits as fit, of `a` at first; `room`: what noise may be at most beyond that before
    /// the division. `None` where nothing fits.
    fn within(room: f64, degree: usize) -> Option<Self> {
        // Of both answers: the division rounds both polynomials, and the server's own product is
        // rounded once.
        let bound_a = |dropped: u32| 2.0 * noise::dropped_a_bound(degree, dropped) as f64;
        let room = room - bound_a(1) - 2.0;
        let a = (0..ROOM)
            .rev()
            .find(|&dropped| bound_a(dropped) <= room / 2.0)?;
        let rest = room - bound_a(a);
        let bound_b = |dropped: u32| f64::from(dropped).exp2();
        let b = (1..ROOM).rev().find(|&dropped| bound_b(dropped) <= rest)?;
        Some(Self { a, b })
    }
}

fn hash(n: usize, primes: &[u64], bits: u32, guard: u32) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 products of shared matrices");
    let numbers = [n as u64, bits.into(), guard.into()];
    for number in numbers.iter().chain(primes) {
        hasher.update(&number.to_le_bytes());
    }
    *hasher.finalize().as_bytes()
}
