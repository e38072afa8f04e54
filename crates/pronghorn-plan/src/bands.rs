//! Bands: a batch of thousands of images goes through the layers some image rows at a time.
//!
//! Step after step each value of the batch is whole at once: 5 GB for one value of 112 x 112 x 48
//! of 2,048 images. A convolution needs a few rows of its input for a row of its value. So a step
//! makes a *band* of rows as soon as these are there, and rows that nobody needs any more are
//! dropped. No row is computed or sent twice: a layer keeps the rows that its next windows share
//! with this one, the halo.
//!
//! The order is depth first: the last step that can make a band is next. But a band that has to
//! wait for the exchange of the one before comes after one that has not. So two bands are under way
//! at a time: while the server multiplies and answers for one, the client sends the other, and
//! neither direction of the network is idle. Both parties derive the order from the plan and the
//! batch.
//!
//! A step whose value is no image of rows, such as a dense layer or a transposition, takes its
//! inputs whole and makes its value whole, in one band. Where all steps do, there is no order but
//! that of the steps. A sum over all rows, such as a global mean, takes rows as they come.

mod folds;
pub mod height;
pub mod order;

use std::ops::Range;

use pronghorn_graph::geometry::Window;

/// Rows that a step reads for rows of its value: those of windows, one over the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// The windows from input to value, each with the height it runs over.
    windows: Vec<(Window, usize)>,
}

impl Rows {
    /// Each row of the value reads the row of its number.
    pub fn alike() -> Self {
        Self::default()
    }

    /// The same, then a window over a value of that height.
    pub fn then(mut self, window: &Window, height: usize) -> Self {
        self.windows.push((window.clone(), height));
        self
    }

    /// The rows read for `rows` of the value, in a step that goes by bands.
    pub(crate) fn reads(&self, rows: Range<usize>) -> Range<usize> {
        let windows = self.windows.iter().rev();
        windows.fold(rows, |rows, (window, height)| window.reads(rows, *height))
    }

    /// The rows read for `rows` of the value, and each window over its part of them; `None` where
    /// a window has padding alone.
    pub fn band(&self, rows: Range<usize>) -> Option<(Range<usize>, Vec<Window>)> {
        let (mut rows, mut windows) = (rows, Vec::new());
        for (window, height) in self.windows.iter().rev() {
            let (read, band) = window.band(rows, *height)?;
            windows.push(band);
            rows = read;
        }
        windows.reverse();
        Some((rows, windows))
    }
}

/// Rows of a step's value, made together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Band {
    /// The step.
    pub step: usize,
    /// The rows of its value. None where a sum over rows of the input has others to come.
    pub rows: Range<usize>,
    /// The rows of its input from which they follow.
    pub window: Range<usize>,
    /// For each input the rows that the step reads now: those of the window, or where the step
    /// keeps rows that it has read those that are new.
    pub reads: Vec<Range<usize>>,
    /// For each input the first row that any step still reads after this.
    pub keeps: Vec<usize>,
    /// The first row of the window of the next band of the step; the end of the input after the
    /// last.
    pub next: usize,
}

impl Band {
    /// Whether it can be made before `other` is, a band that comes before it in the order and has
    /// begun: it reads nothing of it, and is of another step. `inputs`: the steps that its own reads.
    pub fn is_free_of(&self, other: &Self, inputs: &[usize]) -> bool {
        let reads = inputs.iter().zip(&self.reads);
        let of_other = |(&input, rows): (&usize, &Range<usize>)| {
            input == other.step && rows.end > other.rows.start
        };
        self.step != other.step && !reads.into_iter().any(of_other)
    }

    /// Whether it is the first of its step.
    pub fn is_first(&self) -> bool {
        self.rows.start == 0
    }

    /// The halo that the step keeps for its next band.
    pub fn halo(&self) -> Range<usize> {
        self.next.min(self.window.end)..self.window.end
    }
}

/// Rows of a value of this shape: the height of an image, else one.
pub fn rows_of(shape: &[usize]) -> usize {
    match *shape {
        [_, height, _] => height,
        _ => 1,
    }
}
