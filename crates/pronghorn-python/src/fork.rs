//! Processes that were forked: a child has none of its parent's threads, and must not use its
//! parent's connections.

use std::{
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use pyo3::prelude::*;

use crate::coded;

/// The process whose threads compute; 0: none does yet.
static COMPUTING: AtomicU32 = AtomicU32::new(0);

fn forked(what: &str) -> PyErr {
    coded(
        format!(
            "this process was forked from one that {what}, which its child cannot go on with: start processes with \
             multiprocessing's \"spawn\" or \"forkserver\", or use pronghorn after the fork alone"
        ),
        "forked",
        false,
    )
}

/// Refuses in the child of a process that has computed: the pool's threads are not there, and
/// waiting for them never ends.
pub fn check() -> PyResult<()> {
    match COMPUTING.load(Ordering::SeqCst) {
        home if home == 0 || home == process::id() => Ok(()),
        _ => Err(forked("had computed")),
    }
}

/// The same, for what makes this process one that computes.
pub fn compute() -> PyResult<()> {
    let here = process::id();
    // What another thread has put there is as good.
    let _ = COMPUTING.compare_exchange(0, here, Ordering::SeqCst, Ordering::SeqCst);
    check()
}

/// The process an object was made in.
pub struct Home(u32);

impl Home {
    /// This one.
    pub fn here() -> Self {
        Self(process::id())
    }

    /// Whether this is another one.
    pub fn is_left(&self) -> bool {
        self.0 != process::id()
    }

    /// Refuses in another one.
    pub fn check(&self, what: &str) -> PyResult<()> {
        match self.is_left() {
            true => Err(forked(what)),
            false => Ok(()),
        }
    }
}
