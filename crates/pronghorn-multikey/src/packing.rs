//! Linear layers on slots with encrypted weights.
//!
//! A layer multiplies rotations of its input with ciphertexts of weights, adds the products up with
//! one relinearisation, and then adds rotations of the sum to itself (the *folds*). A ciphertext of
//! weights is zero where a slot holds nothing that the layer wants. So partial sums of an earlier
//! layer need no mask, which would cost a level: the next layer's zeros are the mask.
//!
//! With `S` slots, an input of period `p` and `m` outputs there are three ways to place products:
//!
//! * **Windows** ([`windows`]): output `o` is the sum of a window of `v = S / m` slots (`m` rounded
//!   up to a power of two). `p / v` rotations of the input, which are hoisted, `p / v` ciphertexts
//!   of weights, `log2 min(v, p)` folds. For dense layers, this is the block-diagonal product of
//!   ePrint 2019/524, section 6.3.1 and Fig. 2 with its rotate-and-sum turned around. Leaves
//!   partial sums.
//! * **Residues** ([`residues`]): output `o` is the sum of all slots that are `b(o)` modulo a
//!   period `q >= m`. As many rotations and ciphertexts of weights as there are differences of
//!   places and `b(o)` modulo `q`: `m` where inputs stand at multiples of `q`. `log2(p / q)` folds.
//!   Leaves no partial sums, so the last layer takes it. Convolutions choose `b(o)` in the place of
//!   the first input that they read.
//! * **Patches** ([`patches`]), of a first convolution: the client packs a copy of the image for
//!   each tap of the kernel and each output channel, so one ciphertext of weights does. `log2` of
//!   the number of copies folds. Where the taps do not fit, one copy serves several taps by
//!   rotations. Leaves no partial sums.
//!
//! For the network of ePrint 2019/524, Table 3 at `S = 16384`: a convolution with 1 ciphertext of
//! weights, no rotation and 4 folds (paper: 4 ciphertexts); 845 to 64 with 4 ciphertexts, 3
//! rotations and 8 folds (paper: 8); 64 to 10 with 10 ciphertexts, 9 rotations and 6 folds (paper:
//! 1, after a mask, which costs a level).

use std::collections::{BTreeMap, BTreeSet};

use pronghorn_graph::geometry::ConvGeometry;

use crate::layout::{Layout, Place, Spot};

/// A rotation of a ciphertext of the input, to the left.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rotation {
    /// The ciphertext.
    pub ciphertext: usize,
    /// Slots.
    pub steps: usize,
}

/// A ciphertext of weights.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Product {
    /// The rotation that it multiplies.
    pub rotation: Rotation,
    /// The weights in it, by slot below the period of the products.
    pub weights: Vec<Spot>,
}

/// The way of a linear layer from the layout of its input to that of its output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packing {
    /// For each ciphertext of the output the products that add up to it.
    pub products: Vec<Vec<Product>>,
    /// Weights are repeated at this distance.
    pub period: usize,
    /// Rotations of the sum that are added to it, one after the other.
    pub folds: Vec<usize>,
    /// The layout of the output.
    pub output: Layout,
    /// Where rotations are made of two: first parts are below this, second ones multiples of it.
    split: Option<usize>,
}

/// For each output the elements it reads, and the weights: `(element, weight)`.
pub type Rows = Vec<Vec<(usize, usize)>>;

/// Relative times, as `pronghorn bench multikey` measures them with two parties: of a rotation
/// among hoisted ones, of one under the client's key alone, of a fold, of an inner product with its
/// relinearisation, and of a product within it.
const HOISTED: f64 = 0.6;
const HOISTED_FIRST: f64 = 0.3;
const FOLD: f64 = 1.0;
const SUM: f64 = 2.0;
const PRODUCT: f64 = 0.1;
/// Of a further ciphertext of the client's, for its bytes.
const INPUT: f64 = 2.0;

/// Most shifts of a patch that are tried, down and to the right, and the largest kernel for
/// patches.
const MOST_SHIFTS: usize = 8;
const MOST_KERNEL: usize = 64;

/// Rotations of a layer that have a key each. A key has tens of megabytes, so more rotations are
/// made of two.
const MOST_KEYS: usize = 24;

/// Most ciphertexts of weights of a layer, and of a value.
pub(crate) const MOST_PRODUCTS: usize = 4096;

/// The rows of a layer.
pub fn rows(geometry: &ConvGeometry) -> Rows {
    let Ok([height, width]) = geometry.output() else {
        return Vec::new();
    };
    let ConvGeometry { window, input, .. } = geometry;
    let channels = geometry.in_channels / geometry.groups;
    let outputs = geometry.out_channels / geometry.groups;
    let [kernel_h, kernel_w] = window.kernel;
    let row = |channel: usize, y: usize, x: usize| {
        let first = channel / outputs * channels;
        let taps = (0..channels).flat_map(|j| {
            let rows = window.taps(0, y, input[0]);
            rows.map(move |ky| (j, ky))
        });
        taps.flat_map(|(j, ky)| {
            window.taps(1, x, input[1]).map(move |kx| {
                let at = [window.index(0, y, ky), window.index(1, x, kx)];
                let element = ((first + j) * input[0] + at[0]) * input[1] + at[1];
                let weight = ((channel * channels + j) * kernel_h + ky) * kernel_w + kx;
                (element, weight)
            })
        })
        .collect()
    };
    (0..geometry.out_channels)
        .flat_map(|channel| (0..height).flat_map(move |y| (0..width).map(move |x| (channel, y, x))))
        .map(|(channel, y, x)| row(channel, y, x))
        .collect()
}

/// The cheapest packing of a layer over an input of this layout; one without partial sums where
/// `clean`. `None` where the outputs need too many ciphertexts of weights.
pub fn choose(
    geometry: &ConvGeometry,
    input: &Layout,
    slots: usize,
    clean: bool,
) -> Option<Packing> {
    let rows = rows(geometry);
    let outputs = rows.len();
    let anchors = anchors(geometry, input).filter(|(span, _)| *span <= slots);
    let in_place = anchors.iter().flat_map(|(span, anchors)| {
        let (rows, plane) = (&rows, outputs / geometry.out_channels);
        periods(*span, slots).filter_map(move |period| {
            let in_place = |o: usize| {
                let (channel, position) = (o / plane, o % plane);
                let channels = period / span;
                Place {
                    ciphertext: channel / channels,
                    slot: channel % channels * span + anchors[position],
                }
            };
            residues(rows, input, period, in_place)
        })
    });
    cheapest(in_order(&rows, input, slots, clean).chain(in_place))
}

/// The cheapest packing of a factor and a summand for each element, of which some share a slot.
/// `None` where that takes too many ciphertexts.
pub fn choose_apart(input: &Layout, slots: usize, clean: bool) -> Option<Packing> {
    let rows = diagonal(input.places.len());
    cheapest(in_order(&rows, input, slots, clean))
}

/// The rows of a factor for each element.
pub fn diagonal(elements: usize) -> Rows {
    (0..elements)
        .map(|element| vec![(element, element)])
        .collect()
}

/// Packings with the outputs one after the other. Each may be large.
fn in_order(
    rows: &Rows,
    input: &Layout,
    slots: usize,
    clean: bool,
) -> impl Iterator<Item = Packing> {
    let outputs = rows.len();
    let least = outputs.next_power_of_two().min(slots);
    let residues = periods(least, slots).filter_map(move |period| {
        // From the end, so that most rotations are by few slots.
        let backwards = |o: usize| Place {
            ciphertext: o / period,
            slot: (period - o % period) % period,
        };
        residues(rows, input, period, backwards)
    });
    let windows = (!clean && outputs <= slots).then(|| windows(rows, input, slots));
    residues.chain(windows.flatten())
}

/// Powers of two from one on to the slots of a ciphertext.
fn periods(from: usize, slots: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(from), move |&x| (x < slots).then_some(2 * x))
}

fn cheapest(packings: impl Iterator<Item = Packing>) -> Option<Packing> {
    let cost = |packing: &Packing| packing.cost(HOISTED);
    packings.min_by(|x, y| cost(x).total_cmp(&cost(y)))
}

/// The packing that was chosen where its output lies as the value does that it meets, else one that
/// does, where there is one: every element of that value has a slot of its own, all of its
/// ciphertexts have one period, and the outputs do not need too many ciphertexts of weights.
pub fn beside(
    chosen: Option<Packing>,
    rows: impl FnOnce() -> Rows,
    input: &Layout,
    slots: usize,
    met: Option<&Layout>,
) -> Option<Packing> {
    let Some(met) = met else { return chosen };
    if chosen
        .as_ref()
        .is_some_and(|chosen| chosen.output.is_beside(met))
    {
        return chosen;
    }
    let in_place = || {
        let places = met.places.iter().copied().collect::<Option<Vec<_>>>()?;
        let rows = rows();
        if met.has_copies() || rows.len() != places.len() || met.period() > slots {
            return None;
        }
        let packing = residues(&rows, input, met.period(), |o| places[o])?;
        packing.output.is_beside(met).then_some(packing)
    };
    in_place().or(chosen)
}

/// A packing of a first layer, with the elements of the input in each ciphertext of the client's:
/// the cheapest one. `None` where the outputs need too many ciphertexts of weights.
pub fn choose_first(
    geometry: &ConvGeometry,
    elements: usize,
    slots: usize,
    clean: bool,
) -> Option<(Input, Packing)> {
    let plain = Layout::in_order(elements, slots);
    let in_order = Input {
        spots: plain.spots(),
        period: plain.period(),
    };
    let plain = choose(geometry, &plain, slots, clean).map(|packing| (in_order, packing));
    let [kernel, stride] = [geometry.window.kernel, geometry.window.stride];
    let most = [0, 1].map(|axis| match geometry.window.dilation[axis] {
        1 => kernel[axis].div_ceil(stride[axis]).min(MOST_SHIFTS),
        _ => 1,
    });
    let shifts = (1..=most[0]).flat_map(|down| (1..=most[1]).map(move |right| [down, right]));
    let patches = shifts.filter_map(|shifts| patches(geometry, shifts, slots));
    let cost = |(input, packing): &(Input, Packing)| {
        input.spots.len() as f64 * INPUT + packing.cost(HOISTED_FIRST)
    };
    let every = plain.into_iter().chain(patches);
    every.min_by(|x, y| cost(x).total_cmp(&cost(y)))
}

/// The elements of the input in each ciphertext of the client's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Input {
    /// Elements by slot below the period.
    pub spots: Vec<Vec<Spot>>,
    /// Elements are repeated at this distance.
    pub period: usize,
}

impl Packing {
    /// Relative time, `hoisted` being that of a rotation of the input.
    fn cost(&self, hoisted: f64) -> f64 {
        let rotations = self.rotations();
        let rotations = rotations.iter().filter(|rotation| rotation.steps > 0);
        let products: usize = self.products.iter().map(Vec::len).sum();
        let sums = self.products.len() as f64;
        rotations.count() as f64 * hoisted
            + sums * (SUM + self.folds.len() as f64 * FOLD)
            + products as f64 * PRODUCT
    }

    /// The rotations of the input, each once.
    pub fn rotations(&self) -> BTreeSet<Rotation> {
        let products = self.products.iter().flatten();
        products.map(|product| product.rotation).collect()
    }

    /// True if rotations are made of two each, so that their keys are about `2 sqrt(R)` where there
    /// are `R`.
    pub fn is_split(&self) -> bool {
        self.split.is_some()
    }

    /// For each part of the rotations how often one is read at most: by every ciphertext of the
    /// output, and first parts by all second parts too. These reads have one noise, not independent
    /// ones, so that its power is that many times as large.
    pub fn reads_of_rotations(&self) -> Vec<usize> {
        if self.keys().is_empty() {
            return Vec::new();
        }
        let outputs = self.products.len();
        if !self.is_split() {
            return vec![outputs];
        }
        let mut seconds: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for rotation in self.rotations() {
            let [first, second] = self.parts(rotation.steps);
            seconds.entry(first).or_default().insert(second);
        }
        let most = seconds.values().map(BTreeSet::len).max().unwrap_or(1);
        vec![outputs, outputs * most]
    }

    /// The rotations by `steps` in one or two parts, the first of which many have in common.
    pub fn parts(&self, steps: usize) -> [usize; 2] {
        match self.split {
            None => [steps, 0],
            Some(split) => [steps % split, steps - steps % split],
        }
    }

    /// The steps that keys are needed for, to rotate the input.
    pub fn keys(&self) -> BTreeSet<usize> {
        let rotations = self.rotations();
        let parts = rotations.iter().flat_map(|x| self.parts(x.steps));
        parts.filter(|&steps| steps > 0).collect()
    }

    /// Of products by output ciphertext and rotation; `None` where there are too many, or an output
    /// ciphertext has none.
    fn new(
        products: Vec<BTreeMap<Rotation, Vec<Spot>>>,
        period: usize,
        folds: Vec<usize>,
        output: Layout,
    ) -> Option<Self> {
        let count: usize = products.iter().map(BTreeMap::len).sum();
        if count > MOST_PRODUCTS || products.iter().any(BTreeMap::is_empty) {
            return None;
        }
        let of_output = |products: BTreeMap<Rotation, Vec<Spot>>| {
            let products = products.into_iter();
            products
                .map(|(rotation, weights)| Product { rotation, weights })
                .collect()
        };
        let steps = products.iter().flat_map(BTreeMap::keys).map(|x| x.steps);
        Some(Self {
            split: split(&steps.collect()),
            products: products.into_iter().map(of_output).collect(),
            period,
            folds,
            output,
        })
    }
}

/// Where to split rotations by these steps; `None` where each has a key.
fn split(steps: &BTreeSet<usize>) -> Option<usize> {
    if steps.len() <= MOST_KEYS {
        return None;
    }
    let unit = steps.iter().filter(|&&x| x > 0).map(|x| x.trailing_zeros());
    let half = steps.len().ilog2().div_ceil(2);
    Some(1 << (unit.min().unwrap_or(0) + half))
}

/// Output `o` at `base(o)`, a slot below `period`, as the sum of all slots that are `base(o)`
/// modulo `period`.
pub fn residues(
    rows: &Rows,
    input: &Layout,
    period: usize,
    base: impl Fn(usize) -> Place,
) -> Option<Packing> {
    let places: Vec<Place> = (0..rows.len()).map(base).collect();
    let ciphertexts = places.iter().map(|place| place.ciphertext + 1).max()?;
    let mut products = vec![BTreeMap::<Rotation, Vec<Spot>>::new(); ciphertexts];
    let common = period.min(input.period());
    for (row, at) in rows.iter().zip(&places) {
        for &(element, index) in row {
            let Some(from) = input.places[element] else {
                continue;
            };
            let steps = modulo(from.slot, at.slot, common);
            let slot = if input.period() >= period {
                modulo(from.slot, steps, input.period())
            } else {
                at.slot
            };
            let rotation = Rotation {
                ciphertext: from.ciphertext,
                steps,
            };
            let products = &mut products[at.ciphertext];
            products
                .entry(rotation)
                .or_default()
                .push(Spot { slot, index });
            if products.len() > MOST_PRODUCTS {
                return None;
            }
        }
    }
    let output = Layout {
        periods: vec![period; ciphertexts],
        places: places.into_iter().map(Some).collect(),
        clean: true,
    };
    let folds = doubling(period, input.period());
    Packing::new(products, period.max(input.period()), folds, output)
}

/// Output `o` at the first slot of window `o`, as the sum of the window's slots.
pub fn windows(rows: &Rows, input: &Layout, slots: usize) -> Option<Packing> {
    let stride = slots / rows.len().next_power_of_two();
    let window = stride.min(input.period());
    let mut products = vec![BTreeMap::<Rotation, Vec<Spot>>::new()];
    for (output, row) in rows.iter().enumerate() {
        let base = output * stride;
        for &(element, index) in row {
            let Some(from) = input.places[element] else {
                continue;
            };
            let slot = base + modulo(from.slot, base, window);
            let rotation = Rotation {
                ciphertext: from.ciphertext,
                steps: modulo(from.slot, slot, input.period()),
            };
            let spots = products[0].entry(rotation).or_default();
            spots.push(Spot { slot, index });
        }
    }
    let place = |output| Place {
        ciphertext: 0,
        slot: output * stride,
    };
    let output = Layout {
        periods: vec![slots],
        places: (0..rows.len()).map(|output| Some(place(output))).collect(),
        clean: window == 1,
    };
    Packing::new(products, slots, doubling(1, window), output)
}

/// A first convolution over copies of the image that the client packs. A block of slots holds for
/// each output what one tap of the kernel reads, for a grid that is `shifts - 1` larger than the
/// output down and to the right: so a rotation by `d` positions serves the tap that is `d` strides
/// further on.
pub fn patches(
    geometry: &ConvGeometry,
    shifts: [usize; 2],
    slots: usize,
) -> Option<(Input, Packing)> {
    let output = geometry.output().ok()?;
    let window = &geometry.window;
    if window.kernel.iter().any(|&size| size > MOST_KERNEL) {
        return None;
    }
    let grid = [output[0] + shifts[0] - 1, output[1] + shifts[1] - 1];
    let plane = grid[0] * grid[1];
    // Channels of the output in a ciphertext: all, or as many as fit if they read the same inputs.
    let channels = geometry.out_channels.min(slots / plane.max(1));
    let apart = channels < geometry.out_channels;
    if channels == 0 || (apart && geometry.groups > 1) {
        return None;
    }
    let period = (channels * plane).next_power_of_two();
    // Taps of which others are shifts, and for each tap its number among them and its shift.
    let taps = [0, 1].map(|axis| {
        let (stride, shifts) = (window.stride[axis], shifts[axis]);
        let shift = |tap: usize| tap / stride % shifts;
        let kernel = 0..window.kernel[axis];
        let kept: Vec<usize> = kernel.clone().filter(|&tap| shift(tap) == 0).collect();
        let of_tap = |tap: usize| {
            let first = tap - shift(tap) * stride;
            let number = kept.iter().position(|&kept| kept == first);
            (number.unwrap_or_default(), shift(tap))
        };
        let of_tap: Vec<_> = kernel.map(of_tap).collect();
        (kept, of_tap)
    });
    let [(rows, of_row), (columns, of_column)] = &taps;
    let read = geometry.in_channels / geometry.groups;
    let blocks = read * rows.len() * columns.len();
    let in_one = slots / period;
    let ciphertexts = blocks.div_ceil(in_one);
    if ciphertexts > MOST_PRODUCTS {
        return None;
    }
    let outputs_of_group = geometry.out_channels / geometry.groups;
    let mut spots = vec![Vec::new(); ciphertexts];
    for block in 0..blocks {
        let (j, tap) = (
            block / (rows.len() * columns.len()),
            block % (rows.len() * columns.len()),
        );
        let tap = [rows[tap / columns.len()], columns[tap % columns.len()]];
        for at in 0..channels * plane {
            let (channel, y, x) = (at / plane, at % plane / grid[1], at % grid[1]);
            let inside = |axis: usize, at: usize| {
                let index = at * window.stride[axis] + tap[axis] * window.dilation[axis];
                let index = index.checked_sub(window.padding[axis])?;
                (index < geometry.input[axis]).then_some(index)
            };
            if let (Some(y), Some(x)) = (inside(0, y), inside(1, x)) {
                let input = channel / outputs_of_group * read + j;
                let slot = block % in_one * period + at;
                let index = (input * geometry.input[0] + y) * geometry.input[1] + x;
                spots[block / in_one].push(Spot { slot, index });
            }
        }
    }
    let groups = geometry.out_channels.div_ceil(channels);
    let mut products = vec![BTreeMap::<Rotation, Vec<Spot>>::new(); groups];
    let mut places = Vec::new();
    for channel in 0..geometry.out_channels {
        for y in 0..output[0] {
            for x in 0..output[1] {
                let at = channel % channels * plane + y * grid[1] + x;
                places.push(Some(Place {
                    ciphertext: channel / channels,
                    slot: at,
                }));
                for j in 0..read {
                    for ky in window.taps(0, y, geometry.input[0]) {
                        for kx in window.taps(1, x, geometry.input[1]) {
                            let ((row, down), (column, right)) = (of_row[ky], of_column[kx]);
                            let block = (j * rows.len() + row) * columns.len() + column;
                            let rotation = Rotation {
                                ciphertext: block / in_one,
                                steps: down * grid[1] + right,
                            };
                            let index = ((channel * read + j) * window.kernel[0] + ky)
                                * window.kernel[1]
                                + kx;
                            let slot = block % in_one * period + at;
                            let of_output = &mut products[channel / channels];
                            let spots = of_output.entry(rotation).or_default();
                            spots.push(Spot { slot, index });
                        }
                    }
                }
            }
        }
    }
    let layout = Layout {
        periods: vec![period; groups],
        places,
        clean: true,
    };
    let packing = Packing::new(products, slots, doubling(period, slots), layout)?;
    let input = Input {
        spots,
        period: slots,
    };
    Some((input, packing))
}

/// For a convolution the slots of the inputs of channel 0 that its outputs begin at, and a distance
/// between channels that keeps them apart, a power of two. `None` for a dense layer, or where an
/// output begins in the padding at the end, in another ciphertext or in another output's place.
fn anchors(geometry: &ConvGeometry, input: &Layout) -> Option<(usize, Vec<usize>)> {
    let [height, width] = geometry.output().ok()?;
    if height * width == 1 {
        return None;
    }
    let slot = |element: usize| {
        let place = (*input.places.get(element)?)?;
        (place.ciphertext == 0).then_some(place.slot)
    };
    let plane = geometry.input[0] * geometry.input[1];
    let last = (0..plane).map(slot).collect::<Option<Vec<_>>>()?;
    let span = last.into_iter().max()? + 1;
    let stride = geometry.window.stride;
    let anchor = |position: usize| {
        let at = [position / width * stride[0], position % width * stride[1]];
        let inside = at[0] < geometry.input[0] && at[1] < geometry.input[1];
        slot(at[0] * geometry.input[1] + at[1]).filter(|_| inside)
    };
    let anchors = (0..height * width)
        .map(anchor)
        .collect::<Option<Vec<_>>>()?;
    // Copies of an element lie in one slot.
    let apart = anchors.iter().collect::<BTreeSet<_>>().len() == anchors.len();
    apart.then_some((span.next_power_of_two(), anchors))
}

/// `(x - y) mod q`.
fn modulo(x: usize, y: usize, q: usize) -> usize {
    (x + q - y % q) % q
}

/// `from, 2 from, 4 from, ...` below `to`.
fn doubling(from: usize, to: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(from), |&x| Some(2 * x));
    powers.take_while(|&x| x < to).collect()
}
