//! Ciphertexts of a value, cut into units that can be worked on alone.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pronghorn_ring::Word;

use super::simd;

/// Columns of a unit: words of one limb that are worked on together.
pub use pronghorn_product::TILE;

/// How many tiles before a word is read or written its place is asked for.
const FETCH_AHEAD: usize = 6;

/// All ciphertexts of a value in the NTT domain, `[limb][tile][poly][element][TILE]`: what stands
/// at one place of one limb of all elements is together, since within a stage only such words meet.
pub struct Values<W> {
    n: usize,
    pub limbs: usize,
    pub polys: usize,
    pub elements: usize,
    words: Vec<W>,
}

impl<W: Word> Values<W> {
    /// Any words, of degree `n` (a multiple of [`TILE`]), in `room`, which is never made shorter:
    /// what it lacked another time would have to be zeroed.
    pub fn new(n: usize, limbs: usize, polys: usize, elements: usize, mut room: Vec<W>) -> Self {
        let words = n * limbs * polys * elements;
        if room.len() < words {
            room.resize(words, W::default());
        }
        Self {
            n,
            limbs,
            polys,
            elements,
            words: room,
        }
    }

    /// The room of the words, for other values.
    pub fn into_room(self) -> Vec<W> {
        self.words
    }

    /// Tiles of a limb.
    pub fn tiles(&self) -> usize {
        self.n / TILE
    }

    /// Words of a unit.
    pub fn unit_len(&self) -> usize {
        self.polys * self.elements * TILE
    }

    /// `[poly][element][TILE]` of one tile of one limb.
    pub fn unit(&self, limb: usize, tile: usize) -> &[W] {
        &self.words[(limb * self.tiles() + tile) * self.unit_len()..][..self.unit_len()]
    }

    /// All units, in order of limb, then tile.
    pub fn units_mut(&mut self) -> std::slice::ChunksExactMut<'_, W> {
        let (length, words) = (self.unit_len(), self.limbs * self.tiles() * self.unit_len());
        self.words[..words].chunks_exact_mut(length)
    }

    /// Copies limb `limb` of one polynomial of one element to `out`, which is `n` words long.
    pub fn read(&self, element: usize, poly: usize, limb: usize, out: &mut [W]) {
        let place = (poly * self.elements + element) * TILE;
        for (tile, out) in out.chunks_exact_mut(TILE).enumerate() {
            if tile + FETCH_AHEAD < self.tiles() {
                simd::fetch(&self.unit(limb, tile + FETCH_AHEAD)[place..][..TILE]);
            }
            out.copy_from_slice(&self.unit(limb, tile)[place..][..TILE]);
        }
    }

    /// Writes limb `limb` of one polynomial of one element.
    pub fn write(&mut self, element: usize, poly: usize, limb: usize, from: &[W]) {
        let (length, tiles) = (self.unit_len(), self.tiles());
        for (tile, from) in from.chunks_exact(TILE).enumerate() {
            let place = (limb * tiles + tile) * length + (poly * self.elements + element) * TILE;
            if tile + FETCH_AHEAD < tiles {
                simd::fetch(&self.words[place + FETCH_AHEAD * length..][..TILE]);
            }
            self.words[place..][..TILE].copy_from_slice(from);
        }
    }
}

/// Buffers between batches: memory that is new to the process costs more than what is done with it.
#[derive(Default)]
pub struct Pool<T>(Mutex<Vec<Vec<T>>>);

impl<T> Pool<T> {
    /// Most buffers that are kept, so that what waits for a next batch is about what one takes.
    const MOST: usize = 4;

    /// A buffer, the smallest that has the capacity if there is one.
    pub fn take(&self, capacity: usize) -> Vec<T> {
        let mut spare = self.lock();
        let large = |&place: &usize| spare[place].capacity() >= capacity;
        let fitting = (0..spare.len()).filter(large);
        match fitting.min_by_key(|&place| spare[place].capacity()) {
            Some(place) => spare.swap_remove(place),
            None => Vec::with_capacity(capacity),
        }
    }

    /// Keeps a buffer for later.
    pub fn give(&self, buffer: Vec<T>) {
        let mut spare = self.lock();
        if spare.len() < Self::MOST {
            spare.push(buffer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
