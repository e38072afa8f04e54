//! Sizes of a product of matrices under encryption, its bytes and its time.

use pronghorn_graph::{fixed::ValueSpec, matrices::Matrices};
use pronghorn_he::matrix::{Layout, MOST_ANSWERS, MatrixError, Setting, Sizes};

use crate::cost::rate;

/// What follows from a plan.
#[derive(Clone)]
pub struct Product {
    /// Sizes of all parts.
    pub matrices: Matrices,
    /// Of each.
    pub setting: Setting,
}

/// NTTs of a ciphertext that is sent, of a polynomial in the clear, and of an answer, both parties.
const TRANSFORMS: [f64; 3] = [4.0, 2.0, 12.0];

/// Words of 64 bits of a ciphertext, a coefficient.
pub(super) const CIPHERTEXT: usize = 4;

/// Whether a product on shares of `bits` bits takes fewer bytes under encryption than by oblivious
/// transfer, by much.
pub(crate) fn pays(matrices: &Matrices, bits: u32, guard: u32) -> bool {
    let Ok(Some(product)) = Product::new(matrices, bits, guard) else {
        return false;
    };
    let bits = bits as usize;
    let transfers = matrices.products().saturating_mul(bits * (bits + 1)) / 8;
    let [up, down] = product.bytes(1);
    2 * (up + down) < transfers
}

/// Whether there are parameters.
pub(crate) fn is_possible(left: &ValueSpec, right: &ValueSpec, bits: u32, guard: u32) -> bool {
    let matrices = Matrices::of(&left.shape, &right.shape);
    let made = matrices.map(|matrices| Product::new(&matrices, bits, guard));
    matches!(made, Ok(Ok(Some(_))))
}

impl Product {
    /// For shares of so many bits. `None` where an image has more messages than one key may serve
    /// answers.
    pub(super) fn new(
        matrices: &Matrices,
        bits: u32,
        guard: u32,
    ) -> Result<Option<Self>, MatrixError> {
        let &Matrices {
            parts,
            rows,
            inner,
            columns,
        } = matrices;
        let sizes = Sizes {
            rows,
            inner,
            columns,
        };
        let setting = Setting::new(sizes, bits, guard)?;
        let messages = |layout: &Layout| layout.factors() + layout.answers();
        let messages: usize = setting.layouts().iter().map(messages).sum();
        let fits = parts.saturating_mul(messages) <= MOST_ANSWERS;
        Ok(fits.then_some(Self {
            matrices: *matrices,
            setting,
        }))
    }

    /// Bytes of a batch, up and down.
    pub fn bytes(&self, batch: usize) -> [usize; 2] {
        let (setting, parts) = (&self.setting, self.matrices.parts * batch);
        let layouts = setting.layouts();
        let factors: usize = layouts.iter().map(Layout::factors).sum();
        let answers = layouts.iter().enumerate().flat_map(|(place, layout)| {
            (0..layout.answers()).map(move |answer| setting.answer_bytes(place, answer))
        });
        [
            batch * setting.key_bytes() + parts * factors * setting.factor_bytes(),
            parts * answers.sum::<usize>(),
        ]
    }

    /// Seconds of a batch, both parties.
    pub(super) fn seconds(&self, batch: usize) -> f64 {
        let of = |layout: &Layout| {
            let counts = [layout.factors(), layout.plains(), layout.answers()];
            let pairs = counts.into_iter().zip(TRANSFORMS);
            let transforms: f64 = pairs.map(|(count, each)| count as f64 * each).sum();
            let products = (CIPHERTEXT * layout.answers() * layout.terms()) as f64;
            transforms * rate::TRANSFORM_WORD
                + products * PRODUCT
                + (counts[0] + counts[2]) as f64 * rate::SENT_WORD
        };
        let each: f64 = self.setting.layouts().iter().map(of).sum();
        (batch * self.matrices.parts * self.setting.degree()) as f64 * each
    }
}

/// Seconds of a product of two words modulo a prime, in a sum of such.
const PRODUCT: f64 = 8.0 / rate::PRODUCT_U64;
