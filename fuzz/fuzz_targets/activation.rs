//! Circuits for any activation, range and moduli, as a hostile plan may ask for: an error, or the
//! function itself.
#![no_main]

use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use pronghorn_mpc::circuit::{Activation, Modulus, Rectifier, Requantisation, Table, argmax, sign};

#[derive(Arbitrary, Debug)]
struct Entries {
    rectified: bool,
    drop: u32,
    first: i32,
    entries: Vec<i32>,
    fine: u32,
    rises: Vec<i32>,
}

#[derive(Arbitrary, Debug)]
enum AnyModulus {
    Bits(u32),
    Prime(u64),
    Known(u8),
}

impl AnyModulus {
    fn modulus(&self) -> Option<Modulus> {
        const PRIMES: [u64; 8] = [
            3,
            5,
            7,
            31,
            509,
            1_032_193,
            4_294_967_311,
            4_611_686_018_427_387_847,
        ];
        match *self {
            Self::Bits(bits) => Modulus::power_of_two(bits % 70).ok(),
            Self::Prime(prime) => Modulus::prime(prime).ok(),
            Self::Known(index) => Modulus::prime(PRIMES[usize::from(index) % 8]).ok(),
        }
    }
}

#[derive(Arbitrary, Debug)]
enum Range {
    Any(i64, i64),
    Words(i32, i32),
    Small(i8, i8),
}

#[derive(Arbitrary, Debug)]
struct Input {
    pool: u8,
    leaky: Option<(i32, u32)>,
    relu: bool,
    requantisation: Option<(u32, i32, i32)>,
    table: Option<Entries>,
    input: AnyModulus,
    output: AnyModulus,
    range: Range,
    values: [i64; 4],
    shares: [i64; 4],
}

fuzz_target!(|input: Input| {
    let (Some(from), Some(to)) = (input.input.modulus(), input.output.modulus()) else {
        return;
    };
    let (low, high) = match input.range {
        Range::Any(low, high) => (low, high),
        Range::Words(low, high) => (low.into(), high.into()),
        Range::Small(low, high) => (low.into(), high.into()),
    };
    let pool = usize::from(input.pool % 5);
    let activation = Activation {
        pool,
        rectifier: match input.leaky {
            Some((slope, shift)) => Rectifier::Leaky {
                slope,
                shift: shift % 40,
            },
            None if input.relu => Rectifier::Relu,
            None => Rectifier::None,
        },
        requantisation: input
            .requantisation
            .map(|(shift, low, high)| Requantisation {
                shift: shift % 40,
                low,
                high,
            }),
        table: input.table.as_ref().map(|table| Table {
            rectified: table.rectified,
            drop: table.drop % 40,
            first: table.first,
            entries: &table.entries,
            fine: table.fine % 16,
            rises: &table.rises,
        }),
    };
    // Values in the range, at its ends too, and their shares.
    let value = |i: usize| match input.values[i] {
        0 => low,
        1 => high,
        any => {
            let size = i128::from(high) - i128::from(low) + 1;
            (i128::from(low) + i128::from(any).rem_euclid(size.max(1))) as i64
        }
    };
    let shares = |modulus: Modulus, count: usize| -> (Vec<u64>, Vec<u64>) {
        let garbler = |i: usize| modulus.from_i64(input.shares[i]);
        let evaluator = |i| modulus.sub(modulus.from_i64(value(i)), garbler(i));
        (
            (0..count).map(garbler).collect(),
            (0..count).map(evaluator).collect(),
        )
    };
    if let Ok(circuit) = activation.circuit(from, low, high, to) {
        let values: Vec<i64> = (0..pool).map(value).collect();
        let (garbler, evaluator) = shares(from, pool);
        assert_eq!(
            circuit.evaluate_plain(&garbler, &evaluator),
            [to.from_i64(activation.apply(&values))]
        );
    }
    if let Ok(circuit) = sign(from, low, high) {
        let (garbler, evaluator) = shares(from, 1);
        let positive = circuit.evaluate_plain(&garbler, &evaluator);
        assert_eq!(positive, [u64::from(value(0) >= 0)]);
    }
    if let Ok(circuit) = argmax(from, low, high, pool) {
        let (garbler, evaluator) = shares(from, pool);
        let values: Vec<i64> = (0..pool).map(value).collect();
        let largest = values.iter().max().expect("there is one");
        let first = values.iter().position(|value| value == largest);
        let index = circuit.evaluate_plain(&garbler, &evaluator)[0];
        assert_eq!(Some(index as usize), first);
    }
});
