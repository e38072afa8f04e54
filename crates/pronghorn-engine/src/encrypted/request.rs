//! The client's encrypted input, as it came.

use pronghorn_he::ckks::{self, Parameters, UNIFORM_CHUNK};
use pronghorn_ring::{
    Word,
    bits::{self, BLOCK},
    random::Prg,
};

use super::{Shape, simd, values::TILE};
use crate::{error::EngineError, packed::PackedRow};

/// Columns that are unpacked and expanded together: blocks of the packing, chunks of `a`.
pub const CHUNK: usize = BLOCK;
/// How many rows before a chunk is read it is asked for.
const FETCH_AHEAD: usize = 2;
const _: () = assert!(UNIFORM_CHUNK == BLOCK && CHUNK.is_multiple_of(TILE));

/// Packed rows of `b`, one an element, and where their `a` comes from. Kept packed, and `a` is not
/// kept at all: half of the memory, and of what goes through it.
pub struct Request {
    rows: Vec<u8>,
    row_bytes: usize,
    /// Where each limb begins in a row, and bits of its words.
    limbs: Vec<(usize, u32)>,
    uniform: Prg,
    /// The number of the first row's `a`.
    first: u64,
}

impl Request {
    /// No rows yet; `room` is what they are put into.
    pub fn new<W: Word>(
        parameters: &Parameters<W>,
        uniform: Prg,
        first: u64,
        mut room: Vec<u8>,
    ) -> Self {
        room.clear();
        let mut row_bytes = 0;
        let primes = parameters.basis().primes().take(parameters.limbs());
        let limbs = primes.map(|q| {
            let start = row_bytes;
            row_bytes += bits::packed_len(parameters.n(), q.bits());
            (start, q.bits())
        });
        let limbs = limbs.collect();
        Self {
            rows: room,
            row_bytes,
            limbs,
            uniform,
            first,
        }
    }

    /// Adds the rows of one message, which is a whole number of them.
    pub fn extend(&mut self, message: &[u8]) {
        self.rows.extend_from_slice(message);
    }

    /// The room of the rows, for another request.
    pub fn into_room(self) -> Vec<u8> {
        self.rows
    }

    /// Writes chunk `chunk` of limb `limb` of all ciphertexts to `out`,
    /// `[tile][poly][element][TILE]`; `room` is scratch space.
    ///
    /// # Errors
    /// When a word of `b` is no residue.
    pub fn read<W: Word>(
        &self,
        shape: &Shape,
        parameters: &Parameters<W>,
        (limb, chunk): (usize, usize),
        out: &mut [W],
        room: &mut Vec<W>,
    ) -> Result<(), EngineError> {
        let (start, width) = self.limbs[limb];
        let block = CHUNK / 8 * width as usize;
        let q = parameters.basis().prime(limb);
        let elements = self.rows.len() / self.row_bytes;
        room.resize(CHUNK, W::default());
        let place = start + chunk * block;
        for (element, row) in self.rows.chunks_exact(self.row_bytes).enumerate() {
            let ahead = (element + FETCH_AHEAD) * self.row_bytes + place;
            if let Some(bytes) = self.rows.get(ahead..ahead + block) {
                simd::fetch(bytes);
            }
            let bytes = &row[place..][..block];
            let packed = PackedRow {
                step: &shape.step,
                message: "the encrypted input",
                row: element,
                width,
            };
            packed.unpack_up_to(q.value() - 1, bytes, room)?;
            scatter(room, 0, element, elements, out);
            ckks::expand_chunk(
                parameters,
                &self.uniform,
                self.first + element as u64,
                limb,
                chunk,
                room,
            );
            scatter(room, 1, element, elements, out);
        }
        Ok(())
    }
}

/// Cuts a chunk of one polynomial of one element into its tiles.
fn scatter<W: Word>(chunk: &[W], poly: usize, element: usize, elements: usize, out: &mut [W]) {
    let units = out.chunks_exact_mut(2 * elements * TILE);
    for (words, unit) in chunk.chunks_exact(TILE).zip(units) {
        unit[(poly * elements + element) * TILE..][..TILE].copy_from_slice(words);
    }
}
