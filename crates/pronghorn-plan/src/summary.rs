//! The costs of a plan and who learns what, for programs.

use serde::Serialize;

use crate::{
    checked::CheckedPlan,
    cost::{self, StepCost},
};

/// Everything about a plan that follows from it and that its text says.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// BLAKE3 of the plan, 64 hexadecimal digits.
    pub plan_hash: String,
    /// The knowledge of each party after a run.
    pub learns: Learns,
    /// Predicted costs.
    pub cost: Costs,
}

/// The knowledge of each party after a run, in words.
#[derive(Clone, Debug, Serialize)]
pub struct Learns {
    /// Of the server.
    pub server: &'static str,
    /// Of the client.
    pub client: &'static str,
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
    /// The summary of a plan.
    pub fn of(plan: &CheckedPlan) -> Self {
        Self {
            plan_hash: plan.hash_hex(),
            learns: Learns {
                server: plan.trust.server_learns(),
                client: plan.trust.client_learns(),
            },
            cost: Costs::of(plan),
        }
    }

    /// JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a summary in memory always serialises")
    }
}

impl Costs {
    fn of(plan: &CheckedPlan) -> Self {
        let (batch, prepared) = (plan.max_batch, cost::prepared(plan, 1));
        let offline = (prepared.rounds > 0).then_some(prepared);
        let memory = cost::memory(plan, batch);
        Self {
            one_image: Cost::of(cost::total(plan, 1), 1),
            one_image_offline: offline.map(|cost| Cost::of(cost, 1)),
            one_image_online: offline.map(|_| Cost::of(cost::online(plan, 1), 1)),
            full_batch: Cost::of(cost::total(plan, batch), batch),
            once: Once {
                connection_ot_setup_each_way: cost::ot_setup(plan),
                connection_rows_down: cost::published(plan),
                client_publication_down: cost::publication(plan),
                client_keys_up: plan.slot_key_bytes(),
            },
            memory: Memory {
                server: memory.server,
                client: memory.client,
            },
        }
    }
}

impl Cost {
    fn of(cost: StepCost, images: usize) -> Self {
        Self {
            images,
            bytes_up: cost.bytes_up,
            bytes_down: cost.bytes_down,
            rounds: cost.rounds,
            seconds: cost.seconds,
        }
    }
}
