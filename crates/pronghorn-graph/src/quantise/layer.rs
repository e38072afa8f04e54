//! One layer of weights: what it would be at a precision, and its integers.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use pronghorn_ring::SimdLevel;
use rayon::prelude::*;

use super::{
    Precision,
    scale::{self, Range},
};
use crate::{
    fixed::{Digit, Linear},
    float::Profile,
    geometry::ConvGeometry,
    graph::{Graph, Op},
    shape, simd,
};

/// Biases take at most this much of the 32 bits of a result.
const MAX_BIAS: f64 = (1u32 << 30) as f64;

/// Biases of a layer of zeros are at most this: no weight bounds their scale.
const MAX_BIAS_ALONE: f64 = (1u32 << 15) as f64;

/// What a [`super::PrecisionChooser`] is told about a layer: weights, sizes, and its values on
/// samples.
pub struct LayerProfile<'a> {
    /// Name of the node.
    pub name: &'a str,
    /// Its place in the graph.
    pub node: usize,
    /// Sizes.
    pub geometry: ConvGeometry,
    /// `(out_channels, in_channels/groups * kernel)`, row-major.
    pub weights: Cow<'a, [f32]>,
    /// One an output channel.
    pub bias: Cow<'a, [f32]>,
    /// Whether activations alone read the result: no sum adds bits to it.
    pub is_activated: bool,
    /// Whether values of the result are compared on shares, with each other or with bounds below
    /// zero: the differences have a bit more.
    pub is_compared: bool,
    /// Whether comparisons that jump read the result ([`Op::Step`]), and each is one of a single
    /// input with a threshold. Errors of samples that were trained on tell little of these:
    /// thresholds lie between them.
    pub compares_inputs: bool,
    /// Mean square of the layer's input on samples.
    pub mean_square: f64,
    /// Mean square of the layer's result on samples.
    pub output_mean_square: f64,
    /// Range of the input, with the margin.
    range: Range,
    /// Whether inputs are clamped at powers of two.
    costly: bool,
    /// Whether each row has a scale of its own.
    by_row: bool,
    /// Whether inputs are whole numbers, and whether results are.
    whole: [bool; 2],
    /// The largest absolute weight of each row.
    largest: Vec<f64>,
    /// The most fraction bits with which each row's bias fits, its input's included.
    by_bias: Vec<i32>,
    /// Those with which each row's weights have so many bits, by bits, made where asked for.
    by_weights: [OnceLock<Vec<i32>>; 17],
    /// Statistics of the integer rows.
    rows: Arc<LayerRows>,
    /// Whether a comparison that jumps reads the result ([`Op::Step`]).
    is_stepped: bool,
}

/// Statistics of the rows of integer weights that a graph's layers would have, by node, each
/// computed once. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Rows(Arc<Mutex<BTreeMap<usize, Arc<LayerRows>>>>);

/// Statistics of shorter rows take less to compute than to keep.
const LEAST_KEPT: usize = 64;

/// Statistics of short rows that are kept of a layer, at most, but for the last ones.
const MOST_SHORT_ROWS: usize = 1 << 18;

/// Those of a layer.
#[derive(Debug)]
struct LayerRows {
    /// All rows.
    layers: Mutex<BTreeMap<RowsOf, Arc<[Row]>>>,
    /// What layers of short rows are at the precisions so far. Large added constants have as many
    /// rows as elements, which trials of precisions would walk again and again.
    candidates: Mutex<BTreeMap<CandidateOf, Candidate>>,
    /// Each row at the scales so far. Where biases bind, few rows differ from layer to layer. Empty
    /// where rows are short.
    rows: Vec<Mutex<Vec<(Digit, Row)>>>,
}

impl Rows {
    /// Of a node with so many rows of so many weights.
    fn of(&self, node: usize, rows: usize, length: usize) -> Arc<LayerRows> {
        let mut layers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = if length < LEAST_KEPT { 0 } else { rows };
        let new = || LayerRows {
            layers: Mutex::default(),
            candidates: Mutex::default(),
            rows: (0..kept).map(|_| Mutex::default()).collect(),
        };
        layers.entry(node).or_insert_with(|| new().into()).clone()
    }
}

impl LayerRows {
    /// The statistics of row `at`, of these `weights`.
    fn row(&self, at: usize, weights: &[f32], fraction: i32, digit: Digit) -> Row {
        let new = || Row::of_digits(weights, fraction, digit);
        let Some(known) = self.rows.get(at) else {
            return new()[0].1;
        };
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |known: &&(Digit, Row)| known.0 == digit && known.1.fraction == fraction;
        if let Some(&(_, row)) = known.iter().find(is_same) {
            return row;
        }
        let made = new();
        let row = made[0].1;
        known.extend(made);
        row
    }
}

/// What rows depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RowsOf {
    weight_bits: u32,
    /// The input's, where they bound the scale of a bias.
    input_fraction: Option<i32>,
    digit: Digit,
    /// The bits of the input's range, where each row has a scale of its own.
    range: Option<[u64; 2]>,
}

/// What a candidate of a node depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CandidateOf {
    /// Bits of weights and of inputs.
    bits: (u32, u32),
    digit: Digit,
    /// The bits of the input's range.
    range: [u64; 2],
    /// Of the layer.
    costly: bool,
    by_row: bool,
}

impl PartialEq for Rows {
    /// What was computed so far is no difference.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Corrected biases move results by less than this factor.
const SPARE: f64 = 1.125;

/// A row has at most so many fraction bits more than the coarsest of its layer.
const MOST_FINER: i32 = 8;

/// Inputs are clamped at less than so many times their range.
const BEYOND: f64 = 4.0;

/// A layer at some precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Largest minus smallest integer the result can be, over all rows, with their biases: the
    /// width of the result's one range. Infinite where the range does not fit in 32 bits.
    pub width: f64,
    /// Bits of a two's complement word for it, with room for corrected biases. Above 32 where the
    /// range does not fit.
    pub bits: u32,
    /// Largest Euclidean norm of a row of integer weights.
    pub norm2: f64,
    /// Largest sum of absolute integer weights of a row.
    pub norm1: f64,
    /// Estimated rms error of the result over the rms of the result, from rounding the weights
    /// and rounding the input, taken as independent.
    pub error: f64,
}

/// One row of integer weights.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// Fraction bits.
    fraction: i32,
    /// Sum of the positive weights.
    up: f64,
    /// Minus the sum of the negative weights.
    down: f64,
    /// Sum of the squares.
    squares: f64,
    /// Sum of the squares of what rounding did to the weights.
    rounding: f64,
}

impl<'a> LayerProfile<'a> {
    /// Of a node that is a layer of weights; `None` for others.
    pub(super) fn new(
        graph: &'a Graph,
        index: usize,
        (range, costly, by_row): (Range, bool, bool),
        profile: &Profile,
        whole: &[bool],
    ) -> Option<Self> {
        let node = &graph.nodes[index];
        let input = node
            .inputs
            .first()
            .map(|&input| graph.nodes[input].shape.as_slice())?;
        let (geometry, weights, bias) = match &node.op {
            Op::Conv {
                window,
                groups,
                weight,
                bias,
            } => {
                let (in_channels, size) = shape::image(input).ok()?;
                let geometry = ConvGeometry {
                    in_channels,
                    out_channels: node.shape[0],
                    input: size,
                    window: window.clone(),
                    groups: *groups,
                };
                let bias = constants(graph, bias, 0.0, node.shape[0]);
                (geometry, Cow::Borrowed(graph.data(weight)), bias)
            }
            Op::Dense { weight, bias } => {
                let geometry = ConvGeometry::dense(input[0], node.shape[0]);
                let bias = constants(graph, bias, 0.0, node.shape[0]);
                (geometry, Cow::Borrowed(graph.data(weight)), bias)
            }
            Op::Affine { mul, add } => {
                let geometry = affine_geometry(graph, input, [mul, add]);
                let channels = geometry.in_channels;
                let [mul, add] = [(mul, 1.0), (add, 0.0)]
                    .map(|(name, default)| constants(graph, name, default, channels));
                (geometry, mul, add)
            }
            _ => return None,
        };
        let mean_square = |value: usize| profile.values[value].mean_square;
        let mut readers = graph.readers(index);
        let is_stepped = readers.any(|(_, reader)| reader.op == Op::Step);
        let bias = match is_stepped && graph.feeds_steps_alone(index) {
            true => {
                let norm = |row: &[f32]| row.iter().map(|x| f64::from(x.abs())).sum();
                let rows = weights.chunks(geometry.row_len()).map(norm);
                Cow::Owned(within_reach(&bias, rows, range.reach()))
            }
            false => bias,
        };
        let of_one = |row: &[f32]| row.iter().filter(|&&weight| weight != 0.0).count() <= 1;
        let compares_inputs = is_stepped && weights.chunks(geometry.row_len()).all(of_one);
        let largest = |values: &[f32]| values.iter().fold(0f32, |most, x| most.max(x.abs())).into();
        let rows = weights.chunks(geometry.row_len());
        let is_zero = weights.iter().all(|&weight| weight == 0.0);
        let max_bias = if is_zero { MAX_BIAS_ALONE } else { MAX_BIAS };
        let most = |bias: &f32| match *bias == 0.0 && !is_zero {
            true => scale::MAX_FRACTION,
            false => scale::fraction(largest(&[*bias]), max_bias),
        };
        Some(Self {
            name: &node.name,
            node: index,
            is_activated: is_activated(graph, index),
            is_compared: costly && is_compared(graph, index),
            compares_inputs,
            is_stepped,
            rows: profile.rows.of(index, rows.len(), geometry.row_len()),
            largest: rows.map(largest).collect(),
            by_bias: bias.iter().map(most).collect(),
            by_weights: Default::default(),
            costly,
            by_row,
            whole: [whole[node.inputs[0]], whole[index]],
            geometry,
            weights,
            bias,
            mean_square: mean_square(node.inputs[0]),
            output_mean_square: mean_square(index),
            range,
        })
    }

    /// Range of the layer's input on samples, with the margin.
    pub fn input_range(&self) -> (f64, f64) {
        (self.range.low, self.range.high)
    }

    pub(super) fn range(&self) -> Range {
        self.range
    }

    /// The layer with weights and inputs of so many bits (2 to 16, 2 to 24; clamped to
    /// that). The first call for a scale of the weights reads all weights, the others only rows.
    pub fn at(&self, weight_bits: u32, input_bits: u32) -> Candidate {
        self.digit_at(weight_bits, input_bits, Digit::Whole)
    }

    /// As [`LayerProfile::at`], for a layer with this part of every weight and bias. The error is
    /// the one that rounding these inputs has on the part's result.
    pub fn digit_at(&self, weight_bits: u32, input_bits: u32, digit: Digit) -> Candidate {
        let new = || self.new_candidate(weight_bits, input_bits, digit);
        if !self.rows.rows.is_empty() {
            return new();
        }
        let key = CandidateOf {
            bits: (weight_bits, input_bits),
            digit,
            range: [self.range.low, self.range.high].map(f64::to_bits),
            costly: self.costly,
            by_row: self.by_row,
        };
        let candidates = || {
            let candidates = self.rows.candidates.lock();
            candidates.unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(&known) = candidates().get(&key) {
            return known;
        }
        let found = new();
        candidates().insert(key, found);
        found
    }

    fn new_candidate(&self, weight_bits: u32, input_bits: u32, digit: Digit) -> Candidate {
        let scales = Scales::new(self, weight_bits, input_bits);
        let rows = self.rows(scales.weight_bits, scales.input_fraction, digit);
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        let (mut norm1, mut squares, mut variance) = (0f64, 0f64, 0f64);
        for (row, &bias) in rows.iter().zip(&*self.bias) {
            let [low, high] = scales.results(row, bias, digit);
            least = least.min(low);
            most = most.max(high);
            norm1 = norm1.max(row.up + row.down);
            squares = squares.max(row.squares);
            let fraction = row.fraction + scales.input_fraction;
            let rounded_weights = row.rounding * self.mean_square;
            let rounded_inputs = match self.whole[0] {
                true => 0.0,
                false => row.squares * scale::rounding_error(fraction),
            };
            variance += rounded_weights + rounded_inputs;
        }
        let fits = least >= f64::from(i32::MIN) && most <= f64::from(i32::MAX);
        Candidate {
            width: if fits { most - least } else { f64::INFINITY },
            bits: word_bits([least, most]),
            norm2: squares.sqrt(),
            norm1,
            error: if variance == 0.0 {
                0.0
            } else {
                (variance / rows.len() as f64 / self.output_mean_square).sqrt()
            },
        }
    }

    /// Whether the results of these parts of the layer have at most so many bits each, as
    /// [`Candidate::bits`] counts them. Where the row with the largest results has more, the others
    /// are not read.
    pub fn digits_fit(
        &self,
        (weight_bits, input_bits): (u32, u32),
        digits: &[(Digit, u32)],
    ) -> bool {
        let scales = Scales::new(self, weight_bits, input_bits);
        let whole = self.rows(scales.weight_bits, scales.input_fraction, Digit::Whole);
        let reach = |at: usize| self.reach(&whole[at], self.bias[at]);
        let largest = (0..whole.len()).max_by(|&a, &b| reach(a).total_cmp(&reach(b)));
        let is_within = |at: usize, (digit, most_bits): (Digit, u32)| {
            let weights = &self.weights[at * self.geometry.row_len()..][..self.geometry.row_len()];
            let row = self.rows.row(at, weights, whole[at].fraction, digit);
            word_bits(scales.results(&row, self.bias[at], digit)) <= most_bits
        };
        let all_within = |(digit, most_bits): (Digit, u32)| {
            self.digit_at(weight_bits, input_bits, digit).bits <= most_bits
        };
        largest.is_none_or(|at| digits.iter().all(|&digit| is_within(at, digit)))
            && digits.iter().copied().all(all_within)
    }

    /// Fraction bits of the input at a precision.
    pub(super) fn input_fraction(&self, precision: Precision) -> i32 {
        self.fraction(precision.input_bits)
    }

    /// Fraction bits of inputs of so many bits. Whole ones have none.
    fn fraction(&self, bits: u32) -> i32 {
        if self.whole[0] {
            0
        } else {
            self.range.fraction(bits)
        }
    }

    /// The integer layer for inputs of `input_fraction` fraction bits, and the fraction bits of
    /// each row of its result.
    pub(super) fn integers(&self, weight_bits: u32, input_fraction: i32) -> (Linear, Vec<i32>) {
        let rows = self.rows(weight_bits, input_fraction, Digit::Whole);
        let row_len = self.geometry.row_len();
        let mut weights = vec![0; self.weights.len()];
        let rounded = weights.par_chunks_mut(row_len);
        let pairs = rounded.zip(self.weights.par_chunks(row_len)).zip(&*rows);
        pairs.for_each(|((rounded, weights), row)| {
            for (rounded, &weight) in rounded.iter_mut().zip(weights) {
                // By the choice of fraction bits it fits. What did not would be refused.
                let weight = scale::round(weight, row.fraction);
                *rounded = i16::try_from(weight).unwrap_or(i16::MIN);
            }
        });
        let results: Vec<i32> = rows
            .iter()
            .map(|row| row.fraction + input_fraction)
            .collect();
        let biases = (self.bias.iter().zip(&results)).zip(weights.chunks(row_len));
        let bias = biases.map(|((&bias, &result), row)| match self.is_stepped {
            true => threshold(bias, row, (input_fraction, result), self.whole[0]),
            false => scale::round(bias, result),
        });
        let linear = Linear {
            geometry: self.geometry.clone(),
            bias: bias.collect(),
            weights,
        };
        (linear, results)
    }

    /// Whether its biases are thresholds or counts: exact as they are.
    pub(super) fn keeps_biases(&self) -> bool {
        self.is_stepped || self.whole[1]
    }

    /// Statistics of the rows for weights of so many bits and inputs of so many fraction bits,
    /// computed once. A digit's rows have the scales of whole weights.
    fn rows(&self, weight_bits: u32, input_fraction: i32, digit: Digit) -> Arc<[Row]> {
        // A bias that does not fit makes its row coarser. Where it binds nowhere, rows are the same
        // for all inputs.
        let by_weights = self.by_weights[weight_bits as usize].get_or_init(|| {
            // What rounds to the largest integer still fits.
            let most = f64::from((1u32 << (weight_bits - 1)) - 1) + 0.49;
            let rows = self.largest.iter();
            let finest = if self.whole[1] {
                0
            } else {
                scale::MAX_FRACTION
            };
            rows.map(|&weight| scale::weight_fraction(weight, most).min(finest))
                .collect()
        });
        let each = || {
            let by_bias = self.by_bias.iter().map(|bias| bias - input_fraction);
            by_weights.iter().copied().zip(by_bias)
        };
        let binds = each().any(|(by_weights, by_bias)| by_bias < by_weights);
        let key = RowsOf {
            weight_bits,
            input_fraction: binds.then_some(input_fraction),
            digit,
            range: self
                .by_row
                .then(|| [self.range.low, self.range.high].map(f64::to_bits)),
        };
        let layers = || {
            let layers = self.rows.layers.lock();
            layers.unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(known) = layers().get(&key) {
            return known.clone();
        }
        let rows = match digit {
            Digit::Whole => {
                let fractions = each().map(|(by_weights, by_bias)| by_weights.min(by_bias));
                self.with_fractions(&fractions.collect::<Vec<_>>())
            }
            _ => self.of_digit(&self.rows(weight_bits, input_fraction, Digit::Whole), digit),
        };
        let mut layers = layers();
        // A factor for each element of a large value has many rows, and each takes no time.
        if self.rows.rows.is_empty() && (layers.len() + 1) * rows.len() > MOST_SHORT_ROWS {
            layers.clear();
        }
        layers.entry(key).or_insert(rows).clone()
    }

    /// Statistics of a digit of rows of whole weights.
    fn of_digit(&self, whole: &[Row], digit: Digit) -> Arc<[Row]> {
        let weights = self.weights.par_chunks(self.geometry.row_len());
        let rows = weights.zip(whole).enumerate();
        let row = |(at, (weights, whole)): (usize, (&[f32], &Row))| {
            self.rows.row(at, weights, whole.fraction, digit)
        };
        rows.map(row).collect::<Vec<_>>().into()
    }

    /// Rows with at most so many fraction bits: all with as few as the coarsest, or, by row, none
    /// with results wider than half of the others'.
    fn with_fractions(&self, fractions: &[i32]) -> Arc<[Row]> {
        let coarsest = fractions.iter().min().copied().unwrap_or(0);
        let most = coarsest + if self.by_row { MOST_FINER } else { 0 };
        let weights = || self.weights.par_chunks(self.geometry.row_len());
        let rows = weights().zip(fractions).enumerate();
        let row = |(at, (weights, &fraction)): (usize, (&[f32], &i32))| {
            let fraction = fraction.min(most);
            self.rows.row(at, weights, fraction, Digit::Whole)
        };
        let mut rows: Vec<Row> = rows.map(row).collect();
        if self.by_row {
            let biases = rows.iter().zip(&*self.bias);
            let reaches: Vec<f64> = biases.map(|(row, &bias)| self.reach(row, bias)).collect();
            let mut ordered = reaches.clone();
            ordered.sort_by(f64::total_cmp);
            let median = ordered[ordered.len() / 2];
            let wide = rows.par_iter_mut().zip(weights()).zip(&reaches).enumerate();
            wide.for_each(|(at, ((row, weights), reach))| {
                let over = (reach / median).log2().ceil();
                let fewer = (over as i32).min(row.fraction - coarsest);
                if median > 0.0 && over > 0.0 && fewer > 0 {
                    let fraction = row.fraction - fewer;
                    *row = self.rows.row(at, weights, fraction, Digit::Whole);
                }
            });
        }
        rows.into()
    }

    /// The largest absolute result of a row over the input's range, in integers for inputs of no
    /// fraction bits.
    fn reach(&self, row: &Row, bias: f32) -> f64 {
        let inputs = self.padded([self.range.low, self.range.high]);
        let bias = f64::from(bias) * f64::from(row.fraction).exp2();
        let [least, most] = row.results(bias, inputs);
        least.abs().max(most.abs())
    }

    /// A range of inputs, and zero where there is padding.
    fn padded(&self, [low, high]: [f64; 2]) -> [f64; 2] {
        match self.geometry.window.padding == [0; 4] {
            true => [low, high],
            false => [low.min(0.0), high.max(0.0)],
        }
    }
}

/// Bits of a two's complement word for results, with room for corrected biases.
fn word_bits([least, most]: [f64; 2]) -> u32 {
    1 + (SPARE * least.abs().max(most.abs()) + 2.0).log2().ceil() as u32
}

/// The scales of a layer at a precision.
struct Scales {
    weight_bits: u32,
    input_fraction: i32,
    /// The integers that inputs are clamped to, padding among them.
    inputs: [f64; 2],
}

impl Scales {
    fn new(layer: &LayerProfile, weight_bits: u32, input_bits: u32) -> Self {
        let (weight_bits, input_bits) = (weight_bits.clamp(2, 16), input_bits.clamp(2, 24));
        let input_fraction = layer.fraction(input_bits);
        let (low, high) = layer.range.clamps(input_fraction, layer.costly);
        Self {
            weight_bits,
            input_fraction,
            inputs: layer.padded([low, high].map(f64::from)),
        }
    }

    /// The least and the largest result of a row of a digit.
    fn results(&self, row: &Row, bias: f32, digit: Digit) -> [f64; 2] {
        let fraction = row.fraction + self.input_fraction;
        let bias = f64::from(digit.of(scale::round(bias, fraction)));
        row.results(bias, self.inputs)
    }
}

impl Row {
    /// The least and the largest result for inputs of a range.
    fn results(&self, bias: f64, [low, high]: [f64; 2]) -> [f64; 2] {
        [
            bias + self.up * low - self.down * high,
            bias + self.up * high - self.down * low,
        ]
    }

    /// Of the digits that are made with one, the highest first.
    fn of_digits(weights: &[f32], fraction: i32, digit: Digit) -> Vec<(Digit, Self)> {
        let digits = match digit {
            Digit::Top { below, bits } => Digit::cut(below as usize + 1, bits).collect(),
            digit => vec![digit],
        };
        let mut sums = vec![[0.0; 3]; digits.len()];
        let cut = simd::Cut::with(digit);
        let rounding = simd::row_sums(SimdLevel::detect(), weights, fraction, cut, &mut sums);
        let row = |(digit, [up, down, squares]): (Digit, [f64; 3])| {
            let row = Self {
                fraction,
                up,
                down,
                squares,
                rounding,
            };
            (digit, row)
        };
        digits.into_iter().zip(sums).map(row).collect()
    }
}

/// The bias of a row whose result is compared with zero. Where the row has one feature alone, of a
/// weight of a power of two, the bias has no bits beyond those of the feature: the threshold is
/// rounded as features are, halves up. So a feature at its threshold stays there. Without fraction
/// bits features are taken for whole numbers: thresholds halfway between two stay between them, and
/// any between two that are `whole`.
fn threshold(bias: f32, row: &[i16], (input, result): (i32, i32), whole: bool) -> i32 {
    let mut weights = row.iter().filter(|&&weight| weight != 0);
    let alone = weights.next().filter(|_| weights.next().is_none());
    let is_unit = |weight: i16| {
        let bits = u32::try_from(result - input).ok();
        bits.is_some_and(|bits| 1u16.checked_shl(bits) == Some(weight.unsigned_abs()))
    };
    if !alone.is_some_and(|&weight| is_unit(weight)) {
        return scale::round(bias, result);
    }
    let scaled = f64::from(bias) * f64::from(input).exp2();
    let rises = alone.is_some_and(|&weight| weight > 0);
    let rounded = match (whole, rises && input > 0) {
        (true, _) => scaled.ceil(),
        (false, true) => (scaled - 0.5).ceil(),
        (false, false) => (scaled + 0.5).floor(),
    };
    (rounded * f64::from(result - input).exp2()) as i32
}

/// Biases of a layer whose results are compared with zero: none is far beyond what its row makes of
/// inputs. Signs are the same, and neither shares nor ranges have room for it.
fn within_reach(bias: &[f32], rows: impl Iterator<Item = f64>, reach: f64) -> Vec<f32> {
    let pairs = bias.iter().zip(rows);
    let bounded = |(&bias, norm): (&f32, f64)| {
        let most = (BEYOND * norm * reach) as f32;
        bias.clamp(-most, most)
    };
    pairs.map(bounded).collect()
}

/// Whether activations alone read value `index`.
fn is_activated(graph: &Graph, index: usize) -> bool {
    graph.output != index
        && graph
            .readers(index)
            .all(|(_, node)| node.op.is_activation())
}

/// Whether a maximum, a leaky ReLU or a clip at a negative bound reads value `index`, behind
/// activations and moves of it.
fn is_compared(graph: &Graph, index: usize) -> bool {
    graph.readers(index).any(|(at, node)| match &node.op {
        Op::MaxPool { .. } | Op::LeakyRelu { .. } => true,
        Op::Clip { min, .. } if min.is_none_or(|min| min < 0.0) => true,
        Op::Pad { .. } | Op::Reshape | Op::Transpose { .. } | Op::Take { .. } => {
            is_compared(graph, at)
        }
        op => op.is_activation() && is_compared(graph, at),
    })
}

/// An `Affine` as a layer: a factor a channel, or a factor an element where it has so many.
fn affine_geometry(graph: &Graph, input: &[usize], names: [&Option<String>; 2]) -> ConvGeometry {
    let (channels, length) = shape::channels(input);
    let elements = channels * length;
    let each = |name: &&Option<String>| {
        name.as_ref()
            .is_some_and(|name| graph.data(name).len() == elements)
    };
    if elements != 1 && names.iter().any(each) {
        return ConvGeometry::per_channel(elements, [1, 1]);
    }
    match *input {
        [_, height, width] => ConvGeometry::per_channel(channels, [height, width]),
        _ => ConvGeometry::per_channel(channels, [1, length]),
    }
}

/// The constants of a name, each repeated so that there are `count`.
fn constants<'a>(
    graph: &'a Graph,
    name: &Option<String>,
    default: f32,
    count: usize,
) -> Cow<'a, [f32]> {
    let data = name.as_ref().map_or(&[][..], |name| graph.data(name));
    match data.len() {
        0 => Cow::Owned(vec![default; count]),
        length if length == count => Cow::Borrowed(data),
        length => {
            let run = |&value: &f32| std::iter::repeat_n(value, count / length);
            Cow::Owned(data.iter().flat_map(run).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `x > t` and `x < t` of features and thresholds in quarters, at fewer bits and at more.
    #[test]
    fn thresholds_stay_where_they_are() {
        let quarters = |x: i32| x as f32 / 4.0;
        for (input, finer) in [(0, 0), (0, 1), (1, 1), (2, 0), (3, 2)] {
            let unit = f64::from(input).exp2();
            let rounded = |x: f32| (f64::from(x) * unit + 0.5).floor() as i32;
            for t in -20..=20 {
                let above = threshold(
                    -quarters(t),
                    &[0, 1 << finer],
                    (input, input + finer),
                    false,
                );
                let below = threshold(quarters(t), &[-(1 << finer)], (input, input + finer), false);
                let is_half = |x: i32| (x << input).rem_euclid(4) == 2;
                let is_told = |&x: &i32| match x == t {
                    true => input > 0 || !is_half(x),
                    false => input > 1 || (x % 4 == 0 && t % 2 == 0),
                };
                for x in (-20..=20).filter(is_told) {
                    let integer = rounded(quarters(x)) << finer;
                    assert_eq!(integer + above > 0, x > t, "{x} > {t} at {input}");
                    assert_eq!(below - integer > 0, x < t, "{x} < {t} at {input}");
                }
                let above = threshold(-quarters(t), &[1], (0, 0), true);
                let below = threshold(quarters(t), &[-1], (0, 0), true);
                for x in -5..=5 {
                    assert_eq!(x + above > 0, 4 * x > t);
                    assert_eq!(below - x > 0, 4 * x < t);
                }
            }
        }
        // Rows of several weights, and of one that is no unit.
        assert_eq!(threshold(0.3, &[1, 1], (0, 2), false), 1);
        assert_eq!(threshold(0.3, &[3], (0, 2), false), 1);
        assert_eq!(threshold(0.3, &[1], (2, 0), false), 0);
    }

    #[test]
    fn rows_are_sums_over_rounded_weights() {
        let mut number = 0x9e37_79b9u32;
        let mut next = || {
            number = number.wrapping_mul(0x85eb_ca6b).wrapping_add(0xc2b2_ae35);
            ((number >> 8) as i32 - (1 << 23)) as f32 / (1 << 23) as f32
        };
        for length in (1..40).chain([59, 60, 195, 16_400]) {
            let mut weights: Vec<f32> = (0..length).map(|_| next()).collect();
            // Halves.
            weights.extend([0.5, -0.5, 0.25, -1.5, 0.0]);
            // Many of the largest.
            if length > 195 {
                weights.fill(1.99);
            }
            for fraction in [-2, 0, 1, 5, 14] {
                let digits = [
                    Digit::Whole,
                    Digit::High(6),
                    Digit::Low(6),
                    Digit::Low(1),
                    Digit::Middle { below: 1, bits: 4 },
                    Digit::Middle { below: 2, bits: 4 },
                    Digit::Top { below: 2, bits: 4 },
                    Digit::Top { below: 3, bits: 3 },
                ];
                let made = digits.map(|digit| Row::of_digits(&weights, fraction, digit));
                for (digit, row) in made.into_iter().flatten() {
                    let rounded = |&weight: &f32| scale::round(weight, fraction);
                    let parts = weights.iter().map(|weight| digit.of(rounded(weight)));
                    let parts: Vec<f64> = parts.map(f64::from).collect();
                    let sum = |of: fn(f64) -> f64| parts.iter().map(|&part| of(part)).sum::<f64>();
                    assert_eq!(row.up, sum(|part| part.max(0.0)));
                    assert_eq!(row.down, sum(|part| (-part).max(0.0)));
                    let near = |found: f64, wanted: f64| (found - wanted).abs() <= 1e-5 * wanted;
                    assert!(near(row.squares, sum(|part| part * part)));
                    let step = f64::from(-fraction).exp2();
                    let error = |weight: &f32| {
                        (f64::from(rounded(weight)) * step - f64::from(*weight)).powi(2)
                    };
                    let rounding: f64 = weights.iter().map(error).sum();
                    assert!(near(row.rounding, rounding));
                }
            }
        }
    }
}
