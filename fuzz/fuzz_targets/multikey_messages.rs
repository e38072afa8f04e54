//! Headers, hellos and what a cloud wants, from a hostile peer: refused, or read as they are written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pronghorn_session::multikey::message::{Header, Hello, Wanted};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = Header::decode(bytes) {
        assert_eq!(header.encode(), bytes);
    }
    if let Ok(hello) = Hello::decode(bytes) {
        assert_eq!(hello.encode(), bytes);
    }
    if let Ok(wanted) = Wanted::decode(bytes) {
        assert_eq!(wanted.encode().len(), bytes.len());
    }
});
