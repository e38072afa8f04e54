//! Bands: a batch of thousands of images goes through the layers some image rows at a time.
//!
//! Step after step each value of the batch is whole at once: 5 GB for one value of 112 x 112 x 48
//! of 2,048 images. A convolution needs a few rows of its input for a row of its value. So a step
//! makes a *band* of rows as soon as these are there, and rows that nobody needs any more are
//! dropped. No row is computed or sent twice: a layer keeps the rows that its next windows share
//! with this one, the halo.
//!
//! The order is depth first: the last step that can make a band is next. Both parties derive it
//! from the plan and the batch. A step whose value is no image of rows, such as a dense layer or a
//! transposition, takes its inputs whole and makes its value whole, in one band. Where all steps
//! do, there is no order but that of the steps.

use std::{collections::BTreeSet, ops::Range};

use pronghorn_graph::geometry::Window;

use crate::{
    checked::CheckedPlan,
    cost::{Memory, StepMemory},
    plan::Plan,
    step::{Place, StepPlan},
    trust::TrustLevel,
};

/// Most bands of a value.
const MOST_BANDS: usize = 128;

/// Most bands of a batch, so that a plan from outside takes no more memory for them than 30 MB.
const MOST_IN_ALL: usize = 1 << 17;

/// Most bands times the readers of a value: each band looks at all readers of what it reads.
const MOST_LOOKS: usize = 1 << 22;

/// Rows that a step reads for rows of its value: those of windows, one over the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// The windows from input to value, each with the height it runs over.
    windows: Vec<(Window, usize)>,
}

impl Rows {
    /// Each row of the value reads the row of its number.
    pub fn alike() -> Self {
        Self::default()
    }

    /// The same, then a window over a value of that height.
    pub fn then(mut self, window: &Window, height: usize) -> Self {
        self.windows.push((window.clone(), height));
        self
    }

    /// The rows read for `rows` of the value, in a step that goes by bands.
    fn reads(&self, rows: Range<usize>) -> Range<usize> {
        let windows = self.windows.iter().rev();
        windows.fold(rows, |rows, (window, height)| window.reads(rows, *height))
    }

    /// The rows read for `rows` of the value, and each window over its part of them; `None` where
    /// a window has padding alone.
    pub fn band(&self, rows: Range<usize>) -> Option<(Range<usize>, Vec<Window>)> {
        let (mut rows, mut windows) = (rows, Vec::new());
        for (window, height) in self.windows.iter().rev() {
            let (read, band) = window.band(rows, *height)?;
            windows.push(band);
            rows = read;
        }
        windows.reverse();
        Some((rows, windows))
    }
}

/// Rows of a step's value, made together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Band {
    /// The step.
    pub step: usize,
    /// The rows of its value.
    pub rows: Range<usize>,
    /// The rows of its input from which they follow.
    pub window: Range<usize>,
    /// For each input the rows that the step reads now: those of the window, or where the step
    /// keeps rows that it has read those that are new.
    pub reads: Vec<Range<usize>>,
    /// For each input the first row that any step still reads after this.
    pub keeps: Vec<usize>,
    /// The first row of the window of the next band of the step; the end of the input after the
    /// last.
    pub next: usize,
}

impl Band {
    /// Whether it is the first of its step.
    pub fn is_first(&self) -> bool {
        self.rows.start == 0
    }

    /// The halo that the step has from bands before.
    pub fn kept(&self) -> Range<usize> {
        let new = self.reads.first().map_or(0, |new| new.start);
        self.window.start..new.max(self.window.start)
    }

    /// The halo that the step keeps for its next band.
    pub fn halo(&self) -> Range<usize> {
        self.next.min(self.window.end)..self.window.end
    }
}

/// Rows of a value of this shape: the height of an image, else one.
pub fn rows_of(shape: &[usize]) -> usize {
    match *shape {
        [_, height, _] => height,
        _ => 1,
    }
}

/// The bands of a batch, in the order of both parties; `None` where step after step is that order:
/// under another trust level, where no step has two bands, and where there would be too many.
pub fn bands(plan: &CheckedPlan, batch: usize) -> Option<Vec<Band>> {
    if plan.trust != TrustLevel::ClientAided {
        return None;
    }
    let steps: Vec<Step> = (0..plan.steps.len())
        .map(|index| Step::new(plan, index, batch))
        .collect();
    let count = |step: &Step| step.rows.div_ceil(step.band.max(1));
    let all: usize = steps[1..].iter().map(count).sum();
    if all < steps.len() || all > MOST_IN_ALL {
        return None;
    }
    let order = Order::new(plan, steps);
    let readers = order.readers.iter().map(Vec::len).max().unwrap_or(0);
    (all.saturating_mul(readers) <= MOST_LOOKS).then(|| order.list())
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

/// The rows that a step reads where it goes by bands, and the rows of a band.
fn of_step(place: &Place<'_>, protocol: &dyn StepPlan, batch: usize) -> (Option<Rows>, usize) {
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

/// Makes the list.
struct Order<'a> {
    plan: &'a Plan,
    steps: Vec<Step>,
    readers: Vec<Vec<usize>>,
    /// Steps that can make a band.
    ready: BTreeSet<usize>,
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
        }
    }

    fn list(mut self) -> Vec<Band> {
        let mut bands = Vec::new();
        (1..self.steps.len()).for_each(|index| self.look(index));
        while let Some(index) = self.ready.pop_last() {
            let band = self.make(index);
            bands.push(band);
            self.look(index);
            for reader in self.readers[index].clone() {
                self.look(reader);
            }
        }
        bands
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
        let next = self.first_needed(index, height, false);
        let keeps = inputs.iter().map(|&input| self.first_read(input)).collect();
        Band {
            step: index,
            rows,
            window,
            reads,
            keeps,
            next,
        }
    }

    /// The first row of an input of `height` rows that a step still needs; of one that keeps rows,
    /// the first that it has not read where `unread` says so.
    fn first_needed(&self, index: usize, height: usize, unread: bool) -> usize {
        let step = &self.steps[index];
        if step.done == step.rows {
            return height;
        }
        let first = step.window(step.next.clone(), height).start;
        match unread && step.keeps {
            true => first.max(step.read),
            false => first,
        }
    }

    /// The first row of a value that any step still reads.
    fn first_read(&self, value: usize) -> usize {
        let height = self.steps[value].rows;
        let readers = self.readers[value].iter();
        let needed = readers.map(|&reader| self.first_needed(reader, height, true));
        let result = (value == self.plan.output).then_some(0);
        needed.chain(result).min().unwrap_or(height)
    }
}

/// Bytes that the parties hold for a batch that goes by bands: at most, and at most while each step
/// works.
pub(crate) fn memory(plan: &CheckedPlan, batch: usize, bands: &[Band]) -> (Memory, Vec<Memory>) {
    let words = |value: usize, rows: usize| {
        let shape = &plan.steps[value].value.shape;
        let row = plan.steps[value].value.len() / rows_of(shape).max(1);
        4 * (row as u64) * rows as u64 * batch as u64
    };
    let mut pieces: Vec<Vec<Range<usize>>> = vec![Vec::new(); plan.steps.len()];
    pieces[0].push(0..rows_of(&plan.input().shape));
    let (mut shares, mut halos) = (words(0, pieces[0][0].len()), vec![0u64; plan.steps.len()]);
    let (mut halo, mut most) = (0u64, Memory::default());
    let mut each = vec![Memory::default(); plan.steps.len()];
    for band in bands {
        let inputs = &plan.steps[band.step].inputs;
        // A piece that nobody reads again is moved, and any other rows are copied.
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
        let (works, kept) = step.kind.as_step().band_memory(&compiled, batch, band);
        let works = works.plus(StepMemory {
            server: 0,
            client: read + made,
        });
        each[band.step] = each[band.step].most(works);
        most = most.most(works.plus(Memory {
            server: halo - halos[band.step],
            client: shares,
        }));
        (halo, halos[band.step]) = (halo - halos[band.step] + kept, kept);
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
