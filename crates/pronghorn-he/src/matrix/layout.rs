//! Where elements of matrices sit in polynomials.

use std::num::NonZero;

/// Which factor is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first, `X`.
    Left,
    /// The second, `Y`, as `(X Y)^T = Y^T X^T`.
    Right,
}

/// Sizes of `X (rows, inner)` and `Y (inner, columns)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Of `X`.
    pub rows: usize,
    /// Columns of `X`, rows of `Y`.
    pub inner: usize,
    /// Of `Y`.
    pub columns: usize,
}

/// Bits of a coefficient on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths {
    /// Of an encrypted factor's `b`.
    pub factor: u32,
    /// Of an answer's `a`.
    pub a: u32,
    /// Of an answer's `b`, of which those that are elements are sent.
    pub b: u32,
}

/// Blocks of an encrypted matrix `E` and of one in the clear, `C`, whose product is wanted.
///
/// A block has `m` rows and `k` columns of `E`, or `k` rows and `n` columns of `C`, with
/// `m k n <= N`. Element `(i, t)` of the former is coefficient `i n k + (k - 1 - t)`, `(t, j)` of
/// the latter `j k + t`. So coefficient `i n k + j k + (k - 1)` of the product is element `(i, j)`
/// of the blocks' product. The exponents of terms with other `t` are not `k - 1` modulo `k`, and
/// those that wrap around `N` end at `k - 2`, below all elements.
///
/// Source: Hao et al., "Iron" (NeurIPS 2022), section 4.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    side: Side,
    degree: usize,
    /// Rows of `E`, what is summed over, columns of `C`.
    lengths: [usize; 3],
    /// The same of a block.
    block: [usize; 3],
}

/// The lengths of parts that cut a length in parts of one length, but for the last, the longest
/// first: the least that make as many parts.
fn parts(length: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(length), move |&part| {
        let shorter = part.checked_sub(1).filter(|&shorter| shorter > 0)?;
        Some(length.div_ceil(length.div_ceil(shorter)))
    })
}

impl Layout {
    /// The blocks whose messages are shortest; `None` where a size is zero.
    pub fn choose(degree: usize, side: Side, sizes: Sizes, widths: Widths) -> Option<Self> {
        let Sizes {
            rows,
            inner,
            columns,
        } = sizes;
        let lengths = match side {
            Side::Left => [rows, inner, columns],
            Side::Right => [columns, inner, rows],
        };
        if lengths.contains(&0) {
            return None;
        }
        let layouts = parts(lengths[0]).flat_map(|m| parts(lengths[2]).map(move |n| (m, n)));
        let layouts = layouts.filter_map(|(m, n)| {
            let most = degree.checked_div(m.checked_mul(n)?)?.min(inner);
            let parts = inner.div_ceil(NonZero::new(most)?.get());
            Some(Self {
                side,
                degree,
                lengths,
                block: [m, inner.div_ceil(parts), n],
            })
        });
        layouts.min_by_key(|layout| layout.bytes(widths))
    }

    /// Bytes of all messages, nearly.
    pub(super) fn bytes(&self, widths: Widths) -> usize {
        let factors = self.factors() * self.degree * widths.factor as usize;
        let a = self.answers() * self.degree * widths.a as usize;
        let b = self.lengths[0] * self.lengths[2] * widths.b as usize;
        (factors + a + b) / 8
    }

    /// The factor that is encrypted.
    pub fn side(&self) -> Side {
        self.side
    }

    fn counts(&self) -> [usize; 3] {
        [0, 1, 2].map(|axis| self.lengths[axis].div_ceil(self.block[axis]))
    }

    /// Ciphertexts of the encrypted factor.
    pub fn factors(&self) -> usize {
        let [rows, inner, _] = self.counts();
        rows * inner
    }

    /// Ciphertexts that are summed up to an answer.
    pub fn terms(&self) -> usize {
        self.counts()[1]
    }

    /// Polynomials of the factor in the clear.
    pub fn plains(&self) -> usize {
        let [_, inner, columns] = self.counts();
        inner * columns
    }

    /// Ciphertexts of the product.
    pub fn answers(&self) -> usize {
        let [rows, _, columns] = self.counts();
        rows * columns
    }

    /// Answers that read a polynomial of the factor in the clear.
    pub(super) fn rows(&self) -> usize {
        self.counts()[0]
    }

    /// Blocks of columns of the factor in the clear.
    pub(super) fn columns(&self) -> usize {
        self.counts()[2]
    }

    /// Elements in the clear that meet an element of the product's polynomial, at most.
    pub fn clear_elements(&self) -> usize {
        self.lengths[1] * self.block[2]
    }

    fn ranges(&self, axes: [usize; 2], blocks: [usize; 2]) -> [std::ops::Range<usize>; 2] {
        [0, 1].map(|place| {
            let (length, block) = (self.lengths[axes[place]], self.block[axes[place]]);
            blocks[place] * block..length.min((blocks[place] + 1) * block)
        })
    }

    /// Between neighbours of a matrix with these axes, as it lies in memory: a transpose of it on the
    /// right.
    fn strides(&self, axes: [usize; 2]) -> [usize; 2] {
        let [first, second] = axes.map(|axis| self.lengths[axis]);
        match self.side {
            Side::Left => [second, 1],
            Side::Right => [1, first],
        }
    }

    /// Coefficient and element of each number of ciphertext `row * terms + term` of the encrypted
    /// factor, as that lies in memory.
    pub fn factor(&self, factor: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let blocks = [factor / self.terms(), factor % self.terms()];
        let [rows, inner] = self.ranges([0, 1], blocks);
        let ([_, block, n], [of_rows, of_inner]) = (self.block, self.strides([0, 1]));
        let (first, start) = (rows.start, inner.start);
        pairs(rows, inner).map(move |(i, t)| {
            let coefficient = (i - first) * n * block + block - 1 - (t - start);
            (coefficient, i * of_rows + t * of_inner)
        })
    }

    /// The same of the factor in the clear, for a term and a block of columns.
    pub(super) fn clear(
        &self,
        term: usize,
        column: usize,
    ) -> impl Iterator<Item = (usize, usize)> + use<> {
        let [inner, columns] = self.ranges([1, 2], [term, column]);
        let (block, [of_inner, of_columns]) = (self.block[1], self.strides([1, 2]));
        let (start, first) = (inner.start, columns.start);
        pairs(inner, columns).map(move |(t, j)| {
            let coefficient = (j - first) * block + t - start;
            (coefficient, t * of_inner + j * of_columns)
        })
    }

    /// The same of answer `column * rows + row`, whose elements are those of `X Y`.
    pub fn answer(&self, answer: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let blocks = [answer % self.rows(), answer / self.rows()];
        let [rows, columns] = self.ranges([0, 2], blocks);
        let ([_, block, n], [of_rows, of_columns]) = (self.block, self.strides([0, 2]));
        let (first, start) = (rows.start, columns.start);
        pairs(rows, columns).map(move |(i, j)| {
            let coefficient = ((i - first) * n + j - start) * block + block - 1;
            (coefficient, i * of_rows + j * of_columns)
        })
    }

    /// Elements of an answer.
    pub fn elements(&self, answer: usize) -> usize {
        let blocks = [answer % self.rows(), answer / self.rows()];
        self.ranges([0, 2], blocks)
            .iter()
            .map(ExactSizeIterator::len)
            .product()
    }
}

fn pairs(
    outer: std::ops::Range<usize>,
    inner: std::ops::Range<usize>,
) -> impl Iterator<Item = (usize, usize)> {
    outer.flat_map(move |first| inner.clone().map(move |second| (first, second)))
}
