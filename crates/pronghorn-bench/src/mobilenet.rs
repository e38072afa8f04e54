//! The layers of MobileNetV2 with 0.35 of its maps, on pictures of 96x96 (Sandler, Howard, Zhu,
//! Zhmoginov, Chen, "MobileNetV2", table 2; widths are rounded to multiples of 8), with made-up
//! weights.

use pronghorn_graph::geometry::{ConvGeometry, Window};

use crate::words::{Layer, Then, number};

/// Values of a picture.
pub(crate) const INPUT: usize = 3 * SIDE * SIDE;

const SIDE: usize = 96;

/// Classes.
const CLASSES: usize = 1000;

/// Expansion, maps, repetitions and first stride of each kind of block.
const BLOCKS: [[usize; 4]; 7] = [
    [1, 8, 1, 1],
    [6, 8, 2, 2],
    [6, 16, 3, 2],
    [6, 24, 4, 2],
    [6, 32, 3, 1],
    [6, 56, 3, 2],
    [6, 112, 1, 1],
];

/// All layers in order.
pub(crate) fn layers() -> Vec<Layer> {
    let mut side = SIDE;
    let mut layers = Vec::new();
    let mut maps = 16;
    push(
        &mut layers,
        ("3x3 from the picture", Then::Activation),
        &mut side,
        [3, maps],
        [3, 2, 1],
    );
    for [expansion, out, repetitions, first] in BLOCKS {
        for repetition in 0..repetitions {
            let stride = if repetition == 0 { first } else { 1 };
            let inner = expansion * maps;
            let adds = stride == 1 && maps == out;
            if expansion > 1 {
                let expand = ("1x1", Then::Activation);
                push(&mut layers, expand, &mut side, [maps, inner], [1, 1, 1]);
            }
            let depthwise = ("depthwise 3x3", Then::Activation);
            push(
                &mut layers,
                depthwise,
                &mut side,
                [inner; 2],
                [3, stride, inner],
            );
            // The sum is with the input of the block, as many layers back as the block has.
            let back = adds.then_some(if expansion > 1 { 3 } else { 2 });
            let project = ("1x1", Then::Sum(back));
            push(&mut layers, project, &mut side, [inner, out], [1, 1, 1]);
            maps = out;
        }
    }
    push(
        &mut layers,
        ("1x1", Then::Activation),
        &mut side,
        [maps, 1280],
        [1, 1, 1],
    );
    let pixels = side * side;
    layers.push(Layer {
        name: "mean and dense 1280 to 1000",
        outputs: 1280,
        then: Then::Sum(None),
        terms: Box::new(move |map| {
            let pixel = |pixel| (map * pixels + pixel, 1.0 / pixels as f64);
            (0..pixels).map(pixel).collect()
        }),
    });
    layers.push(Layer {
        name: "mean and dense 1280 to 1000",
        outputs: CLASSES,
        then: Then::Nothing,
        terms: Box::new(|output| {
            let weight = |input| weight(17 * output + 31 * input, 1280);
            (0..1280).map(|input| (input, weight(input))).collect()
        }),
    });
    layers
}

/// A convolution of `[kernel, stride, groups]`, padded so that a stride of 1 keeps the side.
fn push(
    layers: &mut Vec<Layer>,
    (name, then): (&'static str, Then),
    side: &mut usize,
    [in_channels, out_channels]: [usize; 2],
    [kernel, stride, groups]: [usize; 3],
) {
    // As TensorFlow pads an even side.
    let padding = match (kernel, stride) {
        (1, _) => [0; 4],
        (_, 1) => [1; 4],
        _ => [0, 0, 1, 1],
    };
    let geometry = ConvGeometry {
        in_channels,
        out_channels,
        input: [*side; 2],
        window: Window {
            kernel: [kernel; 2],
            stride: [stride; 2],
            dilation: [1; 2],
            padding,
        },
        groups,
    };
    *side = side.div_ceil(stride);
    layers.push(Layer {
        name,
        outputs: out_channels * *side * *side,
        then,
        terms: Box::new(terms(geometry, *side)),
    });
}

/// The terms of an output of a convolution.
fn terms(geometry: ConvGeometry, side: usize) -> impl Fn(usize) -> Vec<(usize, f64)> {
    move |output| {
        let window = &geometry.window;
        let (map, at) = (
            output / (side * side),
            [output / side % side, output % side],
        );
        let group_in = geometry.in_channels / geometry.groups;
        let first = map / (geometry.out_channels / geometry.groups) * group_in;
        let mut terms = Vec::new();
        for channel in first..first + group_in {
            for tap_y in window.taps(0, at[0], geometry.input[0]) {
                for tap_x in window.taps(1, at[1], geometry.input[1]) {
                    let (y, x) = (window.index(0, at[0], tap_y), window.index(1, at[1], tap_x));
                    let input = (channel * geometry.input[0] + y) * geometry.input[1] + x;
                    let index = 1000 + 37 * map + 11 * channel + 3 * tap_y + tap_x;
                    terms.push((input, weight(index, geometry.row_len())));
                }
            }
        }
        terms
    }
}

/// A made-up weight of an output of so many. Their mean keeps that of the values, so that none of
/// the activations makes all of them zero.
fn weight(index: usize, count: usize) -> f64 {
    (1.0 + 1.5 * number(index)) / count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The authors state 11 million multiply-adds for this width and side. The number below is by the
    /// formula for each layer, without padding.
    #[test]
    fn layers_are_those_of_the_network() {
        let layers = layers();
        assert_eq!(layers.len(), 1 + 2 + 16 * 3 + 1 + 2);
        let outputs: Vec<usize> = layers.iter().map(|layer| layer.outputs).collect();
        assert_eq!(outputs[..3], [16 * 48 * 48, 16 * 48 * 48, 8 * 48 * 48]);
        assert_eq!(outputs[51..], [1280 * 9, 1280, 1000]);
        for (layer, before) in layers.iter().zip(std::iter::once(&INPUT).chain(&outputs)) {
            let last = (layer.terms)(layer.outputs - 1);
            assert!(last.iter().all(|term| term.0 < *before), "{}", layer.name);
            assert!((layer.terms)(0).len() <= last.len().max(9 * 3));
        }
        let counts = |layer: &Layer| {
            (0..layer.outputs)
                .map(|o| (layer.terms)(o).len())
                .sum::<usize>()
        };
        let multiply_adds: usize = layers.iter().map(counts).sum();
        assert_eq!(multiply_adds, 11_767_776);
        // In the middle of the picture, 27 pixels and a 3x3 window.
        assert_eq!((layers[0].terms)(48 * 20 + 20).len(), 27);
        assert_eq!((layers[1].terms)(48 * 20 + 20).len(), 9);
        // Ten blocks add their input.
        let adds = layers
            .iter()
            .filter(|layer| matches!(layer.then, Then::Sum(Some(_))));
        assert_eq!(adds.count(), 10);
    }
}
