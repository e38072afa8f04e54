//! Linear steps: parameters, parts, share forms and layouts.

use super::*;

#[test]
fn linear_parameters() {
    refuses(&AIDED, "degree", |plan| clear(plan).rlwe.degree = 1024);
    refuses(&AIDED, "degree", |plan| clear(plan).rlwe.degree = 0);
    // No prime, one without roots of unity, one for other words, one too wide for its degree.
    refuses(&AIDED, "odd prime", |plan| clear(plan).rlwe.modulus += 1);
    refuses(&AIDED, "odd prime", |plan| {
        clear(plan).rlwe.modulus = 12_289 * 4096 + 1
    });
    refuses(&AIDED, "NTT", |plan| clear(plan).rlwe.modulus = 1_000_003);
    refuses(&AIDED, "wider words", |plan| {
        clear(plan).rlwe.modulus = largest_ntt_prime(40, 2048).expect("there is one");
    });
    refuses(&AIDED, "60 bits", |plan| {
        let rlwe = &mut clear(plan).rlwe;
        (rlwe.word, rlwe.modulus) = (WordSize::U64, u64::MAX);
    });
    refuses(&AIDED, "security", |plan| {
        let rlwe = &mut clear(plan).rlwe;
        rlwe.word = WordSize::U64;
        rlwe.degree = 2048;
        rlwe.modulus = largest_ntt_prime(58, 2048).expect("there is one");
    });
    refuses(&AIDED, "dropped bits", |plan| clear(plan).scale_log = 0);
    refuses(&AIDED, "dropped bits", |plan| {
        clear(plan).scale_log = clear(plan).rlwe.modulus_bits();
    });
    refuses(&AIDED, "dropped bits", |plan| {
        clear(plan).rlwe.dropped_bits = clear(plan).scale_log;
    });
    refuses(&AIDED, "dropped bits", |plan| {
        clear(plan).rlwe.dropped_bits_a = clear(plan).scale_log;
    });
    refuses(&AIDED, "inputs", |plan| {
        clear(plan).scale_log = clear(plan).rlwe.modulus_bits() - 2;
    });
}

/// Answers come in one part that is the value, or in two digits of it.
#[test]
fn parts_of_answers() {
    let part = |left_shift, low, high| Part {
        left_shift,
        low,
        high,
    };
    refuses(&AIDED, "parts", |plan| clear(plan).parts.clear());
    refuses(&AIDED, "parts", |plan| {
        clear(plan).parts = vec![part(0, 0, 1); 3];
    });
    refuses(&AIDED, "a part has range", |plan| {
        clear(plan).parts = vec![part(0, 1, 0)];
    });
    refuses(&AIDED, "a part has range", |plan| {
        clear(plan).parts = vec![part(32, 0, 1)];
    });
    refuses(&AIDED, "answers", |plan| {
        clear(plan).parts = vec![part(0, i32::MIN, i32::MAX)];
    });
    let neither = "neither its value nor";
    refuses(&AIDED, neither, |plan| clear(plan).parts[0].high -= 1);
    refuses(&AIDED, neither, |plan| clear(plan).parts[0].left_shift = 1);
    for shifts in [[0, 0], [8, 0], [1, 1], [0, 1]] {
        refuses(&AIDED, neither, |plan| {
            clear(plan).parts = shifts.map(|shift| part(shift, 0, 1)).to_vec();
        });
    }
}

#[test]
fn parameters_of_values_in_polynomials() {
    let needed = "are needed";
    refuses(&AIDED_COEFFICIENT, needed, |plan| {
        clear_coefficient(plan).shares.value_bits += 1;
    });
    // An error of a unit would change the value.
    refuses(&AIDED_COEFFICIENT, needed, |plan| {
        clear_coefficient(plan).shares.guard_bits = 1;
    });
    refuses(&AIDED_COEFFICIENT, "secrets with one", |plan| {
        let rlwe = &mut clear_coefficient(plan).rlwe;
        rlwe.word = WordSize::U64;
        rlwe.degree = 2048;
        rlwe.modulus = largest_ntt_prime(53, 2048).expect("there is one");
    });
    refuses(&AIDED_COEFFICIENT, "answers lose", |plan| {
        let rlwe = &mut clear_coefficient(plan).rlwe;
        rlwe.dropped_bits = rlwe.modulus_bits() - 1;
    });
    refuses(&AIDED_COEFFICIENT, "does not belong to", |plan| {
        plan.trust = TrustLevel::TwoParty
    });
}

#[test]
fn parameters_of_shares() {
    refuses(&SHARES, "does not hold its shares", |plan| {
        coefficient(plan).shares.value_bits = 60;
    });
    refuses(&SHARES, "secrets with one", |plan| {
        let rlwe = &mut coefficient(plan).rlwe;
        rlwe.word = WordSize::U64;
        rlwe.degree = 2048;
        rlwe.modulus = largest_ntt_prime(53, 2048).expect("there is one");
    });
    refuses(&SHARES, "degree", |plan| {
        coefficient(plan).rlwe.degree = 1024
    });
    refuses(&SHARES, "answers lose", |plan| {
        let rlwe = &mut coefficient(plan).rlwe;
        rlwe.dropped_bits = rlwe.modulus_bits() - 1;
    });
    refuses(&SHARES, "answers lose", |plan| {
        let rlwe = &mut coefficient(plan).rlwe;
        rlwe.dropped_bits_a = rlwe.modulus_bits();
    });
    refuses(&SHARES, "are needed", |plan| {
        coefficient(plan).shares.value_bits += 1;
    });
    // Too few guard bits for the error, and too many for a word.
    refuses(&SHARES, "Error", |plan| {
        coefficient(plan).shares.guard_bits = 1;
    });
    for guard_bits in [25, u32::MAX] {
        refuses(&SHARES, "does not hold its shares", |plan| {
            coefficient(plan).shares.guard_bits = guard_bits;
        });
    }
    refuses(&RESIDUAL, "Error", |plan| {
        for step in &mut plan.steps {
            if let StepKind::CoefficientLinear(linear) = &mut step.kind {
                linear.shares.guard_bits = 1;
            }
        }
    });
    // A local step's value takes a bit more than its range, for errors of guard bits.
    let whole = value(&[4], i32::MIN, i32::MAX);
    let wide = plan_of(
        TrustLevel::TwoParty,
        vec![
            step(StepKind::Input, &[], whole.clone()),
            step(StepKind::Local(LocalOp::Reshape), &[0], whole.clone()),
            step(StepKind::Open, &[1], whole),
        ],
    );
    assert!(refusal(&wide).is_some_and(|reason| reason.contains("Width { bits: 33 }")));
}

/// Layers take exact shares: circuits before them drop the guard bits.
#[test]
fn inexact_shares() {
    let reshape = find(&SHARES, is_reshape);
    // With as many bits as a value takes whose circuit comes later.
    let inexact = (0..10).filter(|more| {
        let mut plan = SHARES.clone();
        let layer = plan.steps[1].value.clone();
        let step = &mut plan.steps[reshape];
        step.inputs = vec![1];
        (step.value.low, step.value.high) = (layer.low, layer.high);
        step.value.fraction_bits = layer.fraction_bits;
        coefficient(&mut plan).shares.value_bits += more;
        let reason = refusal(&plan).expect("it is refused whatever its bits");
        reason.contains("Inexact")
    });
    assert_eq!(inexact.count(), 1);
    // A square takes exact shares, of more bits than the layer before it has.
    let square = find(&SQUARE, |kind| matches!(kind, StepKind::Square));
    refuses(&SQUARE, "are needed", |plan| {
        plan.steps[square].inputs = vec![1];
    });
}

#[test]
fn products_of_other_values() {
    let product = find(&GATE, |kind| *kind == StepKind::Product);
    let [left, right] = GATE.steps[product].inputs[..] else {
        panic!("a product has two inputs")
    };
    refuses(&GATE, "2", |plan| plan.steps[product].inputs = vec![left]);
    refuses(&GATE, "2", |plan| {
        plan.steps[product].inputs = vec![left, right, right];
    });
    refuses(&GATE, "outside its range", |plan| {
        plan.steps[product].value.high /= 2;
    });
    refuses(&GATE, "its shape", |plan| {
        plan.steps[product].value.shape = vec![3, 16];
    });
    // The input, of two channels.
    refuses(&GATE, "in dimensions where they differ", |plan| {
        plan.steps[product].inputs = vec![0, right];
    });
    refuses(&GATE, "trust level", |plan| {
        plan.trust = TrustLevel::Encrypted
    });
}

#[test]
fn layers_that_fit_no_polynomial() {
    // One output reads 61 rows and columns.
    let mut wide = of(shared(&dense(None), Engine::Batch, None));
    let linear = batch(&mut wide);
    let geometry = &mut linear.geometry;
    geometry.input = [64, 64];
    (geometry.in_channels, geometry.out_channels) = (1, 1);
    geometry.window = window(3, 1, 0);
    geometry.window.dilation = [30, 30];
    assert_eq!(linear.rlwe.degree, 2048);
    wide.steps[0].value.shape = vec![1, 64, 64];
    wide.steps[1].value.shape = vec![1, 4, 4];
    wide.steps[2].value.shape = vec![1, 4, 4];
    refuses(&wide, "do not fit a polynomial", |plan| {
        let SharedLinear {
            geometry,
            rlwe,
            shares,
        } = batch(plan).clone();
        plan.steps[1].kind = StepKind::CoefficientLinear(CoefficientLinear {
            geometry,
            rlwe,
            shares,
        });
    });
    let narrow = of(shared(&dense(None), Engine::Coefficient, None));
    refuses(&narrow, "coefficients, more than", |plan| {
        coefficient(plan).geometry.out_channels = 1 << 18;
        plan.steps[1].value.shape = vec![1 << 18];
        plan.steps[2].value.shape = vec![1 << 18];
    });
}
