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
    randoms::{LANE, Received, Sent},
};
use crate::{Block, circuit::Modulus};

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
                return stage.program.bytes(level, party, stage.width * instances);
            }
            level -= levels;
        }
        0
    }

    /// OTs whose sender is `party`, for so many instances: of whole lanes in each stage.
    pub fn batch_ots(&self, sender: Party, instances: usize) -> usize {
        let ots = |stage: &Stage| stage.program.batch_ots(sender, stage.width * instances);
        self.stages.iter().map(ots).sum()
    }

    /// Bits of each string of the OTs whose sender is `party`, for so many instances; 0 for OTs that
    /// fill a lane.
    pub fn string_bits(&self, sender: Party, instances: usize) -> Vec<u32> {
        let mut bits = Vec::with_capacity(self.batch_ots(sender, instances));
        for stage in &self.stages {
            let elements = stage.width * instances;
            for ot in 0..stage.program.ots(sender) {
                bits.extend(vec![stage.program.string_bits(sender, ot); elements]);
                bits.resize(bits.len().next_multiple_of(LANE), 0);
            }
        }
        bits
    }

    /// Bytes that either party holds for so many instances.
    pub fn memory(&self, instances: usize) -> usize {
        let programs = self.stages.iter();
        let programs = programs.map(|stage| stage.program.memory(stage.width * instances));
        // The words of one stage are its program's.
        let words = match self.stages.len() {
            1 => 0,
            _ => self.words(),
        };
        programs.sum::<usize>() + 4 * words * instances
    }

    /// Bytes that [`CascadeSent::write`] and [`CascadeReceived::write`] of a party take together.
    pub fn stored_bytes(&self, party: Party, instances: usize) -> usize {
        let bytes = |stage: &Stage| stage.program.stored_bytes(party, stage.width * instances);
        self.stages.iter().map(bytes).sum()
    }

    /// The numbers of each stage's OTs among those of an instance's batch.
    fn ranges(
        &self,
        sender: Party,
        instances: usize,
    ) -> impl Iterator<Item = (&Stage, Range<usize>)> {
        let mut at = 0;
        self.stages.iter().map(move |stage| {
            let count = stage.program.batch_ots(sender, stage.width * instances);
            at += count;
            (stage, at - count..at)
        })
    }
}

impl Stage {
    fn results(&self) -> usize {
        self.width * self.program.outputs.len()
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
    /// From the strings of both choices, hashed, one block an OT.
    ///
    /// # Panics
    /// Unless there are [`Cascade::batch_ots`] of each.
    pub fn from_blocks(
        cascade: &Cascade,
        sender: Party,
        instances: usize,
        [zeros, ones]: [&[Block]; 2],
    ) -> Self {
        let ranges = cascade.ranges(sender, instances);
        let sent = ranges.map(|(stage, range)| {
            let blocks = [&zeros[range.clone()], &ones[range]];
            Sent::from_blocks(&stage.program, sender, stage.width * instances, blocks)
        });
        Self(sent.collect())
    }

    /// Appends all of it, for a store that hands it out once.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|sent| sent.write(out));
    }

    /// Takes the bytes of [`write`](Self::write) off the front; `None` for other bytes.
    pub fn read(
        cascade: &Cascade,
        sender: Party,
        instances: usize,
        bytes: &mut &[u8],
    ) -> Option<Self> {
        let read =
            |stage: &Stage| Sent::read(&stage.program, sender, stage.width * instances, bytes);
        cascade
            .stages
            .iter()
            .map(read)
            .collect::<Option<_>>()
            .map(Self)
    }
}

impl CascadeReceived {
    /// Of programs without products.
    pub fn nothing(cascade: &Cascade) -> Self {
        Self(cascade.stages.iter().map(|_| Received::nothing()).collect())
    }

    /// From the choices, packed, lowest bit first, and the strings that they chose, hashed.
    ///
    /// # Panics
    /// Unless there are [`Cascade::batch_ots`] of both.
    pub fn from_blocks(
        cascade: &Cascade,
        sender: Party,
        instances: usize,
        choices: &[u8],
        blocks: &[Block],
    ) -> Self {
        let ranges = cascade.ranges(sender, instances);
        let received = ranges.map(|(stage, range)| {
            // Stages have whole lanes of OTs.
            let choices = &choices[range.start / 8..range.end / 8];
            let elements = stage.width * instances;
            Received::from_blocks(&stage.program, sender, elements, choices, &blocks[range])
        });
        Self(received.collect())
    }

    /// Appends all of it, for a store that hands it out once.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|received| received.write(out));
    }

    /// Takes the bytes of [`write`](Self::write) off the front; `None` for other bytes.
    pub fn read(
        cascade: &Cascade,
        sender: Party,
        instances: usize,
        bytes: &mut &[u8],
    ) -> Option<Self> {
        let read =
            |stage: &Stage| Received::read(&stage.program, sender, stage.width * instances, bytes);
        cascade
            .stages
            .iter()
            .map(read)
            .collect::<Option<_>>()
            .map(Self)
    }
}

/// One party's run of a cascade. Levels alternate, as those of an [`Evaluation`]. Wiped on drop; no
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
    /// # Errors
    /// None for a cascade of this version: its first levels need no message of a peer.
    ///
    /// # Panics
    /// Unless there are as many inputs as the cascade takes, all of one length, and OTs of each
    /// stage.
    pub fn new(
        cascade: Arc<Cascade>,
        party: Party,
        inputs: Vec<Zeroizing<Vec<u32>>>,
        mut received: CascadeReceived,
    ) -> Result<Self, LeanError> {
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
        run.advance()?;
        run.forget();
        Ok(run)
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
        let made = self.evaluation.make(out);
        made.map_err(|error| error.after(self.before))
    }

    /// Takes the peer's part of a level that this party has made.
    ///
    /// # Errors
    /// As [`Evaluation::take`].
    pub fn take(&mut self, message: &[u8]) -> Result<(), LeanError> {
        let taken = self.evaluation.take(message);
        taken.map_err(|error| error.after(self.before))?;
        self.advance()?;
        self.forget();
        Ok(())
    }

    /// Begins stages as long as the one under way has no more levels.
    fn advance(&mut self) -> Result<(), LeanError> {
        while self.stage + 1 < self.cascade.stages.len() && self.evaluation.is_taken() {
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
        Ok(())
    }

    /// Wipes words that no stage reads any more.
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
                let words = &output[element * instances..][..instances];
                self.words.push(Zeroizing::new(words.to_vec()));
            }
        }
        Ok(())
    }

    /// This party's residues of the result.
    ///
    /// # Errors
    /// Levels are missing.
    pub fn output(&mut self) -> Result<&[u32], LeanError> {
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
        let dealt = super::deal(&stage.program, stage.width * instances, &mut random);
        for (side, (sent, received)) in sides.iter_mut().zip(dealt) {
            side.0.0.push(sent);
            side.1.0.push(received);
        }
    }
    sides
}
