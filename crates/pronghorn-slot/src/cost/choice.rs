//! The choice among variants and parameters.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use pronghorn_graph::geometry::ConvGeometry;
use pronghorn_he::bfv::{AnswerFormat, Parameters, Workload};

use super::{Cost, Counts, Depth, Objective, Sizes, rates};
use crate::{
    SlotError,
    axis::{Axis, Taps},
    layout::{Layout, Rows, Variant},
};

/// A variant with its parameters.
pub struct Choice {
    /// The variant.
    pub variant: Variant,
    /// With what; the plaintext modulus holds the values.
    pub parameters: Parameters<u64>,
    /// Its cost.
    pub cost: Cost,
}

/// The cheapest way of computing a layer whose values, its outputs before anything else is done to
/// them, are at most `largest` in absolute value: of all variants with the parameters of degrees
/// 4096 and 8192 that have room for them. At least 128 bits of security. Follows from
/// sizes alone.
///
/// # Errors
/// When the geometry is not valid, the values do not fit a plaintext modulus, or nothing has room.
pub fn choose(
    geometry: &ConvGeometry,
    largest: u64,
    objective: &Objective,
) -> Result<Choice, SlotError> {
    let chains = |degree| Chains::new(degree, largest);
    choose_among(geometry, objective, chains)
}

/// [`choose`] for a plaintext modulus that is known, as where other layers have it too: a prime
/// `= 1` modulo twice each of [`DEGREES`].
///
/// # Errors
/// As there.
pub fn choose_modulo(
    geometry: &ConvGeometry,
    t: u64,
    objective: &Objective,
) -> Result<Choice, SlotError> {
    let chains = |degree| Ok(Chains::modulo(degree, t));
    choose_among(geometry, objective, chains)
}

/// Degrees that are tried.
pub const DEGREES: [usize; 2] = [4096, 8192];

/// The smallest plaintext modulus for [`choose_modulo`] that holds values of up to `largest` in
/// absolute value with a bit to spare, so that a circuit takes less to add shares modulo it.
///
/// # Errors
/// When there is none of 31 bits.
pub fn common_modulus(largest: u64) -> Result<u64, SlotError> {
    let degree = DEGREES[1];
    let of = |bits| pronghorn_ring::modulus::largest_ntt_prime(bits, degree);
    let holds = |&t: &u64| largest >> (t.ilog2() - 1) == 0;
    let fits = ((degree as u64).ilog2() + 2..=31)
        .filter_map(of)
        .find(holds);
    fits.ok_or(SlotError::Range { largest })
}

/// What a layer does in a variant at a degree.
type Operations = HashMap<(ConvGeometry, Variant, usize), (Depth, Counts)>;

/// Most entries of what is kept.
const MOST_KEPT: usize = 1 << 14;

/// The operations of a layout. A planner asks for a layer again and again, with other moduli, and
/// listing the products of a dense layer of thousands takes a second: what was found is kept.
fn operations(layout: &Layout, degree: usize) -> (Depth, Counts) {
    static KEPT: LazyLock<Mutex<Operations>> = LazyLock::new(Mutex::default);
    let kept = || KEPT.lock().unwrap_or_else(|broken| broken.into_inner());
    let key = (layout.geometry.clone(), layout.variant.clone(), degree);
    if let Some(found) = kept().get(&key) {
        return found.clone();
    }
    let schedule = layout.chains();
    let found = (Depth::of(layout, &schedule), Counts::of(layout, &schedule));
    let mut kept = kept();
    if kept.len() >= MOST_KEPT {
        kept.clear();
    }
    kept.insert(key, found.clone());
    found
}

fn choose_among(
    geometry: &ConvGeometry,
    objective: &Objective,
    chains_of: impl Fn(usize) -> Result<Chains, SlotError>,
) -> Result<Choice, SlotError> {
    geometry.validate()?;
    let mut best: Option<(Variant, Cost, Parameters<u64>)> = None;
    for degree in DEGREES {
        let chains = chains_of(degree)?;
        for variant in variants(geometry, degree) {
            let Ok(layout) = Layout::new(geometry, &variant, degree) else {
                continue;
            };
            let most = best.as_ref().map(|(_, cost, _)| cost.total(objective));
            if most.is_some_and(|most| chains.at_least(&layout, objective) >= most) {
                continue;
            }
            let (depth, counts) = operations(&layout, degree);
            let workload = depth.workload(chains.t_bits);
            let Some((parameters, format)) = chains.fitting(&workload, counts.outputs) else {
                continue;
            };
            let cost = Cost::of(&layout, counts, parameters, &format);
            if most.is_none_or(|most| cost.total(objective) < most) {
                best = Some((variant, cost, parameters.clone()));
            }
        }
    }
    let (variant, cost, parameters) = best.ok_or(SlotError::NoVariant)?;
    Ok(Choice {
        variant,
        parameters,
        cost,
    })
}

/// Parameters with room for values of up to `largest` in absolute value: the fastest that fit a
/// variant of a layer at a degree.
///
/// # Errors
/// As [`choose`].
pub fn parameters(
    geometry: &ConvGeometry,
    variant: &Variant,
    degree: usize,
    largest: u64,
) -> Result<Parameters<u64>, SlotError> {
    let layout = Layout::new(geometry, variant, degree)?;
    let (chains, schedule) = (Chains::new(degree, largest)?, layout.chains());
    let workload = Depth::of(&layout, &schedule).workload(chains.t_bits);
    let outputs = Counts::of(&layout, &schedule).outputs;
    let (parameters, _) = chains
        .fitting(&workload, outputs)
        .ok_or(SlotError::NoVariant)?;
    Ok(parameters.clone())
}

/// Parameters of a degree, made when they are asked for.
struct Chains {
    t_bits: u32,
    /// Where it is known.
    t: Option<u64>,
    made: OnceCell<Vec<Parameters<u64>>>,
    degree: usize,
}

impl Chains {
    /// With the smallest plaintext modulus that holds values of both signs.
    fn new(degree: usize, largest: u64) -> Result<Self, SlotError> {
        let holds = |&bits: &u32| {
            pronghorn_ring::modulus::largest_ntt_prime(bits, degree)
                .is_some_and(|t| t.ilog2() + 1 == bits && t / 2 >= largest)
        };
        let least = (degree as u64).ilog2() + 2;
        let t_bits = (least..=31).find(holds);
        Ok(Self {
            t_bits: t_bits.ok_or(SlotError::Range { largest })?,
            t: None,
            made: OnceCell::new(),
            degree,
        })
    }

    fn modulo(degree: usize, t: u64) -> Self {
        Self {
            t_bits: u64::BITS - t.leading_zeros(),
            t: Some(t),
            made: OnceCell::new(),
            degree,
        }
    }

    fn every(&self) -> &[Parameters<u64>] {
        self.made.get_or_init(|| {
            let good = |every: Result<_, _>| every.ok();
            match self.t {
                Some(t) => Parameters::candidates_modulo(self.degree, t)
                    .filter_map(good)
                    .collect(),
                None => Parameters::candidates(self.degree, self.t_bits)
                    .filter_map(good)
                    .collect(),
            }
        })
    }

    fn fitting(
        &self,
        workload: &Workload,
        answers: usize,
    ) -> Option<(&Parameters<u64>, AnswerFormat)> {
        self.every().iter().find_map(|parameters| {
            let noise = workload.noise(parameters);
            Some((parameters, parameters.answer_format(noise, answers).ok()?))
        })
    }

    /// Less than any parameters take: the ciphertexts, and the products and rotations that there
    /// must be.
    fn at_least(&self, layout: &Layout, objective: &Objective) -> f64 {
        let Some(parameters) = self.every().first() else {
            return f64::INFINITY;
        };
        let (sizes, bands) = (Sizes::of(parameters), layout.bands.len());
        let words = sizes.n * sizes.limbs;
        let (inputs, outputs) = (
            (bands * layout.inputs) as f64,
            (bands * layout.outputs) as f64,
        );
        let bytes = objective.byte * (inputs * sizes.seeded as f64 + outputs * 5.0 * sizes.n);
        let rotated = layout.diagonals() / layout.variant.baby;
        let rotations = match layout.geometry.groups {
            1 => outputs * (rotated.min(layout.virtual_channels()).saturating_sub(1)) as f64 / 2.0,
            _ => 0.0,
        };
        let switch = rates::KEY * 2.0 * sizes.digits * (sizes.limbs + sizes.special) * sizes.n;
        let geometry = &layout.geometry;
        let taps: usize = (0..2).map(|axis| layout.axes[axis].factors()).product();
        let pairs = geometry.out_channels * (geometry.in_channels / geometry.groups) * taps;
        let products = (bands * pairs) as f64 / (2 * layout.blocks) as f64;
        products * rates::PRODUCT * 2.0 * words
            + inputs * words * rates::ENCRYPT
            + outputs * words * rates::HIDE
            + bytes
            + rotations * switch
    }
}

/// Variants that are worth a look.
pub(crate) fn variants(geometry: &ConvGeometry, degree: usize) -> Vec<Variant> {
    let Ok(output) = geometry.output() else {
        return Vec::new();
    };
    let row = degree / 2;
    let mut every = Vec::new();
    for down in taps(geometry, output[0], 0) {
        for across in taps(geometry, output[1], 1) {
            let taps = [down, across];
            let axis = |axis| Axis::new(geometry, output[axis], axis, taps[axis]);
            let [Some(first), Some(second)] = [axis(0), axis(1)] else {
                continue;
            };
            let positions = first.positions * second.positions;
            let channels = geometry.in_channels * first.virtuals * second.virtuals;
            let whole = positions.next_power_of_two().min(row);
            // Smaller blocks leave fewer slots empty.
            let smaller = [whole / 2, whole / 4, whole / 8];
            let still = !first.rotates() && !second.rotates();
            let wastes = positions % whole != 0;
            let more = smaller
                .into_iter()
                .filter(|&block| still && wastes && block > 0);
            for block in std::iter::once(whole).chain(more) {
                let blocks = row / block;
                for rows in [Rows::Outputs, Rows::Inputs, Rows::Swap] {
                    for (inputs, outputs) in shares(blocks, channels, geometry.out_channels) {
                        let diagonals = (inputs * outputs / blocks).max(1);
                        for baby in powers(diagonals) {
                            every.push(Variant {
                                block,
                                taps,
                                inputs,
                                outputs,
                                rows,
                                baby,
                                fold: false,
                            });
                        }
                    }
                }
            }
        }
    }
    every
}

/// Distinct channels in the blocks of a row: of inputs and of outputs.
fn shares(blocks: usize, inputs: usize, outputs: usize) -> Vec<(usize, usize)> {
    let most = |channels: usize| channels.next_power_of_two().min(blocks);
    let (most_in, most_out) = (most(inputs), most(outputs));
    let pairs = powers(most_in).flat_map(|i| powers(most_out).map(move |o| (i, o)));
    let full = |&(i, o): &(usize, usize)| i * o >= blocks || (i == most_in && o == most_out);
    pairs.filter(full).collect()
}

fn powers(most: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |power| Some(2 * power)).take_while(move |&power| power <= most)
}

fn taps(geometry: &ConvGeometry, outputs: usize, axis: usize) -> Vec<Taps> {
    let mut every = vec![Taps::RotateOutputs];
    if geometry.window.kernel[axis] > 1 {
        every.extend([Taps::RotateInputs, Taps::Copies]);
        let mut tiles: Vec<usize> = (1..=8usize)
            .map(|tiles| outputs.div_ceil(tiles))
            .chain([2, 4, 6, 14, 30])
            .filter(|&tile| tile > 1 && tile <= outputs)
            .collect();
        tiles.sort_unstable();
        tiles.dedup();
        every.extend(tiles.into_iter().map(|tile| Taps::Points { tile }));
    }
    every
}
