//! The order of a batch's bands, and the memory that it takes.

use std::{collections::BTreeSet, ops::Range};

use pronghorn_graph::geometry::Window;

use super::{Band, Rows, folds::Folds, height::of_step, rows_of};
use crate::{
    checked::CheckedPlan,
    cost::{Memory, StepMemory},
    plan::Plan,
};

/// Most bands of a batch, so that a plan from outside takes no more memory for them than 30 MB.
const MOST_IN_ALL: usize = 1 << 17;

/// Most bands times the readers of a value: each band looks at all readers of what it reads.
const MOST_LOOKS: usize = 1 << 22;

/// The bands of a batch, in the order of both parties; `None` where step after step is that order:
/// where no step that keeps rows has two bands, and where there would be too many.
pub fn bands(plan: &CheckedPlan, batch: usize) -> Option<Vec<Band>> {
    if !plan
        .steps
        .iter()
        .any(|step| step.kind.as_step().keeps_rows())
    {
        return None;
    }
    let steps: Vec<Step> = (0..plan.steps.len())
        .map(|index| Step::new(plan, index, batch))
        .collect();
    if !steps.iter().any(|step| step.keeps && step.rule.is_some()) {
        return None;
    }
    let counts = steps
        .iter()
        .map(|step| step.rows.div_ceil(step.band.max(1)));
    let all: usize = counts.clone().skip(1).sum();
    if all < steps.len() || all > MOST_IN_ALL {
        return None;
    }
    let folds = Folds::of(plan);
    let has_room = folds.more(counts) <= MOST_IN_ALL - all;
    let order = Order::new(plan, steps);
    let readers = order.readers.iter().map(Vec::len).max().unwrap_or(0);
    if all.saturating_mul(readers) > MOST_LOOKS {
        return None;
    }
    let mut bands = order.list();
    if has_room {
        bands = folds.fold(plan, bands);
    }
    set_keeps(plan, &mut bands);
    Some(bands)
}

/// Finds for each band the first row of its inputs that later bands read.
fn set_keeps(plan: &Plan, bands: &mut [Band]) {
    let heights = plan.steps.iter().map(|step| rows_of(&step.value.shape));
    let mut needed: Vec<usize> = heights.collect();
    needed[plan.output] = 0;
    for band in bands.iter_mut().rev() {
        let inputs = &plan.steps[band.step].inputs;
        band.keeps = inputs.iter().map(|&input| needed[input]).collect();
        for (&input, rows) in inputs.iter().zip(&band.reads) {
            needed[input] = needed[input].min(rows.start);
        }
    }
}

/// The windows of a band's step over their parts of the rows; `None` where the step makes its value
/// whole.
pub fn windows(plan: &CheckedPlan, band: &Band) -> Option<Vec<Window>> {
    let place = plan.place(band.step);
    if band.rows.len() == rows_of(&place.value().shape) {
        return None;
    }
    let rule = plan.steps[band.step].kind.as_step().rows(&place)?;
    rule.band(band.rows.clone()).map(|(_, windows)| windows)
}

/// What the order needs of a step.
struct Step {
    /// Rows of its value.
    rows: usize,
    /// Rows of a band.
    band: usize,
    /// The rows that it reads, where it goes by bands.
    rule: Option<Rows>,
    /// Whether it keeps rows that it has read.
    keeps: bool,
    /// Rows made.
    done: usize,
    /// Those of the next band; none at the end.
    next: Range<usize>,
    /// Rows of the input read, where it keeps them.
    read: usize,
}

impl Step {
    fn new(plan: &CheckedPlan, index: usize, batch: usize) -> Self {
        let (place, protocol) = (plan.place(index), plan.steps[index].kind.as_step());
        let (rule, band) = of_step(&place, protocol, batch);
        let step = Self {
            rows: rows_of(&place.value().shape),
            band,
            rule,
            keeps: protocol.keeps_rows(),
            done: 0,
            next: 0..0,
            read: 0,
        };
        let next = step.next_rows(rows_of(&place.input().shape));
        Self { next, ..step }
    }

    /// The rows of the input that `rows` of the value follow from, of an input of `height` rows.
    fn window(&self, rows: Range<usize>, height: usize) -> Range<usize> {
        self.rule
            .as_ref()
            .map_or(0..height, |rule| rule.reads(rows))
    }

    /// The rows of the next band. One that keeps rows of its input, which has `height`, reads some
    /// in each band: rows that follow from what it has come with the band before. Takes time
    /// proportional to those, so it is asked once a band.
    fn next_rows(&self, height: usize) -> Range<usize> {
        let mut rows = self.done..(self.done + self.band).min(self.rows);
        let end = |rows: Range<usize>| self.window(rows, height).end;
        while self.keeps && rows.end < self.rows && end(rows.end..rows.end + 1) <= end(rows.clone())
        {
            rows.end += 1;
        }
        rows
    }
}

/// Makes the list.
struct Order<'a> {
    plan: &'a Plan,
    steps: Vec<Step>,
    readers: Vec<Vec<usize>>,
    /// Steps that can make a band.
    ready: BTreeSet<usize>,
    /// The step and first row of the band whose messages are under way.
    under_way: Option<(usize, usize)>,
}

impl<'a> Order<'a> {
    fn new(plan: &'a Plan, mut steps: Vec<Step>) -> Self {
        let mut readers = vec![Vec::new(); steps.len()];
        for (index, step) in plan.steps.iter().enumerate() {
            step.inputs.iter().for_each(|&i| readers[i].push(index));
        }
        steps[0].done = steps[0].rows;
        Self {
            plan,
            steps,
            readers,
            ready: BTreeSet::new(),
            under_way: None,
        }
    }

    fn list(mut self) -> Vec<Band> {
        let mut bands = Vec::new();
        (1..self.steps.len()).for_each(|index| self.look(index));
        while let Some(index) = self.next() {
            let band = self.make(index);
            bands.push(band);
            self.look(index);
            for reader in self.readers[index].clone() {
                self.look(reader);
            }
        }
        bands
    }

    /// Takes the step of the next band: the last one that waits for no messages, else the last one.
    fn next(&mut self) -> Option<usize> {
        let free = |&&index: &&usize| self.is_free(index);
        let free = self.ready.iter().rev().find(free).copied();
        let index = free.or(self.ready.last().copied())?;
        self.ready.remove(&index);
        let step = &self.steps[index];
        if step.keeps {
            self.under_way = Some((index, step.next.start));
        } else if free.is_none() {
            self.under_way = None;
        }
        Some(index)
    }

    /// Whether the next band of a step can be made while messages are under way.
    fn is_free(&self, index: usize) -> bool {
        let Some((other, first)) = self.under_way else {
            return true;
        };
        let step = &self.steps[index];
        let end = step.window(step.next.clone(), self.steps[other].rows).end;
        index != other && !(self.plan.steps[index].inputs.contains(&other) && end > first)
    }

    /// Notes a step that can make a band.
    fn look(&mut self, index: usize) {
        let step = &self.steps[index];
        let mut inputs = self.plan.steps[index].inputs.iter();
        let is_there = |&input: &usize| {
            let value = &self.steps[input];
            step.window(step.next.clone(), value.rows).end <= value.done
        };
        if step.done < step.rows && inputs.all(is_there) {
            self.ready.insert(index);
        }
    }

    fn make(&mut self, index: usize) -> Band {
        let inputs = &self.plan.steps[index].inputs;
        let height = inputs.first().map_or(0, |&input| self.steps[input].rows);
        let step = &self.steps[index];
        let rows = step.next.clone();
        let window = step.window(rows.clone(), height);
        let reads = |&input: &usize| {
            let window = step.window(rows.clone(), self.steps[input].rows);
            match step.keeps {
                true => step.read.max(window.start)..window.end.max(step.read),
                false => window,
            }
        };
        let reads: Vec<_> = inputs.iter().map(reads).collect();
        let step = &mut self.steps[index];
        step.done = rows.end;
        step.read = step.read.max(window.end);
        step.next = step.next_rows(height);
        let next = self.first_needed(index, height);
        Band {
            step: index,
            rows,
            window,
            reads,
            keeps: Vec::new(),
            next,
        }
    }

    /// The first row of an input of `height` rows that a step still needs.
    fn first_needed(&self, index: usize, height: usize) -> usize {
        let step = &self.steps[index];
        match step.done == step.rows {
            true => height,
            false => step.window(step.next.clone(), height).start,
        }
    }
}

/// Bytes that the parties hold for a batch that goes by bands, but for its inputs: at most, and at
/// most while each step works.
pub(crate) fn memory(plan: &CheckedPlan, batch: usize, bands: &[Band]) -> (Memory, Vec<Memory>) {
    let words = |value: usize, rows: usize| {
        let shape = &plan.steps[value].value.shape;
        let row = plan.steps[value].value.len() / rows_of(shape).max(1);
        4 * (row as u64) * rows as u64 * batch as u64
    };
    let mut pieces: Vec<Vec<Range<usize>>> = vec![Vec::new(); plan.steps.len()];
    let mut shares = 0;
    // What steps keep for their next bands: each, and all.
    let mut keeps = vec![Memory::default(); plan.steps.len()];
    let (mut kept, mut most) = (Memory::default(), Memory::default());
    let mut each = vec![Memory::default(); plan.steps.len()];
    // The band whose messages are under way, and the bytes that the client holds for it: rows, moved
    // or copied, and secrets.
    let mut under_way: Option<(&Band, u64)> = None;
    for band in bands {
        let inputs = &plan.steps[band.step].inputs;
        under_way = under_way.filter(|(other, _)| band.is_free_of(other, inputs));
        // A piece that nobody reads again is moved, and any other rows are copied. Those of the input
        // are made anew.
        let copied = |(&input, (rows, &keep)): (&usize, (&Range<usize>, &usize))| {
            let is_moved = rows.end <= keep && pieces[input].contains(rows);
            if is_moved {
                0
            } else {
                words(input, rows.len())
            }
        };
        let reads = inputs.iter().zip(band.reads.iter().zip(&band.keeps));
        let read: u64 = reads.map(copied).sum();
        let (step, made) = (&plan.steps[band.step], words(band.step, band.rows.len()));
        let compiled = plan.compiled(band.step);
        let (own, stays) = step.kind.as_step().band_memory(&compiled, batch, band);
        let works = own.plus(StepMemory {
            server: 0,
            client: read + made,
        });
        each[band.step] = each[band.step].most(works);
        let others = kept.minus(keeps[band.step]);
        most = most.most(works.plus(others).plus(Memory {
            server: 0,
            client: shares + under_way.map_or(0, |(_, held)| held),
        }));
        if step.kind.as_step().keeps_rows() {
            let rows = inputs.iter().zip(&band.reads);
            let held: u64 = rows.map(|(&input, rows)| words(input, rows.len())).sum();
            under_way = Some((band, held + own.minus(stays).client));
        }
        (kept, keeps[band.step]) = (others.plus(stays), stays);
        pieces[band.step].push(band.rows.clone());
        shares += made;
        for (&input, &keep) in inputs.iter().zip(&band.keeps) {
            pieces[input].retain(|piece| {
                let stays = piece.end > keep;
                shares -= if stays { 0 } else { words(input, piece.len()) };
                stays
            });
        }
    }
    (most, each)
}
