//! A plan compiled for one party: its sides and its preludes, for any number of batches.

use std::sync::{Arc, atomic::AtomicU64};

use pronghorn_plan::{Built, CheckedPlan, Derived, Names, Weights};
use pronghorn_ring::random::Seed;
use zeroize::{Zeroize, Zeroizing};

use crate::{
    coefficient::publication,
    connection::{Connection, Shelf},
    encrypted,
    error::EngineError,
    garbled, keys,
    machine::StepMachine,
    ots,
    persistent::Persistent,
    protocol::{At, Next, Prelude, Sides, unsupported},
    run::{self, Preludes, Task},
    secret::keyed,
    share::Share,
    sides::{client_sides, server_sides},
    slots,
};

/// A plan as the data owner follows it.
pub struct ClientModel {
    plan: CheckedPlan,
    sides: Sides,
    preludes: Vec<Box<dyn Prelude>>,
    persistent: Vec<Box<dyn Persistent>>,
}

impl ClientModel {
    /// Compiles a plan.
    ///
    /// # Errors
    /// The plan has a step that this version cannot follow.
    pub fn new(plan: CheckedPlan) -> Result<Self, EngineError> {
        let preludes = [
            publication::client_prelude(&plan),
            keys::client(slots::sides::key_sets(&plan)),
            keys::client(encrypted::sides::key_sets(&plan)?),
        ];
        let preludes = ots::client_preludes(&plan).into_iter().chain(preludes);
        let persistent = [
            publication::persistent(&plan),
            slots::sides::persistent(&plan),
        ];
        Ok(Self {
            sides: client_sides(&plan)?,
            persistent: persistent.into_iter().flatten().collect(),
            preludes: preludes.flatten().collect(),
            plan,
        })
    }

    /// The plan both parties follow.
    pub fn plan(&self) -> &CheckedPlan {
        &self.plan
    }

    /// Values of a connection that serve later ones, too.
    pub fn persistent(&self) -> &[Box<dyn Persistent>] {
        &self.persistent
    }

    pub(crate) fn sides(&self) -> &Sides {
        &self.sides
    }

    /// The exchanges that a connection lacks before the steps of a batch, in the order both parties
    /// run them, each to its end. They count the images of the batch on the connection, so they
    /// come before each batch whose steps are run one by one. A [`ClientRun`](crate::ClientRun) has
    /// them.
    ///
    /// # Errors
    /// The plan does not take so many images, or the system gives no randomness.
    pub fn preludes(&self, connection: &Connection, batch: usize) -> Result<Preludes, EngineError> {
        preludes_of(&self.task(connection, batch))
    }

    /// This party's half of step `index` alone, after [`preludes`](Self::preludes), for benchmarks
    /// of single layers: its shares in, in the order of the step's inputs, and a share out. No two
    /// batches of a connection may run a step after the same preludes.
    ///
    /// # Errors
    /// The plan has no such step, the step has no messages, the shares are not those of its inputs,
    /// or the connection has not had the preludes.
    pub fn step(
        &self,
        index: usize,
        connection: &Connection,
        batch: usize,
        inputs: Vec<Share>,
    ) -> Result<Box<dyn StepMachine>, EngineError> {
        step_of(&self.task(connection, batch), index, inputs)
    }

    pub(crate) fn task<'a>(&'a self, connection: &'a Connection, batch: usize) -> Task<'a> {
        Task {
            plan: &self.plan,
            sides: &self.sides,
            preludes: &self.preludes,
            connection,
            batch,
        }
    }
}

/// A plan with the server's weights, laid out; serves any number of batches. Its secret: no Debug.
pub struct ServerModel {
    plan: CheckedPlan,
    /// For the owner's log.
    names: Names,
    sides: Sides,
    preludes: Vec<Box<dyn Prelude>>,
    /// What preludes need of the sides.
    shelf: Shelf,
    /// Of plan and weights.
    digest: Zeroizing<[u8; 32]>,
}

impl ServerModel {
    /// Lays out the weights of a built model for the product.
    ///
    /// # Errors
    /// Weights and plan do not go together.
    pub fn new(built: &Built) -> Result<Self, EngineError> {
        let (secret, digest) = (Seed::from_os()?, Zeroizing::new(digest(built)));
        let (plan, shelf) = (built.plan.clone(), Shelf::default());
        let sides = server_sides(&plan, &built.weights, &shelf)?;
        Ok(Self {
            preludes: preludes(&plan, &shelf, &secret_of(&digest, &secret))?,
            plan,
            names: built.names.clone(),
            sides,
            shelf,
            digest,
        })
    }

    /// The same model with a secret of publications that the server keeps. Earlier publications to
    /// clients then stay good, as long as the model is the same.
    ///
    /// # Errors
    /// As [`ServerModel::new`].
    pub fn with_secret(&self, secret: &Seed) -> Result<Self, EngineError> {
        let secret = secret_of(&self.digest, secret);
        Ok(Self {
            plan: self.plan.clone(),
            names: self.names.clone(),
            sides: self.sides.clone(),
            preludes: preludes(&self.plan, &self.shelf, &secret)?,
            shelf: self.shelf.clone(),
            digest: self.digest.clone(),
        })
    }

    /// The plan both parties follow.
    pub fn plan(&self) -> &CheckedPlan {
        &self.plan
    }

    /// The names of the model's file, which no client gets.
    pub fn names(&self) -> &Names {
        &self.names
    }

    pub(crate) fn sides(&self) -> &Sides {
        &self.sides
    }

    /// The server's half of [`ClientModel::preludes`].
    ///
    /// # Errors
    /// As there.
    pub fn preludes(&self, connection: &Connection, batch: usize) -> Result<Preludes, EngineError> {
        preludes_of(&self.task(connection, batch))
    }

    /// The server's half of [`ClientModel::step`].
    ///
    /// # Errors
    /// As there.
    pub fn step(
        &self,
        index: usize,
        connection: &Connection,
        batch: usize,
        inputs: Vec<Share>,
    ) -> Result<Box<dyn StepMachine>, EngineError> {
        step_of(&self.task(connection, batch), index, inputs)
    }

    pub(crate) fn task<'a>(&'a self, connection: &'a Connection, batch: usize) -> Task<'a> {
        Task {
            plan: &self.plan,
            sides: &self.sides,
            preludes: &self.preludes,
            connection,
            batch,
        }
    }
}

fn preludes_of(task: &Task<'_>) -> Result<Preludes, EngineError> {
    run::check_batch(task.plan, task.batch)?;
    run::preludes(task, false)
}

fn step_of(
    task: &Task<'_>,
    index: usize,
    inputs: Vec<Share>,
) -> Result<Box<dyn StepMachine>, EngineError> {
    let (plan, batch) = (task.plan, task.batch);
    run::check_batch(plan, batch)?;
    let step = plan.steps.get(index);
    let step = step.ok_or_else(|| EngineError::Unsupported {
        step: index.to_string(),
        reason: "the plan has no such step",
    })?;
    if inputs.len() != step.inputs.len() {
        return Err(unsupported(
            &plan.step_name(index),
            "it takes a share of each of its inputs",
        ));
    }
    for (share, &input) in inputs.iter().zip(&step.inputs) {
        let elements = plan.steps[input].value.len();
        garbled::check_shape(&plan.step_name(index), share, elements, batch)?;
    }
    let at = At {
        plan,
        connection: task.connection,
        shelf: &Shelf::default(),
        batch,
        saturated: &AtomicU64::new(0),
    };
    match task.sides[index].online(&at, inputs, None)? {
        Next::Machine(machine) => Ok(machine),
        Next::Made(_) => Err(unsupported(&plan.step_name(index), "it has no messages")),
    }
}

/// The server's preludes, in the order of the client's.
fn preludes(
    plan: &CheckedPlan,
    shelf: &Shelf,
    secret: &Arc<Seed>,
) -> Result<Vec<Box<dyn Prelude>>, EngineError> {
    let preludes = [
        publication::server_prelude(plan, shelf, secret),
        keys::server(slots::sides::key_sets(plan)),
        keys::server(encrypted::sides::key_sets(plan)?),
    ];
    let preludes = ots::server_preludes(plan).into_iter().chain(preludes);
    Ok(preludes.flatten().collect())
}

/// A secret of one plan with its weights alone, from one of the server: publications of two models
/// must not hide behind the same numbers.
fn secret_of(digest: &[u8; 32], secret: &Seed) -> Arc<Seed> {
    Arc::new(keyed(secret, &[digest]))
}

/// Weights that are hashed at a time: one by one takes ten times as long.
const HASHED: usize = 1 << 14;

/// Hashes how many numbers there are, and each in 32 bits.
fn hash_numbers<T: Copy + Into<i32>>(hasher: &mut blake3::Hasher, numbers: &[T]) {
    let mut bytes = Zeroizing::new(Vec::with_capacity(HASHED * size_of::<i32>()));
    hasher.update(&(numbers.len() as u64).to_le_bytes());
    for numbers in numbers.chunks(HASHED) {
        bytes.clear();
        bytes.extend(
            numbers
                .iter()
                .flat_map(|&number| number.into().to_le_bytes()),
        );
        hasher.update(&bytes);
    }
}

/// Of a plan with its weights, and of where this version of the code puts them.
fn digest(built: &Built) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 plan with its weights");
    hasher.update(&built.plan.hash());
    hasher.update(&publication::VERSION.to_le_bytes());
    for index in 0..built.plan.steps.len() {
        if let Derived::Polynomials(layout) = built.plan.derived(index) {
            hasher.update(&(index as u64).to_le_bytes());
            for number in layout.numbers() {
                hasher.update(&(number as u64).to_le_bytes());
            }
        }
    }
    let layers = built.weights.iter().filter_map(|weights| match weights {
        Weights::Layer(layer) => Some(layer),
        _ => None,
    });
    for layer in layers {
        hash_numbers(&mut hasher, &layer.weights);
        hash_numbers(&mut hasher, &layer.bias);
    }
    let mut hash = hasher.finalize();
    let digest = *hash.as_bytes();
    hash.zeroize();
    hasher.zeroize();
    digest
}
