//! The part of a layer that one exchange is about: all of it, or a band of rows.

use std::ops::Range;

use pronghorn_graph::{fixed::ValueSpec, geometry::ConvGeometry};
use pronghorn_plan::bands::Band;

/// Elements of some rows of a value, `[channel][row][column]`, and their numbers in the whole
/// value.
#[derive(Clone, Copy)]
pub(super) struct Elements {
    /// Elements.
    pub count: usize,
    /// Elements of a channel.
    pub plane: usize,
    /// Elements of a channel of the whole value.
    stride: usize,
    /// The number of the first.
    first: usize,
}

impl Elements {
    /// All of a value.
    pub fn all(count: usize) -> Self {
        Self {
            count,
            plane: count,
            stride: count,
            first: 0,
        }
    }

    /// Some rows of a value; all of one that is no image.
    fn of_rows(value: &ValueSpec, rows: &Range<usize>) -> Self {
        let [channels, height, width] = value.shape[..] else {
            return Self::all(value.len());
        };
        Self {
            count: channels * rows.len() * width,
            plane: rows.len() * width,
            stride: height * width,
            first: rows.start * width,
        }
    }

    /// The number in the whole value.
    pub fn number(&self, index: usize) -> u64 {
        if self.plane == 0 {
            return 0;
        }
        (index / self.plane * self.stride + self.first + index % self.plane) as u64
    }
}

/// The part of a layer that an exchange is about.
#[derive(Clone)]
pub(super) struct Portion {
    /// The convolution over the rows of the window.
    pub geometry: ConvGeometry,
    /// The elements of the input that it reads.
    pub window: Elements,
    /// Those of them that the client sends: the last ones of each channel.
    pub new: Elements,
    /// Elements of each channel that the next band reads, too: the last ones.
    pub halo: usize,
    /// Elements of the value.
    pub outputs: usize,
    /// Whether nothing was exchanged for the layer before.
    pub is_first: bool,
    /// Whether more of it comes.
    pub has_next: bool,
}

impl Portion {
    /// All of a layer.
    pub fn whole(geometry: &ConvGeometry, inputs: usize, outputs: usize) -> Self {
        Self {
            geometry: geometry.clone(),
            window: Elements::all(inputs),
            new: Elements::all(inputs),
            halo: 0,
            outputs,
            is_first: true,
            has_next: false,
        }
    }

    /// The same of other columns.
    pub fn of_columns(&self, is_first: bool, has_next: bool) -> Self {
        Self {
            is_first,
            has_next,
            ..self.clone()
        }
    }

    /// A band of a layer with such an input and value.
    pub fn band(
        geometry: &ConvGeometry,
        input: &ValueSpec,
        value: &ValueSpec,
        band: &Band,
    ) -> Self {
        let is_whole = band.rows.len() == rows(value);
        let of_band = geometry.band(band.rows.clone()).filter(|_| !is_whole);
        let Some((_, geometry)) = of_band else {
            return Self::whole(geometry, input.len(), value.len());
        };
        let of_rows = |rows: &Range<usize>| Elements::of_rows(input, rows);
        let new = band.reads.first().cloned().unwrap_or_default();
        Self {
            geometry,
            window: of_rows(&band.window),
            new: of_rows(&new),
            halo: of_rows(&band.halo()).plane,
            outputs: Elements::of_rows(value, &band.rows).count,
            is_first: band.is_first(),
            has_next: band.rows.end < rows(value),
        }
    }

    /// Elements of each channel that the server has from the band before.
    pub fn kept(&self) -> usize {
        self.window.plane - self.new.plane
    }

    /// Channels of the input.
    pub fn channels(&self) -> usize {
        self.window.count / self.window.plane.max(1)
    }
}

fn rows(value: &ValueSpec) -> usize {
    pronghorn_plan::bands::rows_of(&value.shape)
}
