//! The circuits of a step: one for each size of window and number of dropped bits.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    sync::Arc,
};

use pronghorn_graph::{fixed::ValueSpec, geometry::Window, shape};
use pronghorn_mpc::circuit::Circuit;

/// Most values in a window of a garbled pool.
pub const MAX_WINDOW: usize = 1 << 10;

/// What becomes of a circuit's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// The parties keep shares modulo a number, as the circuit says.
    Shares,
    /// The client learns it, a word without a sign.
    Unsigned,
    /// The client learns it, a word in two's complement.
    Signed {
        /// Bits of the word.
        bits: u32,
        /// Least value.
        low: i32,
        /// Greatest value.
        high: i32,
    },
}

/// The circuits of a garbled step. Both parties have the same ones, from the plan.
#[derive(Clone)]
pub struct Circuits {
    /// The elements of the output by circuit: each of them is in one group, once.
    pub groups: Vec<Group>,
    /// Added to every input: the server adds it to its share, so that errors do not change what is
    /// rounded.
    pub offset: i64,
    /// What becomes of the circuits' outputs.
    pub output: Output,
}

/// Elements of the output that share a circuit. Windows at a border have fewer values than others,
/// and channels may drop different numbers of bits, so a step may have several groups.
#[derive(Clone)]
pub struct Group<C = Circuit> {
    /// One output. As many words of the garbler's (the server's shares) as of the evaluator's (the
    /// client's), word by word of the same width.
    pub circuit: Arc<C>,
    /// Elements of the output.
    pub elements: Indices,
    /// Elements of the input that go into each of these, in the order of the circuit's words,
    /// element by element.
    pub sources: Indices,
}

/// Numbers of elements, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indices {
    /// `0..n`: no list of a large layer's elements is kept.
    All(usize),
    /// These.
    Listed(Arc<[u32]>),
}

impl Indices {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::All(count) => *count,
            Self::Listed(indices) => indices.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The index at a place below [`len`](Self::len).
    pub fn get(&self, place: usize) -> usize {
        match self {
            Self::All(_) => place,
            Self::Listed(indices) => indices[place] as usize,
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).map(|place| self.get(place))
    }
}

impl FromIterator<usize> for Indices {
    fn from_iter<I: IntoIterator<Item = usize>>(indices: I) -> Self {
        Self::Listed(indices.into_iter().map(|index| index as u32).collect())
    }
}

/// Output elements with windows of one size that drop as many bits.
#[derive(Default)]
struct Windows {
    elements: Vec<usize>,
    sources: Vec<usize>,
}

/// What a circuit is made for: the values of its windows, and the bits dropped.
pub(crate) type Kind = (usize, u32);

/// The elements of a value by what computes them: one for each size of `window`, or for single
/// values, and each of `shifts`, one a channel or one for all. `make` makes one of them.
///
/// # Errors
/// A window is empty or too large, or nothing computes one.
pub(crate) fn groups<C, E: Display>(
    (window, shifts): (Option<&Window>, &[u32]),
    input: &ValueSpec,
    make: impl Fn(Kind) -> Result<C, E>,
) -> Result<Vec<Group<C>>, String> {
    let make = |kind| make(kind).map(Arc::new).map_err(|error| error.to_string());
    let same = shifts.iter().all(|shift| *shift == shifts[0]);
    if let (None, true) = (window, same) {
        return Ok(vec![Group {
            circuit: make((1, shifts.first().copied().unwrap_or(0)))?,
            elements: Indices::All(input.len()),
            sources: Indices::All(input.len()),
        }]);
    }
    let kinds = match window {
        None => Some(singles(shifts, input.len())),
        Some(window) => windows(window, shifts, input),
    };
    let kinds = kinds.ok_or_else(|| {
        format!("its window is empty somewhere, or has more than {MAX_WINDOW} values")
    })?;
    let group = |(kind, windows): (Kind, Windows)| {
        Ok(Group {
            circuit: make(kind)?,
            elements: windows.elements.into_iter().collect(),
            sources: windows.sources.into_iter().collect(),
        })
    };
    kinds.into_iter().map(group).collect()
}

impl Circuits {
    /// These groups of circuits.
    pub(crate) fn new(groups: Vec<Group>, offset: i64, output: Output) -> Self {
        Self {
            groups,
            offset,
            output,
        }
    }

    /// Bytes of tables, and bits of the client's shares, for a batch: those of a circuit in whole
    /// bytes, as they are sent.
    pub(super) fn sizes(&self, batch: usize) -> (u64, usize) {
        self.groups.iter().fold((0, 0), |(tables, bits), group| {
            let instances = group.elements.len() * batch;
            (
                tables + group.circuit.table_bytes(instances) as u64,
                bits + (group.circuit.labelled_bits() * instances).next_multiple_of(8),
            )
        })
    }
}

/// The elements of channels by the bits they drop.
fn singles(shifts: &[u32], elements: usize) -> BTreeMap<Kind, Windows> {
    let mut groups = BTreeMap::<Kind, Windows>::new();
    let plane = elements / shifts.len();
    for (channel, &shift) in shifts.iter().enumerate() {
        let group = groups.entry((1, shift)).or_default();
        group
            .elements
            .extend(channel * plane..(channel + 1) * plane);
        group.sources.extend(channel * plane..(channel + 1) * plane);
    }
    groups
}

/// The output elements by the size of their windows and the bits they drop; `None` where a window
/// is empty or too large, or the shape has no rows and columns.
fn windows(window: &Window, shifts: &[u32], input: &ValueSpec) -> Option<BTreeMap<Kind, Windows>> {
    let (channels, size) = shape::image(&input.shape).ok()?;
    let output = window.pool_output(size).ok()?;
    let mut groups = BTreeMap::<Kind, Windows>::new();
    let elements = channels * output[0] * output[1];
    let part = elements / shifts.len();
    for element in 0..elements {
        let sources: Vec<usize> = window.pooled(size, output, element).collect();
        if sources.is_empty() || sources.len() > MAX_WINDOW {
            return None;
        }
        let kind = (sources.len(), shifts[element / part]);
        let group = groups.entry(kind).or_default();
        group.elements.push(element);
        group.sources.extend(sources);
    }
    Some(groups)
}

/// Values in all windows of a pool, and the sum of the sizes that windows have, each counted once:
/// from sizes alone, before anything is made. `None` where the shape is not one that can be pooled.
pub(super) fn window_sizes(window: &Window, input: &ValueSpec) -> Option<(usize, usize)> {
    let (channels, size) = shape::image(&input.shape).ok()?;
    let output = window.pool_output(size).ok()?;
    let taps =
        |axis: usize| (0..output[axis]).map(move |at| window.taps(axis, at, size[axis]).len());
    let sums = [0, 1].map(|axis| taps(axis).fold(0, usize::saturating_add));
    let distinct = [0, 1].map(|axis| taps(axis).collect::<BTreeSet<_>>());
    let sizes: BTreeSet<usize> = distinct[0]
        .iter()
        .flat_map(|height| {
            distinct[1]
                .iter()
                .map(move |width| height.saturating_mul(*width))
        })
        .collect();
    let values = channels.saturating_mul(sums[0]).saturating_mul(sums[1]);
    Some((values, sizes.into_iter().fold(0, usize::saturating_add)))
}
