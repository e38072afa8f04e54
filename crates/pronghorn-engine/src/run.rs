//! A whole plan for one batch: the steps one after another, with shares in between.
//!
//! One loop serves both parties, online and offline. Offline it does what needs no input of the
//! client's, and keeps each step's half of that. Users meet it as the runs of [`online`] and the
//! preparations of [`prepared`].
//!
//! [`online`]: crate::online
//! [`prepared`]: crate::prepared

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use pronghorn_plan::{
    CheckedPlan, Plan,
    bands::{Band, order::bands},
};

use crate::{
    connection::{Connection, Shelf},
    error::EngineError,
    half::Half,
    images::Part,
    machine::{Carry, Exchanging, Machine, Made, Prepared, Progress, StepMachine, Want},
    ots::is_failed_check,
    pool::Pool,
    protocol::{At, Next, Prelude, PreludeKind, Sides},
    rows::Pieces,
    share::Share,
};

/// Exchanges before the first step, and which each is.
pub type Preludes = Vec<(PreludeKind, Exchanging)>;

/// What a run is of: a plan's sides, a batch and a connection.
pub(crate) struct Task<'a> {
    pub plan: &'a CheckedPlan,
    pub sides: &'a Sides,
    pub preludes: &'a [Box<dyn Prelude>],
    pub connection: &'a Connection,
    pub batch: usize,
}

/// A party's share of the inputs.
pub(crate) enum Input {
    /// The client's.
    Images(Part),
    /// The server's.
    Zero,
}

/// The part of a batch.
pub(crate) enum Phase {
    /// With the inputs: this party's share of them, and its prepared steps.
    Online(Input, Vec<Option<Prepared>>),
    /// Without.
    Offline,
}

/// One party's run of a batch.
pub(crate) struct Run {
    pub plan: CheckedPlan,
    sides: Sides,
    connection: Connection,
    shelf: Shelf,
    pub batch: usize,
    preludes: VecDeque<Exchanging>,
    /// Prepared steps to use up; `None` offline.
    online: Option<Vec<Option<Prepared>>>,
    shares: Vec<Option<Share>>,
    /// The bands of a batch that goes by bands.
    bands: Option<Bands>,
    /// Steps that the offline part made.
    prepared: Vec<Option<Prepared>>,
    /// The last step that reads each value. The result is read by none and kept.
    last_reader: Vec<usize>,
    step: usize,
    machine: Option<Box<dyn StepMachine>>,
    ahead: Option<Ahead>,
    /// Values so far that were brought to the border of their range.
    pub saturated: AtomicU64,
    /// The first check of decrypted values that failed, kept from the peer.
    pub doubt: Option<EngineError>,
    rows_before: u64,
    rows: u64,
    /// Seconds that this party has computed for each step so far; preludes count as step 0.
    pub step_seconds: Vec<f64>,
    /// Shares of the inputs of steps that round by a dither, where they are kept.
    pub rounded: Option<Vec<Share>>,
}

/// The exchange of the band behind the one under way, begun while that waits for the peer.
struct Ahead {
    step: usize,
    machine: Box<dyn StepMachine>,
    /// Messages of it that are sent.
    sent: u64,
}

/// Where a batch that goes by bands is.
struct Bands {
    input: Input,
    /// Those to come, the one under way first.
    coming: VecDeque<Band>,
    /// The values, by step; nothing of the input.
    values: Vec<Pieces>,
    /// What the last band of each step left to the next.
    carries: Vec<Option<Carry>>,
    /// For rows of the input.
    pool: Pool<i32>,
}

impl Bands {
    fn new(plan: &Plan, bands: Vec<Band>, input: Input, pool: &Pool<i32>) -> Self {
        let values = plan.steps.iter();
        let values: Vec<_> = values.map(|step| Pieces::new(&step.value, pool)).collect();
        Self {
            input,
            coming: bands.into(),
            carries: values.iter().map(|_| None).collect(),
            values,
            pool: pool.clone(),
        }
    }

    /// The band at a place of those to come.
    fn at(&self, place: usize) -> Option<&Band> {
        self.coming.get(place)
    }

    /// The shares that a band to come reads.
    fn inputs(&mut self, place: usize, plan: &Plan) -> Vec<Share> {
        let Some(band) = self.coming.get(place) else {
            return Vec::new();
        };
        let inputs = &plan.steps[band.step].inputs;
        let mut shares = Vec::new();
        for (place, &input) in inputs.iter().enumerate() {
            let again = inputs[place + 1..].contains(&input);
            let keep = if again { 0 } else { band.keeps[place] };
            let rows = &band.reads[place];
            shares.push(match (&self.input, input) {
                (Input::Images(part), 0) => Share::Words(part.rows(rows, &self.pool)),
                (Input::Zero, 0) => Share::Zero,
                _ => self.values[input].read(rows, keep),
            });
        }
        for (&input, &keep) in inputs.iter().zip(&band.keeps) {
            self.values[input].drop_before(keep);
        }
        shares
    }

    /// Ends a band to come.
    fn keep(&mut self, place: usize, share: Share, carry: Option<Carry>) {
        if let Some(band) = self.coming.remove(place) {
            self.values[band.step].push(band.rows, share);
            self.carries[band.step] = carry;
        }
    }
}

impl Run {
    pub fn new(task: &Task<'_>, phase: Phase) -> Result<Self, EngineError> {
        let (plan, batch) = (task.plan, task.batch);
        check_batch(plan, batch)?;
        task.connection.begin_run();
        let offline = matches!(phase, Phase::Offline);
        let (input, online) = match phase {
            Phase::Online(input, prepared) => (input, Some(prepared)),
            Phase::Offline => (Input::Zero, None),
        };
        let counted = task
            .sides
            .iter()
            .filter(|side| !offline || side.has_offline());
        let (mut shares, shelf) = (vec![None; plan.steps.len()], Shelf::default());
        let bands = match offline {
            true => None,
            false => bands(plan, batch),
        };
        let bands = match bands {
            Some(bands) => Some(Bands::new(plan, bands, input, &shelf.at(0))),
            None => {
                shares[0] = Some(match input {
                    Input::Images(part) => Share::Words(part.whole()),
                    Input::Zero => Share::Zero,
                });
                None
            }
        };
        let first = bands.as_ref().and_then(|bands| bands.at(0));
        let mut run = Self {
            preludes: preludes(task, offline)?
                .into_iter()
                .map(|(_, exchange)| exchange)
                .collect(),
            rows: counted.map(|side| side.rows(batch)).sum(),
            last_reader: last_readers(plan),
            plan: plan.clone(),
            sides: task.sides.clone(),
            connection: task.connection.clone(),
            shelf,
            batch,
            online,
            shares,
            prepared: vec![None],
            step: first.map_or(1, |band| band.step),
            bands,
            machine: None,
            ahead: None,
            saturated: AtomicU64::new(0),
            doubt: None,
            rows_before: 0,
            step_seconds: vec![0.0; task.plan.steps.len()],
            rounded: None,
        };
        run.advance()?;
        Ok(run)
    }

    /// Finishes the machine that is done, and goes on to the next that has something to exchange.
    fn advance(&mut self) -> Result<(), EngineError> {
        while let Some(prelude) = self.preludes.front() {
            if prelude.want() != Want::Done {
                return Ok(());
            }
            self.preludes.pop_front();
        }
        loop {
            if let Some(machine) = &self.machine
                && machine.want() != Want::Done
            {
                return Ok(());
            }
            let (step, started) = (self.step, Instant::now());
            if let Some(machine) = self.machine.take() {
                self.rows_before += machine.progress().total;
                let made = machine.into_made()?;
                self.keep(made, 0);
                self.count(step, started);
            }
            if self.step == self.plan.steps.len() {
                return Ok(());
            }
            if let Some(ahead) = self.ahead.take() {
                self.machine = Some(ahead.machine);
                continue;
            }
            let (step, started) = (self.step, Instant::now());
            match self.start(step, 0)? {
                Next::Machine(machine) => self.machine = Some(machine),
                Next::Made(made) => self.keep(made, 0),
            }
            self.count(step, started);
        }
    }

    /// Makes the bands behind the one under way that wait for nothing of it, up to one with
    /// messages, which begins.
    fn look_ahead(&mut self) -> Result<(), EngineError> {
        while self.ahead.is_none()
            && let Some(step) = self.step_ahead()
        {
            let started = Instant::now();
            match self.start(step, 1)? {
                Next::Machine(machine) => {
                    self.ahead = Some(Ahead {
                        step,
                        machine,
                        sent: 0,
                    })
                }
                Next::Made(made) => self.keep(made, 1),
            }
            self.count(step, started);
        }
        Ok(())
    }

    /// The step of the band behind the one under way, where this party can begin it.
    fn step_ahead(&self) -> Option<usize> {
        self.machine.as_ref()?;
        let bands = self.bands.as_ref()?;
        let (current, next) = (bands.at(0)?, bands.at(1)?);
        let inputs = &self.plan.steps[next.step].inputs;
        let begins = next.is_free_of(current, inputs) && !self.sides[next.step].waits();
        begins.then_some(next.step)
    }

    /// How many messages come before that of the band behind the one under way, which is to be sent
    /// next.
    fn before_ahead(&self) -> Option<u64> {
        let ahead = self.ahead.as_ref()?;
        let left = self.machine.as_ref()?.left()?;
        (ahead.machine.want() == Want::Send).then_some(left + ahead.sent)
    }

    /// Counts the time since `started` as a step's.
    fn count(&mut self, step: usize, started: Instant) {
        self.step_seconds[step] += started.elapsed().as_secs_f64();
    }

    /// The step that is under way; 0 for a prelude.
    fn current_step(&self) -> usize {
        match (self.preludes.front(), &self.machine) {
            (None, Some(_)) => self.step,
            _ => 0,
        }
    }

    /// Starts a step; in bands that at a place of those to come.
    fn start(&mut self, step: usize, place: usize) -> Result<Next, EngineError> {
        let inputs = match &mut self.bands {
            Some(bands) => bands.inputs(place, &self.plan),
            None => self.take_inputs(),
        };
        if let Some(rounded) = &mut self.rounded
            && self.plan.steps[step].kind.as_step().dithers().is_some()
        {
            rounded.extend(inputs.first().cloned());
        }
        let at = At {
            plan: &self.plan,
            connection: &self.connection,
            shelf: &self.shelf,
            batch: self.batch,
            saturated: &self.saturated,
        };
        let side = &self.sides[step];
        if let Some(Bands {
            coming, carries, ..
        }) = &mut self.bands
            && let Some(band) = coming.get(place)
        {
            return side.band(&at, band, inputs, carries[step].take());
        }
        match &mut self.online {
            Some(prepared) => {
                let prepared = prepared.get_mut(step).and_then(Option::take);
                side.online(&at, inputs, prepared)
            }
            None => side.offline(&at, inputs),
        }
    }

    /// Keeps what the step under way made; in bands what that at a place of those to come did.
    fn keep(&mut self, made: Made, place: usize) {
        self.saturated.fetch_add(made.saturated, Ordering::Relaxed);
        self.doubt = self.doubt.take().or(made.doubt);
        if let Some(bands) = &mut self.bands {
            bands.keep(place, made.share, made.carry);
            let next = bands.at(0).map(|band| band.step);
            self.step = next.unwrap_or(self.plan.steps.len());
            return;
        }
        if self.last_reader[self.step] > self.step {
            self.shares[self.step] = Some(made.share);
        }
        self.prepared.push(made.prepared);
        self.step += 1;
    }

    /// The shares that the next step reads, in order. A value is moved out at its last reading,
    /// within the step too.
    fn take_inputs(&mut self) -> Vec<Share> {
        let plan = self.plan.clone();
        let inputs = &plan.steps[self.step].inputs;
        let take = |(place, &value): (usize, &usize)| {
            let last =
                self.last_reader[value] == self.step && !inputs[place + 1..].contains(&value);
            let share = &mut self.shares[value];
            let share = if last { share.take() } else { share.clone() };
            share.expect("a checked plan reads only values made before")
        };
        inputs.iter().enumerate().map(take).collect()
    }

    fn current(&self) -> Option<&dyn Machine<Error = EngineError>> {
        match (self.preludes.front(), &self.machine) {
            (Some(prelude), _) => Some(prelude.as_ref()),
            (None, Some(machine)) => Some(machine.as_ref()),
            (None, None) => None,
        }
    }

    fn current_mut(&mut self) -> Result<&mut dyn Machine<Error = EngineError>, EngineError> {
        match (self.preludes.front_mut(), &mut self.machine) {
            (Some(prelude), _) => Ok(prelude.as_mut()),
            (None, Some(machine)) => Ok(machine.as_mut()),
            (None, None) => Err(EngineError::OutOfTurn { state: "is over" }),
        }
    }

    /// One message, and all that needs no other. A failed check of OTs ends those of the
    /// connection.
    fn go_on(
        &mut self,
        act: impl FnOnce(&mut dyn Machine<Error = EngineError>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let (step, started) = (self.current_step(), Instant::now());
        let done = self.current_mut().and_then(act);
        self.count(step, started);
        let done = done.and_then(|()| self.advance());
        done.inspect_err(|error| {
            if is_failed_check(error) {
                self.connection.forget_ots();
            }
        })
    }

    /// This party's share of the result.
    pub fn result(&mut self) -> Option<Share> {
        match self.bands.take() {
            Some(mut bands) => Some(bands.values.swap_remove(self.plan.output).into_whole()),
            None => self.shares[self.plan.output].take(),
        }
    }

    /// What the offline part made.
    pub fn into_prepared(self) -> Result<Half, EngineError> {
        match self.connection.setup() {
            Some(setup) if self.step == self.plan.steps.len() => {
                Ok(Half::new(self.batch, setup, self.prepared))
            }
            _ => Err(EngineError::OutOfTurn {
                state: "has not finished its offline part",
            }),
        }
    }
}

/// The exchanges that the connection still lacks.
pub(crate) fn preludes(task: &Task<'_>, offline: bool) -> Result<Preludes, EngineError> {
    let due = task
        .preludes
        .iter()
        .filter(|prelude| !offline || prelude.is_offline());
    let started = due.map(|prelude| {
        let exchange = prelude.start(task.connection, task.batch)?;
        Ok(exchange.map(|exchange| (prelude.kind(), exchange)))
    });
    started.filter_map(Result::transpose).collect()
}

/// Checks that the plan takes batches of so many images.
pub(crate) fn check_batch(plan: &Plan, batch: usize) -> Result<(), EngineError> {
    match (1..=plan.max_batch).contains(&batch) {
        true => Ok(()),
        false => Err(EngineError::Batch {
            found: batch,
            most: plan.max_batch,
        }),
    }
}

fn last_readers(plan: &CheckedPlan) -> Vec<usize> {
    let mut last: Vec<usize> = (0..plan.steps.len()).collect();
    for (index, step) in plan.steps.iter().enumerate() {
        step.inputs.iter().for_each(|&input| last[input] = index);
    }
    last[plan.output] = usize::MAX;
    last
}

impl Machine for Run {
    type Error = EngineError;

    fn want(&self) -> Want {
        self.current().map_or(Want::Done, Machine::want)
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        self.go_on(|machine| machine.send(out))
    }

    fn writes_over(&self) -> bool {
        let ahead = self.ahead.as_ref();
        let is_over = ahead.is_none_or(|ahead| ahead.machine.writes_over());
        is_over && self.current().is_some_and(Machine::writes_over)
    }

    fn ahead(&self) -> Option<u64> {
        let current = self.current().and_then(Machine::ahead);
        current.or_else(|| self.before_ahead())
    }

    fn send_ahead(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let current = self.current().and_then(Machine::ahead);
        match &mut self.ahead {
            Some(ahead) if current.is_none() => {
                let (step, started) = (ahead.step, Instant::now());
                ahead.sent += 1;
                let sent = ahead.machine.send(out);
                self.count(step, started);
                sent
            }
            _ => self.go_on(|machine| machine.send_ahead(out)),
        }
    }

    fn meanwhile(&mut self) -> Result<(), EngineError> {
        self.go_on(|machine| machine.meanwhile())?;
        self.look_ahead()
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        self.go_on(|machine| machine.receive(message))
    }

    fn max_incoming(&self) -> usize {
        self.current().map_or(0, Machine::max_incoming)
    }

    fn max_following(&self) -> Option<usize> {
        self.current().and_then(Machine::max_following)
    }

    fn progress(&self) -> Progress {
        let machine = self.machine.as_ref();
        Progress {
            done: match self.want() {
                // Bands do not read all rows where strides pass over some.
                Want::Done => self.rows,
                _ => self.rows_before + machine.map_or(0, |machine| machine.progress().done),
            },
            total: self.rows,
        }
    }
}

/// Hands a wrapper's [`Machine`] calls to the run inside.
macro_rules! delegate_machine {
    ($wrapper:ty, $field:tt) => {
        impl $crate::machine::Machine for $wrapper {
            type Error = $crate::error::EngineError;

            fn want(&self) -> $crate::machine::Want {
                self.$field.want()
            }

            fn send(&mut self, out: &mut Vec<u8>) -> Result<(), Self::Error> {
                self.$field.send(out)
            }

            fn writes_over(&self) -> bool {
                self.$field.writes_over()
            }

            fn ahead(&self) -> Option<u64> {
                self.$field.ahead()
            }

            fn send_ahead(&mut self, out: &mut Vec<u8>) -> Result<(), Self::Error> {
                self.$field.send_ahead(out)
            }

            fn meanwhile(&mut self) -> Result<(), Self::Error> {
                self.$field.meanwhile()
            }

            fn receive(&mut self, message: &[u8]) -> Result<(), Self::Error> {
                self.$field.receive(message)
            }

            fn max_incoming(&self) -> usize {
                self.$field.max_incoming()
            }

            fn max_following(&self) -> Option<usize> {
                self.$field.max_following()
            }

            fn progress(&self) -> $crate::machine::Progress {
                self.$field.progress()
            }
        }
    };
}

pub(crate) use delegate_machine;
