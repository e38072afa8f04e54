//! Linear layers: the server's weights meet the client's values or both parties' shares.

pub mod clear;
pub mod clear_coefficient;
pub mod coefficient;
pub mod hiding;
pub(crate) mod layout;
pub mod shared;
pub(crate) mod slot_keys;
pub mod slots;

use pronghorn_graph::{
    fixed::{Interval, ValueSpec},
    geometry::ConvGeometry,
    shape::{self, OperatorError},
};

use crate::{
    cost::{Memory, SEED_BYTES, Seconds, StepCost, rate},
    rlwe::Rlwe,
};

/// Checks that a layer's input and value have the elements of its geometry. The declared range.
pub(crate) fn range(
    geometry: &ConvGeometry,
    inputs: &[&ValueSpec],
    value: &ValueSpec,
) -> Result<Interval, OperatorError> {
    let [height, width] = geometry.output()?;
    let [in_height, in_width] = geometry.input;
    let sizes = [
        (
            "elements of the input",
            shape::one(inputs)?,
            geometry.in_channels * in_height * in_width,
        ),
        (
            "elements of the result",
            value,
            geometry.out_channels * height * width,
        ),
    ];
    for (field, value, expected) in sizes {
        let found = shape::elements(&value.shape)?;
        if found != expected {
            return Err(OperatorError::Parameter {
                field,
                found: found.to_string(),
                expected: format!("{expected}, by the layer's geometry"),
            });
        }
    }
    Ok(Interval::of(value))
}

/// The layer's name for people.
pub(crate) fn describe(engine: &str, geometry: &ConvGeometry) -> String {
    let (from, to) = (geometry.in_channels, geometry.out_channels);
    let [height, width] = geometry.window.kernel;
    let name = match is_dense(geometry) {
        true => format!("dense {from} to {to}"),
        false => format!("conv {height}x{width}, {from} to {to}"),
    };
    let groups = match geometry.groups {
        0 | 1 => String::new(),
        groups => format!(", {groups} groups"),
    };
    format!("{engine}, {name}{groups}")
}

/// A layer in a word.
pub(crate) fn kind(geometry: &ConvGeometry) -> &'static str {
    match is_dense(geometry) {
        true => "dense",
        false => "conv",
    }
}

fn is_dense(geometry: &ConvGeometry) -> bool {
    geometry.input == [1, 1]
}

/// Rows of a layer in the batch engine.
pub(crate) struct Rows {
    /// Elements of the input, where positions are columns those of one.
    pub inputs: usize,
    /// Elements of the value, likewise.
    pub outputs: usize,
    /// Answers of each.
    pub parts: usize,
    /// Columns of an image.
    pub positions: usize,
}

impl Rows {
    pub(crate) fn answers(&self) -> u64 {
        (self.outputs * self.parts) as u64
    }

    /// The columns of a batch.
    pub(crate) fn columns(&self, batch: usize) -> usize {
        batch.saturating_mul(self.positions)
    }

    /// A layer in the batch engine, for a batch.
    fn cost(&self, rlwe: &Rlwe, geometry: &ConvGeometry, batch: usize) -> StepCost {
        let (inputs, answers) = (self.inputs as u64, self.answers());
        let columns = self.columns(batch);
        let multiply_adds = geometry
            .multiply_adds()
            .saturating_mul(((rlwe.degree + columns) * self.parts) as u64);
        let rates = rlwe.word.rates();
        let row = columns as f64 * rates.value + rlwe.degree as f64 * rate::PUBLIC;
        let [bytes_up, bytes_down] = self.bytes(rlwe, [(columns, 1)]);
        StepCost {
            bytes_up,
            bytes_down,
            multiply_adds,
            rounds: 1,
            seconds: Seconds::products(multiply_adds as f64 / rates.product)
                + Seconds::encryption((inputs + answers) as f64 * row),
            ..StepCost::default()
        }
    }

    /// Bytes up and down of a layer whose rows come in bands: so many columns, so often.
    pub(crate) fn bytes<const K: usize>(
        &self,
        rlwe: &Rlwe,
        bands: [(usize, usize); K],
    ) -> [u64; 2] {
        let sum = |row: &dyn Fn(usize) -> usize| -> u64 {
            let bytes = bands.iter().map(|&(columns, count)| row(columns) * count);
            bytes.sum::<usize>() as u64
        };
        let up = sum(&|columns| rlwe.request_row_bytes(columns));
        let down = sum(&|columns| rlwe.answer_bytes_b(columns));
        [
            SEED_BYTES as u64 + self.inputs as u64 * up,
            self.answers() * (rlwe.answer_bytes_a() as u64 + down),
        ]
    }

    /// The server's words: first the rows of `a` and of `a'`, then `a'` with the rows of `b`, `b'`.
    fn memory(&self, rlwe: &Rlwe, batch: usize) -> Memory {
        let (inputs, answers) = (self.inputs as u64, self.answers());
        let (degree, columns) = (rlwe.degree as u64, self.columns(batch) as u64);
        let first = (inputs + answers) * degree;
        let then = answers * degree + (inputs + answers) * columns;
        Memory {
            server: first.max(then) * rlwe.word.rates().bytes,
            client: 0,
        }
    }
}
