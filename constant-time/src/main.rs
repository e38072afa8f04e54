//! Routines that `SECURITY.md` calls constant time, run on secrets that memcheck follows.
//!
//! `scripts/constant_time.py` runs this under Valgrind, a routine at a time, and reads its report.
//! The argument `times` compares times instead, for CPU features that Valgrind does not have.
#![deny(missing_docs, unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

mod kernels;
mod memcheck;
mod randomness;
mod routines;
mod runs;
mod times;

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        None => routines::names().for_each(|name| println!("{name}")),
        Some("times") => times::compare(),
        Some(_) if !memcheck::is_running() => {
            eprintln!("this takes Valgrind: scripts/constant_time.py runs it");
            return ExitCode::FAILURE;
        }
        Some(name) if routines::run(name) => println!("checked"),
        Some(name) => {
            eprintln!("no routine {name}: run without arguments for their names");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
