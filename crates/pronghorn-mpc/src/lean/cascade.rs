//! Programs one after the other, on batches of other sizes: a value of one becomes an input of the
//! next, at another place.
//!
//! An instance is one run of a cascade. A [`Stage`] runs its program on `width` elements of each
//! instance. Words of an instance are numbered: its inputs first, then the results of each stage,
//! element by element. Levels follow each other over all stages, so a cascade costs no message more
//! than a program of as many levels. To move a share from place to place takes no message.

use std::{ops::Range, sync::Arc};

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::{
    evaluation::{Evaluation, LeanError},
    program::{Party, Program},
    randoms::{Dealer, Received, Sent},
};
use crate::{
    Block,
    circuit::Modulus,
    ot::{
        OtError,
        transfer::{CorrelatedReceiver, CorrelatedSender},
    },
};

/// Programs one after the other; both parties have the same ones.
#[derive(Clone, Debug)]
pub struct Cascade {
    inputs: usize,
    stages: Vec<Stage>,
}

/// A program on some elements of each instance.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    program: Arc<Program>,
    width: usize,
    /// By element, then by input of the program.
    sources: Vec<Source>,
    /// The number of its first result.
    first: usize,
}

/// An input of a stage: a sum of words, and of 1.
#[derive(Clone, Debug, Default)]
pub(super) struct Source {
    pub words: Vec<usize>,
    pub one: bool,
}

impl Source {
    /// The word itself.
    pub fn word(word: usize) -> Self {
        Self {
            words: vec![word],
            one: false,
        }
    }

    /// The other value of a bit.
    pub fn not(word: usize) -> Self {
        Self {
            words: vec![word],
            one: true,
        }
    }

    /// The sum of words, which are of one modulus.
    pub fn sum(words: Vec<usize>) -> Self {
        Self { words, one: false }
    }
}

impl From<Program> for Cascade {
    /// One program, on one element of an instance.
    fn from(program: Program) -> Self {
        let inputs = program.inputs();
        let mut cascade = Self::new(inputs);
        cascade.push(program, (0..inputs).map(Source::word).collect());
        cascade
    }
}

impl Cascade {
    /// A cascade of these many inputs, and no stage yet.
    pub(super) fn new(inputs: usize) -> Self {
        Self {
            inputs,
            stages: Vec::new(),
        }
    }

    /// Adds a program, with the inputs of one element after the other; the numbers of its results.
    pub(super) fn push(&mut self, program: Program, sources: Vec<Source>) -> Range<usize> {
        let width = match program.inputs() {
            0 => 1,
            inputs => sources.len() / inputs,
        };
        let first = self.words();
        self.stages.push(Stage {
            program: Arc::new(program),
            width,
            sources,
            first,
        });
        first..self.words()
    }

    /// Words of an instance.
    fn words(&self) -> usize {
        let last = self.stages.last();
        last.map_or(self.inputs, |last| last.first + last.results())
    }

    /// Shared words that it takes, each of every instance.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// The modulus of the result.
    ///
    /// # Panics
    /// Where it has no stage.
    pub fn output_modulus(&self) -> Modulus {
        self.stages[self.stages.len() - 1].program.output_modulus()
    }

    /// Most elements of an instance in a stage.
    pub fn width(&self) -> usize {
        let widths = self.stages.iter().map(|stage| stage.width);
        widths.max().unwrap_or(1)
    }

    /// Levels of all stages.
    pub fn levels(&self) -> usize {
        let levels = self.stages.iter().map(|stage| stage.program.levels());
        levels.sum()
    }

    /// OTs of an instance whose sender is `party`.
    pub fn ots(&self, sender: Party) -> usize {
        let stages = self.stages.iter();
        stages
            .map(|stage| stage.width * stage.program.ots(sender))
            .sum()
    }

    /// Bits of an instance that both parties send in all levels.
    pub fn all_bits(&self) -> usize {
        let stages = self.stages.iter();
        stages
            .map(|stage| stage.width * stage.program.all_bits())
            .sum()
    }

    /// Bytes that `party` sends in a level, for so many instances.
    pub fn bytes(&self, level: usize, party: Party, instances: usize) -> usize {
        let mut level = level;
        for stage in &self.stages {
            let levels = stage.program.levels();
            if level < levels {
                return stage.program.bytes(level, party, stage.elements(instances));
            }
            level -= levels;
        }
        0
    }

    /// OTs whose sender is `party`, for so many instances: of whole lanes in each stage.
    pub fn batch_ots(&self, sender: Party, instances: usize) -> usize {
        let ots = |stage: &Stage| stage.program.batch_ots(sender, stage.elements(instances));
        self.stages.iter().map(ots).sum()
    }

    /// Bytes that either party holds for so many instances.
    pub fn memory(&self, instances: usize) -> usize {
        let programs = self.stages.iter();
        let programs = programs.map(|stage| stage.program.memory(stage.elements(instances)));
        // The words of one stage are its program's.
        let words = match self.stages.len() {
            1 => 0,
            _ => self.words(),
        };
        programs.sum::<usize>() + 4 * words * instances
    }

    /// Bytes that [`CascadeSent::write`] and [`CascadeReceived::write`] of a party take together.
    pub fn stored_bytes(&self, party: Party, instances: usize) -> usize {
        let bytes = |stage: &Stage| stage.program.stored_bytes(party, stage.elements(instances));
        self.stages.iter().map(bytes).sum()
    }

    /// What each stage has, by its program and elements; `None` where one has nothing.
    fn of_stages<T>(
        &self,
        instances: usize,
        mut of: impl FnMut(&Program, usize) -> Option<T>,
    ) -> Option<Vec<T>> {
        let stages = self.stages.iter();
        let of = |stage: &Stage| of(&stage.program, stage.elements(instances));
        stages.map(of).collect()
    }

    /// The numbers of each stage's OTs among those of an instance's batch.
    fn ranges(
        &self,
        sender: Party,
        instances: usize,
    ) -> impl Iterator<Item = (&Stage, Range<usize>)> {
        let mut at = 0;
        self.stages.iter().map(move |stage| {
            let count = stage.program.batch_ots(sender, stage.elements(instances));
            at += count;
            (stage, at - count..at)
        })
    }
}

impl Stage {
    fn results(&self) -> usize {
        self.width * self.program.outputs.len()
    }

    /// Elements of so many instances.
    fn elements(&self, instances: usize) -> usize {
        self.width * instances
    }

    /// A party's inputs, from the words of all instances.
    fn gather(&self, party: Party, words: &[Words], instances: usize) -> Vec<Words> {
        let count = self.program.inputs();
        let input = |place: usize| {
            let mut values = Zeroizing::new(Vec::with_capacity(self.width * instances));
            for source in self.sources.iter().skip(place).step_by(count) {
                let one = u32::from(source.one && party == Party::Server);
                values.extend((0..instances).map(|instance| {
                    let words = source.words.iter().map(|&word| words[word][instance]);
                    words.fold(one, u32::wrapping_add)
                }));
            }
            values
        };
        (0..count).map(input).collect()
    }
}

/// A party's word of every instance.
type Words = Zeroizing<Vec<u32>>;

/// The sender's strings of all stages. Wiped on drop; no Debug.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct CascadeSent(Vec<Sent>);

/// The receiver's choices and strings of all stages. Wiped on drop; no Debug.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct CascadeReceived(Vec<Received>);

impl CascadeSent {
    /// From correlated blocks, one an OT; the first of them has number `first`.
    ///
    /// # Errors
    /// As [`Sent::of`].
    ///
    /// # Panics
    /// Unless there are [`Cascade::batch_ots`] of them.
    pub fn of(
        cascade: &Cascade,
        party: Party,
        instances: usize,
        sender: &impl CorrelatedSender,
        (first, blocks): (u64, &[Block]),
    ) -> Result<Self, OtError> {
        let ranges = cascade.ranges(party, instances);
        let sent = ranges.map(|(stage, range)| {
            let blocks = (first + range.start as u64, &blocks[range]);
            let elements = stage.elements(instances);
            Sent::of(&stage.program, party, elements, sender, blocks)
        });
        sent.collect::<Result<_, _>>().map(Self)
    }

    /// Appends all of it, for a store that hands it out once.
    pub fn write(&self, cascade: &Cascade, sender: Party, instances: usize, out: &mut Vec<u8>) {
        for (sent, stage) in self.0.iter().zip(&cascade.stages) {
            sent.write(&stage.program, sender, stage.elements(instances), out);
        }
    }

    /// Takes the bytes of [`write`](Self::write) off the front; `None` for other bytes.
    pub fn read(
        cascade: &Cascade,
        sender: Party,
        instances: usize,
        bytes: &mut &[u8],
    ) -> Option<Self> {
        let sent = cascade.of_stages(instances, |program, elements| {
            Sent::read(program, sender, elements, bytes)
        });
        sent.map(Self)
    }
}

impl CascadeReceived {
    /// Of programs without products.
    pub fn nothing(cascade: &Cascade) -> Self {
        Self(cascade.stages.iter().map(|_| Received::nothing()).collect())
    }

    /// From the choices, packed, lowest bit first, and correlated blocks, one an OT; the first of
    /// them has number `first`.
    ///
    /// # Panics
    /// Unless there are [`Cascade::batch_ots`] of both.
    pub fn of(
        cascade: &Cascade,
        sender: Party,
        instances: usize,
        receiver: &impl CorrelatedReceiver,
        (first, choices, blocks): (u64, &[u8], &[Block]),
    ) -> Self {
        let ranges = cascade.ranges(sender, instances);
        let received = ranges.map(|(stage, range)| {
            // Stages have whole lanes of OTs.
            let choices = &choices[range.start / 8..range.end / 8];
            let made = (first + range.start as u64, choices, &blocks[range]);
            let elements = stage.elements(instances);
            Received::of(&stage.program, sender, elements, receiver, made)
        });
        Self(received.collect())
    }

    /// Appends all of it, for a store that hands it out once.
    pub fn write(&self, cascade: &Cascade, sender: Party, instances: usize, out: &mut Vec<u8>) {
        for (received, stage) in self.0.iter().zip(&cascade.stages) {
            received.write(&stage.program, sender, stage.elements(instances), out);
        }
    }

    /// Takes the bytes of [`write`](Self::write) off the front; `None` for other bytes.
    pub fn read(
        cascade: &Cascade,
        sender: Party,
        instances: usize,
        bytes: &mut &[u8],
    ) -> Option<Self> {
        let received = cascade.of_stages(instances, |program, elements| {
            Received::read(program, sender, elements, bytes)
        });
        received.map(Self)
    }
}

/// One party's run of a cascade, level by level as an [`Evaluation`]. Wiped on drop; no
/// Debug.
pub struct CascadeRun {
    cascade: Arc<Cascade>,
    party: Party,
    instances: usize,
    /// Words of the stages that are done.
    words: Vec<Words>,
    /// The stage under way, and the levels before it.
    stage: usize,
    before: usize,
    evaluation: Evaluation,
    /// Of the stages to come, the next one last.
    sent: Vec<Sent>,
    received: Vec<Received>,
}

impl CascadeRun {
    /// With this party's residues: `inputs[i]` for input `i`, and the OTs that it receives. Those
    /// that it sends come by [`provide`](Self::provide), at the server after the first level.
    ///
    /// # Panics
    /// Unless there are as many inputs as the cascade takes, all of one length, and OTs of each
    /// stage.
    pub fn new(
        cascade: Arc<Cascade>,
        party: Party,
        inputs: Vec<Zeroizing<Vec<u32>>>,
        mut received: CascadeReceived,
    ) -> Self {
        assert_eq!(inputs.len(), cascade.inputs);
        let instances = inputs.first().map_or(0, |input| input.len());
        let mut received = std::mem::take(&mut received.0);
        received.reverse();
        let first = received.pop().expect("there are OTs of each stage");
        let mut run = Self {
            evaluation: start(&cascade.stages[0], party, (&inputs, instances), first),
            cascade,
            party,
            instances,
            words: inputs,
            stage: 0,
            before: 0,
            sent: Vec::new(),
            received,
        };
        run.forget();
        run
    }

    /// The OTs that this party sends.
    pub fn provide(&mut self, mut sent: CascadeSent) {
        let mut sent = std::mem::take(&mut sent.0);
        sent.reverse();
        // Stages that are done already had no products.
        sent.truncate(sent.len() - self.stage);
        if let Some(now) = sent.pop() {
            self.evaluation.provide(now);
        }
        self.sent = sent;
    }

    /// Instances of the batch.
    pub fn instances(&self) -> usize {
        self.instances
    }

    /// The cascade.
    pub fn cascade(&self) -> &Cascade {
        &self.cascade
    }

    /// Whether all levels are made.
    pub fn is_done(&self) -> bool {
        self.made() == self.cascade.levels()
    }

    /// Levels made so far: the next one to make.
    pub fn made(&self) -> usize {
        self.before + self.evaluation.made()
    }

    /// Appends this party's part of the next level.
    ///
    /// # Errors
    /// As [`Evaluation::make`].
    pub fn make(&mut self, out: &mut Vec<u8>) -> Result<(), LeanError> {
        self.advance()?;
        let made = self.evaluation.make(out);
        made.map_err(|error| error.after(self.before))
    }

    /// Takes the peer's part of a level.
    ///
    /// # Errors
    /// As [`Evaluation::take`].
    pub fn take(&mut self, message: &[u8]) -> Result<(), LeanError> {
        self.advance()?;
        let taken = self.evaluation.take(message);
        taken.map_err(|error| error.after(self.before))
    }

    /// Begins stages as long as the one under way has no more levels.
    fn advance(&mut self) -> Result<(), LeanError> {
        while self.stage + 1 < self.cascade.stages.len() && self.evaluation.is_complete() {
            self.collect()?;
            self.before += self.evaluation.program().levels();
            self.stage += 1;
            let stage = &self.cascade.stages[self.stage];
            let received = self.received.pop().expect("there are OTs of each stage");
            let words = (&self.words[..], self.instances);
            self.evaluation = start(stage, self.party, words, received);
            if let Some(sent) = self.sent.pop() {
                self.evaluation.provide(sent);
            }
        }
        self.forget();
        Ok(())
    }

    /// Wipes the words of earlier stages once the last one has its own.
    fn forget(&mut self) {
        if self.stage + 1 == self.cascade.stages.len() {
            self.words.clear();
        }
    }

    /// Keeps the results of the stage under way.
    fn collect(&mut self) -> Result<(), LeanError> {
        let (instances, stage) = (self.instances, &self.cascade.stages[self.stage]);
        let outputs = self.evaluation.outputs();
        let outputs = outputs.map_err(|error| error.after(self.before))?;
        for element in 0..stage.width {
            for output in &outputs {
                let words = output[element * instances..][..instances].iter();
                // Words between stages have at most 32 bits, as those that come in.
                let words = words.map(|&word| word as u32);
                self.words.push(Zeroizing::new(words.collect()));
            }
        }
        Ok(())
    }

    /// This party's residues of the result.
    ///
    /// # Errors
    /// Levels are missing.
    pub fn output(&mut self) -> Result<&[u64], LeanError> {
        self.advance()?;
        let output = self.evaluation.output();
        output.map_err(|error| error.after(self.before))
    }
}

/// The run of a stage.
fn start(
    stage: &Stage,
    party: Party,
    (words, instances): (&[Words], usize),
    received: Received,
) -> Evaluation {
    let inputs = stage.gather(party, words, instances);
    let inputs: Vec<&[u32]> = inputs.iter().map(|input| input.as_slice()).collect();
    Evaluation::new(stage.program.clone(), party, &inputs, received)
}

/// Its fields wipe themselves.
impl ZeroizeOnDrop for CascadeRun {}

impl Cascade {
    /// The bits of choice, and those of each string, of all OTs of so many instances.
    pub fn ot_widths(&self, sender: Party, instances: usize) -> Vec<(u32, u32)> {
        let of = |stage: &Stage| {
            let elements = stage.elements(instances);
            let widths = stage.program.ot_widths(sender);
            let widths = widths.flat_map(|widths| std::iter::repeat_n(widths, elements));
            widths.collect::<Vec<_>>()
        };
        self.stages.iter().flat_map(of).collect()
    }

    /// What both parties get of OTs with these strings, by OT and choice, and with these choices:
    /// for tests. OTs are numbered as in [`ot_widths`](Self::ot_widths).
    pub fn deal(
        &self,
        sender: Party,
        instances: usize,
        string: impl Fn(usize, usize) -> Block,
        choice: impl Fn(usize) -> usize,
    ) -> (CascadeSent, CascadeReceived) {
        let mut at = 0;
        let of = |stage: &Stage| {
            let (program, elements) = (&*stage.program, stage.elements(instances));
            let dealer = Dealer {
                program,
                sender,
                elements,
            };
            // Elements that fill a lane have no coins.
            let number = |ot, element| (element < elements).then_some(at + ot * elements + element);
            let dealt = dealer.deal(
                |ot, choice, element| match number(ot, element) {
                    Some(ot) => string(ot, choice),
                    None => Block::ZERO,
                },
                |ot, element| number(ot, element).map_or(0, &choice),
            );
            at += program.ot_widths(sender).count() * elements;
            dealt
        };
        let (sent, received) = self.stages.iter().map(of).unzip();
        (CascadeSent(sent), CascadeReceived(received))
    }
}

/// OTs of both directions, as a trusted party would deal them: for tests and measurements.
///
/// `random` gives 128 random bits.
pub fn deal_cascade(
    cascade: &Cascade,
    instances: usize,
    mut random: impl FnMut() -> u128,
) -> [(CascadeSent, CascadeReceived); 2] {
    let mut sides = [0; 2].map(|_| (CascadeSent(Vec::new()), CascadeReceived(Vec::new())));
    for stage in &cascade.stages {
        let dealt = super::deal(&stage.program, stage.elements(instances), &mut random);
        for (side, (sent, received)) in sides.iter_mut().zip(dealt) {
            side.0.0.push(sent);
            side.1.0.push(received);
        }
    }
    sides
}
