//! Means over windows: sums, with integer factors where a count is not a power of two.

use super::{QuantiseError, builder::Builder};
use crate::{
    fixed::{FixedOp, Interval, LocalOp},
    geometry::Window,
};

/// Bits of the factors of an average, at worst and at best: a factor is off by up to half a unit,
/// the same way everywhere.
const AVERAGE_BITS: std::ops::RangeInclusive<u32> = 8..=10;

/// What is added to an exact sum, mostly at most, before its low bits are dropped: half of a unit.
const MOST_ROUNDED_UP: i64 = 1 << 25;

impl Builder<'_> {
    /// A mean over windows: a sum, with factors where a count is no power of two. Large windows are
    /// summed in stages, and else the input is rounded as far as it must be.
    pub(super) fn average(
        &mut self,
        window: &Window,
        count_padding: bool,
        input: usize,
    ) -> Result<usize, QuantiseError> {
        let counts = self.counts(window, count_padding, input);
        if let Some(mean) = self.mean(self.place[input], window, &counts)? {
            return Ok(mean);
        }
        if let [count] = *counts
            && let Some(mean) = self.mean_in_stages(window, count, input)?
        {
            return Ok(mean);
        }
        let wide = self.options.wide_bits;
        for bits in [wide, wide * 3 / 4, wide / 2] {
            let value = self.rounded(input, bits.max(2))?;
            if let Some(mean) = self.mean(value, window, &counts)? {
                return Ok(mean);
            }
        }
        let value = self.rounded(input, (wide / 4).max(2))?;
        let (op, shift) = sum(window, &counts, self.scale(), *AVERAGE_BITS.start());
        let fraction = self.nodes[value].value.fraction_bits + shift;
        self.push(op, vec![value], fraction)
    }

    /// The mean of a fixed-point value, with the most precise factors that leave room.
    fn mean(
        &mut self,
        value: usize,
        window: &Window,
        counts: &[usize],
    ) -> Result<Option<usize>, QuantiseError> {
        for bits in AVERAGE_BITS.rev() {
            let (op, shift) = sum(window, counts, self.scale(), bits);
            if self.has_room_for(value, self.bounds(&op, &[value])?) {
                let fraction = self.nodes[value].value.fraction_bits + shift;
                return self.push(op, vec![value], fraction).map(Some);
            }
        }
        Ok(None)
    }

    /// The mean of `count` elements each, as a sum of sums: those of the first stage are rounded,
    /// which are few. The factor comes last.
    fn mean_in_stages(
        &mut self,
        window: &Window,
        count: usize,
        input: usize,
    ) -> Result<Option<usize>, QuantiseError> {
        let shape = &self.graph.nodes[self.current].shape;
        let size = [shape[1], shape[2]];
        let image = &self.graph.nodes[input].shape;
        'ways: for stages in ways(window, [image[1], image[2]], size) {
            let (mut value, mut elements) = (self.place[input], 1);
            for (place, stage) in stages.iter().enumerate() {
                if place + 1 == stages.len()
                    && let Some(mean) = self.mean(value, &stage.window, &[count])?
                {
                    return Ok(Some(mean));
                }
                elements *= stage.window.kernel.iter().product::<usize>();
                match self.rounded_sums(value, stage, (input, elements, count))? {
                    Some(sums) => value = sums,
                    None => continue 'ways,
                }
            }
            return self.mean(value, &Window::plain([1, 1]), &[count]);
        }
        Ok(None)
    }

    /// The sums of a stage, of `elements` of the input each, rounded; `None` without room.
    fn rounded_sums(
        &mut self,
        value: usize,
        stage: &Stage,
        (input, elements, count): (usize, usize, usize),
    ) -> Result<Option<usize>, QuantiseError> {
        let node = &self.graph.nodes[self.current];
        let (name, channels) = (node.name.clone(), node.shape[0]);
        let shape = vec![channels, stage.size[0], stage.size[1]];
        let (op, _) = sum(&stage.window, &[1], 1.0, 0);
        if !self.has_room_for(value, self.bounds_as(&op, &[value], &shape)?) {
            return Ok(None);
        }
        let fraction = self.nodes[value].value.fraction_bits;
        let sums = self.push_as(name, op, vec![value], shape, fraction)?;
        // Sums of a part may be far from the means of all.
        let mean = match elements == count {
            true => self.ranges[self.current],
            false => self.ranges[input],
        };
        let range = mean.times(elements as f64);
        let fraction = range.signed_fraction(self.options.wide_bits);
        self.requantise(sums, fraction, range).map(Some)
    }

    /// What the current mean is multiplied by.
    fn scale(&self) -> f64 {
        self.mean_factor().unwrap_or(1.0)
    }

    /// Whether sums of `value` in this range need no rounding before. Exact ones may take all bits,
    /// but for what is added to round them.
    fn has_room_for(&self, value: usize, sums: Interval) -> bool {
        let rounded_up = Interval {
            high: sums.high.saturating_add(MOST_ROUNDED_UP),
            ..sums
        };
        self.has_room(sums) || (self.is_exact(value) && rounded_up.fit().is_some())
    }

    /// What a pooling divides by at each position; one number where it is the same everywhere.
    fn counts(&self, window: &Window, count_padding: bool, input: usize) -> Vec<usize> {
        if count_padding || window.padding == [0; 4] {
            return vec![window.kernel[0] * window.kernel[1]];
        }
        let (shape, output) = (
            &self.graph.nodes[input].shape,
            &self.graph.nodes[self.current].shape,
        );
        let taps = |axis: usize, at: usize| window.taps(axis, at, shape[axis + 1]).len();
        let row = |y: usize| (0..output[2]).map(move |x| taps(0, y) * taps(1, x));
        let counts: Vec<usize> = (0..output[1]).flat_map(row).collect();
        if counts.iter().all(|&count| count == counts[0]) {
            vec![counts[0]]
        } else {
            counts
        }
    }
}

/// A stage of a sum.
struct Stage {
    window: Window,
    /// Height and width of its result.
    size: [usize; 2],
}

/// Ways to sum over a window of an image: all at once, and in two stages where it is the only one and
/// the first stage makes no sums beyond it, those with the fewest sums between them first.
fn ways(window: &Window, image: [usize; 2], size: [usize; 2]) -> Vec<Vec<Stage>> {
    let whole = Stage {
        window: window.clone(),
        size,
    };
    let mut all = vec![vec![whole]];
    if size == [1, 1] && window.padding == [0; 4] && window.dilation == [1; 2] {
        let [height, width] = window.kernel;
        let divisors = |of: usize| (1..=of).filter(move |part| of.is_multiple_of(*part));
        let mut parts: Vec<[usize; 2]> = divisors(height)
            .flat_map(|rows| divisors(width).map(move |columns| [rows, columns]))
            .collect();
        parts.sort_by_key(|[rows, columns]| std::cmp::Reverse(rows * columns));
        all.extend(parts[1..].iter().filter_map(|&[rows, columns]| {
            let between = [height / rows, width / columns];
            let part = Window {
                stride: [rows, columns],
                ..Window::plain([rows, columns])
            };
            let fits = part.output(image).is_ok_and(|made| made == between);
            let stage = |window, size| Stage { window, size };
            fits.then(|| vec![stage(part, between), stage(Window::plain(between), size)])
        }));
    }
    all
}

/// The weighted sum over a window that stands for `scale` means, and the fraction bits it adds.
fn sum(window: &Window, counts: &[usize], scale: f64, bits: u32) -> (FixedOp, i32) {
    let (multipliers, shift) = multipliers(counts, scale, bits);
    let op = LocalOp::SumPool {
        window: window.clone(),
        multipliers,
    };
    (FixedOp::Local(op), shift)
}

/// Integer factors that stand for `scale / count`, and the fraction bits they add. One power of two
/// and a sign need no factor; otherwise the factor of the largest count has about `bits` bits.
fn multipliers(counts: &[usize], scale: f64, bits: u32) -> (Vec<i32>, i32) {
    let largest = counts.iter().copied().max().unwrap_or(1);
    if counts.len() == 1 && largest.is_power_of_two() && scale.abs() == 1.0 {
        return (vec![scale as i32], largest.ilog2() as i32);
    }
    let shift = largest.ilog2() + bits;
    let factor = |&count: &usize| (f64::from(shift).exp2() * scale / count as f64).round() as i32;
    (counts.iter().map(factor).collect(), shift as i32)
}
