//! Circuits on plain integers: what every garbling of them must equal.

use super::builder::Wire;
use super::{Bit, Circuit, Known, Output, Sum, Term};

impl Circuit {
    /// The outputs for these input words, in the order of declaration: one instance, no secrecy.
    /// Sums are reduced, other words are their bits. Bits of inputs above their width are ignored.
    ///
    /// # Panics
    /// Unless there is a value for every input word; `labelled` has the evaluator's and the late
    /// ones.
    pub fn evaluate_plain(&self, garbler: &[u64], labelled: &[u64]) -> Vec<u64> {
        assert_eq!(garbler.len(), self.inputs.garbler.len(), "garbler's words");
        assert_eq!(labelled.len(), self.inputs.labelled.len(), "labelled words");
        let inputs: Vec<bool> = (self.inputs.labelled.iter().zip(labelled))
            .flat_map(|(&(width, _), &word)| (0..width).map(move |i| word >> i & 1 == 1))
            .collect();
        let mut knowns = Vec::with_capacity(self.knowns.len());
        for known in &self.knowns {
            knowns.push(match *known {
                Known::Constant(bit) => bit,
                Known::Input(word, bit) => garbler[word as usize] >> bit & 1 == 1,
                Known::Xor(a, b) => knowns[a as usize] ^ knowns[b as usize],
                Known::And(a, b) => knowns[a as usize] & knowns[b as usize],
            });
        }
        let mut values = Values {
            wires: Vec::with_capacity(self.wires.len()),
            knowns,
        };
        for wire in &self.wires {
            let value = match *wire {
                Wire::Zero => false,
                Wire::Input(index) => inputs[index as usize],
                Wire::Xor(a, b) => values.wires[a as usize] ^ values.wires[b as usize],
                Wire::And(a, b) => values.bit(a) & values.bit(b),
                Wire::Half(a, known) => values.bit(a) & values.knowns[known as usize],
            };
            values.wires.push(value);
        }
        self.outputs
            .iter()
            .map(|each| values.output(each))
            .collect()
    }
}

struct Values {
    wires: Vec<bool>,
    knowns: Vec<bool>,
}

impl Values {
    fn bit(&self, bit: Bit) -> bool {
        self.wires[bit.wire as usize] ^ self.knowns[bit.known as usize]
    }

    fn output(&self, output: &Output) -> u64 {
        match output {
            Output::Revealed(word) | Output::Shared(word) => {
                let bits = word.iter().enumerate();
                bits.map(|(i, &bit)| u64::from(self.bit(bit)) << i).sum()
            }
            Output::Sum(sum) => self.sum(sum),
        }
    }

    fn sum(&self, sum: &Sum) -> u64 {
        let modulus = sum.modulus;
        let terms = |terms: &[Term]| {
            let present = terms.iter().filter(|term| self.bit(term.bit));
            present.fold(0, |total, term| modulus.add(total, term.weight))
        };
        let products = sum.products.iter();
        products
            .filter(|product| self.bit(product.select))
            .fold(terms(&sum.terms), |total, product| {
                modulus.add(total, terms(&product.terms))
            })
    }
}
