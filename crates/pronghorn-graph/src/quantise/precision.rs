//! Changes of precision: where values drop bits, and how many.

use super::{
    QuantiseError,
    builder::Builder,
    function::is_moved,
    scale::{self, Range},
};
use crate::{
    fixed::{ActivationOp, FixedNode, FixedOp, LocalOp},
    graph::Op,
};

/// Bits that a circuit drops at most, those of a slope before it and of channels' scales included:
/// guard bits come on top.
const MOST_SHIFT: i32 = 26;

impl Builder<'_> {
    /// The value of an activation at the one precision that all its readers get, where layers are
    /// among them: the finest that one asks for.
    pub(super) fn settle(&mut self, index: usize) -> Result<usize, QuantiseError> {
        let place = self.place[index];
        let op = &self.nodes[place].op;
        let settled = matches!(op, FixedOp::Activation(ActivationOp::Table(_)));
        if settled || !matches!(op, FixedOp::Activation(_)) {
            return Ok(place);
        }
        match self.finest_reader(index) {
            Some(finest) => self.requantise(place, finest, self.ranges[index]),
            None => Ok(place),
        }
    }

    /// The fraction bits that the layers and products among a value's readers want, and others if
    /// there are any; `None` without layers and products. Layers that read a
    /// part of the value count.
    pub(super) fn finest_reader(&self, index: usize) -> Option<i32> {
        self.finest_reader_past(index, |op| matches!(op, Op::Take { .. }))
    }

    /// The same where readers of the values behind operators that `passes` accepts count.
    pub(super) fn finest_reader_past(
        &self,
        index: usize,
        passes: impl Fn(&Op) -> bool,
    ) -> Option<i32> {
        let readers = self.readers(index, passes);
        let (mut finest, mut others) = (None, i32::MIN);
        for reader in readers {
            let wanted = match &self.layers[reader] {
                Some((layer, precision)) => Some(layer.input_fraction(*precision)),
                None => self.factor_fraction(reader, index),
            };
            match wanted {
                Some(wanted) => finest = finest.max(Some(wanted)),
                None => others = self.beside[index],
            }
        }
        finest.map(|finest| finest.max(others))
    }

    /// The fraction bits that a node wants of value `index`, if that is a factor of its product.
    fn factor_fraction(&self, reader: usize, index: usize) -> Option<i32> {
        let node = &self.graph.nodes[reader];
        let place = node.inputs.iter().position(|&input| input == index)?;
        let is_square = node.op == Op::Multiply && node.inputs[0] == node.inputs[1];
        (node.op.is_product() && !is_square).then(|| self.factors[reader][place])
    }

    /// The fraction bits that products want of the current value behind moves, if any do. Sums of
    /// it, which others may read, have more precision than its elements.
    pub(super) fn finest_product_past_moves(&self) -> Option<i32> {
        let same = self.carriers(self.current, is_moved);
        let products = self.graph.nodes.iter().enumerate();
        let products = products.filter(|(index, node)| node.op.is_product() && !same[*index]);
        let wanted = products.filter_map(|(index, node)| {
            let place = node.inputs.iter().position(|&input| same[input])?;
            Some(self.factors[index][place])
        });
        wanted.max()
    }

    /// The most fraction bits that a product with value `index` wants of it.
    pub(super) fn finest_factor(&self, index: usize) -> Option<i32> {
        let readers = self.readers(index, |_| false).into_iter();
        readers
            .filter_map(|reader| self.factor_fraction(reader, index))
            .max()
    }

    /// The value with all channels at one scale.
    pub(super) fn even(&mut self, value: usize) -> Result<usize, QuantiseError> {
        match self.finer.contains_key(&value) {
            true => self.requantise(value, i32::MAX, Range::ALL),
            false => Ok(value),
        }
    }

    /// True if a value of the float graph is no activation, which has been settled, nor a part of
    /// one.
    pub(super) fn is_wide(&self, input: usize) -> bool {
        let mut node = &self.nodes[self.place[input]];
        while let FixedOp::Local(LocalOp::Take { .. })
        | FixedOp::Activation(ActivationOp::Clip { .. }) = node.op
        {
            node = &self.nodes[node.inputs[0]];
        }
        !matches!(
            node.op,
            FixedOp::Activation(
                ActivationOp::Requantise { .. }
                    | ActivationOp::RequantiseChannels { .. }
                    | ActivationOp::Table(_)
            )
        )
    }

    /// The value `input` of the float graph in `bits` bits, one of them for the sign.
    pub(super) fn rounded(&mut self, input: usize, bits: u32) -> Result<usize, QuantiseError> {
        let range = self.ranges[input];
        self.requantise(self.place[input], range.signed_fraction(bits), range)
    }

    /// The fixed-point value `value` at no more than `fraction` fraction bits, clamped to `range`;
    /// the same one for all who ask for the same.
    ///
    /// Goes in front of operators that only move values, next to the activation it usually follows;
    /// not in front of a `Take` that drops some of them.
    pub(super) fn requantise(
        &mut self,
        value: usize,
        fraction: i32,
        range: Range,
    ) -> Result<usize, QuantiseError> {
        let costly = self.options.costly_requantisation;
        self.requantise_into(value, fraction, |fraction| range.clamps(fraction, costly))
    }

    /// The same where a value has more fraction bits, by activation after activation, as one drops
    /// [`MOST_SHIFT`] bits at most; others stay as they are.
    pub(super) fn no_finer(
        &mut self,
        value: usize,
        fraction: i32,
        range: Range,
    ) -> Result<usize, QuantiseError> {
        let mut value = value;
        while self.nodes[value].value.fraction_bits > fraction {
            let coarser = self.requantise(value, fraction, range)?;
            if coarser == value {
                break;
            }
            value = coarser;
        }
        Ok(value)
    }

    /// The fixed-point value `value` without its lowest bits, in every channel.
    pub(super) fn dropped(&mut self, value: usize, bits: u32) -> Result<usize, QuantiseError> {
        let FixedNode {
            name,
            op,
            value: spec,
            ..
        } = &self.nodes[value];
        let (name, shape, fraction) = (name.clone(), spec.shape.clone(), spec.fraction_bits);
        // A plan rounds ranges of layers up to powers of two. That of a sum then ends beyond one, and
        // with a bit more nothing is compared with the ends.
        let spare = u32::from(matches!(op, FixedOp::Local(_)));
        let all = |end: i32| ((i64::from(end) << spare) + ((1 << bits) >> 1)) >> bits;
        let within = |end: i64| end.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        let (low, high) = (within(all(spec.low)), within(all(spec.high)));
        let (low, high) = match self.options.costly_requantisation {
            true => scale::word(low, high),
            false => (low, high),
        };
        let op = FixedOp::Activation(ActivationOp::Requantise {
            shift: bits,
            low,
            high,
        });
        self.push_as(name, op, vec![value], shape, fraction - bits as i32)
    }

    /// The same, clamped to the integers that `clamp` has for the result's fraction bits.
    pub(super) fn requantise_into(
        &mut self,
        value: usize,
        fraction: i32,
        clamp: impl Fn(i32) -> (i32, i32),
    ) -> Result<usize, QuantiseError> {
        let FixedNode {
            name,
            op,
            inputs,
            value: spec,
        } = self.nodes[value].clone();
        let finer = self.finer.get(&value).cloned();
        let most = finer.iter().flat_map(|finer| finer.iter()).max();
        // Where channels differ, each drops a bit or more.
        let least = u32::from(finer.is_some());
        let shift = spec.fraction_bits.saturating_sub(fraction);
        let before = match op {
            FixedOp::Activation(ActivationOp::LeakyRelu { shift, .. }) => shift,
            _ => 0,
        };
        let room = MOST_SHIFT - (before + most.copied().unwrap_or(0)) as i32;
        let shift = shift.clamp(least as i32, room) as u32;
        let fraction = spec.fraction_bits - shift as i32;
        let (low, high) = clamp(fraction);
        if shift == 0 && low <= spec.low && spec.high <= high {
            return Ok(value);
        }
        let key = (value, fraction, low, high);
        if let Some(&done) = self.requantised.get(&key) {
            return Ok(done);
        }
        let keeps_all = |input: usize| self.nodes[input].value.len() <= spec.len();
        let moves = match op {
            FixedOp::Local(LocalOp::Reshape | LocalOp::Transpose { .. }) => true,
            FixedOp::Local(LocalOp::Take { .. }) => keeps_all(inputs[0]),
            _ => false,
        };
        let (op, inputs) = match finer {
            _ if moves => (op, vec![self.requantise_into(inputs[0], fraction, clamp)?]),
            None => {
                let op = ActivationOp::Requantise { shift, low, high };
                (FixedOp::Activation(op), vec![value])
            }
            Some(finer) => {
                let shifts = finer.iter().map(|finer| shift + finer).collect();
                let op = ActivationOp::RequantiseChannels { shifts, low, high };
                (FixedOp::Activation(op), vec![value])
            }
        };
        let done = self.push_as(name, op, inputs, spec.shape, fraction)?;
        self.requantised.insert(key, done);
        Ok(done)
    }
}
