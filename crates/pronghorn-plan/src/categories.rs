//! Categories of a client's values: a kind of contract, a town, or the number of a word.
//!
//! A network takes numbers. So the client sends an indicator for each category that the model knows
//! in place of such a value: 1 for its own, and 0 for the others. The server sees none of them, as of
//! all inputs. The categories themselves go to the client with the plan.

use std::collections::BTreeSet;

use pronghorn_graph::names::{MAX_NAME, is_shown};
use serde::{Deserialize, Serialize};

/// A value of the client's row that is one of several categories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Categories {
    /// Its place in the row as the client has it, before indicators stand for it.
    pub place: usize,
    /// The categories, in the order of their indicators.
    pub known: Known,
    /// What becomes of another value.
    pub others: Others,
}

/// The categories that a model knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Known {
    /// The whole numbers from 0 on, so many.
    Indices(usize),
    /// Whole numbers.
    Numbers(Vec<i64>),
    /// Texts.
    Names(Vec<String>),
}

/// What becomes of a value that is none of the categories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Others {
    /// The client refuses it before it sends anything.
    Refused,
    /// All indicators are 0, as the model has it. The client's owner is told.
    Zeros,
    /// All indicators are 0: the model does not tell other values apart.
    Alike,
}

impl Known {
    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Self::Indices(count) => *count,
            Self::Numbers(numbers) => numbers.len(),
            Self::Names(names) => names.len(),
        }
    }

    fn are_distinct(&self) -> bool {
        match self {
            Self::Indices(_) => true,
            Self::Numbers(numbers) => {
                numbers.iter().collect::<BTreeSet<_>>().len() == numbers.len()
            }
            Self::Names(names) => names.iter().collect::<BTreeSet<_>>().len() == names.len(),
        }
    }

    fn are_shown(&self) -> bool {
        match self {
            Self::Names(names) => names.iter().all(|name| is_shown(name)),
            Self::Indices(_) | Self::Numbers(_) => true,
        }
    }
}

/// The number of values in a client's row that becomes a network's input of this shape.
///
/// # Errors
/// The categories are none of such a row: places do not ascend, a name is not shown, or there are
/// more indicators than the input has values.
pub fn row_len(categories: &[Categories], shape: &[usize]) -> Result<usize, String> {
    let mut indicators = 0usize;
    let mut next = 0;
    for each in categories {
        if each.place < next {
            return Err(format!("value {} does not follow value {next}", each.place));
        }
        next = each.place.saturating_add(1);
        if each.known.count() == 0 || !each.known.are_distinct() {
            let place = each.place;
            return Err(format!(
                "those of value {place} are none, or two are the same"
            ));
        }
        if !each.known.are_shown() {
            return Err(format!(
                "a name has at most {MAX_NAME} bytes and no hidden characters"
            ));
        }
        indicators = indicators.saturating_add(each.known.count());
    }
    let values: usize = shape.iter().product();
    let row = values
        .checked_sub(indicators)
        .map(|numbers| numbers + categories.len());
    let row =
        row.ok_or_else(|| format!("there are {indicators} for {values} values of the input"))?;
    if next > row {
        return Err(format!("value {} is beyond a row of {row}", next - 1));
    }
    let last = shape.last().copied().unwrap_or(0);
    let is_uniform =
        row == categories.len() && categories.iter().all(|each| each.known.count() == last);
    match shape.len() < 2 || categories.is_empty() || is_uniform {
        true => Ok(row),
        false => Err(format!(
            "an input of shape {shape:?} has as many for each of its values as its last dimension"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn category(place: usize, known: Known) -> Categories {
        Categories {
            place,
            known,
            others: Others::Zeros,
        }
    }

    fn names(names: &[&str]) -> Known {
        Known::Names(names.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_row_has_numbers_and_categories() {
        let found = [
            category(1, names(&["red", "blue"])),
            category(2, Known::Indices(3)),
        ];
        // A number, two indicators, three, and another number.
        assert_eq!(row_len(&found, &[7]), Ok(4));
        assert_eq!(row_len(&[], &[3, 8, 8]), Ok(192));
        let words = [0, 1].map(|place| category(place, Known::Indices(5)));
        assert_eq!(row_len(&words, &[2, 5]), Ok(2));
    }

    #[test]
    fn others_are_refused() {
        let one = |known| vec![category(0, known)];
        let refused = [
            (one(Known::Indices(0)), vec![4]),
            (one(Known::Indices(5)), vec![4]),
            (one(Known::Numbers(vec![7, 7])), vec![4]),
            (one(names(&["a", "a"])), vec![4]),
            (one(names(&["two\nlines"])), vec![4]),
            (vec![category(4, Known::Indices(1))], vec![4]),
            (vec![category(usize::MAX, Known::Indices(1))], vec![4]),
            (
                [1, 1].map(|at| category(at, Known::Indices(1))).to_vec(),
                vec![4],
            ),
            (one(Known::Indices(5)), vec![2, 5]),
        ];
        for (categories, shape) in refused {
            assert!(
                row_len(&categories, &shape).is_err(),
                "{categories:?} {shape:?}"
            );
        }
    }
}
