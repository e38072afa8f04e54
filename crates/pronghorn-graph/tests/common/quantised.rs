//! Networks in fixed point, with their samples.

use pronghorn_graph::{
    fixed::{FixedGraph, FixedOp},
    float,
    geometry::Window,
    oracle, passes,
    quantise::{FixedPrecision, PrecisionChooser, QuantiseError, QuantiseOptions, quantise},
};

use super::{Net, Random, difference, size};

/// Images of the samples.
pub const IMAGES: usize = 12;

/// A network after the passes, in fixed point, with the samples it was calibrated on.
pub struct Quantised {
    pub net: Net,
    pub fixed: FixedGraph,
    pub samples: Vec<f32>,
}

/// The fixed-point form of a network, which goes through the passes first, and its samples.
pub fn try_quantise(
    net: &mut Net,
    chooser: &dyn PrecisionChooser,
    low: f32,
) -> Result<(FixedGraph, Vec<f32>), QuantiseError> {
    net.graph = passes::run(&net.graph);
    let samples = Random::new(3).reals(IMAGES * net.graph.input_len(), low, 1.0);
    let profile = float::profile(&net.graph, &samples, IMAGES).unwrap();
    Ok((
        quantise(&net.graph, &profile, chooser, &QuantiseOptions::default())?,
        samples,
    ))
}

/// A network whose weights and inputs have so many bits, with samples from `low` to 1.
pub fn quantised(mut net: Net, bits: u32, low: f32) -> Quantised {
    let (fixed, samples) = try_quantise(&mut net, &FixedPrecision(bits, bits), low).unwrap();
    Quantised {
        net,
        fixed,
        samples,
    }
}

/// The decoded fixed-point result.
pub fn run(fixed: &FixedGraph, inputs: &[f32]) -> Vec<f32> {
    let images = inputs.len() / fixed.input().len();
    let (integers, _) = oracle::quantise_input(fixed.input(), inputs).unwrap();
    let result = oracle::evaluate(fixed, &integers, images).unwrap();
    oracle::finish(&fixed.finish, fixed.result(), &result, images)
}

impl Quantised {
    /// Relative error on the samples.
    pub fn error(&self) -> f64 {
        let wanted = float::evaluate(&self.net.graph, &self.samples, IMAGES).unwrap();
        difference(&run(&self.fixed, &self.samples), &wanted) / size(&wanted)
    }

    /// The first words of all operators.
    pub fn operators(&self) -> Vec<String> {
        let name = |op: &FixedOp| {
            op.to_string()
                .split([' ', ','])
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        self.fixed.nodes.iter().map(|node| name(&node.op)).collect()
    }
}

/// A window of 3x3 with padding.
pub fn padded(stride: usize) -> Window {
    Window {
        padding: [1; 4],
        stride: [stride; 2],
        ..Window::plain([3, 3])
    }
}
