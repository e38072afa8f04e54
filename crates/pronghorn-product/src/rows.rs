//! The input of a product: rows of words, together or each at a place of its own.

/// Rows of equal length.
#[derive(Clone, Copy)]
pub enum Rows<'a, W> {
    /// `[row][column]` of so many columns.
    Together(&'a [W], usize),
    /// Each row for itself, as where some of them are of an earlier product.
    Apart(&'a [&'a [W]]),
}

impl<'a, W> Rows<'a, W> {
    /// A row.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    #[inline(always)]
    pub(crate) fn get(&self, row: usize) -> &'a [W] {
        match *self {
            Self::Together(words, columns) => &words[row * columns..][..columns],
            Self::Apart(rows) => rows[row],
        }
    }

    /// True where these are `count` rows of `columns` words.
    pub(crate) fn are(&self, count: usize, columns: usize) -> bool {
        match *self {
            Self::Together(words, of_row) => {
                of_row == columns && Some(words.len()) == count.checked_mul(columns)
            }
            Self::Apart(rows) => rows.len() == count && rows.iter().all(|row| row.len() == columns),
        }
    }
}
