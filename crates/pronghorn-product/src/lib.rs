//! Products of small integer matrices with words modulo a prime: the work of every linear layer on
//! ciphertexts that hold values in coefficients.
//!
//! A row of words is one tensor element, under encryption, of many images or positions. A layer of
//! public shape with private integer weights is `out[o][x] = addend[o] + sum_i w[o][i] *
//! in[i][x] mod q` for every column `x`, a column being one ciphertext coefficient (Boemer,
//! Costache, Cammarota, Wierzynski, "nGraph-HE2", batch-axis packing with scalar encoding). Weights
//! are small signed integers, not residues, and the same for every column.
//!
//! # How
//!
//! * A residue less a constant near half the modulus is cut into signed 16-bit *limbs* with carries
//!   (`lanes`): two for a modulus below 2^31, up to four for 62 bits. Limbs are only further
//!   columns. Sums begin at what the constant takes from them, and at the addend.
//! * Where the CPU multiplies matrices of bytes (AMX) and weights are of a byte, residues are cut
//!   into four bytes instead (`bytes`). Sums of tiles are reduced while the next are multiplied.
//! * Rows of the input are packed in pairs, one pair of 16-bit limbs in each 32-bit lane, which
//!   is what `vpdpwssd` and `vpmaddwd` multiply: neighbouring channels of one pixel, or, where a
//!   group has one channel, neighbouring pixels of one image row.
//! * A micro-kernel keeps outputs x vectors of 32-bit sums in registers and walks a list of
//!   offsets of pair rows, so a convolution needs no im2col copy (`kernel`, `simd`). One call
//!   serves all columns of a tile whose pairs stay in the first-level cache. Packed rows have their
//!   padding, so that all positions are alike.
//! * Groups share nothing, so that each is finished before the next is packed (`nest`). While one
//!   row of positions is computed, the input of the next is fetched.
//! * Sums stay exact: `sum |w| * 2^15 < 2^31` holds over a *chunk* of an output's weights. Most
//!   layers are one chunk; otherwise chunks are summed in 64 bits.
//! * Each sum is reduced once, from its limbs, by a floating-point quotient.
//!
//! # Cost and secrecy
//!
//! One word multiply-add costs half a lane of one 16-bit multiply-add instruction a limb. Memory
//! besides input and output, for a thread: a band of `kernel height` image rows of one group and
//! one tile of columns, of at most twice the image's width; as bytes, of all groups, at most 8
//! MiB. Time depends on the shapes and, where weights are large, on how many chunks their
//! magnitudes need; never on the words.

mod bench;
mod bytes;
mod kernel;
mod lanes;
mod nest;
mod reference;
mod rows;
mod simd;
#[cfg(test)]
mod tests;
mod tiles;
mod weights;

use std::sync::Mutex;

use pronghorn_ring::{Prime, SimdLevel, Word};
use rayon::prelude::*;

pub use bench::{Ceiling, ceiling};
use lanes::Modulus;
use nest::Job;
pub use nest::Scratch;
pub use reference::multiply_reference;
pub use rows::Rows;
use simd::Backend;
pub use tiles::{TILE, Tiles};
pub use weights::{PackedWeights, ProductError};

/// Multiplies `weights` with `input` modulo `q` into `output`, on the widest instructions this
/// CPU has and on rayon's current threads.
///
/// * `input`: `weights.inputs()` rows of as many words as `output` has columns, every word below `q`.
///   Row `(channel * height + y) * width + x` is one tensor element.
/// * `addend`: one word below `q` for each output row, added to all its columns.
/// * `output`: `weights.outputs()` rows of `columns` columns, overwritten; rows are ordered as
///   the input's.
///
/// Words at or above `q` give wrong sums, nothing worse.
///
/// # Panics
///
/// If a length differs from the above, if `q` is 2^31 or more for 32-bit words, or 2^62 or more
/// for 64-bit words.
pub fn multiply<W: Word>(
    weights: &PackedWeights,
    q: &Prime<W>,
    input: Rows<'_, W>,
    addend: Option<&[W]>,
    output: &mut Tiles<W>,
) {
    multiply_at(SimdLevel::detect(), weights, q, input, addend, output);
}

/// [`multiply`] for one tile of [`TILE`] columns, on this thread: `input` and `output` are
/// `[row][TILE]`, and `scratch` is kept from one call to the next.
///
/// # Panics
///
/// As [`multiply`].
pub fn multiply_tile<W: Word>(
    weights: &PackedWeights,
    q: &Prime<W>,
    input: &[W],
    addend: Option<&[W]>,
    output: &mut [W],
    scratch: &mut Scratch,
) {
    multiply_tile_at(
        SimdLevel::detect(),
        weights,
        q,
        input,
        addend,
        output,
        scratch,
    );
}

/// [`multiply_tile`] on the instructions of `level`; a level this CPU lacks falls back to the
/// portable form.
///
/// # Panics
///
/// As [`multiply`].
pub fn multiply_tile_at<W: Word>(
    level: SimdLevel,
    weights: &PackedWeights,
    q: &Prime<W>,
    input: &[W],
    addend: Option<&[W]>,
    output: &mut [W],
    scratch: &mut Scratch,
) {
    assert_eq!(input.len(), weights.inputs() * TILE, "input words");
    assert_eq!(output.len(), weights.outputs() * TILE, "output words");
    if let Some(addend) = addend {
        assert_eq!(addend.len(), weights.outputs(), "addend words");
    }
    let job = Job {
        weights,
        modulus: Modulus::new(q),
        input: Rows::Together(input, TILE),
        columns: TILE,
        addend,
    };
    Backend::new(level).run(&job, 0, output, scratch);
}

/// [`multiply`] on the instructions of `level`; a level this CPU lacks falls back to the
/// portable form.
///
/// # Panics
///
/// As [`multiply`].
pub fn multiply_at<W: Word>(
    level: SimdLevel,
    weights: &PackedWeights,
    q: &Prime<W>,
    input: Rows<'_, W>,
    addend: Option<&[W]>,
    output: &mut Tiles<W>,
) {
    multiply_on(Backend::new(level), weights, q, input, addend, output);
}

fn multiply_on<W: Word>(
    backend: Backend,
    weights: &PackedWeights,
    q: &Prime<W>,
    input: Rows<'_, W>,
    addend: Option<&[W]>,
    output: &mut Tiles<W>,
) {
    check_lengths(weights, input, addend, output);
    let job = Job {
        weights,
        modulus: Modulus::new(q),
        input,
        columns: output.columns(),
        addend,
    };
    let scratches = Mutex::new(Vec::<Scratch>::new());
    let lock = || {
        scratches
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    };
    output.par_tiles_mut().for_each(|(tile, out)| {
        let mut scratch = lock().pop().unwrap_or_default();
        backend.run(&job, tile, out, &mut scratch);
        lock().push(scratch);
    });
}

fn check_lengths<W: Word>(
    weights: &PackedWeights,
    input: Rows<'_, W>,
    addend: Option<&[W]>,
    output: &Tiles<W>,
) {
    assert!(input.are(weights.inputs(), output.columns()), "input words");
    assert_eq!(output.rows(), weights.outputs(), "output rows");
    if let Some(addend) = addend {
        assert_eq!(addend.len(), weights.outputs(), "addend words");
    }
}
