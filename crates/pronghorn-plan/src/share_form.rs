//! Share forms: modulo which number a value is shared under `two-party`, and with how many guard
//! bits.
//!
//! A linear step leaves shares of `2^guard y + delta` with `|delta| <= 1`
//! ([`pronghorn_he::shares`]). Local steps add such values up, guard bits and errors with them. An
//! activation drops the guard bits inside its protocol and leaves exact shares again. The plan
//! holds the guard bits of linear steps alone. Both parties derive the rest from [`ShareRules`].

use pronghorn_graph::fixed::ValueSpec;
use pronghorn_mpc::circuit::{Modulus, signed_width};
use pronghorn_ring::ModulusError;

/// How both parties hold a value `v`: shares of `2^guard v + delta` modulo `2^bits` with
/// `|delta| <= error`, or shares of `v` modulo a prime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareForm {
    /// Bits of the modulus. For `2^bits` the bits of a word above them are undefined. For a prime
    /// words are residues.
    pub bits: u32,
    /// The modulus, where it is a prime.
    pub prime: Option<u64>,
    /// Bits below the unit.
    pub guard: u32,
    /// Bound on the error.
    pub error: u64,
}

impl ShareForm {
    /// Exact shares modulo `2^bits`.
    pub fn exact(bits: u32) -> Self {
        Self {
            bits,
            prime: None,
            guard: 0,
            error: 0,
        }
    }

    /// Exact shares modulo a prime.
    fn modulo(prime: u64) -> Self {
        Self {
            prime: Some(prime),
            ..Self::exact(u64::BITS - prime.leading_zeros())
        }
    }

    /// Shares modulo `2^(bits + guard)` with `guard` bits below the unit.
    pub fn guarded(bits: u32, guard: u32, error: u64) -> Self {
        Self {
            bits: bits.saturating_add(guard),
            guard,
            error,
            ..Self::exact(0)
        }
    }

    /// The modulus of the shares.
    ///
    /// # Errors
    /// The number is no modulus: of a plan that was not checked.
    pub fn modulus(&self) -> Result<Modulus, ModulusError> {
        match self.prime {
            Some(prime) => Modulus::prime(prime),
            None => Modulus::power_of_two(self.bits),
        }
    }

    /// Bits of the modulus without the guard bits.
    pub fn value_bits(&self) -> u32 {
        self.bits - self.guard
    }

    /// The range of a value with its guard bits, error and an offset.
    pub(crate) fn lifted(&self, value: &ValueSpec, offset: i64) -> (i64, i64) {
        let error = self.error as i64;
        let lift = |x: i32| (i64::from(x) << self.guard) + offset;
        (lift(value.low) - error, lift(value.high) + error)
    }
}

/// Most bits of a share: words have 32.
pub const MAX_BITS: u32 = 32;

/// Guard bits of a linear step whose answer goes straight to an activation.
pub const LEAST_GUARD: u32 = 2;

/// The number that a step's inputs are shared modulo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// The prime of the slot engine.
    Prime,
    /// A power of two.
    PowerOfTwo,
    /// The number that its own value is shared modulo.
    Same,
    /// Either.
    Any,
}

/// The errors of shares that a step takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerates {
    /// None: shares are exact.
    Nothing,
    /// Errors that do not reach the unit after they are multiplied by this factor.
    Factor(u64),
    /// All: errors are passed on.
    Everything,
}

/// Steps that read a value, by what they take.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readers {
    /// Readers that take powers of two alone.
    pub powers_of_two: usize,
    /// The others.
    pub others: usize,
}

/// What a protocol says of the shares that it takes and makes. The defaults are those of a step
/// that takes any shares and makes exact ones modulo a power of two.
pub trait ShareRules {
    /// The prime that the step brings into its plan.
    fn prime(&self) -> Option<u64> {
        None
    }

    /// Whether the value is shared modulo the prime, where the prime holds it. `inputs`: whether
    /// all inputs are.
    fn makes_residues(&self, _inputs: bool, _readers: Readers) -> bool {
        false
    }

    /// The modulus of inputs.
    fn takes(&self) -> Takes {
        Takes::Any
    }

    /// Whether the server's share of the value is known before the client's input, where those of
    /// the step's inputs are, or not. Circuits and products are prepared for known shares alone.
    fn is_ahead(&self, inputs: bool) -> bool {
        inputs
    }

    /// The errors that inputs may have: none where they are to be modulo a power of two.
    fn tolerates(&self) -> Tolerates {
        match self.takes() {
            Takes::PowerOfTwo => Tolerates::Nothing,
            Takes::Prime | Takes::Same | Takes::Any => Tolerates::Everything,
        }
    }

    /// Units at either end of a value's range that errors of guard bits take.
    fn margin(&self) -> i64 {
        0
    }

    /// Bits that input number `place` needs for the step's value to have `bits`.
    fn input_bits(&self, _bits: u32, _place: usize, _input: &Node<'_>) -> u32 {
        0
    }

    /// The form of a value that needs `bits` bits.
    fn form(&self, bits: u32, _inputs: &[ShareForm]) -> ShareForm {
        ShareForm::exact(bits)
    }
}

/// How a linear layer on shares takes its input and shares its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerShares {
    /// Exact shares modulo a power of two, and an answer with so many guard bits and an error of 1.
    Guarded(u32),
    /// Shares modulo a prime, once that is settled.
    Residues(Option<u64>),
}

/// A linear layer on shares. All its rules follow from how its answer is shared.
pub trait LayerRules {
    /// How the answer is shared.
    fn layer_shares(&self) -> LayerShares;
}

impl<L: LayerRules> ShareRules for L {
    fn prime(&self) -> Option<u64> {
        match self.layer_shares() {
            LayerShares::Residues(prime) => prime,
            LayerShares::Guarded(_) => None,
        }
    }

    fn makes_residues(&self, _inputs: bool, _readers: Readers) -> bool {
        matches!(self.layer_shares(), LayerShares::Residues(_))
    }

    /// The server's share is its mask.
    fn is_ahead(&self, _inputs: bool) -> bool {
        true
    }

    fn takes(&self) -> Takes {
        match self.layer_shares() {
            LayerShares::Residues(_) => Takes::Prime,
            LayerShares::Guarded(_) => Takes::PowerOfTwo,
        }
    }

    fn margin(&self) -> i64 {
        match self.layer_shares() {
            LayerShares::Residues(_) => 0,
            LayerShares::Guarded(_) => 1,
        }
    }

    fn input_bits(&self, bits: u32, _place: usize, _input: &Node<'_>) -> u32 {
        bits
    }

    fn form(&self, bits: u32, _inputs: &[ShareForm]) -> ShareForm {
        match self.layer_shares() {
            LayerShares::Residues(_) => ShareForm::exact(bits),
            LayerShares::Guarded(guard) => ShareForm::guarded(bits, guard, 1),
        }
    }
}

/// A step of a plan, finished or not.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    /// Its protocol's rules.
    pub rules: &'a dyn ShareRules,
    /// The steps that it reads.
    pub inputs: &'a [usize],
    /// Its value.
    pub value: &'a ValueSpec,
}

impl Node<'_> {
    /// The least and the largest value, with errors of guard bits.
    pub fn range(&self) -> (i64, i64) {
        let (margin, value) = (self.rules.margin(), self.value);
        (
            i64::from(value.low) - margin,
            i64::from(value.high) + margin,
        )
    }

    /// Bits of a two's complement word for the value, and for errors of guard bits.
    pub fn width(&self, rounding: i32) -> u32 {
        let (low, high) = self.range();
        signed_width(low, high + i64::from(rounding))
    }
}

/// The largest absolute value.
pub(crate) fn reach(value: &ValueSpec) -> u32 {
    value.low.unsigned_abs().max(value.high.unsigned_abs())
}

/// The forms of all values, by step.
pub fn share_forms(nodes: &[Node<'_>]) -> Vec<ShareForm> {
    let (bits, primes) = (value_bits(nodes), primes(nodes));
    let mut forms: Vec<ShareForm> = Vec::with_capacity(nodes.len());
    for ((node, &bits), prime) in nodes.iter().zip(&bits).zip(primes) {
        let inputs: Vec<ShareForm> = node.inputs.iter().map(|&input| forms[input]).collect();
        forms.push(match prime {
            Some(prime) => ShareForm::modulo(prime),
            None => node.rules.form(bits, &inputs),
        });
    }
    forms
}

/// The prime of each value that is shared modulo one: of those that the prime holds, what the slot
/// engine reads and makes, what local steps make of that, and what circuits make for other readers
/// than squares.
fn primes(nodes: &[Node<'_>]) -> Vec<Option<u64>> {
    let mut primes = vec![None; nodes.len()];
    let Some(t) = nodes.iter().find_map(|node| node.rules.prime()) else {
        return primes;
    };
    let mut readers = vec![Readers::default(); nodes.len()];
    for node in nodes {
        let power_of_two = node.rules.takes() == Takes::PowerOfTwo;
        for &input in node.inputs {
            readers[input].powers_of_two += usize::from(power_of_two);
            readers[input].others += usize::from(!power_of_two);
        }
    }
    for (index, node) in nodes.iter().enumerate() {
        let inputs = node.inputs.iter().all(|&input| primes[input].is_some());
        let fits = u64::from(reach(node.value)) <= t / 2;
        let is_prime = fits && node.rules.makes_residues(inputs, readers[index]);
        primes[index] = is_prime.then_some(t);
    }
    primes
}

/// Bits of each value without guard bits: those of its range, and those that its readers need.
fn value_bits(nodes: &[Node<'_>]) -> Vec<u32> {
    let mut bits: Vec<u32> = nodes.iter().map(|node| node.width(0)).collect();
    for (index, node) in nodes.iter().enumerate().rev() {
        for (place, &input) in node.inputs.iter().enumerate() {
            let needed = node.rules.input_bits(bits[index], place, &nodes[input]);
            bits[input] = bits[input].max(needed);
        }
    }
    bits
}

/// Guard bits for an error that the next step multiplies by up to `factor` before it drops them:
/// errors in `0..=2 error factor` must not reach the unit.
pub fn guard_for(error: u64, factor: u64) -> u32 {
    let reach = (u128::from(error) * u128::from(factor)).saturating_mul(2);
    u128::BITS - reach.leading_zeros()
}

/// A step that does not take the shares of its inputs, or whose own do not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The step takes exact shares, and input `input` has guard bits.
    Inexact {
        /// The step that makes the input.
        input: usize,
    },
    /// The error of input `input` reaches the unit.
    Error {
        /// The step that makes the input.
        input: usize,
        /// Guard bits that are needed.
        guard: u32,
    },
    /// The input is shared modulo another number than the step takes.
    Modulus {
        /// The step that makes the input.
        input: usize,
    },
    /// The value takes more than [`MAX_BITS`] bits.
    Width {
        /// Bits that it takes.
        bits: u32,
    },
}

/// The first step `(step, input)` that takes shares modulo another number than those of its input.
pub(crate) fn other_modulus(nodes: &[Node<'_>], forms: &[ShareForm]) -> Option<(usize, usize)> {
    (0..nodes.len()).find_map(|index| Some((index, input_of_other_modulus(nodes, forms, index)?)))
}

fn input_of_other_modulus(nodes: &[Node<'_>], forms: &[ShareForm], index: usize) -> Option<usize> {
    let node = &nodes[index];
    let is_prime = match node.rules.takes() {
        Takes::Prime => true,
        Takes::PowerOfTwo => false,
        Takes::Same => forms[index].prime.is_some(),
        Takes::Any => return None,
    };
    let mut inputs = node.inputs.iter().copied();
    inputs.find(|&input| forms[input].prime.is_some() != is_prime)
}

/// The first fault, if any, with its step.
pub fn fault(nodes: &[Node<'_>], forms: &[ShareForm]) -> Option<(usize, Fault)> {
    (0..nodes.len()).find_map(|index| fault_of(nodes, forms, index).map(|fault| (index, fault)))
}

fn fault_of(nodes: &[Node<'_>], forms: &[ShareForm], index: usize) -> Option<Fault> {
    let bits = forms[index].bits;
    if bits > MAX_BITS {
        return Some(Fault::Width { bits });
    }
    if let Some(input) = input_of_other_modulus(nodes, forms, index) {
        return Some(Fault::Modulus { input });
    }
    let node = &nodes[index];
    let tolerates = node.rules.tolerates();
    node.inputs.iter().find_map(|&input| {
        let ShareForm { guard, error, .. } = forms[input];
        match tolerates {
            Tolerates::Nothing if error > 0 => Some(Fault::Inexact { input }),
            Tolerates::Factor(factor) if error > 0 && guard < guard_for(error, factor) => {
                let guard = guard_for(error, factor);
                Some(Fault::Error { input, guard })
            }
            _ => None,
        }
    })
}
