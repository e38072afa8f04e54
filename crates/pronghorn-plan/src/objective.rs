//! What a plan is chosen for, and what a plan costs by that measure.

use std::{iter, str::FromStr};

use pronghorn_graph::fixed::Linear;
use thiserror::Error;

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
    /// Seconds of one image.
    #[default]
    Latency,
    /// Bytes of one image.
    Traffic,
}

/// The network between the parties, as plans are chosen for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Seconds of a message there and back.
    pub round_trip: f64,
    /// Bits a second, each way.
    pub bandwidth: f64,
}

impl Network {
    /// One machine.
    pub const LOOPBACK: Self = Self {
        round_trip: 0.0,
        bandwidth: 20e9,
    };
    /// 1 Gbit/s and 1 ms. The default.
    pub const LAN: Self = Self {
        round_trip: 1e-3,
        bandwidth: 1e9,
    };
    /// 100 Mbit/s and 40 ms.
    pub const WAN: Self = Self {
        round_trip: 40e-3,
        bandwidth: 100e6,
    };

    /// Seconds that the messages of a cost are under way.
    pub fn seconds(&self, cost: &StepCost) -> f64 {
        let bytes = (cost.bytes_up + cost.bytes_down) as f64;
        8.0 * bytes / self.bandwidth + f64::from(cost.rounds) * self.round_trip
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::LAN
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    /// A name, or milliseconds and Mbit/s: `20,100`.
    fn from_str(name: &str) -> Result<Self, NetworkError> {
        let of = |text: &str, most: f64| {
            let number = text.trim().parse().ok();
            number.filter(|number: &f64| (0.0..=most).contains(number))
        };
        match name {
            "loopback" => Ok(Self::LOOPBACK),
            "lan" => Ok(Self::LAN),
            "wan" => Ok(Self::WAN),
            _ => name
                .split_once(',')
                .and_then(|(round_trip, bandwidth)| {
                    Some((of(round_trip, 1e5)?, of(bandwidth, 1e6)?))
                })
                .filter(|(_, bandwidth)| *bandwidth > 0.0)
                .map(|(round_trip, bandwidth)| Self {
                    round_trip: 1e-3 * round_trip,
                    bandwidth: 1e6 * bandwidth,
                })
                .ok_or_else(|| NetworkError(name.to_owned())),
        }
    }
}

/// No such network.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "unknown network {0:?}: give loopback, lan, wan, or milliseconds of a round trip and Mbit/s, as in 20,100"
)]
pub struct NetworkError(String);

/// Images over which bytes that come once for a client and model are spread.
const ONCE_FOR: f64 = 100.0;

/// Images of a batch that throughput is judged by, at most.
const THROUGHPUT_BATCH: usize = 2048;

/// How much more than in the best batch an image may cost in a piece.
const NEAR: f64 = 1.1;

/// Images of a piece of a long work, at most `most`: the fewest with which an image costs little more
/// than in the best batch, by seconds of one core and of the network. What is lost with a connection
/// is a piece.
pub fn piece(plan: &CheckedPlan, most: usize, network: &Network) -> usize {
    let most = most.clamp(1, plan.max_batch);
    let powers = iter::successors(Some(1usize), |batch| batch.checked_mul(2));
    let sizes = powers.take_while(|&batch| batch < most).chain([most]);
    let cost_of = |batch: usize| {
        let all = cost::total(plan, batch);
        (all.seconds.total() + network.seconds(&all)) / batch as f64
    };
    let costs: Vec<(usize, f64)> = sizes.map(|batch| (batch, cost_of(batch))).collect();
    let best = costs
        .iter()
        .map(|&(_, cost)| cost)
        .fold(f64::INFINITY, f64::min);
    let near = costs.iter().find(|&&(_, cost)| cost <= NEAR * best);
    near.map_or(most, |&(batch, _)| batch)
}

/// What a plan is chosen for, on which network.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Goal {
    /// What is to be least.
    pub objective: Objective,
    /// The network of [`Objective::Latency`] and [`Objective::Throughput`].
    pub network: Network,
}

impl From<Objective> for Goal {
    fn from(objective: Objective) -> Self {
        Self {
            objective,
            network: Network::default(),
        }
    }
}

impl Goal {
    /// The plan's cost: seconds of an image, or bytes.
    pub fn of(self, plan: &CheckedPlan) -> f64 {
        if self.objective == Objective::Throughput {
            let batch = plan.max_batch.min(THROUGHPUT_BATCH);
            let all = cost::total(plan, batch);
            // Other levels have one protocol a layer, whatever the network.
            let waits = match plan.trust.shares() {
                true => self.network.seconds(&all),
                false => 0.0,
            };
            return (all.seconds.total() + waits) / batch as f64;
        }
        let once = cost::publication(plan) + cost::published(plan) + plan.slot_key_bytes();
        self.of_one(&cost::total(plan, 1), once as f64 / ONCE_FOR)
    }

    /// For one image, and for bytes that come once.
    pub(crate) fn of_one(self, one: &StepCost, once: f64) -> f64 {
        match self.objective {
            Objective::Traffic => (one.bytes_up + one.bytes_down) as f64 + once,
            Objective::Latency | Objective::Throughput => {
                let waits = self.network.seconds(one) + 8.0 * once / self.network.bandwidth;
                one.seconds.total() + waits
            }
        }
    }

    /// The cost of one step of a batch, of so many images.
    pub(crate) fn of_step(self, cost: impl Fn(usize) -> StepCost, max_batch: usize) -> f64 {
        match self.objective {
            Objective::Throughput => {
                let batch = max_batch.min(THROUGHPUT_BATCH);
                let all = cost(batch);
                (all.seconds.total() + self.network.seconds(&all)) / batch as f64
            }
            Objective::Latency | Objective::Traffic => self.of_one(&cost(1), 0.0),
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
