//! Circuits on plain integers: exhaustively at small widths, at random and at the edges at large
//! ones, and what each of them costs.

mod activations;
mod costs;
mod functions;
mod refusals;
mod tables;

use pronghorn_mpc::circuit::{
    Activation, Bit, Builder, Circuit, CircuitError, Cost, Modulus, Opening, Rectifier,
    Requantisation, Sum, Table, Term, argmax, sign,
};
use proptest::prelude::*;

/// The oracle's definitions, as `pronghorn_graph::fixed::scalar` has them.
mod scalar {
    pub fn clip(x: i32, low: i32, high: i32) -> i32 {
        x.max(low).min(high)
    }

    pub fn leaky_relu(x: i32, slope: i32, shift: u32) -> i32 {
        let (above, below) = (x.wrapping_shl(shift), x.wrapping_mul(slope));
        if x >= 0 { above } else { below }
    }

    pub fn requantise(x: i32, shift: u32, low: i32, high: i32) -> i32 {
        let half = match shift {
            0 => 0,
            _ => x.wrapping_shr(shift - 1) & 1,
        };
        clip(x.wrapping_shr(shift).wrapping_add(half), low, high)
    }
}

/// A circuit of two evaluator's words of `width` bits.
fn of_two(width: u32, f: impl FnOnce(&mut Builder, &[Bit], &[Bit]) -> Vec<Bit>) -> Circuit {
    let mut builder = Builder::new();
    let (x, y) = (
        builder.evaluator_input(width),
        builder.evaluator_input(width),
    );
    let out = f(&mut builder, &x, &y);
    builder.output_revealed(&out);
    builder.finish()
}

/// The same with the second word known to the garbler.
fn of_known(width: u32, f: impl FnOnce(&mut Builder, &[Bit], &[Bit]) -> Vec<Bit>) -> Circuit {
    let mut builder = Builder::new();
    let (x, y) = (builder.evaluator_input(width), builder.garbler_input(width));
    let out = f(&mut builder, &x, &y);
    builder.output_revealed(&out);
    builder.finish()
}

fn of_one(width: u32, f: impl FnOnce(&mut Builder, &[Bit]) -> Vec<Bit>) -> Circuit {
    let mut builder = Builder::new();
    let x = builder.evaluator_input(width);
    let out = f(&mut builder, &x);
    builder.output_revealed(&out);
    builder.finish()
}

fn signed(x: u64, width: u32) -> i64 {
    (x << (64 - width)) as i64 >> (64 - width)
}

fn cut(x: i64, width: u32) -> u64 {
    x as u64 & (u64::MAX >> (64 - width))
}

/// Widths checked on all inputs, and a few large ones on edges and strides.
fn words(width: u32) -> Vec<u64> {
    let all = u64::MAX >> (64 - width);
    if width <= 5 {
        return (0..=all).collect();
    }
    let top = 1 << (width - 1);
    let mut words = vec![0, 1, 2, top - 1, top, top + 1, all - 1, all];
    words.extend((1..40u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) & all));
    words
}

type TwoWords = fn(&mut Builder, &[Bit], &[Bit]) -> Vec<Bit>;

fn requantised(rectifier: Rectifier, shift: u32, low: i32, high: i32) -> Activation<'static> {
    Activation {
        rectifier,
        requantisation: Some(Requantisation { shift, low, high }),
        ..Activation::RELU
    }
}
