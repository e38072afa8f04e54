//! Sums of gadget products: polynomials in digits times keys, modulo all primes, divided once.

use pronghorn_ring::{Word, vector};

use crate::{
    rns::{
        Parameters,
        digits::Digits,
        keys::special_product,
        pool::Buffer,
        switch,
        tasks::{by_limb, each},
    },
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

/// Sums modulo the primes of a ciphertext and the special ones, `[place][sum][N]`: the place of a
/// limb is its own work.
pub(super) struct Sums<'a, W: Word> {
    parameters: &'a Parameters<W>,
    limbs: usize,
    count: usize,
    words: Buffer<'a, W>,
    /// `[place][sum]`: false while the words of a sum mean nothing there.
    begun: Vec<bool>,
}

/// The sums at one place.
pub(super) struct Place<'s, W: Word> {
    parameters: &'s Parameters<W>,
    /// The place, and the limb of the basis there.
    pub index: usize,
    pub limb: usize,
    /// `[sum][N]`.
    words: &'s mut [W],
    begun: &'s mut [bool],
}

impl<'a, W: Word> Sums<'a, W> {
    /// `count` sums of nothing.
    pub fn new(parameters: &'a Parameters<W>, limbs: usize, count: usize) -> Self {
        let places = limbs + parameters.special_limbs();
        Self {
            parameters,
            limbs,
            count,
            words: parameters.pool().take(count * places * parameters.n()),
            begun: vec![false; count * places],
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

    fn places(&mut self) -> Vec<Place<'_, W>> {
        let (parameters, limbs) = (self.parameters, self.limbs);
        let words = self.words.chunks_exact_mut(self.count * parameters.n());
        let parts = words.zip(self.begun.chunks_exact_mut(self.count));
        let place = |(index, (words, begun))| Place {
            parameters,
            index,
            limb: match index < limbs {
                true => index,
                false => index - limbs + parameters.limbs(),
            },
            words,
            begun,
        };
        parts.enumerate().map(place).collect()
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
        let digits = Digits::new(parameters, self.limbs, &polys);
        let add = |place: &mut Place<'_, W>| {
            let pool = parameters.pool();
            let (mut room, mut fresh) = (pool.take(n), pool.take(2 * n));
            let mut raised = pool.take(digits.count() * n);
            for (index, factor) in factors.iter().enumerate() {
                let digits = digits.raise_one(index, place.limb, &mut raised, &mut room);
                for one in &factor.uses {
                    place.add(&digits, one, &mut fresh);
                }
            }
        };
        self.divide(add, division, out);
    }

    /// Completes the sums with `add`, place by place, and divides some of them:
    /// `out = round((sum + P low) / (P q_(l-k) ... q_(l-1)))` for `l = limbs` and `k = dropped`.
    /// `out` is `[sum][limb][N]` of the limbs that stay. Sums that are divided are used up. On
    /// rayon's current threads, a place each.
    pub fn divide(
        &mut self,
        add: impl Fn(&mut Place<'_, W>) + Sync,
        division: &Quotients<'_, W>,
        out: &mut [W],
    ) {
        let (parameters, n, limbs) = (self.parameters, self.parameters.n(), self.limbs);
        let (basis, pool) = (parameters.basis(), parameters.pool());
        let Quotients { first, dropped, .. } = *division;
        let (kept, divided) = (limbs - dropped, first..first + division.low.len());
        let mut places = self.places();
        let leaving = places.len() - kept;
        // `[sum][place][N]`, in coefficients.
        let mut divisors = pool.take(divided.len() * leaving * n);
        let mut parts = by_limb(&mut divisors, leaving, n);
        parts.splice(0..0, (0..kept).map(|_| Vec::new()));
        // Those that leave have more work, so they come first.
        let tasks: Vec<_> = places.iter_mut().zip(parts).rev().collect();
        each(n, tasks, |(place, parts)| {
            add(place);
            for ((sum, low), part) in divided.clone().zip(division.low).zip(parts) {
                place.leave(sum, *low, part);
            }
        });
        let table = parameters.leaving(limbs, dropped);
        let tasks = divisors.chunks_exact_mut(leaving * n).collect();
        each(n, tasks, |digits| {
            let mut room = pool.take(n);
            table.digits(digits, &mut room);
            wipe(&mut room);
        });
        let tasks = places.iter_mut().zip(by_limb(out, kept, n)).collect();
        each(n, tasks, |(place, outs)| {
            let mut room = pool.take(n);
            let (limb, digits) = (place.limb, divisors.chunks_exact(leaving * n));
            let sums = divided.clone().zip(division.low).zip(digits).zip(outs);
            for (((sum, low), digits), out) in sums {
                table.remainder(basis, limb, digits, out, &mut room);
                let low = low.map(|low| &low[limb * n..][..n]);
                let words = place.complete(sum);
                switch::finish(parameters, limbs, dropped, limb, words, low, out);
                place.begun[sum] = false;
            }
            wipe(&mut room);
        });
        // Some sums follow from a secret: see `wipe`.
        each(n, divisors.chunks_exact_mut(n).collect(), wipe);
    }
}

impl<W: Word> Place<'_, W> {
    /// A sum, to be overwritten by the caller.
    pub fn put(&mut self, sum: usize) -> &mut [W] {
        let n = self.parameters.n();
        self.begun[sum] = true;
        &mut self.words[sum * n..][..n]
    }

    fn add(&mut self, digits: &[&[W]], one: &Use<'_, W>, fresh: &mut [W]) {
        let (parameters, n, limb) = (self.parameters, self.parameters.n(), self.limb);
        let q = parameters.basis().prime(limb);
        let keys = one.keys.map(|key| -> Vec<&[W]> {
            let parts = (0..digits.len()).map(|digit| key_limb(parameters, key, digit, limb));
            parts.collect()
        });
        let keys = [&keys[0][..], &keys[1]];
        let begun = one
            .sums
            .map(|sum| std::mem::replace(&mut self.begun[sum], true));
        if begun == [false, false] {
            let sums = both(self.words, n, one.sums);
            return vector::inner_product_pair(q, digits, keys, sums);
        }
        let (first, second) = fresh.split_at_mut(n);
        vector::inner_product_pair(q, digits, keys, [&mut *first, &mut *second]);
        for ((sum, begun), fresh) in one.sums.into_iter().zip(begun).zip([first, second]) {
            let sum = &mut self.words[sum * n..][..n];
            if begun {
                vector::add_assign(q, sum, fresh);
            } else {
                sum.copy_from_slice(fresh);
            }
        }
    }

    /// `out` = a sum with `P low`, in coefficients. The sum is used up.
    fn leave(&mut self, sum: usize, low: Option<&[W]>, out: &mut [W]) {
        let (parameters, n, limb) = (self.parameters, self.parameters.n(), self.limb);
        let basis = parameters.basis();
        out.copy_from_slice(self.complete(sum));
        self.begun[sum] = false;
        // Special primes divide `P`.
        if let Some(low) = low
            && limb < parameters.limbs()
        {
            let special = special_product(parameters, limb);
            let low = &low[limb * n..][..n];
            vector::mul_scalar_add_assign(basis.prime(limb), out, low, special);
        }
        basis.ntt(limb).inverse(out);
    }

    /// A sum, zero where nothing was added.
    fn complete(&mut self, sum: usize) -> &[W] {
        let words = &mut self.words[sum * self.parameters.n()..][..self.parameters.n()];
        if !self.begun[sum] {
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
