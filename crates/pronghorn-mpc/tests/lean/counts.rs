//! Bits, OTs and levels of an element, by formula.

use pronghorn_mpc::{
    circuit::{Modulus, Rectifier, Table},
    lean::{Input, Party, Program, input_width},
};

use super::common::{activation, silu};

/// A ReLU of exact shares modulo `2^k` that drops `c` bits, with `m` bits of the result.
fn relu(k: u32, c: u32, m: u32) -> Program {
    let half = (1i64 << c) >> 1;
    let input = Input {
        bits: k,
        prime: None,
        guard: 0,
        error: 0,
        low: -(1 << (k - 1)),
        high: (1 << (k - 1)) - 1 - half,
    };
    let activation = activation(1, Rectifier::Relu, Some((c, 0, i32::MAX)));
    Program::activation(&activation, input, Modulus::power_of_two(m).unwrap()).unwrap()
}

fn counts(program: &Program) -> (usize, usize, usize) {
    let ots = program.ots(Party::Server) + program.ots(Party::Client);
    (program.all_bits(), ots, program.levels())
}

#[test]
fn relus_cost_what_the_design_says() {
    for (k, c, m, expected) in [(22, 13, 20, (183, 37, 6)), (21, 12, 20, (174, 36, 6))] {
        assert_eq!(counts(&relu(k, c, m)), expected, "k={k} c={c} m={m}");
    }
}

/// Of a clip to 0 and 1 a comparison is all: the bit of a sign, and the number that it is.
#[test]
fn flags_cost_one_comparison() {
    for (k, m, most, expected) in FLAGS {
        let reach = 1i64 << (k - 2);
        let input = Input {
            bits: k,
            prime: None,
            guard: 0,
            error: 0,
            low: -reach,
            high: reach,
        };
        let activation = activation(1, Rectifier::None, Some((0, 0, most)));
        let output = Modulus::power_of_two(m).unwrap();
        let program = Program::activation(&activation, input, output).unwrap();
        assert_eq!(counts(&program), expected, "k={k} m={m} most={most}");
    }
}

/// Bits of shares and of results, the upper bound, and what it costs.
type Flag = (u32, u32, i32, (usize, usize, usize));

/// Clips to 0 and 1, and to 0 to 2, which takes two comparisons.
const FLAGS: [Flag; 2] = [(20, 8, 1, (136, 30, 5)), (20, 8, 2, (273, 62, 6))];

/// The comparison is of the bits that are left. That of all bits takes 183 and 37.
#[test]
fn dithered_relus_cost_half() {
    for (k, guard, c, m, expected) in [(22, 0, 13, 20, (75, 15, 5)), (24, 2, 13, 20, (75, 15, 5))] {
        let input = Input {
            bits: k,
            prime: None,
            guard,
            error: 0,
            low: -(1 << (k - guard - 1)),
            high: (1 << (k - guard - 1)) - 1 - (1 << c),
        };
        let activation = activation(1, Rectifier::Relu, Some((c, 0, i32::MAX)));
        let output = Modulus::power_of_two(m).unwrap();
        let program = Program::dithered(&activation, input, output).unwrap();
        assert_eq!(counts(&program), expected, "k={k} c={c} m={m}");
    }
}

#[test]
fn a_guard_bit_is_dropped_without_a_message() {
    let input = Input {
        bits: 22,
        prime: None,
        guard: 2,
        error: 1,
        low: -(1 << 19) + 1,
        high: (1 << 19) - 2 - (1 << 10),
    };
    let activation = activation(1, Rectifier::Relu, Some((11, 0, i32::MAX)));
    let program = Program::activation(&activation, input, Modulus::power_of_two(20).unwrap());
    assert_eq!(counts(&program.unwrap()), (174, 36, 6));
}

#[test]
fn the_server_sends_no_strings_at_first() {
    // Its first message has choices alone, a bit each: the client's OTs are not there yet.
    for (k, c) in [(22, 13), (8, 0), (9, 7)] {
        let program = relu(k, c, 16);
        let [server, client] = [Party::Server, Party::Client].map(|party| program.bits(0, party));
        let client_ots = program.ots(Party::Client);
        assert!(server <= client_ots && client >= server);
    }
}

#[test]
fn pools_cut_first_where_that_takes_less() {
    let of = |pool, drop: u32| {
        let input = Input {
            bits: 22,
            prime: None,
            guard: 0,
            error: 0,
            low: -(1 << 20),
            high: (1i64 << 20) - 1 - (1i64 << drop),
        };
        let activation = activation(pool, Rectifier::Relu, Some((drop, 0, i32::MAX)));
        let output = Modulus::power_of_two(21).unwrap();
        counts(&Program::activation(&activation, input, output).unwrap())
    };
    // Bits, OTs and levels; the maxima of 21 bits, or cuts and maxima of 9 bits and fewer.
    let pools = [(4, 1), (4, 13), (9, 13)].map(|(pool, drop)| of(pool, drop));
    assert_eq!(pools, [(771, 143, 17), (737, 141, 16), (1677, 316, 26)]);
}

/// The bumps of a SiLU and of a HardSwish in pieces, as plans have them: 11 and 9 dropped bits.
/// Bits, OTs, levels, and bytes that a party holds.
#[test]
fn tables_cost_what_decisions_say() {
    let of = |(count, drop, fine, shift): (i32, u32, u32, u32)| {
        let (entries, rises) = silu(count, drop);
        let half = (count << drop) / 2;
        let table = Table {
            rectified: true,
            drop,
            first: -count / 2,
            entries: &entries,
            fine,
            rises: if fine > 0 { &rises } else { &[] },
        };
        let mut activation = activation(1, Rectifier::None, Some((shift, -half - 1, half - 1)));
        activation.table = Some(table);
        let reach = i64::from(half) << (shift + 2);
        let input = Input {
            bits: input_width(&activation, -reach - 1, reach) + 2,
            prime: None,
            guard: 2,
            error: 1,
            low: -reach,
            high: reach - 1,
        };
        let program = Program::activation(&activation, input, Modulus::power_of_two(24).unwrap());
        let program = program.unwrap();
        let (bits, ots, levels) = counts(&program);
        (bits, ots, levels, program.memory(1024) / 1024)
    };
    let found = [(256, 8, 7, 11), (64, 6, 5, 9), (32, 6, 0, 9)].map(of);
    assert_eq!(
        found,
        [
            (1055, 110, 22, 1215),
            (634, 86, 19, 887),
            (374, 63, 16, 412)
        ]
    );
}
