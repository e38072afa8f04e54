//! Both parties' machines for one step of a plan.

use pronghorn_plan::Plan;
use pronghorn_ring::random::Seed;

use super::{
    Shape,
    client::CoefficientClient,
    publication::{ClientPublication, Layer, Polynomials, ServerPublication},
    server::CoefficientServer,
};
use crate::{
    error::EngineError,
    machine::StepMachine,
    share::{Batch, Share},
};

/// The client of step `index`, for `batch` images whose shares are `input`.
///
/// # Errors
/// When the step is of another engine, or nothing was published for it.
pub fn client(
    (plan, index, batch): (&Plan, usize, usize),
    publication: Option<&ClientPublication>,
    input: Batch,
) -> Result<Box<dyn StepMachine>, EngineError> {
    let shape = shape(plan, index, batch)?;
    let missing = || refused(plan, index, "its published polynomials are missing");
    let publication = publication.ok_or_else(missing)?;
    let seed = &publication.seed;
    Ok(match publication.steps.get(index).cloned().flatten() {
        Some(Polynomials::U32(words)) => {
            Box::new(CoefficientClient::new(shape, index, seed, words, input)?)
        }
        Some(Polynomials::U64(words)) => {
            Box::new(CoefficientClient::new(shape, index, seed, words, input)?)
        }
        None => return Err(missing()),
    })
}

/// The server of step `index`, for `batch` images whose shares are `input`. Masks come from
/// `masks`, or from the operating system where there is no such seed.
///
/// # Errors
/// When the step is of another engine, or nothing was published.
pub fn server(
    (plan, index, batch): (&Plan, usize, usize),
    layer: &Layer,
    publication: Option<ServerPublication>,
    input: Share,
    masks: Option<Seed>,
) -> Result<Box<dyn StepMachine>, EngineError> {
    let shape = shape(plan, index, batch)?;
    let missing = || refused(plan, index, "its polynomials have not been published");
    let published = publication.ok_or_else(missing)?;
    Ok(match layer.clone() {
        Layer::U32(layer) => Box::new(CoefficientServer::new(
            shape, index, layer, published, input, masks,
        )?),
        Layer::U64(layer) => Box::new(CoefficientServer::new(
            shape, index, layer, published, input, masks,
        )?),
    })
}

fn shape(plan: &Plan, index: usize, batch: usize) -> Result<Shape, EngineError> {
    Shape::of(plan, index, batch).ok_or_else(|| refused(plan, index, "it is of another engine"))
}

fn refused(plan: &Plan, index: usize, reason: &'static str) -> EngineError {
    EngineError::Unsupported {
        step: plan.steps[index].name.clone(),
        reason,
    }
}
