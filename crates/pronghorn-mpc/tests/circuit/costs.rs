//! The gates that a circuit takes.

use super::*;

/// Gates, and bytes of 32 instances, of the circuits that networks use: a larger figure is a loss,
/// a smaller one worth recording.
#[test]
fn costs_stay_what_they_are() {
    let two = |bits| Modulus::power_of_two(bits).unwrap();
    let (full, half) = ((1 << 19) - 1, (1 << 18) - 1);
    let gazelle = Modulus::prime(1_032_193).unwrap(); // 20 bits, 1 mod 4096
    let circuit = |activation: Activation, input: Modulus, largest: i64, output| {
        activation
            .circuit(input, -largest, largest, output)
            .unwrap()
    };
    let (relu, truncated) = (Activation::RELU, requantised(Rectifier::Relu, 8, -128, 127));
    let pool = Activation { pool: 4, ..relu };
    let leaky = Activation {
        rectifier: Rectifier::Leaky {
            slope: 26,
            shift: 8,
        },
        ..relu
    };
    let cases = [
        (
            "sign",
            sign(two(20), -full, full).unwrap(),
            [18, 1, 37, 0, 20],
            18_944,
        ),
        (
            "relu",
            circuit(relu, two(20), full, two(20)),
            [18, 1, 37, 250, 20],
            19_944,
        ),
        (
            "relu, 16 bits",
            circuit(relu, two(16), 32_767, two(16)),
            [14, 1, 29, 168, 16],
            15_520,
        ),
        (
            "relu, 2^32 of 20 bits",
            circuit(relu, two(32), full, two(32)),
            [18, 1, 37, 938, 20],
            22_696,
        ),
        (
            "relu, prime",
            circuit(relu, gazelle, gazelle.largest(), gazelle),
            [38, 2, 77, 440, 20],
            41_696,
        ),
        (
            "relu, prime of 19 bits",
            circuit(relu, gazelle, half, gazelle),
            [20, 1, 41, 440, 20],
            22_752,
        ),
        (
            "relu, prime to 2^20",
            circuit(relu, gazelle, half, two(20)),
            [37, 1, 87, 454, 20],
            40_216,
        ),
        (
            "clip 0..=6 * 2^8",
            circuit(
                requantised(Rectifier::None, 0, 0, 1536),
                two(20),
                full,
                two(20),
            ),
            [28, 1, 58, 261, 20],
            30_228,
        ),
        (
            "relu >> 8, 8 bits",
            circuit(truncated, two(20), half, two(20)),
            [22, 1, 44, 298, 20],
            24_232,
        ),
        (
            "leaky relu",
            circuit(leaky, two(20), full, two(32)),
            [18, 1, 37, 1330, 20],
            24_264,
        ),
        (
            "max-pool, relu",
            circuit(pool, two(20), full, two(20)),
            [174, 4, 399, 916, 80],
            183_888,
        ),
        (
            "argmax of 10",
            argmax(two(20), -full, full, 10).unwrap(),
            [533, 10, 1215, 0, 200],
            550_928,
        ),
    ];
    for (name, circuit, [and, half, xor, projected, labels], bytes) in cases {
        let cost = Cost {
            and,
            half,
            xor,
            projected,
            labels,
        };
        assert_eq!(circuit.cost(), cost, "{name}");
        assert_eq!(circuit.table_bytes(32), bytes, "{name}");
    }
}

#[test]
fn constants_fold_and_gates_are_made_once() {
    let mut builder = Builder::new();
    let x = builder.evaluator_input(1)[0];
    let y = builder.evaluator_input(1)[0];
    let g = builder.garbler_input(1)[0];
    assert_eq!(builder.and(x, Bit::ZERO), Bit::ZERO);
    assert_eq!(builder.and(x, Bit::ONE), x);
    assert_eq!(builder.and(x, x), x);
    let not_x = builder.not(x);
    assert_eq!(builder.and(x, not_x), Bit::ZERO);
    assert_eq!(builder.not(not_x), x);
    assert_eq!(builder.xor(x, x), Bit::ZERO);
    let sum = builder.xor(x, y);
    assert_eq!(builder.xor(sum, y), x);
    assert_eq!(builder.xor(x, sum), y);
    assert_eq!(builder.and(x, y), builder.and(y, x));
    assert!(builder.and(g, g).is_known() && !builder.and(g, x).is_known());
    let masked = builder.xor(x, g);
    assert_eq!(builder.xor(masked, g), x);
    // A wire against itself under a mask: one half gate.
    let both = builder.and(x, masked);
    builder.output_revealed(&[both]);
    let circuit = builder.finish();
    assert_eq!((circuit.cost().and, circuit.cost().half), (0, 1));
    for bits in 0..8 {
        let (x, g) = (bits & 1, bits >> 2);
        assert_eq!(circuit.evaluate_plain(&[g], &[x, 0]), [x & (x ^ g)]);
    }
}

#[test]
fn sums_of_every_kind_of_bit() {
    for modulus in [
        Modulus::power_of_two(9).unwrap(),
        Modulus::prime(31).unwrap(),
    ] {
        let mut builder = Builder::new();
        let known = builder.garbler_input(2);
        let x = builder.evaluator_input(3);
        let late = builder.late_input(2);
        let masked: Vec<_> = (0..2).map(|i| builder.xor(x[i], known[i])).collect();
        let select = builder.and(x[2], late[0]);
        let mut sum = Sum::new(modulus);
        sum.add_terms(Term::unsigned(modulus, &known, 5));
        sum.add_terms(Term::signed(modulus, &x, -3));
        sum.add_terms(Term::unsigned(modulus, &masked, 8));
        sum.add_terms(Term::unsigned(modulus, &[Bit::ONE, select], 1));
        sum.add_product(select, Term::signed(modulus, &masked, 1));
        sum.add_product(late[1], Term::unsigned(modulus, &x, 7));
        sum.add_product(known[0], Term::unsigned(modulus, &late, 2));
        sum.add_product(Bit::ONE, Term::unsigned(modulus, &late, 1));
        builder.output_sum(sum);
        let circuit = builder.finish();
        for bits in 0..128u64 {
            let (known, x, late) = (bits & 3, bits >> 2 & 7, bits >> 5);
            let masked = (x ^ known) & 3;
            let select = x >> 2 & late & 1;
            let expected = 5 * known as i64 - 3 * signed(x, 3)
                + 8 * masked as i64
                + 1
                + 2 * select as i64
                + select as i64 * signed(masked, 2)
                + (late >> 1) as i64 * 7 * x as i64
                + (known & 1) as i64 * 2 * late as i64
                + late as i64;
            assert_eq!(
                circuit.evaluate_plain(&[known], &[x, late]),
                [modulus.from_i64(expected)]
            );
        }
    }
}
