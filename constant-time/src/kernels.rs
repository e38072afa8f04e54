//! Kernels of secrets, each at a SIMD level. The check of branches and addresses and the comparison
//! of times both run them.

use pronghorn_he::rlwe::{Encoding, RlweRing, Scratch, SecretKey};
use pronghorn_mpc::{Block, aes::Aes128};
use pronghorn_ring::{
    Ntt, Prime, SimdLevel, Word, bits,
    modulus::largest_ntt_prime,
    random::{Prg, Seed},
    sample, vector,
};

/// Coefficients of a polynomial here.
const N: usize = 1024;
/// Bytes of secrets that every kernel takes.
pub const SECRET_BYTES: usize = 8 * N;

/// A kernel, ready to run on [`SECRET_BYTES`] secret bytes.
pub type Run = Box<dyn FnMut(&[u8])>;

/// A kernel by its name.
pub struct Kernel {
    /// What it computes.
    pub name: &'static str,
    /// Lays out what is public.
    pub at: fn(SimdLevel) -> Run,
}

/// All kernels.
pub const ALL: &[Kernel] = &[
    Kernel {
        name: "errors of RLWE",
        at: errors,
    },
    Kernel {
        name: "residues modulo 2^k",
        at: residues_of_powers,
    },
    Kernel {
        name: "NTT, primes of 31 bits",
        at: ntt::<u32, 31>,
    },
    Kernel {
        name: "NTT, primes of 50 bits",
        at: ntt::<u64, 50>,
    },
    Kernel {
        name: "NTT, primes of 61 bits",
        at: ntt::<u64, 61>,
    },
    Kernel {
        name: "vectors, primes of 31 bits",
        at: vectors::<u32, 31>,
    },
    Kernel {
        name: "vectors, primes of 50 bits",
        at: vectors::<u64, 50>,
    },
    Kernel {
        name: "vectors, primes of 61 bits",
        at: vectors::<u64, 61>,
    },
    Kernel {
        name: "bits packed",
        at: packing,
    },
    Kernel {
        name: "AES-128",
        at: aes,
    },
    Kernel {
        name: "blocks masked and compared",
        at: blocks,
    },
    Kernel {
        name: "RLWE, words of 32 bits",
        at: rlwe::<u32, 30>,
    },
    Kernel {
        name: "RLWE, words of 64 bits",
        at: rlwe::<u64, 50>,
    },
];

/// Whether some byte is not zero: stops at the first. It must be found by both ways of checking.
pub fn control(_: SimdLevel) -> Run {
    Box::new(|secret| {
        std::hint::black_box(secret.iter().all(|&byte| byte == 0));
    })
}

/// Reads a table at a secret place. It must be found.
pub fn control_address(_: SimdLevel) -> Run {
    let table: Vec<u8> = (0..=255).rev().collect();
    Box::new(move |secret| {
        std::hint::black_box(table[usize::from(secret[0])]);
    })
}

/// Secret residues modulo `q`, by multiplication.
fn residues<W: Word>(q: &Prime<W>, secret: &[u8]) -> Vec<W> {
    let words = secret
        .as_chunks::<8>()
        .0
        .iter()
        .map(|&bytes| u64::from_le_bytes(bytes));
    words
        .map(|word| W::from_u64(((u128::from(word) * u128::from(q.value())) >> 64) as u64))
        .collect()
}

fn prime<W: Word>(bits: u32) -> Prime<W> {
    let q = largest_ntt_prime(bits, N).expect("there is a prime");
    Prime::new(q).expect("it fits the word")
}

/// A generator of a secret seed.
fn generator(secret: &[u8]) -> Prg {
    let seed = *secret.first_chunk().expect("32 bytes");
    Prg::new(&Seed::from_bytes(seed), "pronghorn check of constant time")
}

fn errors(level: SimdLevel) -> Run {
    let mut out = vec![0; N];
    Box::new(move |secret| {
        sample::centred_binomial_at(level, &mut generator(secret).stream(0), &mut out);
    })
}

fn residues_of_powers(_: SimdLevel) -> Run {
    let mut out = vec![0u64; N];
    Box::new(move |secret| {
        sample::uniform_power_of_two(&mut generator(secret).stream(0), 45, &mut out);
    })
}

fn ntt<W: Word, const BITS: u32>(level: SimdLevel) -> Run {
    let ntt = Ntt::<W>::new(N, prime(BITS)).expect("the prime has roots");
    Box::new(move |secret| {
        let mut x = residues(ntt.modulus(), secret);
        ntt.forward_at(level, &mut x);
        ntt.inverse_at(level, &mut x);
        std::hint::black_box(&x);
    })
}

fn vectors<W: Word, const BITS: u32>(level: SimdLevel) -> Run {
    let (q, p) = (prime::<W>(BITS), prime::<W>(BITS - 3));
    Box::new(move |secret| {
        let x = residues(&q, secret);
        let (mut y, mut z) = (x.clone(), x.clone());
        y.reverse();
        let w = x[1];
        vector::mul_at(level, &q, &x, &y, &mut z);
        let shoup: Vec<W> = y.iter().map(|&word| q.shoup(word)).collect();
        vector::mul_shoup_add_assign_at(level, &q, &mut z, &x, &y, &shoup);
        vector::add_assign_at(level, &q, &mut z, &x);
        vector::sub_assign_at(level, &q, &mut z, &y);
        vector::neg_assign_at(level, &q, &mut z);
        vector::mul_scalar_add_assign_at(level, &q, &mut z, &x, w);
        vector::divide_at(level, &q, &x, &mut z, w);
        vector::reduce_from_at(level, &p, &q, &x, &mut z);
        vector::inner_product_at(level, &q, &[&x, &y], &[&y, &x], &mut z);
        let centred: i64 = x
            .iter()
            .map(|&word| q.centre(word))
            .fold(0, i64::wrapping_add);
        std::hint::black_box((q.from_i64(centred), &z));
    })
}

fn packing(level: SimdLevel) -> Run {
    Box::new(move |secret| {
        let words: Vec<u64> = residues(&prime::<u64>(61), secret);
        let words: Vec<u64> = words.iter().map(|word| word & 0x1f_ffff).collect();
        let (mut bytes, mut back) = (Vec::new(), vec![0u64; N]);
        bits::pack_at(level, &words, 21, &mut bytes);
        bits::unpack_at(level, &bytes, 21, &mut back).expect("as many bytes as words take");
        std::hint::black_box(&back);
    })
}

fn secret_blocks(secret: &[u8]) -> Vec<Block> {
    let blocks = secret.as_chunks::<16>().0;
    blocks
        .iter()
        .map(|&bytes| Block::from_bytes(bytes))
        .collect()
}

fn aes(level: SimdLevel) -> Run {
    Box::new(move |secret| {
        let mut blocks = secret_blocks(secret);
        Aes128::new_at(level, blocks[0]).encrypt(&mut blocks);
        std::hint::black_box(&blocks);
    })
}

fn blocks(_: SimdLevel) -> Run {
    Box::new(|secret| {
        let blocks = secret_blocks(secret);
        let mut sum = Block::ZERO;
        let mut equal = 0;
        for pair in blocks.windows(2) {
            sum ^= pair[0].masked(pair[1].lsb()).doubled().sigma();
            equal += u32::from(pair[0] == pair[1]);
        }
        std::hint::black_box((sum.to_u128(), equal));
    })
}

/// Keys aside: a row encrypted and decrypted, at the level of `PRONGHORN_SIMD`.
fn rlwe<W: Word, const BITS: u32>(_: SimdLevel) -> Run {
    const DEGREE: usize = 2048;
    let q = largest_ntt_prime(BITS, DEGREE).expect("there is a prime");
    let ring = RlweRing::<W>::new(DEGREE, q).expect("128 bits of security");
    let key = SecretKey::generate(&ring, 1, &Seed::from_bytes([7; 32]));
    let mut a = vec![W::default(); DEGREE];
    sample::uniform_public(&mut generator(&[1; 32]).stream(1), ring.modulus(), &mut a);
    let mut scratch = Scratch::new(&ring);
    let (mut b, mut back) = (vec![W::default(); DEGREE], vec![0; DEGREE]);
    let encoding = Encoding {
        scale_log: 10,
        dropped_bits: 0,
        centre: 0,
        low: i32::MIN,
        high: i32::MAX,
    };
    Box::new(move |secret| {
        let halves = secret.as_chunks::<4>().0.iter();
        let messages: Vec<i32> = halves
            .map(|&bytes| i32::from_le_bytes(bytes) >> 16)
            .collect();
        let encrypted = key.encrypt_row((0, 0), &a, &messages, 10, &mut scratch, &mut b);
        let decrypted = key.decrypt_row(0, &a, &b, &encoding, &mut scratch, &mut back);
        std::hint::black_box((encrypted.is_ok(), decrypted.is_ok()));
    })
}
