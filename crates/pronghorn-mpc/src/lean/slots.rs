//! Where planes and words are while a program runs: each takes the place of one that is not needed
//! any more.

use super::program::{Level, Local, Plane, Product, Word};

/// The places of planes, or of words.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    /// By plane or word.
    at: Vec<u32>,
    count: usize,
}

impl Slots {
    /// The place of a plane or word.
    #[inline]
    pub fn of(&self, index: u32) -> usize {
        self.at[index as usize] as usize
    }

    /// How many places there are.
    pub fn count(&self) -> usize {
        self.count
    }
}

/// Places that are handed out and taken back, step by step.
pub(super) struct Uses {
    pub slots: Slots,
    /// The last step that reads each.
    last: Vec<usize>,
    free: Vec<u32>,
}

/// Both kinds of places.
pub(super) struct Places {
    pub planes: Uses,
    pub words: Uses,
}

/// What a step reads and makes.
#[derive(Default)]
struct Step {
    planes: [Vec<u32>; 2],
    words: [Vec<u32>; 2],
}

impl Places {
    /// Of so many planes and words. A local instruction is a step, and so are all products of a
    /// level: a party may send its part of one after it has taken the peer's of another.
    pub fn of(
        levels: &[Level],
        [planes, words]: [usize; 2],
        (inputs, outputs): (&[Word], &[Word]),
    ) -> Self {
        let steps: Vec<Step> = levels.iter().flat_map(Step::of_level).collect();
        let mut places = Self {
            planes: Uses::new(planes, steps.iter().map(|step| &step.planes[0])),
            words: Uses::new(words, steps.iter().map(|step| &step.words[0])),
        };
        for output in outputs {
            places.words.last[output.0 as usize] = steps.len();
        }
        for input in inputs {
            places.words.take(input.0);
        }
        for (index, step) in steps.iter().enumerate() {
            places.planes.step(index, &step.planes);
            places.words.step(index, &step.words);
        }
        places
    }
}

impl Uses {
    fn new<'a>(count: usize, reads: impl Iterator<Item = &'a Vec<u32>>) -> Self {
        let mut last = vec![0; count];
        for (step, reads) in reads.enumerate() {
            reads.iter().for_each(|&read| last[read as usize] = step);
        }
        Self {
            slots: Slots {
                at: vec![0; count],
                count: 0,
            },
            last,
            free: Vec::new(),
        }
    }

    fn take(&mut self, index: u32) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.count += 1;
            self.slots.count as u32 - 1
        });
        self.slots.at[index as usize] = slot;
    }

    /// Results never take the place of what the step reads.
    fn step(&mut self, index: usize, [reads, makes]: &[Vec<u32>; 2]) {
        makes.iter().for_each(|&made| self.take(made));
        let mut done: Vec<u32> = reads.iter().chain(makes).copied().collect();
        done.sort_unstable();
        done.dedup();
        let done = done
            .into_iter()
            .filter(|&each| self.last[each as usize] <= index);
        let freed: Vec<u32> = done.map(|each| self.slots.at[each as usize]).collect();
        self.free.extend(freed);
    }
}

impl Step {
    fn of_level(level: &Level) -> Vec<Self> {
        let mut steps: Vec<Self> = level.locals.iter().map(Self::of_local).collect();
        let mut products = Self::default();
        level
            .products
            .iter()
            .for_each(|product| products.add(product));
        steps.push(products);
        steps
    }

    fn of_local(local: &Local) -> Self {
        let mut step = Self::default();
        match local {
            Local::Bit { word, out, .. } => {
                step.reads_words(&[*word]);
                step.makes_planes(&[*out]);
            }
            Local::Xor { terms, out, .. } => {
                step.reads_planes(terms);
                step.makes_planes(&[*out]);
            }
            Local::Sum { terms, out, .. } => {
                terms
                    .iter()
                    .for_each(|(term, _)| step.reads_words(&[*term]));
                step.makes_word(*out);
            }
            Local::Shift { word, out, .. } | Local::Opposite { word, out } => {
                step.reads_words(&[*word]);
                step.makes_word(*out);
            }
            Local::Number { bit, out, .. } => {
                step.reads_planes(&[*bit]);
                step.makes_word(*out);
            }
            Local::Pick { bit, word, out } | Local::Signed { bit, word, out } => {
                step.reads_planes(&[*bit]);
                step.reads_words(&[*word]);
                step.makes_word(*out);
            }
        }
        step
    }

    fn add(&mut self, product: &Product) {
        match product {
            Product::Leaf { bits, out, .. } => {
                self.reads_planes(bits);
                self.makes_planes(out);
            }
            Product::And {
                left, rights, out, ..
            } => {
                self.reads_planes(&[*left]);
                self.reads_planes(rights);
                self.makes_planes(out);
            }
            Product::Word {
                choice, word, out, ..
            } => {
                self.reads_planes(&[*choice]);
                self.reads_words(&[*word]);
                self.makes_word(*out);
            }
        }
    }

    fn reads_planes(&mut self, planes: &[Plane]) {
        self.planes[0].extend(planes.iter().map(|plane| plane.0));
    }

    fn makes_planes(&mut self, planes: &[Plane]) {
        self.planes[1].extend(planes.iter().map(|plane| plane.0));
    }

    fn reads_words(&mut self, words: &[Word]) {
        self.words[0].extend(words.iter().map(|word| word.0));
    }

    fn makes_word(&mut self, word: Word) {
        self.words[1].push(word.0);
    }
}
