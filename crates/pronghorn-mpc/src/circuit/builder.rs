//! Building circuits: gates with constant folding, each made once.

use std::collections::HashMap;

use super::{Circuit, Inputs, Output, Program, Sum};

/// A bit of a circuit in the making: `wire + known`. Either part may be the constant 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Bit {
    /// Index of the wire; 0 is the constant 0.
    pub(crate) wire: u32,
    /// Index of the known bit; 0 and 1 are the constants.
    pub(crate) known: u32,
}

impl Bit {
    /// The constant 0.
    pub const ZERO: Self = Self { wire: 0, known: 0 };
    /// The constant 1.
    pub const ONE: Self = Self { wire: 0, known: 1 };

    /// The constant.
    pub const fn constant(bit: bool) -> Self {
        Self {
            wire: 0,
            known: bit as u32,
        }
    }

    /// Its value, if it is a constant.
    pub const fn as_constant(self) -> Option<bool> {
        match self {
            Self { wire: 0, known: 0 } => Some(false),
            Self { wire: 0, known: 1 } => Some(true),
            _ => None,
        }
    }

    /// True if the garbler knows it when garbling.
    pub const fn is_known(self) -> bool {
        self.wire == 0
    }
}

/// A bit with labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wire {
    /// The constant 0, at index 0 alone.
    Zero,
    /// A bit of the labelled input.
    Input(u32),
    /// Of two wires.
    Xor(u32, u32),
    /// Of two bits with wires.
    And(Bit, Bit),
    /// Of a bit with a wire and a known bit.
    Half(Bit, u32),
}

/// A bit that the garbler knows when it garbles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Known {
    /// The constants, at indices 0 and 1.
    Constant(bool),
    /// Bit `.1` of the garbler's input word `.0`.
    Input(u32, u32),
    /// Of two known bits.
    Xor(u32, u32),
    /// Of two known bits.
    And(u32, u32),
}

/// Makes a [`Circuit`].
///
/// Gates fold constants and are made once each; what no output needs is dropped by
/// [`finish`](Self::finish), so taking the sum without the last carry costs nothing for the carry.
pub struct Builder {
    pub(super) inputs: Inputs,
    pub(super) wires: Vec<Wire>,
    pub(super) knowns: Vec<Known>,
    pub(super) outputs: Vec<Output>,
    wire_of: HashMap<Wire, u32>,
    known_of: HashMap<Known, u32>,
    labelled_bits: u32,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// An empty circuit.
    pub fn new() -> Self {
        Self {
            inputs: Inputs::default(),
            wires: vec![Wire::Zero],
            knowns: vec![Known::Constant(false), Known::Constant(true)],
            outputs: Vec::new(),
            wire_of: HashMap::new(),
            known_of: HashMap::new(),
            labelled_bits: 0,
        }
    }

    /// A word of the garbler's, which it knows when it garbles. Costs nothing.
    ///
    /// # Panics
    /// Unless `1 <= width <= 64`.
    pub fn garbler_input(&mut self, width: u32) -> Vec<Bit> {
        check_width(width);
        let word = self.inputs.garbler.len() as u32;
        self.inputs.garbler.push(width);
        let bit = |i| Bit {
            wire: 0,
            known: self.new_known(Known::Input(word, i)),
        };
        (0..width).map(bit).collect()
    }

    /// A word of the evaluator's. Its labels come from outside, as a rule from correlated OT.
    ///
    /// # Panics
    /// Unless `1 <= width <= 64`.
    pub fn evaluator_input(&mut self, width: u32) -> Vec<Bit> {
        self.labelled_input(width, true)
    }

    /// A word that the garbler learns only after garbling and then sends the labels of.
    ///
    /// # Panics
    /// Unless `1 <= width <= 64`.
    pub fn late_input(&mut self, width: u32) -> Vec<Bit> {
        self.labelled_input(width, false)
    }

    fn labelled_input(&mut self, width: u32, evaluator: bool) -> Vec<Bit> {
        check_width(width);
        self.inputs.labelled.push((width, evaluator));
        let first = self.labelled_bits;
        self.labelled_bits += width;
        let bit = |i| Bit {
            wire: self.new_wire(Wire::Input(first + i)),
            known: 0,
        };
        (0..width).map(bit).collect()
    }

    /// `x xor y`. Free.
    pub fn xor(&mut self, x: Bit, y: Bit) -> Bit {
        Bit {
            wire: self.xor_wires(x.wire, y.wire),
            known: self.xor_knowns(x.known, y.known),
        }
    }

    /// `not x`. Free.
    pub fn not(&mut self, x: Bit) -> Bit {
        self.xor(x, Bit::ONE)
    }

    /// `x and y`, by the cheapest gate.
    pub fn and(&mut self, x: Bit, y: Bit) -> Bit {
        match (x.is_known(), y.is_known()) {
            (true, true) => Bit {
                wire: 0,
                known: self.and_knowns(x.known, y.known),
            },
            (true, false) => self.and_known(y, x.known),
            (false, true) => self.and_known(x, y.known),
            (false, false) if x.wire == y.wire => {
                // x and y differ by a known bit: the AND is x where that is 0, else nothing.
                let same = self.xor_knowns(x.known, y.known);
                let same = self.xor_knowns(same, 1);
                self.and_known(x, same)
            }
            (false, false) => Bit {
                wire: self.new_wire(Wire::And(x.min(y), x.max(y))),
                known: 0,
            },
        }
    }

    /// `x or y`: one AND.
    pub fn or(&mut self, x: Bit, y: Bit) -> Bit {
        let (x, y) = (self.not(x), self.not(y));
        let neither = self.and(x, y);
        self.not(neither)
    }

    /// `x` where `select`, else `y`: one AND.
    pub fn select(&mut self, select: Bit, x: Bit, y: Bit) -> Bit {
        let difference = self.xor(x, y);
        let difference = self.and(select, difference);
        self.xor(y, difference)
    }

    /// Declares an output word that the evaluator learns. One bit of traffic a bit.
    ///
    /// # Panics
    /// Unless the word has 1 to 64 bits.
    pub fn output_revealed(&mut self, word: &[Bit]) {
        check_width(word.len() as u32);
        self.outputs.push(Output::Revealed(word.to_vec()));
    }

    /// Declares an output word that the parties keep XOR shares of: the evaluator the colour bits
    /// of its labels, the garbler those of its zero-labels. No traffic.
    ///
    /// # Panics
    /// Unless the word has 1 to 64 bits.
    pub fn output_shared(&mut self, word: &[Bit]) {
        check_width(word.len() as u32);
        self.outputs.push(Output::Shared(word.to_vec()));
    }

    /// Declares an output that the parties keep additive shares of: see [`Sum`].
    pub fn output_sum(&mut self, sum: Sum) {
        self.outputs.push(Output::Sum(sum));
    }

    /// The circuit of what was declared.
    pub fn finish(mut self) -> Circuit {
        self.lower_known_products();
        let program = Program::compile(&self);
        Circuit {
            inputs: self.inputs,
            wires: self.wires,
            knowns: self.knowns,
            outputs: self.outputs,
            program,
        }
    }

    /// The position of a labelled input bit that the evaluator knows: its index among the
    /// evaluator's words, and in the word.
    pub(super) fn evaluator_bit(&self, wire: u32) -> Option<(u32, u32)> {
        let Wire::Input(index) = self.wires[wire as usize] else {
            return None;
        };
        let (mut first, mut word) = (0, 0);
        for &(width, evaluator) in &self.inputs.labelled {
            if index < first + width {
                return evaluator.then_some((word, index - first));
            }
            first += width;
            word += u32::from(evaluator);
        }
        None
    }

    fn and_known(&mut self, x: Bit, known: u32) -> Bit {
        match known {
            0 => Bit::ZERO,
            1 => x,
            _ => Bit {
                wire: self.new_wire(Wire::Half(x, known)),
                known: 0,
            },
        }
    }

    fn xor_wires(&mut self, x: u32, y: u32) -> u32 {
        let (x, y) = (x.min(y), x.max(y));
        if x == 0 || x == y {
            return y * u32::from(x == 0);
        }
        // x + (x + z) = z.
        for (one, other) in [(x, y), (y, x)] {
            match self.wires[one as usize] {
                Wire::Xor(z, w) if z == other => return w,
                Wire::Xor(w, z) if z == other => return w,
                _ => {}
            }
        }
        self.new_wire(Wire::Xor(x, y))
    }

    fn xor_knowns(&mut self, x: u32, y: u32) -> u32 {
        let (x, y) = (x.min(y), x.max(y));
        if x == 0 || x == y {
            return y * u32::from(x == 0);
        }
        match self.knowns[y as usize] {
            Known::Xor(z, w) if z == x => w,
            Known::Xor(w, z) if z == x => w,
            _ => self.new_known(Known::Xor(x, y)),
        }
    }

    fn and_knowns(&mut self, x: u32, y: u32) -> u32 {
        match (x.min(y), x.max(y)) {
            (0, _) => 0,
            (1, y) => y,
            (x, y) if x == y => x,
            (x, y) => self.new_known(Known::And(x, y)),
        }
    }

    fn new_wire(&mut self, wire: Wire) -> u32 {
        *self.wire_of.entry(wire).or_insert_with(|| {
            self.wires.push(wire);
            (self.wires.len() - 1) as u32
        })
    }

    fn new_known(&mut self, known: Known) -> u32 {
        *self.known_of.entry(known).or_insert_with(|| {
            self.knowns.push(known);
            (self.knowns.len() - 1) as u32
        })
    }
}

fn check_width(width: u32) {
    assert!(
        (1..=64).contains(&width),
        "a word has 1 to 64 bits, not {width}"
    );
}
