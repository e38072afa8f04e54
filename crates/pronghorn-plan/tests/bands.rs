//! Bands of a batch: every row once, nothing read before it is there, and less memory.

use crate::common::networks::{Middle, aided, around, convolutions, in_bands, options, plan};
use pronghorn_plan::{
    CheckedPlan, TrustLevel,
    bands::{self, Band, rows_of},
    cost,
};

/// The plans of networks with every kind of step, with so many bytes in a band.
fn plans(band_bytes: u64) -> Vec<CheckedPlan> {
    use Middle::*;
    let middles = [
        MaxPool,
        PaddedMaxPool,
        AveragePool,
        Residual,
        Concat,
        Means,
        Gate,
        Takes,
    ];
    let of = |middle| plan(&around(middle), options(TrustLevel::ClientAided));
    let all = middles.map(of).into_iter().chain([aided(1, None)]);
    all.map(|built| in_bands(built, band_bytes).plan).collect()
}

/// A step makes its rows once and in order, from rows that were made, and a step that keeps rows
/// reads none twice: no element is encrypted twice under a key.
#[test]
fn rows_are_made_once_and_read_when_there() {
    for plan in plans(1 << 10) {
        let bands = bands::order::bands(&plan, 7).expect("the plan goes by bands");
        let mut made = vec![0; plan.steps.len()];
        let (mut read, mut needed) = (made.clone(), vec![0; plan.steps.len()]);
        made[0] = rows_of(&plan.input().shape);
        for band in &bands {
            let step = &plan.steps[band.step];
            assert_eq!(band.rows.start, made[band.step]);
            let is_part = step.kind.as_step().folds(&plan.place(band.step))
                && band.window.end < rows_of(&plan.steps[step.inputs[0]].value.shape);
            assert_eq!(band.rows.is_empty(), is_part);
            for (place, (&input, rows)) in step.inputs.iter().zip(&band.reads).enumerate() {
                assert!(rows.end <= made[input], "{band:?}");
                assert!(rows.start >= needed[input], "{band:?} was dropped");
                if place == 0 && step.kind.as_step().keeps_rows() {
                    assert!(rows.start >= read[band.step], "{band:?} sends a row twice");
                    assert!(!rows.is_empty(), "{band:?} sends nothing");
                    let kept = rows.start.max(band.window.start) - band.window.start;
                    assert_eq!(kept + rows.len(), band.window.len());
                    read[band.step] = rows.end.max(read[band.step]);
                }
            }
            made[band.step] = band.rows.end;
            for (&input, &keep) in step.inputs.iter().zip(&band.keeps) {
                assert!(keep >= needed[input]);
                needed[input] = keep;
            }
        }
        for (index, step) in plan.steps.iter().enumerate() {
            assert_eq!(made[index], rows_of(&step.value.shape), "step {index}");
        }
    }
}

/// Sums over all rows take them as they come, so that no value waits for them. Nothing else is made
/// in another order.
#[test]
fn means_take_rows_as_they_come() {
    let built = plan(&around(Middle::Means), options(TrustLevel::ClientAided));
    let plan = in_bands(built, 1 << 10).plan;
    let bands = bands::order::bands(&plan, 7).expect("the plan goes by bands");
    let folds = |step: usize| plan.steps[step].kind.as_step().folds(&plan.place(step));
    let steps: Vec<usize> = (0..plan.steps.len()).filter(|&step| folds(step)).collect();
    assert_eq!(steps.len(), 2);
    for step in steps {
        let of_step: Vec<&Band> = bands.iter().filter(|band| band.step == step).collect();
        assert!(of_step.len() > 1, "{of_step:?}");
        let reads = of_step.iter().flat_map(|band| band.reads[0].clone());
        assert!(reads.eq(0..4), "each row once");
        let last = of_step.len() - 1;
        for (at, band) in of_step.iter().enumerate() {
            assert_eq!(band.rows.len(), usize::from(at == last));
        }
        // The band before makes the rows, or the one before that where messages are under way.
        for (at, band) in bands
            .iter()
            .enumerate()
            .filter(|(_, band)| band.step == step)
        {
            let input = plan.steps[step].inputs[0];
            let makes = |other: &Band| other.step == input && other.rows == band.window;
            assert!(
                bands[at.saturating_sub(4)..at].iter().any(makes),
                "{band:?}"
            );
        }
    }
}

/// Most bands of a chain of layers are made while messages of the one before are under way.
#[test]
fn messages_of_two_bands_are_under_way_at_a_time() {
    let built = plan(&convolutions(), options(TrustLevel::ClientAided));
    let plan = in_bands(built, 1 << 10).plan;
    let bands = bands::order::bands(&plan, 7).expect("the plan goes by bands");
    let is_exchanged = |band: &&Band| plan.steps[band.step].kind.as_step().keeps_rows();
    let exchanged = bands.iter().filter(is_exchanged).count();
    let (mut under_way, mut ahead): (Option<&Band>, usize) = (None, 0);
    for band in &bands {
        under_way = under_way.filter(|other| band.is_free_of(other, &plan.steps[band.step].inputs));
        if is_exchanged(&band) {
            ahead += usize::from(under_way.is_some());
            under_way = Some(band);
        }
    }
    assert!(4 * ahead > 3 * exchanged, "{ahead} of {exchanged}");
}

/// One band a step is no band at all.
#[test]
fn large_bands_are_no_bands() {
    for plan in plans(1 << 40) {
        assert_eq!(bands::order::bands(&plan, 7), None);
    }
}

#[test]
fn bands_take_less_memory() {
    let whole = aided(1, None).plan;
    let batch = 2048;
    let all = cost::memory(&whole, batch);
    let bands = cost::memory(&in_bands(aided(1, None), 1 << 20).plan, batch);
    assert!(5 * bands.server < 4 * all.server, "{bands:?} of {all:?}");
}

/// Of a plan from outside bands are no more than a bound.
#[test]
fn tiny_bands_are_refused() {
    let mut plan = aided(1, None).plan.plan().clone();
    plan.band_bytes = 1;
    assert!(CheckedPlan::new(plan).is_err());
}
