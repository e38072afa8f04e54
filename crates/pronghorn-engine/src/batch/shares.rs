//! What a linear step on shares adds to the batch engine, on the server's side: its own share goes
//! into the product, and the answer is re-randomised and hidden. See [`pronghorn_he::shares`].

use pronghorn_he::{
    RlweRing,
    rlwe::expand_a,
    shares::{Hider, Hiding, PublicKey, Rerandomiser, ShareEncoding},
};
use pronghorn_ring::{
    Word,
    random::{Prg, Seed},
};
use rayon::prelude::*;

use crate::share::{Batch, Share};

/// The server's half of what is shared.
pub(super) struct ServerShares<W: Word> {
    pub encoding: ShareEncoding,
    rerandomiser: Rerandomiser,
    hider: Hider,
    key: Option<PublicKey<W>>,
    input: Share,
    output: Batch,
}

impl<W: Word> ServerShares<W> {
    /// For an answer of so many elements of so many images: with the seed that the client's `a` are
    /// re-randomised with, and a fresh one.
    pub fn new(
        encoding: ShareEncoding,
        input: Share,
        (outputs, batch): (usize, usize),
        rerandomiser: &Seed,
        masks: &Seed,
    ) -> Self {
        Self {
            encoding,
            rerandomiser: Rerandomiser::new(rerandomiser),
            hider: Hider::new(masks),
            key: None,
            input,
            output: Batch::zeros(outputs, batch),
        }
    }

    /// Takes the client's public key: residues in whole blocks, whose `a` is row `row` of the
    /// client's seed.
    pub fn take_key(&mut self, ring: &RlweRing<W>, generator: &Prg, row: u64, b: Vec<W>) {
        let mut a = vec![W::default(); ring.n()];
        expand_a(generator, row, ring.modulus(), &mut a);
        self.key = Some(PublicKey::new(ring, a, b));
    }

    /// Adds the server's share to the client's encrypted one, `[input][image]`.
    pub fn add_input(&mut self, ring: &RlweRing<W>, rows: &mut [W]) {
        if let Share::Words(input) = std::mem::replace(&mut self.input, Share::Zero) {
            let (q, encoding) = (ring.modulus(), self.encoding);
            rows.par_iter_mut()
                .zip(input.words())
                .with_min_len(1 << 12)
                .for_each(|(word, &share)| {
                    *word = q.add(*word, W::from_u64(encoding.encode(share)));
                });
        }
    }

    /// What hides answers, and the server's shares that are left when they are hidden, to be
    /// filled.
    pub fn hiding(&mut self) -> Option<(Hiding<'_, W>, &mut Batch)> {
        let hiding = Hiding {
            encoding: self.encoding,
            rerandomiser: &self.rerandomiser,
            hider: &self.hider,
            key: self.key.as_ref()?,
        };
        Some((hiding, &mut self.output))
    }

    /// The server's share of the answer.
    pub fn into_share(self) -> Share {
        Share::Words(self.output)
    }
}
