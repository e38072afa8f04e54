//! Checks of an encrypted step from a peer or a file.

use pronghorn_graph::fixed::ValueSpec;
use pronghorn_ring::{Ntt, Prime, security};

use super::parameters::{DEGREES, EncryptedPlan, MAX_LIMBS, MAX_POLYS};
use crate::{flood, rlwe::WordSize, step::Place};

/// Largest flood, as an exponent of two.
const MAX_FLOOD_LOG: u32 = 500;

/// Largest scale of the input, as an exponent of two.
const MAX_SCALE_LOG: u32 = 160;

/// Most batches of a client's keys.
const MAX_KEY_BATCHES: u64 = 1 << 32;

/// Parameters are secure, carry what the client encrypts, and make an answer the client can
/// decrypt.
pub(crate) fn validate(encrypted: &EncryptedPlan, place: &Place<'_>) -> Result<(), String> {
    let (plan, input, result) = (place.plan, place.input(), place.value());
    if plan.steps() != 2 || plan.output() != 1 || place.index != 1 {
        return Err(
            "an encrypted network is the only step of a plan of trust level encrypted".into(),
        );
    }
    let EncryptedPlan {
        degree,
        ref primes,
        scale_log,
        flood_limbs,
        flood_log,
        answer_polys,
        answer_limbs,
        answer_scale,
        error,
        server_seconds,
        ..
    } = *encrypted;
    if !DEGREES.contains(&degree) {
        return Err(format!("its degree is {degree}, not one of {DEGREES:?}"));
    }
    if encrypted.word != WordSize::U32 {
        return Err("its words are not of 32 bits".into());
    }
    if plan.max_batch() > degree / 2 {
        return Err(format!(
            "batches have up to {} images, more than degree {degree} has slots",
            plan.max_batch()
        ));
    }
    if !(1..=MAX_LIMBS).contains(&primes.len()) || encrypted.special_primes.len() > MAX_LIMBS {
        return Err(format!(
            "its modulus has {} primes, not 1 to {MAX_LIMBS}",
            primes.len()
        ));
    }
    let special = &encrypted.special_primes;
    let all = [primes.as_slice(), special].concat();
    for (index, &prime) in all.iter().enumerate() {
        let checked = Prime::<u32>::new(prime).map_err(|error| error.to_string())?;
        Ntt::<u32>::new(degree, checked).map_err(|error| error.to_string())?;
        if all[..index].contains(&prime) {
            return Err(format!("its modulus has the prime {prime} twice"));
        }
    }
    let bits = |prime: &u64| prime.ilog2();
    if special.iter().map(bits).min() < primes.iter().map(bits).max() && !special.is_empty() {
        return Err("its special primes are smaller than others".into());
    }
    security::check(degree, encrypted.modulus_bits()).map_err(|error| error.to_string())?;
    if encrypted.key_power >= MAX_POLYS || (encrypted.key_power < 2) != special.is_empty() {
        return Err(format!(
            "evaluation keys up to power {} do not go with {} special primes",
            encrypted.key_power,
            special.len()
        ));
    }
    if !(1..=flood_limbs).contains(&answer_limbs) || flood_limbs > primes.len() {
        return Err(format!(
            "answers of {answer_limbs} primes, flooded at {flood_limbs}, do not come from a modulus of {}",
            primes.len()
        ));
    }
    if !(2..=MAX_POLYS).contains(&answer_polys) {
        return Err(format!(
            "answers have {answer_polys} polynomials, not 2 to {MAX_POLYS}"
        ));
    }
    let sizes = [("its answer's scale", answer_scale), ("its error", error)];
    if let Some((field, found)) = sizes
        .iter()
        .find(|(_, size)| !size.is_normal() || *size < 0.0)
    {
        return Err(format!("{field} is {found}, which is no positive number"));
    }
    flood::check_bits(encrypted.flood_bits)?;
    if !(1..=MAX_KEY_BATCHES).contains(&encrypted.key_batches) {
        return Err(format!(
            "its keys serve {} batches, not 1 to {MAX_KEY_BATCHES}",
            encrypted.key_batches
        ));
    }
    if !server_seconds.is_finite() || flood_log > MAX_FLOOD_LOG {
        return Err(format!(
            "it takes {server_seconds} seconds, and its flood 2^{flood_log}"
        ));
    }
    // A value v of b bits at scale 2^s in every slot has coefficients within v * 2^s.
    let holds = |spec: &ValueSpec, scale: f64, limbs: usize| {
        let most = f64::from(spec.low.unsigned_abs().max(spec.high.unsigned_abs()));
        let bits = most.log2() - f64::from(spec.fraction_bits) + scale.log2() + 1.0;
        let held = primes[..limbs].iter().map(|&prime| (prime as f64).log2());
        bits.max(scale.log2() + 1.0) < held.sum()
    };
    if scale_log > MAX_SCALE_LOG || !holds(input, f64::from(scale_log).exp2(), primes.len()) {
        return Err(format!(
            "its inputs at scale 2^{scale_log} exceed the modulus"
        ));
    }
    if !holds(result, answer_scale, answer_limbs) {
        return Err(format!(
            "its results at scale {answer_scale} exceed the answer's modulus"
        ));
    }
    Ok(())
}
