//! Noise within its bounds.

use super::*;

/// Every operation's noise against its bound.
fn noise_is_bounded(parameters: Parameters<u64>) {
    let mut setup = Setup::new(parameters);
    let (p, fresh) = (setup.parameters.clone(), Noise::of_secret_encryption());
    let x = setup.encrypt(&setup.values(0));
    let y = setup.encrypt(&setup.values(1));
    setup.check_noise("fresh", &x, fresh);
    setup.check_noise("sum", &x.add(&y).unwrap(), fresh + fresh);
    setup.check_noise("twice", &x.add(&x).unwrap(), fresh.sum_dependent(2));
    let plain = setup.multiplier(2);
    assert!(plain.norm() <= p.largest_norm());
    let product = x.mul_plain(&plain).unwrap();
    setup.check_noise("product by its norm", &product, fresh.times(plain.norm()));
    setup.check_noise("product", &product, fresh.times(p.largest_norm()));
    setup.check_noise(
        "rotation",
        &x.rotate(1, &setup.keys).unwrap(),
        fresh + p.rotation_noise(),
    );
    setup.check_noise(
        "swap",
        &x.swap_rows(&setup.keys).unwrap(),
        fresh + p.rotation_noise(),
    );
    let after = product.rotate(3, &setup.keys).unwrap();
    setup.check_noise(
        "rotated product",
        &after,
        fresh.times(p.largest_norm()) + p.rotation_noise(),
    );
    let rotations: Vec<_> = STEPS
        .iter()
        .map(|&steps| Rotation::left(0, steps))
        .collect();
    let plains: Vec<_> = (0..STEPS.len() as u64)
        .map(|j| setup.multiplier(20 + j))
        .collect();
    let factors = plains.iter().map(Factor::Times).collect();
    let sum = rotated_products(&[&x], &rotations, &[factors], &setup.keys).unwrap();
    setup.check_noise(
        "products of rotations",
        &sum[0],
        p.rotated_products_noise(fresh, STEPS.len()),
    );
    let ones = vec![Factor::One; STEPS.len()];
    let sum = rotated_products(&[&x], &rotations, &[ones], &setup.keys).unwrap();
    let noise = (fresh + p.switch_noise()).sum(STEPS.len()) + p.division_noise();
    setup.check_noise("sum of rotations", &sum[0], noise);
}

#[test]
fn noise_is_bounded_with_digits() {
    noise_is_bounded(Parameters::small(20).unwrap());
    noise_is_bounded(Parameters::with_bits(4096, &[53, 53], &[], 9, 17).unwrap());
}

#[test]
fn noise_is_bounded_with_special_primes() {
    noise_is_bounded(Parameters::large(20).unwrap());
}

#[test]
fn noise_of_many_products_is_bounded() {
    let mut setup = Setup::new(Parameters::<u64>::small(18).unwrap());
    let fresh = Noise::of_secret_encryption().times(setup.parameters.largest_norm());
    let (x, plain) = (setup.encrypt(&setup.values(0)), setup.multiplier(1));
    let equal = vec![x.mul_plain(&plain).unwrap(); 64];
    let different: Vec<_> = (0..64)
        .map(|j| x.mul_plain(&setup.multiplier(j)).unwrap())
        .collect();
    for (terms, noise) in [(equal, fresh.sum_dependent(64)), (different, fresh.sum(64))] {
        let sum = terms
            .into_iter()
            .reduce(|sum, term| sum.add(&term).unwrap())
            .unwrap();
        setup.check_noise("sum of products", &sum, noise);
    }
}
