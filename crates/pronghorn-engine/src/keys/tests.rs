//! The list of messages.

use super::*;
use crate::exchange::tests::{assert_table, names};

#[test]
fn the_table_lists_the_messages() {
    let shape = Shape {
        levels: 6,
        key_bytes: 5 << 20,
        kept: true,
    };
    assert_table(include_str!("mod.rs"), names(&shape.messages()));
}
