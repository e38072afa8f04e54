//! Reproducible seeds for tests that compare whole transcripts. Only with the feature `test-seed`.
//!
//! **Never enable the feature outside dev-dependencies.** It makes [`Seed::from_os`] predictable
//! inside [`TestSeeds::during`]. Three things keep it out of what users run:
//!
//! * No crate enables it but in `[dev-dependencies]`, and cargo's resolver leaves those out of any
//!   build without tests.
//! * The crate does not compile with the feature in a build without debug assertions, such as
//!   `--release`.
//! * With the feature, seeds still come from the system everywhere but inside
//!   [`TestSeeds::during`], on the thread that called it.

use std::cell::RefCell;

use crate::random::Seed;

#[cfg(not(debug_assertions))]
compile_error!(
    "the feature `test-seed` makes secrets predictable: it belongs in [dev-dependencies] alone, and never in a release build"
);

thread_local! {
    /// The seeds of the call of `during` that this thread is in.
    static CURRENT: RefCell<Option<TestSeeds>> = const { RefCell::new(None) };
}

/// A sequence of seeds that a name and a count determine: for tests alone, nothing here is secret.
///
/// One sequence belongs to one party in one run. Then draws of one party never shift those of the
/// other, and draws of one run never shift those of the next.
#[derive(Clone)]
pub struct TestSeeds {
    name: String,
    drawn: u64,
}

impl TestSeeds {
    /// The sequence of this name, from its start.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            drawn: 0,
        }
    }

    /// Calls `f`. Until it returns, [`Seed::from_os`] gives the next seeds of this sequence on this
    /// thread. Other threads, those of rayon too, keep the system's randomness.
    ///
    /// # Panics
    /// Where one call is inside another.
    pub fn during<T>(&mut self, f: impl FnOnce() -> T) -> T {
        /// Ends the replacement even where `f` panics.
        struct Reset;
        impl Drop for Reset {
            fn drop(&mut self) {
                CURRENT.take();
            }
        }
        let outer = CURRENT.replace(Some(self.clone()));
        let reset = Reset;
        assert!(outer.is_none(), "one sequence of seeds inside another");
        let result = f();
        if let Some(seeds) = CURRENT.take() {
            *self = seeds;
        }
        drop(reset);
        result
    }

    /// The seed of draw `n` is `blake3::derive_key(context, name || n as u64 little-endian)`.
    fn next(&mut self) -> Seed {
        let mut hasher =
            blake3::Hasher::new_derive_key("pronghorn 2026 seeds of tests, not secret");
        hasher.update(self.name.as_bytes());
        hasher.update(&self.drawn.to_le_bytes());
        self.drawn += 1;
        Seed::from_bytes(*hasher.finalize().as_bytes())
    }
}

/// The next seed on this thread, inside [`TestSeeds::during`].
pub(crate) fn next() -> Option<Seed> {
    CURRENT.with_borrow_mut(|seeds| seeds.as_mut().map(TestSeeds::next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw() -> [u8; 32] {
        *Seed::from_os()
            .expect("the system has randomness")
            .as_bytes()
    }

    #[test]
    fn a_name_and_a_count_determine_a_seed() {
        let (mut a, mut again, mut b) = (
            TestSeeds::new("a"),
            TestSeeds::new("a"),
            TestSeeds::new("b"),
        );
        let first = a.during(draw);
        let second = a.during(draw);
        assert_eq!(again.during(|| [draw(), draw()]), [first, second]);
        assert_ne!(first, second);
        assert_ne!(b.during(draw), first);
    }

    #[test]
    fn other_threads_and_later_draws_are_the_systems() {
        let mut seeds = TestSeeds::new("a");
        let other = || std::thread::spawn(draw).join().expect("no panic");
        let found = seeds.during(|| [other(), other()]);
        assert_ne!(found[0], found[1]);
        assert_eq!(seeds.during(draw), TestSeeds::new("a").during(draw));
        assert_ne!(draw(), draw());
    }

    #[test]
    fn a_panic_ends_the_sequence() {
        let panicked = std::panic::catch_unwind(|| {
            TestSeeds::new("a").during(|| panic!("inside"));
        });
        assert!(panicked.is_err());
        assert_ne!(draw(), draw());
    }
}
