//! Where values sit in the polynomials of the coefficient engine.
//!
//! A convolution is a product of polynomials (rotation-free convolution, section III, equations 5
//! to 8): with the value of row `y`, column `x` of input channel `c` at exponent `c C + y P + x`
//! and its weight at minus the exponent it is read at by output `(0, 0)`, the sum for output `(y,
//! x)` is the coefficient at `y s P + x s`, `s` being the stride. A dense layer is a convolution
//! with as many channels as it has inputs.
//!
//! * Only coefficients that are read are ever sent, and only those that are outputs come back. So
//!   room that is left over in a polynomial costs nothing online, a stride needs no phases, and
//!   channels of all groups may share polynomials: an output reads its own channels' coefficients
//!   alone.
//! * An output channel is one published polynomial a tile, of all inputs: sums over input
//!   polynomials are taken before anything is sent.
//! * Padding is read, so it is sent, as zeros under encryption. The padding to the right of a row
//!   and to the left of the next are the same coefficients, and so are those below a channel and
//!   above the next.
//! * Images that do not fit are cut into tiles of outputs, all of one size: the last of a row or
//!   column begins early enough to be whole. Inputs at borders of tiles are sent with each.

use pronghorn_graph::geometry::ConvGeometry;

/// Images for which published polynomials are counted as if sent once, where tiles are chosen.
const AMORTISED: usize = 256;

/// Widths of tiles that are tried beyond the widest that fits.
const WIDTHS_TRIED: usize = 4;

/// Where the values of a layer sit in polynomials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    geometry: ConvGeometry,
    /// Output rows and columns.
    output: [usize; 2],
    /// Output rows and columns of a tile.
    tile: [usize; 2],
    /// Tiles down and right.
    tiles: [usize; 2],
    /// Coefficients from a row to the next.
    pitch: usize,
    /// Coefficients from a channel to the next.
    channel_pitch: usize,
    /// Input channels in a polynomial, the last of a tile excepted.
    channels: usize,
    /// The coefficients of a whole polynomial that are read.
    sites: Vec<Site>,
}

/// A coefficient of an input polynomial that some output reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its exponent.
    pub position: u32,
    /// Channel, counted from the first of the polynomial. Where padding of two channels is one
    /// coefficient, the first of them.
    pub channel: u32,
    /// Row within what the tile reads, padding counted.
    pub row: u32,
    /// Column within what the tile reads, padding counted.
    pub column: u32,
}

impl Layout {
    /// The layout for polynomials of `degree` coefficients that takes the fewest words; none where
    /// not even what one output reads of a channel fits, or the geometry is not valid.
    pub fn new(geometry: &ConvGeometry, degree: usize) -> Option<Self> {
        let output = geometry.output().ok()?;
        let candidates = (1..=output[1])
            .map(|tiles| output[1].div_ceil(tiles))
            .filter_map(|width| Self::with_width(geometry, degree, output, width));
        candidates
            .take(WIDTHS_TRIED)
            .min_by_key(|layout| layout.weight(degree))
    }

    /// With tiles of this width, and as many rows as fit.
    fn with_width(
        geometry: &ConvGeometry,
        degree: usize,
        output: [usize; 2],
        width: usize,
    ) -> Option<Self> {
        let whole = |axis: usize, tile: usize| tile == output[axis];
        let columns = span(geometry, 1, width);
        // No output reads a coefficient under two taps: its error would count twice.
        let pitch =
            (columns - shared(geometry, 1, columns, whole(1, width))).max(span(geometry, 1, 1));
        let rows = degree.checked_sub(columns)? / pitch + 1;
        let fits = rows.checked_sub(span(geometry, 0, 1))? / geometry.window.stride[0] + 1;
        let down = output[0].div_ceil(fits);
        let height = output[0].div_ceil(down);
        let rows = span(geometry, 0, height);
        let channel_rows =
            (rows - shared(geometry, 0, rows, whole(0, height))).max(span(geometry, 0, 1));
        let channel_pitch = channel_rows * pitch;
        let extent = (rows - 1) * pitch + columns;
        let channels = ((degree - extent) / channel_pitch + 1).min(geometry.in_channels);
        let mut layout = Self {
            geometry: geometry.clone(),
            output,
            tile: [height, width],
            tiles: [down, output[1].div_ceil(width)],
            pitch,
            channel_pitch,
            channels,
            sites: Vec::new(),
        };
        layout.sites = layout.all_sites(degree);
        Some(layout)
    }

    /// Words an image, and the published ones as far as they count.
    fn weight(&self, degree: usize) -> usize {
        let published = self.published().saturating_mul(degree) / AMORTISED;
        self.words().saturating_add(published)
    }

    fn all_sites(&self, degree: usize) -> Vec<Site> {
        let mut found: Vec<Option<Site>> = vec![None; degree];
        let rows = read(&self.geometry, 0, self.tile[0]);
        let columns = read(&self.geometry, 1, self.tile[1]);
        for channel in 0..self.channels {
            for &row in &rows {
                for &column in &columns {
                    let position = channel * self.channel_pitch + row * self.pitch + column;
                    let site = Site {
                        position: position as u32,
                        channel: channel as u32,
                        row: row as u32,
                        column: column as u32,
                    };
                    // Only padding shares a coefficient, and with padding only.
                    found[position].get_or_insert(site);
                }
            }
        }
        found.into_iter().flatten().collect()
    }

    /// Tiles of an image.
    pub fn tiles(&self) -> usize {
        self.tiles[0] * self.tiles[1]
    }

    /// Input polynomials of a tile.
    pub fn polynomials(&self) -> usize {
        self.geometry.in_channels.div_ceil(self.channels)
    }

    /// Channels of a polynomial, the last of a tile excepted.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// The coefficients of input polynomial `polynomial` of a tile that are read, in order.
    pub fn sites(&self, polynomial: usize) -> impl Iterator<Item = &Site> {
        let channels = (self.geometry.in_channels - polynomial * self.channels).min(self.channels);
        self.sites
            .iter()
            .filter(move |site| (site.channel as usize) < channels)
    }

    /// Words that the client sends for an image, those that hide answers not counted.
    pub fn words(&self) -> usize {
        let [whole, last] = self.sites_of_kinds();
        let tile = (self.polynomials() - 1) * whole + last;
        tile.saturating_mul(self.tiles())
    }

    /// The two kinds of input polynomials of a tile, which are read alike, by an index of each: whole
    /// ones, if there are any, and the last.
    pub fn kinds(&self) -> [Option<usize>; 2] {
        let last = self.polynomials() - 1;
        [(last > 0).then_some(0), Some(last)]
    }

    /// Coefficients that are read of a polynomial of each kind.
    pub fn sites_of_kinds(&self) -> [usize; 2] {
        self.kinds()
            .map(|kind| kind.map_or(0, |index| self.sites(index).count()))
    }

    /// Coefficients whose place in the input a party keeps: for each tile those of each kind.
    pub fn places(&self) -> usize {
        let [whole, last] = self.sites_of_kinds();
        (whole + last).saturating_mul(self.tiles())
    }

    /// Polynomials that the server publishes: one an output channel and tile.
    pub fn published(&self) -> usize {
        self.geometry.out_channels.saturating_mul(self.tiles())
    }

    /// The first input element of the channels of polynomial `polynomial`.
    pub fn first_element(&self, polynomial: usize) -> usize {
        let [height, width] = self.geometry.input;
        polynomial * self.channels * height * width
    }

    /// The input element at a site of a polynomial of tile `tile`, counted from the polynomial's
    /// first; none where it is padding.
    pub fn element(&self, tile: usize, site: &Site) -> Option<usize> {
        let origin = self.origin(tile);
        let mut at = [0; 2];
        for (axis, within) in [site.row, site.column].into_iter().enumerate() {
            let padded = origin[axis] * self.geometry.window.stride[axis] + within as usize;
            at[axis] = padded
                .checked_sub(self.geometry.window.padding[axis])
                .filter(|&index| index < self.geometry.input[axis])?;
        }
        let [height, width] = self.geometry.input;
        Some((site.channel as usize * height + at[0]) * width + at[1])
    }

    /// Output row and column at which a tile begins.
    fn origin(&self, tile: usize) -> [usize; 2] {
        let at = [tile / self.tiles[1], tile % self.tiles[1]];
        std::array::from_fn(|axis| {
            (at[axis] * self.tile[axis]).min(self.output[axis] - self.tile[axis])
        })
    }

    /// The outputs of tile `tile`: position in the output channel, and exponent. Each position is
    /// of one tile.
    pub fn outputs(&self, tile: usize) -> impl Iterator<Item = (usize, u32)> + use<'_> {
        let at = [tile / self.tiles[1], tile % self.tiles[1]];
        let origin = self.origin(tile);
        let first: [usize; 2] = std::array::from_fn(|axis| at[axis] * self.tile[axis]);
        let stride = self.geometry.window.stride;
        let rows = first[0]..origin[0] + self.tile[0];
        rows.flat_map(move |row| {
            (first[1]..origin[1] + self.tile[1]).map(move |column| {
                let exponent =
                    (row - origin[0]) * stride[0] * self.pitch + (column - origin[1]) * stride[1];
                (row * self.output[1] + column, exponent as u32)
            })
        })
    }

    /// Where an output at exponent 0 reads channel `channel` (of all channels) under kernel row and
    /// column `tap`: the polynomial, and the exponent in it.
    pub fn tap(&self, channel: usize, tap: [usize; 2]) -> (usize, usize) {
        let dilation = self.geometry.window.dilation;
        let position = (channel % self.channels) * self.channel_pitch
            + tap[0] * dilation[0] * self.pitch
            + tap[1] * dilation[1];
        (channel / self.channels, position)
    }

    /// Output channels of a group, and input channels.
    pub fn group(&self) -> [usize; 2] {
        let groups = self.geometry.groups;
        [
            self.geometry.out_channels / groups,
            self.geometry.in_channels / groups,
        ]
    }

    /// All that the layout has decided, for digests.
    pub fn numbers(&self) -> [usize; 7] {
        let ([height, width], [down, right]) = (self.tile, self.tiles);
        [
            height,
            width,
            down,
            right,
            self.pitch,
            self.channel_pitch,
            self.channels,
        ]
    }

    /// The layer.
    pub fn geometry(&self) -> &ConvGeometry {
        &self.geometry
    }
}

/// Input rows (axis 0) or columns (axis 1) under `outputs` outputs, padding counted.
fn span(geometry: &ConvGeometry, axis: usize, outputs: usize) -> usize {
    let window = &geometry.window;
    (outputs - 1) * window.stride[axis] + window.dilation[axis] * (window.kernel[axis] - 1) + 1
}

/// How many of `span` rows or columns may be the same coefficients as those of the next channel or
/// row: padding on both ends, where one tile has it all.
fn shared(geometry: &ConvGeometry, axis: usize, span: usize, whole: bool) -> usize {
    if !whole {
        return 0;
    }
    let before = geometry.window.padding[axis];
    let after = span.saturating_sub(before + geometry.input[axis]);
    before.min(after)
}

/// The rows or columns that `outputs` outputs read, in order.
fn read(geometry: &ConvGeometry, axis: usize, outputs: usize) -> Vec<usize> {
    let window = &geometry.window;
    let mut read = vec![false; span(geometry, axis, outputs)];
    for output in 0..outputs {
        for tap in 0..window.kernel[axis] {
            read[output * window.stride[axis] + tap * window.dilation[axis]] = true;
        }
    }
    let indices = read.iter().enumerate();
    indices
        .filter_map(|(index, &read)| read.then_some(index))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use pronghorn_graph::geometry::Window;
    use proptest::prelude::*;

    use super::*;

    fn geometries() -> impl Strategy<Value = ConvGeometry> {
        let window = (
            [1usize..4, 1..4],
            [1usize..4, 1..4],
            [1usize..3, 1..3],
            [0usize..3, 0..3, 0..3, 0..3],
        );
        let channels = (1usize..4, 1usize..4, 1usize..4);
        (window, channels, [1usize..13, 1..13])
            .prop_map(
                |((kernel, stride, dilation, padding), (groups, ins, outs), input)| ConvGeometry {
                    in_channels: groups * ins,
                    out_channels: groups * outs,
                    input,
                    window: Window {
                        kernel,
                        stride,
                        dilation,
                        padding,
                    },
                    groups,
                },
            )
            .prop_filter("the kernel fits", |geometry| geometry.output().is_ok())
    }

    /// What the product of an output's filter and the inputs has at an output's coefficient,
    /// wrap-around and all: which elements, under which tap.
    fn read_by(
        layout: &Layout,
        degree: usize,
        tile: usize,
        out: usize,
        exponent: usize,
    ) -> BTreeSet<(usize, [usize; 2], Option<usize>)> {
        let [outs, ins] = layout.group();
        let kernel = layout.geometry().window.kernel;
        let (mut read, mut places) = (BTreeSet::new(), BTreeSet::new());
        for channel in (out / outs * ins..).take(ins) {
            for tap in (0..kernel[0]).flat_map(|y| (0..kernel[1]).map(move |x| [y, x])) {
                let (polynomial, at) = layout.tap(channel, tap);
                let position = exponent + at;
                assert!(position < degree, "nothing wraps around");
                assert!(places.insert((polynomial, position)), "one tap for each");
                let site = layout
                    .sites(polynomial)
                    .find(|site| site.position as usize == position)
                    .expect("what is read is sent");
                let element = layout.element(tile, site);
                let element = element.map(|element| layout.first_element(polynomial) + element);
                read.insert((channel, tap, element));
            }
        }
        read
    }

    proptest! {
        /// Every output is in one tile, and its coefficient is the sum over its window.
        #[test]
        fn products_are_convolutions(geometry in geometries(), log in 4u32..9) {
            let degree = 1usize << log;
            let Some(layout) = Layout::new(&geometry, degree) else {
                return Ok(());
            };
            let [height, width] = geometry.output().unwrap();
            let mut seen = BTreeMap::new();
            let sites: usize = (0..layout.polynomials()).map(|p| layout.sites(p).count()).sum();
            prop_assert_eq!(sites * layout.tiles(), layout.words());
            for tile in 0..layout.tiles() {
                for (position, exponent) in layout.outputs(tile) {
                    prop_assert!(seen.insert(position, tile).is_none());
                    let at = [position / width, position % width];
                    for out in 0..geometry.out_channels {
                        let [outs, ins] = layout.group();
                        let channels = (out / outs * ins..).take(ins);
                        let kernel = geometry.window.kernel;
                        let taps = (0..kernel[0]).flat_map(|y| (0..kernel[1]).map(move |x| [y, x]));
                        let wanted: BTreeSet<_> = channels
                            .flat_map(|channel| taps.clone().map(move |tap| (channel, tap)))
                            .map(|(channel, tap)| {
                                let inside = (0..2).all(|axis| {
                                    geometry.window.taps(axis, at[axis], geometry.input[axis]).contains(&tap[axis])
                                });
                                let element = inside.then(|| {
                                    let index = |axis| geometry.window.index(axis, at[axis], tap[axis]);
                                    (channel * geometry.input[0] + index(0)) * geometry.input[1] + index(1)
                                });
                                (channel, tap, element)
                            })
                            .collect();
                        prop_assert_eq!(read_by(&layout, degree, tile, out, exponent as usize), wanted);
                    }
                }
            }
            prop_assert_eq!(seen.len(), height * width);
        }
    }

    #[test]
    fn sizes_of_known_layers() {
        let conv = |channels, size| ConvGeometry {
            in_channels: channels,
            out_channels: channels,
            input: [size; 2],
            window: Window {
                padding: [1; 4],
                ..Window::plain([3; 2])
            },
            groups: 1,
        };
        let sizes = |geometry: &ConvGeometry| {
            let layout = Layout::new(geometry, 2048).unwrap();
            (
                layout.tiles(),
                layout.channels(),
                layout.polynomials(),
                layout.published(),
                layout.words(),
            )
        };
        // 34 rows of 33, and a last column; 9 rows of 9 a channel, and the last ones.
        assert_eq!(sizes(&conv(16, 32)), (1, 1, 16, 16, 16 * (34 * 33 + 1)));
        assert_eq!(sizes(&conv(64, 8)), (1, 25, 3, 64, 64 * 81 + 3 * (9 + 1)));
        assert_eq!(
            sizes(&ConvGeometry::dense(3000, 10)),
            (1, 2048, 2, 10, 3000)
        );
    }
}
