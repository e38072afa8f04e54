//! The network that a model owner encrypts under `multi-key`.

use pronghorn_graph::{
    float,
    graph::Graph,
    names::of_classes,
    passes,
    polynomial::{self, PolyGraph},
};

use super::{
    BuildError, BuildOptions, LEAST_SAMPLES, PROFILE_WORK, method::multiply_adds, samples,
};

/// The polynomial form of a graph, with ranges by the samples of the options, or by its range of
/// inputs where there are none. Weights keep the bits that they have.
///
/// # Errors
/// The model is no polynomial, or the samples do not fit it.
pub fn polynomial(graph: &Graph, options: &BuildOptions) -> Result<PolyGraph, BuildError> {
    let (elements, shape) = (graph.input_len(), &graph.nodes[0].shape);
    let samples = samples::samples(options, elements, shape)?;
    let graph = passes::run(graph);
    let affordable = usize::try_from(PROFILE_WORK / multiply_adds(&graph).max(1));
    let images = samples.len() / elements.max(1);
    let images = images.min(affordable.unwrap_or(usize::MAX).max(LEAST_SAMPLES));
    let mut profile = float::profile(&graph, &samples[..images * elements], images)?;
    let input = &mut profile.values[0];
    let range = [input.min, input.max];
    let (range, margin) = match options.samples {
        Some(_) => {
            let of_input = samples::margin_of_ciphertexts(shape);
            (samples::told(range, of_input, &samples, elements), 1.0)
        }
        None => (samples::made_up(range), samples::SYNTHETIC_MARGIN),
    };
    [input.min, input.max] = range;
    Ok(PolyGraph {
        class_names: of_classes(&options.class_names),
        ..polynomial::lower_finely(&graph, &profile, margin)?
    })
}
