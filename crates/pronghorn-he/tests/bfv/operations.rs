//! Exact values through every operation.

use super::*;

fn operations_are_exact<W: Word>(parameters: Parameters<W>) {
    let mut setup = Setup::new(parameters);
    let (x, y) = (setup.values(0), setup.values(1));
    let (cx, cy) = (setup.encrypt(&x), setup.encrypt(&y));
    let plain = setup.parameters.encode(&y).unwrap();
    let add = |x: i64, y: i64| x + y;
    let sub = |x: i64, y: i64| x - y;
    assert_eq!(setup.decrypt(&cx), x);
    assert_eq!(
        setup.decrypt(&cx.add(&cy).unwrap()),
        setup.with(&x, &y, add)
    );
    assert_eq!(
        setup.decrypt(&cx.sub(&cy).unwrap()),
        setup.with(&x, &y, sub)
    );
    assert_eq!(setup.decrypt(&cx.neg()), setup.with(&x, &y, |x, _| -x));
    assert_eq!(
        setup.decrypt(&cx.add_plain(&plain).unwrap()),
        setup.with(&x, &y, add)
    );
    assert_eq!(
        setup.decrypt(&cx.sub_plain(&plain).unwrap()),
        setup.with(&x, &y, sub)
    );
    let product = cx.mul_plain(&plain.to_multiplier()).unwrap();
    assert_eq!(setup.decrypt(&product), setup.with(&x, &y, |x, y| x * y));

    for (steps, rotated) in STEPS
        .iter()
        .zip(cx.rotate_many(&STEPS, &setup.keys).unwrap())
    {
        assert_eq!(setup.decrypt(&rotated), left(&x, *steps));
    }
    let there_and_back = cx
        .rotate(0, &setup.keys)
        .unwrap()
        .rotate(8, &setup.keys)
        .unwrap();
    assert_eq!(setup.decrypt(&there_and_back), left(&x, 8));
    assert_eq!(
        setup.decrypt(&cx.swap_rows(&setup.keys).unwrap()),
        swapped(&x)
    );

    // Two inputs, ten rotations, three outputs.
    let mut rotations: Vec<_> = STEPS
        .iter()
        .map(|&steps| Rotation::left(0, steps))
        .collect();
    rotations.extend([
        Rotation::left(1, 0),
        Rotation::left(0, 0),
        Rotation::Swap { input: 1 },
    ]);
    rotations.extend([Rotation::left(1, 3), Rotation::left(1, 9)]);
    let moved: Vec<_> = rotations
        .iter()
        .map(|rotation| match rotation {
            Rotation::Left { input, steps } => left([&x, &y][*input], *steps),
            Rotation::Swap { input } => swapped([&x, &y][*input]),
        })
        .collect();
    let weights: Vec<_> = (0..rotations.len() as u64)
        .map(|j| setup.values(10 + j))
        .collect();
    let plains: Vec<_> = weights
        .iter()
        .map(|w| setup.parameters.multiplier(w).unwrap())
        .collect();
    let times: Vec<_> = plains.iter().map(Factor::Times).collect();
    let mut mixed = times.clone();
    (mixed[1], mixed[2], mixed[6], mixed[7]) =
        (Factor::One, Factor::Zero, Factor::One, Factor::One);
    let nothing = vec![Factor::Zero; rotations.len()];
    let outputs = rotated_products(
        &[&cx, &cy],
        &rotations,
        &[times, mixed, nothing],
        &setup.keys,
    )
    .unwrap();
    let sum = |skip: usize, ones: &[usize]| {
        let term = |j: usize| match ones.contains(&j) {
            true => moved[j].clone(),
            false => setup.with(&moved[j], &weights[j], |x, w| x * w),
        };
        let terms = (0..rotations.len()).filter(|&j| j != skip).map(term);
        terms
            .reduce(|sum, term| setup.with(&sum, &term, |x, y| x + y))
            .unwrap()
    };
    assert_eq!(setup.decrypt(&outputs[0]), sum(usize::MAX, &[]));
    assert_eq!(setup.decrypt(&outputs[1]), sum(2, &[1, 6, 7]));
    assert_eq!(setup.decrypt(&outputs[2]), vec![0; x.len()]);

    // The same inputs without rotations.
    let plain = |j: usize| setup.parameters.multiplier(&weights[j]).unwrap();
    let terms = [vec![(0, plain(0)), (1, plain(1)), (0, plain(2))], vec![]];
    let products = Products::new(&setup.parameters, &terms).unwrap();
    let outputs = products.of(&[&cx, &cy]).unwrap();
    let term = |values: &[i32], j: usize| setup.with(values, &weights[j], |x, w| x * w);
    let two = setup.with(&term(&x, 0), &term(&y, 1), add);
    assert_eq!(
        setup.decrypt(&outputs[0]),
        setup.with(&two, &term(&x, 2), add)
    );
    assert_eq!(setup.decrypt(&outputs[1]), vec![0; x.len()]);
    let none = products.of(&[&cx]);
    assert!(matches!(none, Err(BfvError::Shape { found: 1, .. })));
}

#[test]
fn operations_are_exact_however_keys_are_switched() {
    operations_are_exact::<u64>(toy(64, &[50, 50], &[], 10, 17));
    operations_are_exact::<u64>(toy(64, &[50, 45], &[50], 0, 20));
    operations_are_exact::<u64>(toy(64, &[53, 53], &[], 7, 20));
    operations_are_exact::<u64>(toy(64, &[50, 50, 50], &[50, 50], 0, 31));
    operations_are_exact::<u64>(toy(2048, &[60, 60], &[60], 0, 17));
    operations_are_exact::<u32>(toy(64, &[30, 30, 31], &[], 5, 14));
    operations_are_exact::<u32>(toy(64, &[30, 30, 30], &[31], 0, 17));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn values_come_back(values in prop::collection::vec(any::<i32>(), 0..=64), t_bits in 9u32..=31, byte: u8) {
        let parameters = toy::<u64>(64, &[40, 40], &[], 0, t_bits);
        let key = SecretKey::generate(&parameters, &seed(byte));
        let plain = parameters.encode(&values).unwrap();
        let ciphertext = key.encryptor_from_seed(&seed(!byte)).encrypt(&plain).unwrap().expand();
        let mut expected: Vec<i32> = values.iter().map(|&value| centre(&parameters, value.into())).collect();
        expected.resize(64, 0);
        prop_assert_eq!(&parameters.decode(&plain).unwrap(), &expected);
        prop_assert_eq!(&parameters.decode(&key.decrypt(&ciphertext).unwrap()).unwrap(), &expected);
    }
}

#[test]
fn encoding_scales_exactly() {
    // The noise of a fresh ciphertext less its error is the rounding of Q m / t: at most a half,
    // and not always zero.
    let parameters = toy::<u64>(64, &[40, 40], &[], 0, 20);
    let mut setup = Setup {
        key: SecretKey::generate(&parameters, &seed(1)),
        encryptor: SecretKey::generate(&parameters, &seed(1)).encryptor_from_seed(&seed(2)),
        keys: EvaluationKeys::generate_from_seed(
            &SecretKey::generate(&toy::<u64>(64, &[40, 40], &[], 9, 20), &seed(1)),
            &[],
            false,
            &seed(3),
        )
        .unwrap(),
        parameters,
    };
    let values = setup.values(4);
    let ciphertext = setup.encrypt(&values);
    let noise = setup.key.noise(&ciphertext).unwrap();
    assert!(noise.iter().all(|e| e.abs() <= 21.5));
    assert!(noise.iter().any(|e| (e - e.round()).abs() > 0.1));
    let plain = setup.parameters.encode(&values).unwrap();
    let zero = setup
        .key
        .noise(&ciphertext.sub_plain(&plain).unwrap())
        .unwrap();
    for (e, whole) in noise.iter().zip(&zero) {
        assert!((e - whole).abs() <= 0.5 + 1e-6 && (whole - whole.round()).abs() < 1e-6);
    }
}
