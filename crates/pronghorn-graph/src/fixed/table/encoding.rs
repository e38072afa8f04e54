//! A table as plans have it: one of constants is written as before there were linear pieces.

use serde::{Deserialize, Serialize};

use super::Table;

/// The fields of a [`Table`], in the order in which they are written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Encoded {
    base: Base,
    drop: u32,
    first: i32,
    entries: Vec<i32>,
}

/// The base; a byte 0 or 1 where there are no pieces, as `rectified` once was.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Base {
    Zero,
    Relu,
    ZeroAndPieces { fine: u32, rises: Vec<i32> },
    ReluAndPieces { fine: u32, rises: Vec<i32> },
}

impl From<Table> for Encoded {
    fn from(table: Table) -> Self {
        let (fine, rises) = (table.fine, table.rises);
        Self {
            base: match (table.rectified, fine) {
                (false, 0) => Base::Zero,
                (true, 0) => Base::Relu,
                (false, _) => Base::ZeroAndPieces { fine, rises },
                (true, _) => Base::ReluAndPieces { fine, rises },
            },
            drop: table.drop,
            first: table.first,
            entries: table.entries,
        }
    }
}

impl TryFrom<Encoded> for Table {
    type Error = &'static str;

    fn try_from(encoded: Encoded) -> Result<Self, Self::Error> {
        let (rectified, fine, rises) = match encoded.base {
            Base::Zero => (false, 0, Vec::new()),
            Base::Relu => (true, 0, Vec::new()),
            // A table has one encoding.
            Base::ZeroAndPieces { fine: 0, .. } | Base::ReluAndPieces { fine: 0, .. } => {
                return Err("linear pieces without fine bits");
            }
            Base::ZeroAndPieces { fine, rises } => (false, fine, rises),
            Base::ReluAndPieces { fine, rises } => (true, fine, rises),
        };
        Ok(Self {
            rectified,
            drop: encoded.drop,
            first: encoded.first,
            entries: encoded.entries,
            fine,
            rises,
        })
    }
}
