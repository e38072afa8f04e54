//! Sums of gadget products: polynomials in digits times keys, modulo all primes, divided once.

use pronghorn_ring::{Word, vector};

use crate::{
    rns::{Parameters, digits::Digits, keys::special_product, pool::Buffer, switch},
    wipe::wipe,
};

/// A polynomial, `[limb][N]`, whose digits are raised once for all of its uses.
pub(super) struct Factor<'a, W> {
    pub poly: &'a [W],
    pub uses: Vec<Use<'a, W>>,
}

/// Two vectors of keys, `[digit][limb][N]`, and the sums that their products with the digits join.
pub(super) struct Use<'a, W> {
    pub keys: [&'a [W]; 2],
    pub sums: [usize; 2],
}

/// Sums modulo the primes of a ciphertext and the special ones, `[sum][limb][N]`.
pub(super) struct Sums<'a, W: Word> {
    parameters: &'a Parameters<W>,
    limbs: usize,
    words: Buffer<'a, W>,
    /// By limb of a sum: false while its words mean nothing.
    begun: Vec<bool>,
}

impl<'a, W: Word> Sums<'a, W> {
    /// `count` sums of nothing.
    pub fn new(parameters: &'a Parameters<W>, limbs: usize, count: usize) -> Self {
        let places = count * (limbs + parameters.special_limbs());
        Self {
            parameters,
            limbs,
            words: parameters.pool().take(places * parameters.n()),
            begun: vec![false; places],
        }
    }

    /// Overwrites all words, where they followed from a secret.
    pub fn wipe(mut self) {
        wipe(&mut self.words);
    }

    /// Words of a limb.
    pub fn n(&self) -> usize {
        self.parameters.n()
    }

    /// Limbs of a sum.
    fn places(&self) -> usize {
        self.limbs + self.parameters.special_limbs()
    }

    /// The limb of the basis at a place of a sum.
    pub fn limb(&self, place: usize) -> usize {
        if place < self.limbs {
            place
        } else {
            place - self.limbs + self.parameters.limbs()
        }
    }

    /// A limb of a sum, to be overwritten by the caller.
    pub fn put(&mut self, sum: usize, place: usize) -> &mut [W] {
        let (n, at) = (self.parameters.n(), sum * self.places() + place);
        self.begun[at] = true;
        &mut self.words[at * n..][..n]
    }

    /// Adds `<digits of the polynomial, keys>` of each use of each factor, and divides sums as
    /// [`divide`](Self::divide) does. No raised digit leaves the cache, and keys that several factors
    /// use stay in it.
    pub fn add_and_divide(
        &mut self,
        factors: &[Factor<'_, W>],
        division: &Quotients<'_, W>,
        out: &mut [W],
    ) {
        let (parameters, n) = (self.parameters, self.parameters.n());
        let polys: Vec<&[W]> = factors.iter().map(|factor| factor.poly).collect();
        let mut room = parameters.pool().take(n);
        let mut fresh = parameters.pool().take(2 * n);
        let digits = Digits::new(parameters, self.limbs, &polys, &mut room);
        let mut raised = parameters.pool().take(digits.count() * n);
        let add = |sums: &mut Self, place: usize| {
            let limb = sums.limb(place);
            for (index, factor) in factors.iter().enumerate() {
                let digits = digits.raise_one(index, limb, &mut raised, &mut room);
                for each in &factor.uses {
                    sums.add_one(place, limb, &digits, each, &mut fresh);
                }
            }
        };
        self.divide(add, division, out);
    }

    fn add_one(
        &mut self,
        place: usize,
        limb: usize,
        digits: &[&[W]],
        each: &Use<'_, W>,
        fresh: &mut [W],
    ) {
        let (parameters, n) = (self.parameters, self.parameters.n());
        let q = parameters.basis().prime(limb);
        let keys = each.keys.map(|key| -> Vec<&[W]> {
            let parts = (0..digits.len()).map(|digit| key_limb(parameters, key, digit, limb));
            parts.collect()
        });
        let places = each.sums.map(|sum| sum * self.places() + place);
        let begun = places.map(|at| std::mem::replace(&mut self.begun[at], true));
        let keys = [&keys[0][..], &keys[1]];
        if begun == [false, false] {
            let sums = both(&mut self.words, n, places);
            return vector::inner_product_pair(q, digits, keys, sums);
        }
        let (first, second) = fresh.split_at_mut(n);
        vector::inner_product_pair(q, digits, keys, [&mut *first, &mut *second]);
        for ((at, begun), fresh) in places.into_iter().zip(begun).zip([first, second]) {
            let sum = &mut self.words[at * n..][..n];
            if begun {
                vector::add_assign(q, sum, fresh);
            } else {
                sum.copy_from_slice(fresh);
            }
        }
    }

    /// Completes the sums with `add`, place by place, and divides some of them:
    /// `out = round((sum + P low) / (P q_(l-k) ... q_(l-1)))` for `l = limbs` and `k = dropped`.
    /// `out` is `[sum][limb][N]` of what is kept. Sums that are divided are used up.
    ///
    /// First come the limbs to divide by, then limb by limb the others, each of which is done when
    /// it is left.
    pub fn divide(
        &mut self,
        mut add: impl FnMut(&mut Self, usize),
        division: &Quotients<'_, W>,
        out: &mut [W],
    ) {
        let (parameters, n, limbs) = (self.parameters, self.parameters.n(), self.limbs);
        let (basis, places) = (parameters.basis(), self.places());
        let Quotients { first, dropped, .. } = *division;
        let (kept, divided) = (limbs - dropped, first..first + division.low.len());
        let mut room = parameters.pool().take(n);
        for place in kept..places {
            add(self, place);
            let limb = self.limb(place);
            for (sum, low) in divided.clone().zip(division.low) {
                let words = self.complete(sum, place);
                if place < limbs
                    && let Some(low) = low
                {
                    let special = special_product(parameters, limb);
                    let low = &low[limb * n..][..n];
                    vector::mul_scalar_add_assign(basis.prime(limb), words, low, special);
                }
                basis.ntt(limb).inverse(words);
            }
        }
        let table = parameters.leaving(limbs, dropped);
        for sum in divided.clone() {
            let digits = &mut self.words[(sum * places + kept) * n..(sum + 1) * places * n];
            table.digits(digits, &mut room);
        }
        for limb in 0..kept {
            add(self, limb);
            for (index, (sum, low)) in divided.clone().zip(division.low).enumerate() {
                self.complete(sum, limb);
                let words = &self.words[sum * places * n..][..places * n];
                let out = &mut out[(index * kept + limb) * n..][..n];
                table.remainder(basis, limb, &words[kept * n..], out, &mut room);
                let low = low.map(|low| &low[limb * n..][..n]);
                let sum = &words[limb * n..][..n];
                switch::finish(parameters, limbs, dropped, limb, sum, low, out);
            }
        }
        self.begun[first * places..divided.end * places].fill(false);
    }

    /// A limb of a sum, zero where nothing was added.
    fn complete(&mut self, sum: usize, place: usize) -> &mut [W] {
        let (n, at) = (self.parameters.n(), sum * self.places() + place);
        let words = &mut self.words[at * n..][..n];
        if !self.begun[at] {
            words.fill(W::default());
        }
        words
    }
}

/// The sums that are divided: as many as there are `low`, from `first` on.
pub(super) struct Quotients<'a, W> {
    pub first: usize,
    /// Limbs that go with the special ones.
    pub dropped: usize,
    /// For each sum a polynomial `[limb][N]` that joins it, times `P`.
    pub low: &'a [Option<&'a [W]>],
}

/// Two different runs of `n` words.
fn both<W>(words: &mut [W], n: usize, [first, second]: [usize; 2]) -> [&mut [W]; 2] {
    let (low, high) = (first.min(second), first.max(second));
    let (lower, upper) = words.split_at_mut(high * n);
    let (lower, upper) = (&mut lower[low * n..][..n], &mut upper[..n]);
    if first < second {
        [lower, upper]
    } else {
        [upper, lower]
    }
}

/// A limb of a digit of a key, `[digit][limb][N]` with all limbs.
pub(super) fn key_limb<'a, W: Word>(
    parameters: &Parameters<W>,
    key: &'a [W],
    digit: usize,
    limb: usize,
) -> &'a [W] {
    let n = parameters.n();
    &key[(digit * parameters.basis().limbs() + limb) * n..][..n]
}
