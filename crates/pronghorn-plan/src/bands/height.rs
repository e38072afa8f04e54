//! How many rows a band of a step has.

use super::{Rows, rows_of};
use crate::step::{Place, StepPlan};

/// Most bands of a value.
pub(crate) const MOST_BANDS: usize = 128;

/// The rows that a step reads where it goes by bands, and the rows of a band.
pub(crate) fn of_step(
    place: &Place<'_>,
    protocol: &dyn StepPlan,
    batch: usize,
) -> (Option<Rows>, usize) {
    let rows = rows_of(&place.value().shape);
    let rule = protocol
        .rows(place)
        .filter(|rule| rows > 1 && is_image(place) && rule.band(0..rows).is_some());
    let band = match &rule {
        Some(rule) => {
            // A row has `a` beside the images.
            let [word, degree] = protocol
                .rlwe()
                .map_or([4, 1], |rlwe| [rlwe.word.rates().bytes, rlwe.degree as u64]);
            let bytes = degree.max(batch as u64).saturating_mul(word);
            let elements = place.plan.band_bytes() / bytes.max(1);
            band_rows(place, rule, rows, elements)
        }
        None => rows,
    };
    // A step in one band reads its input whole: also rows that no window has.
    (rule.filter(|_| band < rows), band)
}

/// Bands of a step, about: windows that read nothing new come with the band before.
pub(crate) fn count(place: &Place<'_>, protocol: &dyn StepPlan, batch: usize) -> usize {
    let (_, band) = of_step(place, protocol, batch);
    rows_of(&place.value().shape).div_ceil(band.max(1))
}

/// Whether a step's value and inputs are images.
fn is_image(place: &Place<'_>) -> bool {
    let mut values = place.inputs().chain([place.value()]);
    values.all(|value| value.shape.len() == 3)
}

/// Rows of a band whose rows of input and value have about so many elements.
fn band_rows(place: &Place<'_>, rule: &Rows, rows: usize, elements: u64) -> usize {
    let input = place.input();
    let read = rule.band(0..rows).map_or(0, |(read, _)| read.len());
    let row = |len: usize, height: usize| (len / height.max(1)) as u64;
    let values = row(place.value().len(), rows)
        + (row(input.len(), rows_of(&input.shape)) * read as u64).div_ceil(rows as u64);
    let fits = usize::try_from(elements / values.max(1)).unwrap_or(usize::MAX);
    // Bands of about one size.
    let bands = rows.div_ceil(fits.clamp(rows.div_ceil(MOST_BANDS), rows));
    rows.div_ceil(bands)
}
