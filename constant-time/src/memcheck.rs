//! Secrets as Valgrind's memcheck sees them: memory that was never written.
//!
//! Memcheck follows each bit of such memory through registers and memory, and reports where a
//! branch or an address depends on one (Langley, ctgrind, 2010). Outside of Valgrind the requests
//! do nothing.

use bytemuck::NoUninit;

/// `VG_USERREQ__RUNNING_ON_VALGRIND` of `valgrind.h`.
const RUNNING_ON_VALGRIND: u64 = 0x1001;
/// `VG_USERREQ__MAKE_MEM_UNDEFINED` of `memcheck.h`.
const MAKE_MEM_UNDEFINED: u64 = 0x4d43_0001;
/// `VG_USERREQ__MAKE_MEM_DEFINED` of `memcheck.h`.
const MAKE_MEM_DEFINED: u64 = 0x4d43_0002;

/// Whether the process runs under Valgrind.
pub fn is_running() -> bool {
    request(RUNNING_ON_VALGRIND, 0, 0) != 0
}

/// Marks values as secret. They keep their bits.
pub fn secret<T: NoUninit>(values: &[T]) {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    request(
        MAKE_MEM_UNDEFINED,
        bytes.as_ptr() as u64,
        bytes.len() as u64,
    );
}

/// Marks values as public: what a party sends, or what it may learn.
pub fn public<T: NoUninit>(values: &[T]) {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    request(MAKE_MEM_DEFINED, bytes.as_ptr() as u64, bytes.len() as u64);
}

/// A client request; 0 outside of Valgrind.
#[cfg(target_arch = "x86_64")]
fn request(code: u64, first: u64, second: u64) -> u64 {
    let arguments = [code, first, second, 0, 0, 0];
    let mut answer = 0u64;
    // SAFETY: the four rotations turn rdi by 128 bits, which leaves it, and rbx is exchanged with
    // itself: the CPU does nothing. Valgrind knows the sequence. It reads the six words of
    // `arguments`, which live on, and writes rdx. It changes no byte of the memory it marks.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            inout("rdx") answer,
            in("rax") arguments.as_ptr(),
            inout("rdi") 0u64 => _,
            options(nostack),
        );
    }
    answer
}

/// Valgrind's requests are written here for x86-64 alone.
#[cfg(not(target_arch = "x86_64"))]
fn request(_code: u64, _first: u64, _second: u64) -> u64 {
    0
}
