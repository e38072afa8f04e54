//! What a plan is chosen for, and what a plan costs by that measure.

use pronghorn_graph::fixed::Linear;

use crate::{
    checked::CheckedPlan,
    cost::{self, StepCost},
    steps::linear::slots,
};

/// What a plan is chosen for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// Images a second, of full batches.
    Throughput,
    /// Seconds of one image, on a network of [`LATENCY_NETWORK`].
    #[default]
    Latency,
    /// Bytes of one image.
    Traffic,
}

/// Bits a second and seconds a round of the network of [`Objective::Latency`]: 1 Gbit/s and 1 ms.
pub const LATENCY_NETWORK: (f64, f64) = (1e9, 1e-3);

/// Images over which bytes that come once for a client and model are spread.
const ONCE_FOR: f64 = 100.0;

/// Images of a batch that throughput is judged by, at most.
const THROUGHPUT_BATCH: usize = 2048;

impl Objective {
    /// The plan's cost: seconds of an image, or bytes.
    pub fn of(self, plan: &CheckedPlan) -> f64 {
        if self == Self::Throughput {
            let batch = plan.max_batch.min(THROUGHPUT_BATCH);
            return cost::total(plan, batch).seconds.total() / batch as f64;
        }
        let once = cost::publication(plan) + cost::published(plan) + plan.slot_key_bytes();
        self.of_one(&cost::total(plan, 1), once as f64 / ONCE_FOR)
    }

    /// For one image.
    fn of_one(self, one: &StepCost, once: f64) -> f64 {
        let bytes = (one.bytes_up + one.bytes_down) as f64 + once;
        match self {
            Self::Traffic => bytes,
            Self::Latency | Self::Throughput => {
                let (bandwidth, round) = LATENCY_NETWORK;
                one.seconds.total() + 8.0 * bytes / bandwidth + f64::from(one.rounds) * round
            }
        }
    }

    /// A lower bound on the cost of the same plan with its layers on slots: the ciphertexts that
    /// hold the values, and no time for layers. Costs less than making that plan.
    pub(crate) fn bound_on_slots(self, plan: &CheckedPlan, weights: &[Option<Linear>]) -> f64 {
        let mut one = StepCost::default();
        for (index, step) in plan.steps.iter().enumerate() {
            let cost = match weights[index] {
                Some(_) => {
                    let inputs = plan.place(index).input().len();
                    let [bytes_up, bytes_down] = slots::least_bytes(inputs, step.value.len());
                    StepCost {
                        bytes_up,
                        bytes_down,
                        rounds: 1,
                        ..StepCost::default()
                    }
                }
                None => cost::step(plan, index, 1),
            };
            one = one.plus(cost);
        }
        self.of_one(&one, 0.0)
    }
}
