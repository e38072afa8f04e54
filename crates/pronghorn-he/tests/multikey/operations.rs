//! Sums, products, rotations: within the noise they promise.

use pronghorn_he::multikey::Relinearisation::{Linear, Quadratic};
use pronghorn_ring::Word;

use super::*;

/// A sum of a fresh ciphertext of each party: under all keys.
fn under_all<W: Word>(setup: &mut Setup<W>, shift: usize, scale: f64) -> (Ciphertext<W>, Slots) {
    let (count, limbs) = (setup.secrets.len(), setup.common.ring().limbs());
    let values: Vec<_> = (0..count).map(|i| setup.values(i + shift)).collect();
    let fresh: Vec<_> = (0..count)
        .map(|i| setup.encrypt(i, &values[i], scale, limbs))
        .collect();
    let all = fresh[1..]
        .iter()
        .fold(fresh[0].clone(), |sum, x| sum.add(x).expect("one scale"));
    assert_eq!(all.parties().len(), count);
    (all, sum(values.iter()))
}

fn largest(x: &Slots) -> f64 {
    let squares = x.re.iter().zip(&x.im).map(|(a, b)| a * a + b * b);
    squares.fold(0.0, f64::max).sqrt()
}

fn every_operation<W: Word>(n: usize, bits: &[u32], special: &[u32], scale_bits: i32) {
    for count in COUNTS {
        let mut setup = Setup::<W>::new(n, bits, special, count);
        let (scale, limbs) = (2f64.powi(scale_bits), bits.len());
        let (x, x_values) = under_all(&mut setup, 0, scale);
        let (y, y_values) = under_all(&mut setup, 20, scale);
        let common = setup.common.clone();
        let fresh = (common.fresh_noise() + Noise::of_encoding(n)).times((count as f64).sqrt());
        setup.check(&x, &x_values, fresh, "sum");
        let last = common.ring().basis().prime(limbs - 1).value() as f64;
        let expected = product(&x_values, &y_values);
        let (left, right) = (largest(&x_values) * scale, largest(&y_values) * scale);
        for (kind, name) in [(Quadratic, "quadratic"), (Linear, "linear")] {
            let what = format!("{count} parties, {name}");
            let noise = fresh.multiply(fresh, left, right)
                + common.relinearisation_noise(limbs, count, kind);
            let z = x.multiply(&y, &setup.keys, 0, kind).expect("all keys");
            setup.check(&z, &expected, noise, &format!("product, {what}"));
            let rescaled = common.rescaled_noise(noise, count, last);
            let apart = z.rescale(1).expect("limbs");
            setup.check(&apart, &expected, rescaled, &format!("rescaled, {what}"));
            let at_once = x.multiply(&y, &setup.keys, 1, kind).expect("all keys");
            setup.check(&at_once, &expected, rescaled, &format!("at once, {what}"));
            let square = x.square(&setup.keys, 0, kind).expect("all keys");
            let noise = fresh.square(left) + common.relinearisation_noise(limbs, count, kind);
            let values = product(&x_values, &x_values);
            setup.check(&square, &values, noise, &format!("square, {what}"));
            let twice = at_once
                .multiply(&at_once, &setup.keys, 1, kind)
                .expect("all keys");
            assert_eq!(twice.limbs(), limbs - 2);
            let found = setup.decrypt(&twice);
            let wanted = product(&expected, &expected);
            let error = found.re.iter().zip(&wanted.re);
            let error = error.map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
            let largest = largest(&wanted);
            assert!(error < 1e-4 * largest, "depth two, {what}: {error}");
        }
        let noise = fresh + common.rotation_noise(limbs, count);
        let steps = [1, 0, -3];
        let turned = x.rotate_many(&steps, &setup.keys).expect("all keys");
        for (turned, steps) in turned.iter().zip(steps) {
            let what = format!("{count} parties, rotation by {steps}");
            setup.check(turned, &rotated(&x_values, steps), noise, &what);
        }
        assert!(
            x.rotate_many(&[], &setup.keys)
                .is_ok_and(|none| none.is_empty())
        );
        let still = x.rotate_many(&[0], &setup.keys).expect("no key");
        assert!(still[0].extended().data() == x.extended().data());
        let conjugate = x.conjugate(&setup.keys).expect("all keys");
        let mut values = x_values.clone();
        values.im.iter_mut().for_each(|x| *x = -*x);
        setup.check(&conjugate, &values, noise, "conjugate");
    }
}

#[test]
fn operations_keep_their_noise_in_words_of_32_bits() {
    every_operation::<u32>(1024, &[30, 28, 28, 28, 28], &[30, 30], 28);
}

#[test]
fn operations_keep_their_noise_in_words_of_64_bits() {
    every_operation::<u64>(1024, &[50, 40, 40, 40], &[50, 50], 40);
}

/// One relinearisation of a sum of products, where left factors have one party and right ones all.
#[test]
fn sums_of_products_keep_their_noise() {
    for count in COUNTS {
        let mut setup = Setup::<u32>::new(1024, &[30, 28, 28, 28], &[30, 30], count);
        let (scale, limbs) = (2f64.powi(28), 4);
        let common = setup.common.clone();
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for i in 0..3 {
            let values = setup.values(i + 40);
            left.push((setup.encrypt(0, &values, scale, limbs), values));
            right.push(under_all(&mut setup, i, scale));
        }
        let pairs = left.iter().zip(&right);
        let products: Vec<_> = pairs.clone().map(|((x, _), (y, _))| (x, y)).collect();
        let values: Vec<_> = pairs.map(|((_, x), (_, y))| product(x, y)).collect();
        let found = Ciphertext::inner_product(&products, &setup.keys, 1).expect("all keys");
        let fresh = common.fresh_noise() + Noise::of_encoding(1024);
        let mut noise = Noise::default();
        for ((_, x), (_, y)) in left.iter().zip(&right) {
            let all = fresh.times((count as f64).sqrt());
            noise = noise + fresh.multiply(all, largest(x) * scale, largest(y) * scale);
        }
        let noise = noise + common.relinearisation_noise(limbs, count, Quadratic);
        let last = common.ring().basis().prime(limbs - 1).value() as f64;
        let noise = common.rescaled_noise(noise, count, last);
        let what = format!("sum of products, {count} parties");
        setup.check(&found, &sum(values.iter()), noise, &what);
        let of_two = [products[0], (&right[0].0, &right[1].0)];
        let refused = Ciphertext::inner_product(&of_two, &setup.keys, 1);
        assert_eq!(refused.is_err(), count > 1, "left factors of other parties");
        assert!(Ciphertext::inner_product(&[], &setup.keys, 1).is_err());
    }
}
