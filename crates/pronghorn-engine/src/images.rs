//! The images of a client, as integers.
//!
//! They stand element by element, as batches do, in as few bytes as their range needs. Steps take
//! words of them as they need them: a batch that goes by bands reads a few rows of all images at a
//! time, and words of whole images are as large as the numbers themselves.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use pronghorn_plan::{CheckedPlan, bands::rows_of};
use pronghorn_ring::Prime;
use rayon::prelude::*;
use zeroize::Zeroizing;

use crate::{error::EngineError, pool::Pool, share::Batch};

/// Images and elements of a tile: a line of the cache in bytes.
const TILE: usize = 64;

/// Images that a plan takes. Secret: no Debug.
pub struct Images {
    plan: CheckedPlan,
    chunks: Vec<Arc<Chunk>>,
    /// For each image, values that came to the border of the range.
    clamped: Vec<u32>,
    deviates: Vec<bool>,
}

/// Images that were made together.
struct Chunk {
    count: usize,
    integers: Integers,
}

/// Distances to the lowest integer, `[element][image]`; wiped on drop.
enum Integers {
    Bytes(Zeroizing<Vec<u8>>),
    Halves(Zeroizing<Vec<u16>>),
    Words(Zeroizing<Vec<u32>>),
}

impl Images {
    /// Quantises `count` images, one after the other in `values`.
    ///
    /// # Errors
    /// The values are not `count` images, or one is infinite or NaN: the first of them.
    pub fn new(plan: &CheckedPlan, values: &[f32], count: usize) -> Result<Self, EngineError> {
        let elements = plan.input_len();
        if count.checked_mul(elements) != Some(values.len()) {
            return Err(EngineError::Inputs {
                found: values.len(),
                images: count,
                elements,
            });
        }
        let images = values.par_chunks(elements.max(1));
        let deviates = images.map(|image| {
            let checked = plan.check_finite(image);
            checked.is_ok().then(|| plan.deviates(image))
        });
        // A byte for each. Rows of tables are short.
        let deviates: Vec<Option<bool>> = deviates.collect();
        if let Some(first) = deviates.iter().position(Option::is_none) {
            let checked = plan.check_finite(&values[first * elements..][..elements]);
            checked.map_err(|error| error.behind(first, elements))?;
        }
        let clamped: Vec<_> = (0..count).map(|_| AtomicU32::new(0)).collect();
        let integers = match plan.input().distance_bytes() {
            1 => Integers::Bytes(quantised(plan, values, &clamped, |word| word as u8)),
            2 => Integers::Halves(quantised(plan, values, &clamped, |word| word as u16)),
            _ => Integers::Words(quantised(plan, values, &clamped, |word| word)),
        };
        Ok(Self {
            plan: plan.clone(),
            chunks: vec![Arc::new(Chunk { count, integers })],
            clamped: clamped.into_iter().map(AtomicU32::into_inner).collect(),
            deviates: deviates
                .into_iter()
                .map(Option::unwrap_or_default)
                .collect(),
        })
    }

    /// The images of all, one after the other; none where two are of different plans, or there are
    /// none. Shares their memory.
    pub fn joined(all: &[&Self]) -> Option<Self> {
        let (first, hash) = (all.first()?, all.first()?.plan.hash());
        let are_alike = all.iter().all(|images| images.plan.hash() == hash);
        are_alike.then(|| Self {
            plan: first.plan.clone(),
            chunks: all
                .iter()
                .flat_map(|images| images.chunks.clone())
                .collect(),
            clamped: all
                .iter()
                .flat_map(|images| images.clamped.clone())
                .collect(),
            deviates: all
                .iter()
                .flat_map(|images| images.deviates.clone())
                .collect(),
        })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.clamped.len()
    }

    /// The plan that they are for.
    pub fn plan(&self) -> &CheckedPlan {
        &self.plan
    }

    /// For some of them, whether a value of its result is beyond those of the owner's samples, or
    /// its own deviation is; none where the plan does not say. `integers`: their results.
    pub fn beyond_samples(&self, images: Range<usize>, integers: &[i32]) -> Option<Vec<bool>> {
        self.plan.beyond_samples(&self.deviates[images], integers)
    }
}

/// The distances of the integers of images to the lowest one, as `narrow` makes them. Adds to
/// `clamped` how many values of each image came to the border of the range.
fn quantised<T: Copy + Default + Send>(
    plan: &CheckedPlan,
    values: &[f32],
    clamped: &[AtomicU32],
    narrow: impl Fn(u32) -> T + Sync,
) -> Zeroizing<Vec<T>>
where
    Vec<T>: zeroize::Zeroize,
{
    let (elements, count) = (plan.input_len(), clamped.len());
    let low = plan.input().low;
    let mut integers = Zeroizing::new(vec![T::default(); values.len()]);
    // Rows of tables have few elements, of which each thread gets some.
    let together = elements.div_ceil(rayon::current_num_threads());
    let together = together.clamp(1, TILE);
    let tiles = integers
        .par_chunks_mut((together * count).max(1))
        .enumerate();
    tiles.for_each(|(index, integers)| {
        let (first, rows) = (index * together, integers.len() / count);
        let mut tile = Zeroizing::new([[0; TILE]; TILE]);
        for start in (0..count).step_by(TILE) {
            let images = start..count.min(start + TILE);
            for (image, words) in images.clone().zip(tile.iter_mut()) {
                let values = &values[image * elements + first..][..rows];
                let moved = plan.quantise_into(first, values, &mut words[..rows]);
                clamped[image].fetch_add(moved as u32, Ordering::Relaxed);
            }
            for (element, row) in integers.chunks_exact_mut(count).enumerate() {
                let places = row[images.clone()].iter_mut().zip(tile.iter());
                places.for_each(|(place, words)| {
                    *place = narrow(words[element].wrapping_sub(low) as u32);
                });
            }
        }
    });
    integers
}

/// The images of one batch.
pub(crate) struct Part {
    images: Arc<Images>,
    range: Range<usize>,
    /// What integers are reduced by.
    prime: Option<Prime<u64>>,
}

impl Part {
    /// Some images.
    ///
    /// # Errors
    /// The plan's words are residues of what is no prime, which no checked plan has.
    ///
    /// # Panics
    /// There are not so many images.
    pub fn new(images: Arc<Images>, range: Range<usize>) -> Result<Self, EngineError> {
        let count = images.count();
        assert!(range.end <= count, "{range:?} of {count}");
        let plan = &images.plan;
        let prime = plan.forms()[0].prime.map(Prime::new).transpose();
        let prime = prime.map_err(|source| EngineError::Parameters {
            step: plan.step_name(0),
            source: source.into(),
        })?;
        Ok(Self {
            images,
            range,
            prime,
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Values outside the planned range, which came to its border.
    pub fn clamped(&self) -> usize {
        let clamped = &self.images.clamped[self.range.clone()];
        clamped.iter().map(|&count| count as usize).sum()
    }

    /// Whole images.
    pub fn whole(&self) -> Batch {
        let input = self.images.plan.input();
        let batch = Batch::zeros(input.len(), self.range.len());
        self.fill(&(0..rows_of(&input.shape)), batch)
    }

    /// Some rows of them.
    pub fn rows(&self, rows: &Range<usize>, pool: &Pool<i32>) -> Batch {
        let (channels, row) = self.layout();
        let elements = channels * row * rows.len();
        self.fill(rows, Batch::of_pool(pool, elements, self.range.len()))
    }

    /// Channels, and the elements of a row of one.
    fn layout(&self) -> (usize, usize) {
        let input = self.images.plan.input();
        match input.shape[..] {
            [channels, _, width] => (channels, width),
            _ => (1, input.len()),
        }
    }

    fn fill(&self, rows: &Range<usize>, mut batch: Batch) -> Batch {
        let (channels, row) = self.layout();
        let plane = self.images.plan.input_len() / channels.max(1);
        let (part, count) = (row * rows.len(), self.range.len());
        let words = batch.words_mut().par_chunks_mut(count.max(1)).enumerate();
        words.for_each(|(index, words)| {
            let (channel, place) = (index / part, index % part);
            self.widen(channel * plane + rows.start * row + place, words);
        });
        batch
    }

    /// The words of an element.
    fn widen(&self, element: usize, words: &mut [i32]) {
        let (low, mut first) = (self.images.plan.input().low, 0);
        for chunk in &self.images.chunks {
            let all = first..first + chunk.count;
            let both = all.start.max(self.range.start)..all.end.min(self.range.end);
            first = all.end;
            if both.is_empty() {
                continue;
            }
            let words = &mut words[both.start - self.range.start..][..both.len()];
            let at = element * chunk.count + both.start - all.start;
            match &chunk.integers {
                Integers::Bytes(bytes) => widen(low, &bytes[at..], words),
                Integers::Halves(halves) => widen(low, &halves[at..], words),
                Integers::Words(distances) => widen(low, &distances[at..], words),
            }
        }
        if let Some(prime) = &self.prime {
            let reduced = |word: i32| prime.from_i64(word.into()) as i32;
            words.iter_mut().for_each(|word| *word = reduced(*word));
        }
    }
}

/// Words of their distances to the lowest one.
fn widen<T: Copy + Into<u32>>(low: i32, distances: &[T], words: &mut [i32]) {
    for (word, &distance) in words.iter_mut().zip(distances) {
        *word = low.wrapping_add_unsigned(distance.into());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pronghorn_graph::{
        graph::{Graph, Tensor},
        oracle::OracleError,
    };
    use pronghorn_plan::{BuildOptions, Built, TrustLevel, build};

    use super::*;

    const CHANNELS: usize = 2;
    const HEIGHT: usize = 5;
    const WIDTH: usize = 9;
    const ALL: usize = CHANNELS * HEIGHT * WIDTH;

    fn built(input_bits: u32) -> Built {
        let json = r#"{"name":"rows","output":2,"nodes":[
            {"name":"x","op":{"kind":"input"},"inputs":[],"shape":[2,5,9]},
            {"name":"f","op":{"kind":"reshape"},"inputs":[0],"shape":[90]},
            {"name":"a","op":{"kind":"dense","weight":"a","bias":null},"inputs":[1],"shape":[3]}]}"#;
        let weights = Tensor::new([3, ALL], values(3));
        let graph = Graph::from_json(json, BTreeMap::from([("a".to_owned(), weights)]));
        let options = BuildOptions {
            trust: Some(TrustLevel::ClientAided),
            samples: Some(values(40)),
            input_bits: Some(input_bits),
            ..BuildOptions::default()
        };
        build(&graph.expect("the network is valid"), &options).expect("it has a plan")
    }

    /// Numbers in (-1, 1), for some images.
    fn values(images: usize) -> Vec<f32> {
        (0..ALL * images)
            .map(|i| ((i * 7919 % 1009) as f32 - 504.0) / 505.0)
            .collect()
    }

    /// Tiles that images or elements do not fill, and several; integers of one, two and four bytes.
    #[test]
    fn rows_are_those_of_all_images() {
        for (bits, images) in [(8, 1), (8, 63), (10, 64), (10, 65), (18, 5), (18, 130)] {
            let (built, pool) = (built(bits), Pool::default());
            let values = values(images);
            let (integers, _) = built.plan.quantise(&values).expect("numbers");
            let quantised = Arc::new(Images::new(&built.plan, &values, images).expect("images"));
            let part = Part::new(quantised.clone(), 0..images).expect("a part");
            let whole = part.whole();
            for element in 0..ALL {
                let of_images = integers.iter().skip(element).step_by(ALL);
                assert!(whole.row(element).iter().eq(of_images), "{element}");
            }
            let some = images / 3..images - images / 4;
            let parts = [0..some.start, some.start..some.start, some.start..images];
            let of_part = |part: std::ops::Range<usize>| {
                let values = &values[part.start * ALL..part.end * ALL];
                Images::new(&built.plan, values, part.len()).expect("images")
            };
            let parts = parts.map(of_part);
            let joined = Images::joined(&parts.each_ref()).expect("one plan");
            assert_eq!(joined.count(), images);
            for all in [quantised.clone(), Arc::new(joined)] {
                let those = Part::new(all, some.clone()).expect("a part");
                let those = those.whole();
                for element in 0..ALL {
                    assert!(those.row(element) == &whole.row(element)[some.clone()]);
                }
            }
            for rows in [0..1, 1..5, 4..5, 0..5] {
                let part = part.rows(&rows, &pool);
                let places = (0..CHANNELS).flat_map(|c| rows.clone().map(move |y| c * HEIGHT + y));
                let elements = places.flat_map(|row| row * WIDTH..(row + 1) * WIDTH);
                assert_eq!(part.elements(), CHANNELS * rows.len() * WIDTH);
                for (index, element) in elements.enumerate() {
                    assert!(part.row(index) == whole.row(element), "{rows:?}, {index}");
                }
            }
        }
    }

    #[test]
    fn clamped_values_are_counted() {
        let (built, mut values) = (built(8), values(30));
        let clamped = |values: &[f32], range| {
            let images = Images::new(&built.plan, values, 30)?;
            Ok(Part::new(images.into(), range)?.clamped())
        };
        assert_eq!(clamped(&values, 0..30).expect("numbers"), 0);
        for place in [3, ALL * 17, ALL * 30 - 1] {
            values[place] = -1e9;
        }
        assert_eq!(clamped(&values, 0..30).expect("numbers"), 3);
        assert_eq!(clamped(&values, 1..18).expect("numbers"), 1);
        for place in [ALL * 29, ALL * 11 + 4, ALL * 20] {
            values[place] = f32::INFINITY;
        }
        let error = clamped(&values, 0..30).expect_err("three are infinite");
        let EngineError::Input(OracleError::NotFinite {
            position, image, ..
        }) = error
        else {
            panic!("{error}")
        };
        assert_eq!((position, image), (ALL * 11 + 4, 11));
    }
}
