//! Steps each party does on its own share: sums, pools and rearrangements with public constants.
//!
//! These functions are linear, so applying one to both shares gives shares of the result, modulo
//! 2^32, where all arithmetic wraps, or modulo a prime, where words are residues.

use pronghorn_graph::{
    fixed::{LocalOp, ValueSpec},
    geometry::Window,
};
use pronghorn_plan::{
    Weights,
    bands::{Band, order::windows},
    step::Compiled,
    steps::local::with_guards,
};
use pronghorn_ring::{Prime, SimdLevel};
use rayon::prelude::*;

use crate::{
    connection::Shelf,
    error::EngineError,
    machine::{Carry, Made, Prepared},
    pool::Pool,
    protocol::{At, Compile, Next, Side},
    share::{Batch, Share},
    simd,
};

impl Compile for LocalOp {
    fn client(&self, step: &Compiled<'_>) -> Result<Box<dyn Side>, EngineError> {
        Ok(Box::new(LocalSide::new(self, step)))
    }

    fn server(
        &self,
        step: &Compiled<'_>,
        _weights: &Weights,
        _shelf: &Shelf,
    ) -> Result<Box<dyn Side>, EngineError> {
        Ok(Box::new(LocalSide::new(self, step)))
    }
}

/// A local step, the same for both parties.
struct LocalSide {
    op: LocalOp,
    inputs: Vec<ValueSpec>,
    value: ValueSpec,
    arithmetic: Arithmetic,
}

impl LocalSide {
    fn new(op: &LocalOp, step: &Compiled<'_>) -> Self {
        let place = &step.place;
        let forms: Vec<_> = place.input_forms().copied().collect();
        let prime = place.form().prime.map(Prime::new);
        Self {
            op: with_guards(op, &forms, place.form().guard),
            inputs: place.inputs().cloned().collect(),
            value: place.value().clone(),
            arithmetic: match prime {
                Some(Ok(prime)) => Arithmetic::Modulo(prime),
                // No checked plan has another number there.
                Some(Err(_)) | None => Arithmetic::Wrapping,
            },
        }
    }

    /// The step for some rows, with its windows over their part of the input.
    fn of_band(&self, band: &Band, windows: Vec<Window>) -> Self {
        let of_rows = |value: &ValueSpec, rows: usize| {
            let mut value = value.clone();
            value.shape[1] = rows;
            value
        };
        let op = match (&self.op, windows.into_iter().next()) {
            (LocalOp::SumPool { multipliers, .. }, Some(window)) => LocalOp::SumPool {
                window,
                multipliers: multipliers.clone(),
            },
            (op, _) => op.clone(),
        };
        let inputs = self.inputs.iter().zip(&band.reads);
        Self {
            op,
            inputs: inputs
                .map(|(value, rows)| of_rows(value, rows.len()))
                .collect(),
            value: of_rows(&self.value, band.rows.len()),
            arithmetic: self.arithmetic,
        }
    }

    /// The part of a sum over all rows that is there with a band's: the value with the last of them.
    fn fold(
        &self,
        band: &Band,
        inputs: Vec<Share>,
        before: Option<Carry>,
        batch: usize,
        pool: &Pool<i32>,
    ) -> Made {
        let (mut rows, mut multiplier) = (self.of_band(band, Vec::new()), 1);
        rows.value = self.value.clone();
        if let LocalOp::SumPool {
            window,
            multipliers,
        } = &mut rows.op
        {
            window.kernel[0] = band.window.len();
            multiplier = std::mem::replace(multipliers, vec![1])[0];
        }
        let Share::Words(mut sums) = rows.on(inputs, batch, pool) else {
            return Made::share(Share::Zero);
        };
        let before = before.and_then(|before| before.downcast::<Batch>().ok());
        let is_last = !band.rows.is_empty();
        let rows = sums.words_mut().par_chunks_mut(batch).enumerate();
        rows.for_each(|(element, row)| {
            if let Some(before) = &before {
                self.arithmetic.add_shifted(row, before.row(element), 0);
            }
            if is_last {
                self.arithmetic.scale(row, multiplier);
            }
        });
        match is_last {
            true => Made::share(Share::Words(sums)),
            false => Made::share(Share::Zero).carrying(sums),
        }
    }

    /// On one party's shares. Zeros stay zeros.
    fn on(&self, shares: Vec<Share>, batch: usize, pool: &Pool<i32>) -> Share {
        if shares.iter().all(|share| matches!(share, Share::Zero)) {
            return Share::Zero;
        }
        let words = shares
            .into_iter()
            .zip(&self.inputs)
            .map(|(share, value)| match share {
                Share::Words(words) => words,
                Share::Zero => Batch::zeros(value.len(), batch),
            });
        let words: Vec<Batch> = words.collect();
        let specs: Vec<&ValueSpec> = self.inputs.iter().collect();
        Share::Words(apply(
            &self.op,
            &specs,
            &words,
            &self.value,
            self.arithmetic,
            pool,
        ))
    }
}

impl Side for LocalSide {
    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        _prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        let value = self.on(inputs, at.batch, &Pool::default());
        Ok(Next::Made(Made::share(value)))
    }

    fn band(
        &self,
        at: &At<'_>,
        band: &Band,
        inputs: Vec<Share>,
        carry: Option<Carry>,
    ) -> Result<Next, EngineError> {
        let (step, pool) = (at.plan.steps[band.step].kind.as_step(), at.shelf.at(0));
        if step.folds(&at.plan.place(band.step)) {
            return Ok(Next::Made(self.fold(band, inputs, carry, at.batch, &pool)));
        }
        let Some(windows) = windows(at.plan, band) else {
            return self.online(at, inputs, None);
        };
        let side = self.of_band(band, windows);
        let value = side.on(inputs, at.batch, &pool);
        Ok(Next::Made(Made::share(value)))
    }

    fn offline(&self, at: &At<'_>, inputs: Vec<Share>) -> Result<Next, EngineError> {
        let value = self.on(inputs, at.batch, &Pool::default());
        Ok(Next::Made(Made::share(value)))
    }
}

/// The input's protocol: a run begins with its shares.
pub(crate) struct Input;

impl Compile for Input {
    fn client(&self, step: &Compiled<'_>) -> Result<Box<dyn Side>, EngineError> {
        Ok(Box::new(InputSide(step.place.name())))
    }

    fn server(
        &self,
        step: &Compiled<'_>,
        _weights: &Weights,
        _shelf: &Shelf,
    ) -> Result<Box<dyn Side>, EngineError> {
        self.client(step)
    }
}

struct InputSide(String);

impl Side for InputSide {
    fn online(
        &self,
        _at: &At<'_>,
        _inputs: Vec<Share>,
        _prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        Err(EngineError::Unsupported {
            step: self.0.clone(),
            reason: "a plan has one input, its first step",
        })
    }
}

/// How words of shares are added up.
#[derive(Clone, Copy)]
pub(crate) enum Arithmetic {
    /// Modulo 2^32.
    Wrapping,
    /// Modulo a prime of at most 31 bits.
    Modulo(Prime<u64>),
}

impl Arithmetic {
    /// `sum += words << left_shift`.
    fn add_shifted(self, sum: &mut [i32], words: &[i32], left_shift: u32) {
        match self {
            Self::Wrapping => simd::add_shifted(SimdLevel::detect(), sum, words, left_shift),
            Self::Modulo(t) => {
                for (sum, &word) in sum.iter_mut().zip(words) {
                    *sum = residue(&t, i64::from(*sum) + (i64::from(word) << left_shift));
                }
            }
        }
    }

    /// `words *= factor`.
    fn scale(self, words: &mut [i32], factor: i32) {
        match self {
            Self::Wrapping => simd::scale(SimdLevel::detect(), words, factor),
            Self::Modulo(t) => {
                for word in words {
                    *word = residue(&t, i64::from(*word) * i64::from(factor));
                }
            }
        }
    }
}

fn residue(t: &Prime<u64>, value: i64) -> i32 {
    t.from_i64(value) as i32
}

/// Applies `op` to the inputs, whose values are described by `specs`; `output` describes the
/// result.
pub(crate) fn apply(
    op: &LocalOp,
    specs: &[&ValueSpec],
    inputs: &[Batch],
    output: &ValueSpec,
    words: Arithmetic,
    pool: &Pool<i32>,
) -> Batch {
    match op {
        LocalOp::Add { left_shift } => add(left_shift, inputs, words, pool),
        LocalOp::SumPool {
            window,
            multipliers,
        } => sum_pool(
            window,
            multipliers,
            &specs[0].shape,
            &inputs[0],
            words,
            pool,
        ),
        LocalOp::Concat { left_shift, .. } => {
            rearrange(op, left_shift, specs, inputs, output, words, pool)
        }
        LocalOp::Reshape => inputs[0].clone(),
        LocalOp::Pad { .. } | LocalOp::Transpose { .. } | LocalOp::Take { .. } => {
            rearrange(op, &[0], specs, inputs, output, words, pool)
        }
    }
}

/// Rows of a new value, each filled by its index, in parallel; rows start as zeros.
fn rows(
    pool: &Pool<i32>,
    elements: usize,
    images: usize,
    fill: impl Fn(usize, &mut [i32]) + Sync,
) -> Batch {
    let mut batch = Batch::of_pool(pool, elements, images);
    let rows = batch.words_mut().par_chunks_mut(images).enumerate();
    rows.for_each(|(element, row)| {
        row.fill(0);
        fill(element, row);
    });
    batch
}

fn add(left_shift: &[u32; 2], inputs: &[Batch], words: Arithmetic, pool: &Pool<i32>) -> Batch {
    let (elements, images) = (inputs[0].elements(), inputs[0].images());
    rows(pool, elements, images, |element, row| {
        for (input, &shift) in inputs.iter().zip(left_shift) {
            words.add_shifted(row, input.row(element), shift);
        }
    })
}

fn rearrange(
    op: &LocalOp,
    left_shift: &[u32],
    specs: &[&ValueSpec],
    inputs: &[Batch],
    output: &ValueSpec,
    words: Arithmetic,
    pool: &Pool<i32>,
) -> Batch {
    let shapes: Vec<&[usize]> = specs.iter().map(|spec| spec.shape.as_slice()).collect();
    let sources = op.sources(&shapes).unwrap_or_default();
    rows(pool, output.len(), inputs[0].images(), |element, row| {
        if let Some(source) = sources[element] {
            let input = inputs[source.input].row(source.index);
            words.add_shifted(row, input, left_shift[source.input]);
        }
    })
}

fn sum_pool(
    window: &Window,
    multipliers: &[i32],
    shape: &[usize],
    input: &Batch,
    words: Arithmetic,
    pool: &Pool<i32>,
) -> Batch {
    let (pooling, [height, width]) = Pooling::new(window, shape);
    let positions = height * width;
    let elements = pooling.channels * positions;
    rows(pool, elements, input.images(), |element, row| {
        for source in pooling.sources(element) {
            words.add_shifted(row, input.row(source), 0);
        }
        let multiplier = multipliers[if multipliers.len() == 1 {
            0
        } else {
            element % positions
        }];
        words.scale(row, multiplier);
    })
}

/// Maximum over each window; not linear, so for values in the clear only. Also the shape of the
/// result.
pub(crate) fn max_pool(
    window: &Window,
    shape: &[usize],
    input: &Batch,
    pool: &Pool<i32>,
) -> (Batch, Vec<usize>) {
    let (pooling, [height, width]) = Pooling::new(window, shape);
    let shape = vec![pooling.channels, height, width];
    let elements = shape.iter().product();
    let pooled = rows(pool, elements, input.images(), |element, row| {
        row.fill(i32::MIN);
        for source in pooling.sources(element) {
            simd::maximum(SimdLevel::detect(), row, input.row(source));
        }
    });
    (pooled, shape)
}

/// A pooling over an image, for plans that are validated.
struct Pooling<'a> {
    window: &'a Window,
    channels: usize,
    input: [usize; 2],
    output: [usize; 2],
}

impl<'a> Pooling<'a> {
    fn new(window: &'a Window, shape: &[usize]) -> (Self, [usize; 2]) {
        let input = [shape[1], shape[2]];
        let output = window.pool_output(input).expect("plans are validated");
        (
            Self {
                window,
                channels: shape[0],
                input,
                output,
            },
            output,
        )
    }

    /// The input elements in the window of an output element.
    fn sources(&self, element: usize) -> impl Iterator<Item = usize> {
        self.window.pooled(self.input, self.output, element)
    }
}
