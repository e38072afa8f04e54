//! Predicted seconds by the kind of work, so that a machine's own speed can scale them.

use std::ops::{Add, Mul};

use serde::{Deserialize, Serialize};

/// Predicted seconds on one core, both parties' work added, for each kind of work.
///
/// They are those of the nominal CPU of [`rate`](super::rate). Plans are chosen by them
/// ([`Seconds::total`]), so that all machines make equal plans. [`Seconds::at`] scales them for
/// people.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seconds {
    /// Products of words by weights.
    pub products: f64,
    /// Transforms, encryption, decryption, masks and packing of words.
    pub encryption: f64,
    /// Garbling and evaluating circuits.
    pub garbling: f64,
    /// Oblivious transfers.
    pub transfers: f64,
    /// Round trips: messages and wake-ups. They depend little on the CPU.
    pub waits: f64,
}

impl Seconds {
    /// Of products of words by weights.
    pub fn products(products: f64) -> Self {
        Self {
            products,
            ..Self::default()
        }
    }

    /// Of transforms, encryption and packing.
    pub fn encryption(encryption: f64) -> Self {
        Self {
            encryption,
            ..Self::default()
        }
    }

    /// Of garbled circuits.
    pub fn garbling(garbling: f64) -> Self {
        Self {
            garbling,
            ..Self::default()
        }
    }

    /// Of oblivious transfers.
    pub fn transfers(transfers: f64) -> Self {
        Self {
            transfers,
            ..Self::default()
        }
    }

    /// Of round trips.
    pub fn waits(waits: f64) -> Self {
        Self {
            waits,
            ..Self::default()
        }
    }

    /// The sum, on the nominal CPU.
    pub fn total(self) -> f64 {
        self.at(&Speed::default())
    }

    /// The sum, on a machine.
    pub fn at(self, speed: &Speed) -> f64 {
        self.products * speed.products
            + self.encryption * speed.encryption
            + self.garbling * speed.garbling
            + self.transfers * speed.transfers
            + self.waits
    }
}

impl Add for Seconds {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            products: self.products + other.products,
            encryption: self.encryption + other.encryption,
            garbling: self.garbling + other.garbling,
            transfers: self.transfers + other.transfers,
            waits: self.waits + other.waits,
        }
    }
}

impl Mul<f64> for Seconds {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        Self {
            products: self.products * factor,
            encryption: self.encryption * factor,
            garbling: self.garbling * factor,
            transfers: self.transfers * factor,
            waits: self.waits * factor,
        }
    }
}

/// The seconds of a machine for each kind of work, as multiples of those of the nominal CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    /// Of products of words by weights.
    pub products: f64,
    /// Of transforms, encryption and packing.
    pub encryption: f64,
    /// Of garbled circuits.
    pub garbling: f64,
    /// Of oblivious transfers.
    pub transfers: f64,
}

impl Default for Speed {
    /// The nominal CPU.
    fn default() -> Self {
        Self {
            products: 1.0,
            encryption: 1.0,
            garbling: 1.0,
            transfers: 1.0,
        }
    }
}

impl Speed {
    /// The same factors, if each is a number that a machine can have: 0.001 to 1,000.
    pub fn checked(self) -> Option<Self> {
        let factors = [
            self.products,
            self.encryption,
            self.garbling,
            self.transfers,
        ];
        let plausible = |factor: &f64| (1e-3..=1e3).contains(factor);
        factors.iter().all(plausible).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_work_is_scaled_by_its_own_factor() {
        let seconds = Seconds::products(1.0)
            + Seconds::encryption(10.0)
            + Seconds::garbling(100.0)
            + Seconds::transfers(1000.0)
            + Seconds::waits(10_000.0);
        assert_eq!(seconds.total(), 11_111.0);
        let speed = Speed {
            products: 2.0,
            encryption: 3.0,
            garbling: 4.0,
            transfers: 5.0,
        };
        assert_eq!(seconds.at(&speed), 15_432.0);
        assert_eq!((seconds * 2.0).at(&speed), 2.0 * 15_432.0);
        assert_eq!(speed.checked(), Some(speed));
        for odd in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let odd = Speed {
                garbling: odd,
                ..speed
            };
            assert_eq!(odd.checked(), None);
        }
    }
}
