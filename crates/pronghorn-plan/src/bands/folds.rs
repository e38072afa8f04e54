//! Sums over all rows of a value, such as a global mean, take its rows as they come.
//!
//! Else the whole value would wait for them: a gigabyte before the mean of MobileNetV2 at 224 pixels
//! for 4,096 images, and another one for the copy that the step reads. Messages keep their order.

use std::ops::Range;

use super::Band;
use crate::{checked::CheckedPlan, plan::Plan};

/// The steps that take rows of each value so.
pub(super) struct Folds(Vec<Vec<usize>>);

impl Folds {
    pub fn of(plan: &CheckedPlan) -> Self {
        let mut folds = vec![Vec::new(); plan.steps.len()];
        for (index, step) in plan.steps.iter().enumerate() {
            let protocol = step.kind.as_step();
            if let [input] = step.inputs[..]
                && protocol.folds(&plan.place(index))
            {
                folds[input].push(index);
            }
        }
        Self(folds)
    }

    /// How many bands there are more, of values in so many bands each.
    pub fn more(&self, bands: impl Iterator<Item = usize>) -> usize {
        let more = |(steps, count): (&Vec<usize>, usize)| {
            steps.len().saturating_mul(count.saturating_sub(1))
        };
        let counts = self.0.iter().zip(bands);
        counts.map(more).fold(0, usize::saturating_add)
    }

    /// The same bands, where each of these steps takes the rows of its input one band at a time.
    pub fn fold(&self, plan: &Plan, bands: Vec<Band>) -> Vec<Band> {
        // The first row of the last band of each value.
        let mut last = vec![None; plan.steps.len()];
        bands
            .iter()
            .for_each(|band| last[band.step] = Some(band.rows.start));
        let (mut folded, mut due) = (Vec::with_capacity(bands.len()), Vec::new());
        for band in bands {
            let (step, rows) = (band.step, band.rows.clone());
            let input = plan.steps[step].inputs.first();
            let input = input.filter(|&&input| self.0[input].contains(&step));
            match input.and_then(|&input| last[input]) {
                Some(last) => {
                    folded.append(&mut due);
                    folded.push(part(step, last..band.window.end, band.rows));
                }
                None => {
                    folded.push(band);
                    folded.append(&mut due);
                }
            }
            if last[step] == Some(rows.start) {
                continue;
            }
            let parts = self.0[step].iter();
            let parts = parts.map(|&step| part(step, rows.clone(), 0..0));
            // Whoever waits for messages goes on with the band behind these, so it comes first.
            match plan.steps[step].kind.as_step().keeps_rows() {
                true => due.extend(parts),
                false => folded.extend(parts),
            }
        }
        folded
    }
}

/// The band that adds some rows of the input.
fn part(step: usize, read: Range<usize>, rows: Range<usize>) -> Band {
    Band {
        step,
        rows,
        next: read.end,
        reads: vec![read.clone()],
        window: read,
        keeps: Vec::new(),
    }
}
