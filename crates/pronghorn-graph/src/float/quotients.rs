//! Which values of a reciprocal or an inverse root count in the products that it is for.
//!
//! Where numerators and divisors are near zero together, reciprocals are far larger than all others,
//! and their products are next to nothing: rows of zeros that are normalised, or attention whose
//! divisor is a sum of ReLUs. A range up to these leaves no digits to the others.

use std::collections::BTreeMap;

use super::ValueProfile;
use crate::{
    graph::{Graph, Op},
    rearrange,
};

/// The part of a product's squares that may be of larger reciprocals than its range has.
const MOST_CLIPPED: f64 = 1e-5;

/// Only values that are so many times as large as those that count are clamped: others have digits
/// beside them.
const FAR: f64 = 64.0;

/// Inputs may have reciprocals that count and are so many times as large as those of samples.
const ROOM: f64 = 2.0;

/// Exponents of `f32`.
const OCTAVES: usize = 256;

/// Sums over values by the octave of a reciprocal.
type Sums = [f64; OCTAVES];

/// Of one node whose values are factors of products alone.
#[derive(Clone)]
struct Division {
    counts: Sums,
    squares: Sums,
    /// The squares of the products, by node.
    products: BTreeMap<usize, Sums>,
}

/// Of all such nodes.
#[derive(Clone, Default)]
pub(super) struct Quotients(BTreeMap<usize, Division>);

impl Quotients {
    pub fn new(graph: &Graph) -> Self {
        let divides = |index: &usize| {
            let op = &graph.nodes[*index].op;
            matches!(op, Op::Function { function } if function.divides())
        };
        let of_node = |index: usize| {
            let mut products = BTreeMap::new();
            for (reader, node) in graph.readers(index) {
                let is_factor = node.op == Op::Multiply && node.inputs[0] != node.inputs[1];
                is_factor.then(|| products.insert(reader, [0.0; OCTAVES]))?;
            }
            let division = Division {
                counts: [0.0; OCTAVES],
                squares: [0.0; OCTAVES],
                products,
            };
            (index != graph.output).then_some((index, division))
        };
        let nodes = (0..graph.nodes.len()).filter(divides);
        Self(nodes.filter_map(of_node).collect())
    }

    pub fn merge(&mut self, other: &Self) {
        let add = |sums: &mut Sums, other: &Sums| {
            let pairs = sums.iter_mut().zip(other);
            pairs.for_each(|(sum, other)| *sum += other);
        };
        for (index, other) in &other.0 {
            let Some(own) = self.0.get_mut(index) else {
                self.0.insert(*index, other.clone());
                continue;
            };
            add(&mut own.counts, &other.counts);
            add(&mut own.squares, &other.squares);
            for (product, other) in &other.products {
                own.products
                    .entry(*product)
                    .and_modify(|sums| add(sums, other));
            }
        }
    }

    /// Bounds the values of each node by those that count, where others are far larger.
    pub fn bound(&self, values: &mut [ValueProfile]) {
        for (&index, division) in &self.0 {
            if let Some(octave) = division.last_octave() {
                let end = end_of(octave);
                if f64::from(values[index].max) > FAR * end {
                    values[index].max = (ROOM * end) as f32;
                    values[index].mean_square = division.mean_square(octave);
                }
            }
        }
    }
}

impl Division {
    /// The last octave that counts in a product.
    fn last_octave(&self) -> Option<usize> {
        let of_product = |sums: &Sums| {
            let most = MOST_CLIPPED * sums.iter().sum::<f64>();
            let mut above = 0.0;
            (0..OCTAVES).rev().find(|&octave| {
                above += sums[octave];
                above > most
            })
        };
        self.products.values().filter_map(of_product).max()
    }

    /// The mean square of values that are clamped to the end of an octave.
    fn mean_square(&self, last: usize) -> f64 {
        let within: f64 = self.squares[..=last].iter().sum();
        let beyond: f64 = self.counts[last + 1..].iter().sum();
        (within + beyond * end_of(last).powi(2)) / self.counts.iter().sum::<f64>()
    }
}

/// Where an octave ends.
fn end_of(octave: usize) -> f64 {
    f64::from(octave as i32 - 126).exp2()
}

fn octave_of(value: f32) -> usize {
    (value.abs().to_bits() >> 23) as usize
}

/// The reciprocals of one image.
pub(super) struct Image<'a> {
    graph: &'a Graph,
    quotients: &'a mut Quotients,
    kept: BTreeMap<usize, Vec<f32>>,
}

impl<'a> Image<'a> {
    pub fn new(graph: &'a Graph, quotients: &'a mut Quotients) -> Self {
        let kept = BTreeMap::new();
        Self {
            graph,
            quotients,
            kept,
        }
    }

    /// Takes the value of the next node.
    pub fn add(&mut self, index: usize, value: &[f32]) {
        let node = &self.graph.nodes[index];
        if let Some(division) = self.quotients.0.get_mut(&index) {
            for &x in value {
                division.counts[octave_of(x)] += 1.0;
                division.squares[octave_of(x)] += f64::from(x).powi(2);
            }
            self.kept.insert(index, value.to_vec());
        }
        for (input, by) in &self.kept {
            let Some(division) = self.quotients.0.get_mut(input) else {
                continue;
            };
            if let Some(sums) = division.products.get_mut(&index) {
                let shape = &self.graph.nodes[*input].shape;
                let by = rearrange::broadcast(shape, &node.shape, by);
                for (&by, &product) in by.iter().zip(value) {
                    sums[octave_of(by)] += f64::from(product).powi(2);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn division(products: &[(usize, f64)]) -> Division {
        let mut sums = [0.0; OCTAVES];
        products
            .iter()
            .for_each(|&(octave, sum)| sums[octave] = sum);
        let (mut counts, mut squares) = ([0.0; OCTAVES], [0.0; OCTAVES]);
        for &(octave, _) in products {
            (counts[octave], squares[octave]) = (2.0, 2.0 * end_of(octave - 1).powi(2));
        }
        Division {
            counts,
            squares,
            products: BTreeMap::from([(7, sums)]),
        }
    }

    #[test]
    fn octaves_end_where_products_are_nothing() {
        assert_eq!([1.0, 1.5, 2.0, 0.25].map(octave_of), [127, 127, 128, 125]);
        assert_eq!([127, 128].map(end_of), [2.0, 4.0]);
        let found = division(&[(127, 1.0), (128, 0.5), (140, 1e-6)]);
        assert_eq!(found.last_octave(), Some(128));
        // Values of 1, of 2, and of more than 4.
        assert_eq!(found.mean_square(128), (1.0 + 4.0 + 16.0) / 3.0);
        let all = division(&[(127, 1.0), (140, 1e-4)]);
        assert_eq!(all.last_octave(), Some(140));
        assert_eq!(division(&[(127, 0.0)]).last_octave(), None);
    }
}
