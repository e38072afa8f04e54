//! Rates of one core, the nominal CPU, for predictions only; [`Speed`](super::Speed) scales them to
//! a machine. Those of products are from `pronghorn bench batch` on a
//! 3 GHz Cascade Lake with AVX-512. Those on shares fit `pronghorn bench gazelle`'s networks
//! through loopback on a 3 GHz Sapphire Rapids.

/// Word multiply-adds a second, 32-bit words.
pub const PRODUCT_U32: f64 = 55e9;
/// Word multiply-adds a second, 64-bit words.
pub const PRODUCT_U64: f64 = 20e9;
/// Seconds to encrypt or decrypt a value, 32-bit words, with the packing of both parties.
pub const VALUE_U32: f64 = 7e-9;
/// The same for 64-bit words.
pub const VALUE_U64: f64 = 40e-9;
/// Seconds to expand one word of `a` and to add it up at the client.
pub const PUBLIC: f64 = 2e-9;
/// Multiply-adds a second of a word by a weight, without a product by `a`.
pub const DIRECT_PRODUCT: f64 = 8e9;
/// Seconds a word of a polynomial's product and inverse NTT.
pub const TRANSFORM_WORD: f64 = 2.5e-9;
/// Seconds to encrypt, pack, unpack, mask or decrypt a word, both parties.
pub const SENT_WORD: f64 = 10e-9;
/// Seconds a butterfly of a complex FFT in double precision (`pronghorn bench ngraph-he2`).
pub const BUTTERFLY: f64 = 0.4e-9;
/// Seconds a byte of garbled tables, both parties.
pub const TABLE_BYTE: f64 = 1.3e-9;
/// Seconds an oblivious transfer, both parties.
pub const TRANSFER: f64 = 22e-9;
/// The same of width 8, for lean steps.
pub const LEAN_TRANSFER: f64 = 50e-9;
/// The same, silent, with tables that the cache holds.
pub const SILENT_TRANSFER: f64 = 30e-9;
/// The same with large tables.
pub const SILENT_LARGE_TRANSFER: f64 = 45e-9;
/// Seconds of an oblivious transfer of a lean step beside the extension, both parties: its strings
/// and its product.
pub const LEAN_PRODUCT: f64 = 36e-9;
/// Seconds of a correction of a product, both parties, beside its oblivious transfer.
pub const CORRECTION: f64 = 6e-9;
/// Seconds of a round trip of a step on shares: messages, wake-ups, memory made and wiped.
pub const ROUND: f64 = 0.35e-3;
/// The offline part of a garbled step's seconds (`pronghorn bench activations`).
pub const OFFLINE: f64 = 0.92;
/// The online part of a garbled step's seconds (`pronghorn bench activations`).
pub const ONLINE: f64 = 0.47;
