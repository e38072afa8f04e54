//! Randomness of all crates in this program: reproducible, and secret to memcheck.

use std::{
    backtrace::Backtrace,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::memcheck;

/// Lines that draw what goes to the peer as it is: file, line, and what that is.
const PUBLIC: [(&str, &str, &str); 4] = [
    (
        "pronghorn-engine/src/ots/setup.rs",
        "let seed = Seed::from_os()?;",
        "a nonce of the set-up of OTs",
    ),
    (
        "pronghorn-mpc/src/ot/setup/connect.rs",
        "let own = *Seed::from_os()?.as_bytes();",
        "a nonce of a connection of OTs",
    ),
    (
        "pronghorn-engine/src/coefficient/publication/client.rs",
        "seed: *Seed::from_os()?.as_bytes(),",
        "the seed of a client's a, for all its steps",
    ),
    (
        "pronghorn-engine/src/batch/client.rs",
        "_ => Seed::from_os()?,",
        "the seed of a client's a",
    ),
];

/// Words drawn so far.
static DRAWN: AtomicU64 = AtomicU64::new(0);

/// What `getrandom` calls, with the name and the type that its documentation asks for.
///
/// # Safety
/// `destination` is valid for writes of `length` bytes.
// SAFETY: no other symbol of this program has the name.
#[unsafe(no_mangle)]
unsafe extern "Rust" fn __getrandom_v03_custom(
    destination: *mut u8,
    length: usize,
) -> Result<(), getrandom::Error> {
    // SAFETY: the caller promises that. Zeros are written first, so that the slice is valid.
    let bytes = unsafe {
        destination.write_bytes(0, length);
        std::slice::from_raw_parts_mut(destination, length)
    };
    for chunk in bytes.chunks_mut(8) {
        let word = word(DRAWN.fetch_add(1, Ordering::Relaxed));
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
    if !is_public(&Backtrace::force_capture().to_string()) {
        memcheck::secret(bytes);
    }
    Ok(())
}

/// Whether a stack has one of the lines in [`PUBLIC`].
fn is_public(stack: &str) -> bool {
    let places = stack
        .lines()
        .filter_map(|line| line.trim().strip_prefix("at "));
    places.into_iter().any(|place| {
        let mut parts = place.rsplitn(3, ':').skip(1);
        let (line, file) = (parts.next(), parts.next().unwrap_or_default());
        let line: usize = line.and_then(|line| line.parse().ok()).unwrap_or_default();
        PUBLIC.iter().any(|(known, text, _)| {
            file.ends_with(known)
                && std::fs::read_to_string(file).is_ok_and(|source| {
                    source
                        .lines()
                        .nth(line.wrapping_sub(1))
                        .is_some_and(|found| found.trim() == *text)
                })
        })
    })
}

/// Word `index` of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
pub fn word(index: u64) -> u64 {
    let mut z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
