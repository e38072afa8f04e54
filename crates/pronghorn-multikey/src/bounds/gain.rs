//! What becomes of errors on their way to the result.

/// What a layer does with noise.
pub struct LayerStep {
    /// The squares of folds' sums: `2^f`.
    pub folded: f64,
    /// True if copies of an output are alike: folds cover the ciphertext, or there is one copy.
    pub is_full: bool,
    /// For each output the sum of the squares of its weights, and the largest at a slot before
    /// folds.
    pub rows: Vec<f64>,
    pub most_before: f64,
    /// The squares of the input's slots that meet weights, summed over the products: for each
    /// output, at the largest after folds, and before.
    pub met: Vec<f64>,
    pub most_met: [f64; 2],
    /// True where the result is this value, or is made from it without another layer's weights.
    pub is_last: bool,
    /// Of a layer of factors, one for each element.
    pub factors: Option<Vec<f64>>,
    /// Weights by output: `(element, weight)`. The first of the elements in a slot has those of all.
    pub matrix: Vec<Vec<(usize, f64)>>,
    /// `|L|_2^2` by elements and by slots.
    pub norms: [f64; 2],
    /// Copies of an element of the input.
    pub copies: f64,
}

impl LayerStep {
    pub fn folded(&self, gain: &Gain) -> f64 {
        match self.is_full {
            true => gain.alike.total() * self.folded,
            false => gain.apart.total() * self.folded * self.folded,
        }
    }

    pub fn rotated(&self, gain: &Gain) -> f64 {
        match self.is_full {
            true => gain.alike.weighted(&self.rows),
            false => gain.apart.total() * self.folded * self.folded * self.most_before,
        }
    }

    pub fn weights(&self, gain: &Gain) -> f64 {
        let [after, before] = self.most_met;
        match (self.is_full, self.is_last) {
            // Slots beside the result have the noise, too.
            (true, true) => gain.alike.total() * after,
            // Without folds noise of weights is apart in each slot.
            (true, false) if self.factors.is_some() => {
                let [alike, apart] = [&gain.alike, &gain.apart].map(|x| x.weighted(&self.met));
                alike.max(apart)
            }
            (true, false) => gain.alike.weighted(&self.met),
            (false, _) => gain.apart.total() * self.folded * self.folded * before,
        }
    }

    /// Of the input.
    pub fn before(&self, gain: &Gain, elements: usize) -> Gain {
        if let Some(factors) = &self.factors {
            let squares: Vec<f64> = factors.iter().map(|f| f * f).collect();
            return gain.scaled(&squares);
        }
        let [by_elements, by_slots] = self.norms;
        if !self.is_full {
            let apart = gain.apart.total() * by_slots;
            return Gain {
                alike: Form::Total(apart * self.copies),
                apart: Form::Total(apart),
            };
        }
        if let Form::Diagonal(diagonal) = &gain.alike {
            let mut columns = vec![0.0; elements];
            for (row, power) in self.matrix.iter().zip(diagonal) {
                row.iter().for_each(|&(j, w)| columns[j] += power * w * w);
            }
            return Gain {
                alike: Form::Columns(columns.clone()),
                apart: Form::Columns(columns),
            };
        }
        let total = gain.alike.total();
        Gain {
            alike: Form::Total(total * by_elements),
            apart: Form::Total(total * by_slots),
        }
    }
}

/// `|J|_F^2 / K`.
#[derive(Clone)]
pub enum Form {
    /// `J` is diagonal, of these squares.
    Diagonal(Vec<f64>),
    /// The squares of the columns' norms.
    Columns(Vec<f64>),
    Total(f64),
}

impl Form {
    pub fn total(&self) -> f64 {
        match self {
            Self::Diagonal(all) | Self::Columns(all) => all.iter().sum(),
            Self::Total(total) => *total,
        }
    }

    /// Of errors with these powers, one for each element.
    pub fn weighted(&self, powers: &[f64]) -> f64 {
        match self {
            Self::Diagonal(all) | Self::Columns(all) => {
                all.iter().zip(powers).map(|(x, y)| x * y).sum()
            }
            Self::Total(total) => total * powers.iter().fold(0.0, |x: f64, &y| x.max(y)),
        }
    }

    /// Through a diagonal matrix of these squares.
    pub fn scaled(&self, squares: &[f64]) -> Self {
        let each = |all: &[f64]| all.iter().zip(squares).map(|(x, y)| x * y).collect();
        match self {
            Self::Diagonal(all) => Self::Diagonal(each(all)),
            Self::Columns(all) => Self::Columns(each(all)),
            Self::Total(_) => Self::Total(self.weighted(squares)),
        }
    }
}

/// Of errors of a value that are alike in copies, and of those that are apart.
#[derive(Clone)]
pub struct Gain {
    pub alike: Form,
    pub apart: Form,
}

impl Gain {
    pub fn none() -> Self {
        Self::of(Form::Total(0.0))
    }

    pub fn of(form: Form) -> Self {
        Self {
            alike: form.clone(),
            apart: form,
        }
    }

    pub fn scaled(&self, squares: &[f64]) -> Self {
        Self {
            alike: self.alike.scaled(squares),
            apart: self.apart.scaled(squares),
        }
    }

    pub fn total_times(&self, factor: f64) -> Self {
        Self {
            alike: Form::Total(self.alike.total() * factor),
            apart: Form::Total(self.apart.total() * factor),
        }
    }

    /// Of several ways to the result.
    pub fn sum(ways: Vec<Self>) -> Self {
        match <[Self; 1]>::try_from(ways) {
            Ok([one]) => one,
            Err(ways) => {
                let sum = |form: fn(&Self) -> &Form| {
                    let norms = ways.iter().map(|way| form(way).total().sqrt());
                    Form::Total(norms.sum::<f64>().powi(2))
                };
                Self {
                    alike: sum(|x| &x.alike),
                    apart: sum(|x| &x.apart),
                }
            }
        }
    }
}
