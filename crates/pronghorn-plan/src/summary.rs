//! The costs of a plan and who learns what, for programs.

use serde::Serialize;

use crate::{
    cost::{self, Speed, StepCost},
    flood::Lifetime,
    names::Names,
    planner::Built,
    runner_up::RunnerUp,
};

/// Everything about a plan that follows from it and that its text says.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// BLAKE3 of the plan, 64 hexadecimal digits.
    pub plan_hash: String,
    /// The knowledge of each party after a run.
    pub learns: Learns,
    /// Of the model's file: the owner's, and not in the plan.
    pub names: Names,
    /// The promise of floods; absent without floods.
    pub flood: Option<Lifetime>,
    /// Predicted costs.
    pub cost: Costs,
}

/// The knowledge of each party after a run, in words.
#[derive(Clone, Debug, Serialize)]
pub struct Learns {
    /// Of the server.
    pub server: &'static str,
    /// Of the client.
    pub client: String,
}

/// The costs of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Costs {
    /// One image alone, nothing prepared.
    pub one_image: Cost,
    /// The offline part of one image alone; absent without offline work.
    pub one_image_offline: Option<Cost>,
    /// The online part after that.
    pub one_image_online: Option<Cost>,
    /// A batch of `max_batch` images, nothing prepared.
    pub full_batch: Cost,
    /// Bytes of exchanges that many batches use.
    pub once: Once,
    /// Bytes of memory for a full batch.
    pub memory: Memory,
    /// Each step's own.
    pub steps: Steps,
}

/// The costs of each step.
#[derive(Clone, Debug, Serialize)]
pub struct Steps {
    /// Images of the batch that they are for: 1 under `two-party`, else `max_batch`.
    pub images: usize,
    /// In the order of the plan.
    pub each: Vec<Step>,
}

/// The costs of a step.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// The node that it comes from: the owner's, and not in the plan.
    pub name: String,
    /// Protocol and layer in words.
    pub protocol: String,
    /// Shape of the value.
    pub shape: Vec<usize>,
    /// Nothing prepared.
    pub at_once: Cost,
    /// Before the inputs are known.
    pub offline: Cost,
    /// With the inputs, after the offline part.
    pub online: Cost,
    /// Multiply-adds by weights.
    pub multiply_adds: u64,
    /// Bytes of memory while it runs.
    pub memory: Memory,
    /// The protocol that it could have instead; absent where there is none.
    pub runner_up: Option<Other>,
}

/// A protocol that a step does not have.
#[derive(Clone, Debug, Serialize)]
pub struct Other {
    /// Its name.
    pub protocol: &'static str,
    /// Nothing prepared.
    pub at_once: Cost,
}

/// The cost of one batch.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cost {
    /// Images of the batch.
    pub images: usize,
    /// Bytes from client to server.
    pub bytes_up: u64,
    /// Bytes from server to client.
    pub bytes_down: u64,
    /// Messages one way and back.
    pub rounds: u32,
    /// Seconds on one core, both parties' work added.
    pub seconds: f64,
}

/// Bytes of exchanges that many batches use.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Once {
    /// Each way for a connection, to set up oblivious transfers.
    pub connection_ot_setup_each_way: u64,
    /// Down for a connection, rows of `a` of the batch engine.
    pub connection_rows_down: u64,
    /// Down for a client and model, published polynomials of the coefficient engine.
    pub client_publication_down: u64,
    /// Up for a client and server, keys for rotations of the slot engine.
    pub client_keys_up: u64,
}

/// Bytes of memory.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    /// Of the server.
    pub server: u64,
    /// Of the client's shares.
    pub client: u64,
}

impl Summary {
    /// The summary of a plan, with seconds of the nominal CPU.
    pub fn of(built: &Built) -> Self {
        Self::at(built, &Speed::default())
    }

    /// The summary of a plan, with the seconds of a machine.
    pub fn at(built: &Built, speed: &Speed) -> Self {
        let plan = &built.plan;
        Self {
            plan_hash: plan.hash_hex(),
            learns: Learns {
                server: plan.trust.server_learns(),
                client: plan.client_learns(),
            },
            names: built.names.clone(),
            flood: plan.flood(),
            cost: Costs::of(built, speed),
        }
    }

    /// JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a summary in memory always serialises")
    }
}

impl Costs {
    fn of(built: &Built, speed: &Speed) -> Self {
        let plan = &built.plan;
        let of = |cost, images| Cost::of(cost, images, speed);
        let (batch, prepared) = (plan.max_batch, cost::prepared(plan, 1));
        let offline = (prepared.rounds > 0).then_some(prepared);
        let memory = cost::memory(plan, batch);
        Self {
            one_image: of(cost::total(plan, 1), 1),
            one_image_offline: offline.map(|cost| of(cost, 1)),
            one_image_online: offline.map(|_| of(cost::online(plan, 1), 1)),
            full_batch: of(cost::total(plan, batch), batch),
            once: Once {
                connection_ot_setup_each_way: cost::ot_setup(plan),
                connection_rows_down: cost::published(plan),
                client_publication_down: cost::publication(plan),
                client_keys_up: plan.slot_key_bytes(),
            },
            memory: memory.into(),
            steps: Steps::of(built, speed),
        }
    }
}

impl From<cost::Memory> for Memory {
    fn from(memory: cost::Memory) -> Self {
        let cost::Memory { server, client } = memory;
        Self { server, client }
    }
}

impl Steps {
    fn of(built: &Built, speed: &Speed) -> Self {
        let plan = &built.plan;
        let images = match plan.trust.shares() {
            true => 1,
            false => plan.max_batch,
        };
        let each = (0..plan.steps.len()).map(|index| Step::of(built, index, images, speed));
        Self {
            images,
            each: each.collect(),
        }
    }
}

impl Step {
    fn of(built: &Built, index: usize, images: usize, speed: &Speed) -> Self {
        let plan = &built.plan;
        let step = &plan.steps[index];
        let cost = plan.cost(index, images);
        let of = |cost| Cost::of(cost, images, speed);
        Self {
            name: built.names.steps[index].clone(),
            protocol: step.kind.as_step().describe(&plan.compiled(index)).what,
            shape: step.value.shape.clone(),
            at_once: of(cost.at_once),
            offline: of(cost.offline),
            online: of(cost.online),
            multiply_adds: cost.at_once.multiply_adds,
            memory: cost::step(plan, index, images).memory.into(),
            runner_up: RunnerUp::of(plan, index).map(|other| Other {
                protocol: other.name(),
                at_once: of(other.cost(plan, index, images)),
            }),
        }
    }
}

impl Cost {
    fn of(cost: StepCost, images: usize, speed: &Speed) -> Self {
        Self {
            images,
            bytes_up: cost.bytes_up,
            bytes_down: cost.bytes_down,
            rounds: cost.rounds,
            seconds: cost.seconds.at(speed),
        }
    }
}
