//! The rows of `b` of earlier bands that a band reads, too.
//!
//! Bands are often of one row of a picture, and a window of three or more. So rows stay where they
//! came, and the product reads them there. Moving them took a ninth of a server's time.

use std::{collections::VecDeque, slice::ChunksExact};

use pronghorn_ring::Word;
use rayon::prelude::*;
use zeroize::Zeroize;

use crate::pool::Pool;

/// Rows of earlier bands, from the oldest on.
pub(super) struct Halo<W>(VecDeque<Kept<W>>);

/// Some elements of each channel, `[channel][element][column]`.
struct Kept<W> {
    /// Elements of a channel.
    plane: usize,
    words: Vec<W>,
}

impl<W> Default for Halo<W> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<W: Word + Zeroize> Halo<W> {
    /// The rows of a window of so many channels: for each the last `kept` elements from here, then
    /// `plane` of `new`.
    pub fn window<'a>(
        &'a self,
        new: &'a [W],
        channels: usize,
        [plane, kept, columns]: [usize; 3],
    ) -> Vec<&'a [W]> {
        let skipped = self.plane().saturating_sub(kept);
        let words = plane * columns;
        let of_channel = |channel: usize| {
            let pieces = self.0.iter();
            let earlier = pieces.flat_map(move |piece| piece.channel(channel, columns));
            let new = new[channel * words..][..words].chunks_exact(columns);
            earlier.skip(skipped).chain(new)
        };
        (0..channels).flat_map(of_channel).collect()
    }

    /// Adds the rows of a band, of so many elements a channel.
    pub fn push(&mut self, words: Vec<W>, plane: usize) {
        if plane > 0 {
            self.0.push_back(Kept { plane, words });
        }
    }

    /// Gives back what is before the last `halo` elements of each channel. No more stays, as plans
    /// count: of a piece that is needed in part a copy.
    pub fn keep(&mut self, halo: usize, columns: usize, pool: &Pool<W>) {
        while let Some(first) = self.0.pop_front() {
            let needed = halo.saturating_sub(self.plane());
            if first.plane <= needed {
                self.0.push_front(first);
                return;
            }
            if needed > 0 {
                self.0.push_front(first.last(needed, columns, pool));
            }
            pool.give(first.words);
        }
    }

    /// Elements of a channel.
    fn plane(&self) -> usize {
        self.0.iter().map(|piece| piece.plane).sum()
    }
}

impl<W: Word + Zeroize> Kept<W> {
    /// The elements of a channel.
    fn channel(&self, channel: usize, columns: usize) -> ChunksExact<'_, W> {
        let words = self.plane * columns;
        self.words[channel * words..][..words].chunks_exact(columns)
    }

    /// A copy of the last elements of each channel.
    fn last(&self, plane: usize, columns: usize, pool: &Pool<W>) -> Self {
        let [all, words] = [self.plane, plane].map(|plane| plane * columns);
        let mut copy = pool.take_exactly(self.words.len() / all * words);
        let channels = self.words.par_chunks_exact(all);
        let copies = copy.par_chunks_exact_mut(words).zip(channels);
        copies.for_each(|(copy, channel)| copy.copy_from_slice(&channel[all - words..]));
        Self { plane, words: copy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of a picture of two channels and a column, rows of one element, whatever the bands.
    #[test]
    fn windows_are_those_of_the_picture() {
        let element = |channel: usize, y: usize| (100 * channel + y) as u32;
        let bands = |heights: &[usize], halo: usize| {
            let (pool, mut kept, mut first) = (Pool::default(), Halo::default(), 0);
            for &height in heights {
                let rows = first..first + height;
                let places = (0..2).flat_map(|c| rows.clone().map(move |y| (c, y)));
                let new: Vec<u32> = places.map(|(c, y)| element(c, y)).collect();
                let above = halo.min(first);
                let window = kept.window(&new, 2, [height, above, 1]);
                let wanted = (0..2).flat_map(|c| (first - above..rows.end).map(move |y| (c, y)));
                let wanted: Vec<_> = wanted.map(|(c, y)| [element(c, y)]).collect();
                assert_eq!(window, wanted, "{heights:?} {halo}");
                kept.push(new, height);
                kept.keep(halo, 1, &pool);
                first = rows.end;
                assert_eq!(kept.plane(), halo.min(first));
            }
        };
        for halo in 0..5 {
            bands(&[1, 1, 1, 1, 1, 1, 1], halo);
            bands(&[7, 2, 3, 1, 0, 1, 0], halo);
            bands(&[3, 9, 1, 12, 4], halo);
        }
    }
}
