//! The output of the product, laid out so that threads write disjoint pieces.

use pronghorn_ring::Word;
use rayon::prelude::*;

/// Columns in one tile of [`Tiles`], the unit of work of one thread.
pub const TILE: usize = 128;

/// A matrix of words stored tile by tile: `[tile][row][TILE words]`, the last tile filled up
/// with words that mean nothing.
pub struct Tiles<W> {
    rows: usize,
    columns: usize,
    words: Vec<W>,
}

impl<W: Word> Tiles<W> {
    /// A matrix of `rows` times `columns` zeros.
    ///
    /// # Panics
    ///
    /// If the matrix exceeds the address space.
    pub fn new(rows: usize, columns: usize) -> Self {
        let words = Self::words(rows, columns).expect("matrix fits the address space");
        Self {
            rows,
            columns,
            words: vec![W::from_u64(0); words],
        }
    }

    /// Words of a matrix of `rows` times `columns`; `None` where it exceeds the address space.
    pub fn words(rows: usize, columns: usize) -> Option<usize> {
        let padded = columns.div_ceil(TILE).checked_mul(TILE)?;
        padded.checked_mul(rows)
    }

    /// A matrix in memory that is there, with the words that are in it.
    ///
    /// # Panics
    ///
    /// If `words` has fewer than [`Tiles::words`] says.
    pub fn within(rows: usize, columns: usize, words: Vec<W>) -> Self {
        let needed = Self::words(rows, columns);
        assert!(needed.is_some_and(|needed| needed <= words.len()), "words");
        Self {
            rows,
            columns,
            words,
        }
    }

    /// Its memory.
    pub fn into_words(self) -> Vec<W> {
        self.words
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Copies the words of `row` to `out`, which is `columns()` words long.
    ///
    /// # Panics
    ///
    /// If `row` is not below `rows()` or `out` has another length.
    pub fn read_row(&self, row: usize, out: &mut [W]) {
        assert_eq!(out.len(), self.columns, "output words");
        self.read_part(row, 0, out);
    }

    /// Copies words of `row` to `out`: those from column `first` on, the first of a tile.
    ///
    /// # Panics
    ///
    /// If `row` is not below `rows()`, no tile begins at `first`, or the row ends before `out`.
    pub fn read_part(&self, row: usize, first: usize, out: &mut [W]) {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        assert!(first.is_multiple_of(TILE), "column {first}");
        assert!(first + out.len() <= self.columns, "output words");
        let tiles = self.words.chunks_exact(self.rows * TILE).skip(first / TILE);
        for (tile, part) in tiles.zip(out.chunks_mut(TILE)) {
            part.copy_from_slice(&tile[row * TILE..][..part.len()]);
        }
    }

    /// The tiles with their numbers, for as many threads as there are.
    pub(crate) fn par_tiles_mut(
        &mut self,
    ) -> impl IndexedParallelIterator<Item = (usize, &mut [W])> {
        let tile = self.rows * TILE;
        let words = &mut self.words[..tile * self.columns.div_ceil(TILE)];
        // With no rows there are no words and so no tiles, whatever the chunk size.
        words.par_chunks_mut(tile.max(1)).enumerate()
    }
}
