//! Whole rounds of a toy set.

use super::*;
use crate::{Block, ot::*, machine::Machine};
use pronghorn_ring::random::Seed;

const TOY: LpnParameters = LpnParameters::new(11, 260, 4);
const TOY_CHAIN: Chain = Chain::new(&[TOY]);
