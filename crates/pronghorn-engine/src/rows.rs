//! A party's share of a value, whole or by rows.
//!
//! In plans that go by bands ([`pronghorn_plan::bands`]) a value comes in pieces of some rows, and
//! goes as soon as nobody reads them any more.

use std::{collections::VecDeque, ops::Range};

use pronghorn_graph::fixed::ValueSpec;
use pronghorn_plan::bands::rows_of;
use rayon::prelude::*;

use crate::{
    pool::Pool,
    share::{Batch, Share},
};

/// The pieces of a value that are there, in order.
pub(crate) struct Pieces {
    value: ValueSpec,
    /// Images of shares with words; `None` where all are zero.
    images: Option<usize>,
    /// For rows that are copied.
    pool: Pool<i32>,
    pieces: VecDeque<Piece>,
}

struct Piece {
    rows: Range<usize>,
    share: Share,
}

impl Pieces {
    /// None yet.
    pub fn new(value: &ValueSpec, pool: &Pool<i32>) -> Self {
        Self {
            value: value.clone(),
            images: None,
            pool: pool.clone(),
            pieces: VecDeque::new(),
        }
    }

    /// Adds the next rows, if there are any.
    pub fn push(&mut self, rows: Range<usize>, share: Share) {
        if rows.is_empty() {
            return;
        }
        if let Share::Words(words) = &share {
            self.images = Some(words.images());
        }
        self.pieces.push_back(Piece { rows, share });
    }

    /// The share of some rows, all of which are there. A piece that nobody reads after this, from
    /// row `keep` on, is moved.
    pub fn read(&mut self, rows: &Range<usize>, keep: usize) -> Share {
        if rows.end <= keep
            && let Some(at) = self.pieces.iter().position(|piece| piece.rows == *rows)
        {
            let piece = self.pieces.remove(at);
            return piece.map_or(Share::Zero, |piece| piece.share);
        }
        match self.images {
            Some(images) => Share::Words(self.gather(rows, images)),
            None => Share::Zero,
        }
    }

    fn gather(&self, rows: &Range<usize>, images: usize) -> Batch {
        let row = self.value.len() / rows_of(&self.value.shape).max(1);
        let channels = match self.value.shape[..] {
            [channels, _, _] => channels,
            _ => 1,
        };
        let words = row / channels * images;
        let mut gathered = Batch::of_pool(&self.pool, row * rows.len(), images);
        for piece in &self.pieces {
            let both = piece.rows.start.max(rows.start)..piece.rows.end.min(rows.end);
            if both.is_empty() {
                continue;
            }
            let at = |of: &Range<usize>| (both.start - of.start) * words;
            let to = gathered
                .words_mut()
                .par_chunks_exact_mut(rows.len() * words);
            let to = to.map(|to| &mut to[at(rows)..][..both.len() * words]);
            match &piece.share {
                Share::Words(from) => {
                    let from = from.words().par_chunks_exact(piece.rows.len() * words);
                    let from = from.map(|from| &from[at(&piece.rows)..][..both.len() * words]);
                    to.zip(from).for_each(|(to, from)| to.copy_from_slice(from));
                }
                // The memory is that of an earlier value.
                Share::Zero => to.for_each(|to| to.fill(0)),
            }
        }
        gathered
    }

    /// Drops pieces before a row.
    pub fn drop_before(&mut self, row: usize) {
        self.pieces.retain(|piece| piece.rows.end > row);
    }

    /// The whole value.
    pub fn into_whole(mut self) -> Share {
        let all = 0..rows_of(&self.value.shape);
        let end = all.end;
        self.read(&all, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of three channels, in pieces, as they stand in the whole.
    #[test]
    fn rows_come_as_they_are_in_the_whole() {
        let (shape, images) = (vec![3, 7, 2], 2);
        let value = ValueSpec {
            shape,
            fraction_bits: 0,
            low: 0,
            high: 100,
        };
        let words = |rows: Range<usize>| {
            let mut batch = Batch::zeros(3 * rows.len() * 2, images);
            let places = (0..3).flat_map(|c| rows.clone().map(move |y| (c, y)));
            let elements = places.flat_map(|(c, y)| (0..2).map(move |x| (c * 7 + y) * 2 + x));
            for (row, element) in batch.words_mut().chunks_mut(images).zip(elements) {
                row.fill(element as i32);
            }
            batch
        };
        let mut pieces = Pieces::new(&value, &Pool::default());
        for rows in [0..3, 3..4, 4..7] {
            pieces.push(rows.clone(), Share::Words(words(rows)));
        }
        for rows in [0..3, 1..2, 2..5, 3..4, 0..7] {
            let Share::Words(read) = pieces.read(&rows, 0) else {
                panic!("it has words")
            };
            assert!(read.words() == words(rows.clone()).words(), "{rows:?}");
        }
        pieces.drop_before(3);
        let Share::Words(moved) = pieces.read(&(3..4), 4) else {
            panic!("it has words")
        };
        assert!(moved.words() == words(3..4).words());
        let left: Vec<_> = pieces.pieces.iter().map(|piece| &piece.rows).collect();
        assert_eq!(left, [&(4..7)]);
    }
}
