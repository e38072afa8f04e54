//! The layers of CryptoNets (nGraph-HE2, appendix A.1), with made-up weights.

use crate::words::{Layer, Then, number};

/// Pixels of an image.
pub(crate) const INPUT: usize = 784;

/// Outputs of the convolution and of the two dense layers.
const CONV: usize = 845;
const HIDDEN: usize = 100;
const CLASSES: usize = 10;
const KERNEL: usize = 5;

/// All layers in order.
pub(crate) fn layers() -> Vec<Layer> {
    let dense = |name, inputs, outputs, then| Layer {
        name,
        outputs,
        terms: Box::new(move |output| dense(inputs, output)),
        then,
    };
    vec![
        Layer {
            name: "convolution",
            outputs: CONV,
            terms: Box::new(convolution),
            then: Then::Activation,
        },
        dense("dense 845 to 100", CONV, HIDDEN, Then::Activation),
        dense("dense 100 to 10", HIDDEN, CLASSES, Then::Nothing),
    ]
}

/// The terms of an output of 5x5 with stride 2 on 28x28, padded by one, to 5 maps of 13x13.
fn convolution(output: usize) -> Vec<(usize, f64)> {
    let side = |window: usize, place: usize| {
        (2 * window + place)
            .checked_sub(1)
            .filter(|&side| side < 28)
    };
    let (map, y, x) = (output / 169, output / 13 % 13, output % 13);
    let terms = (0..KERNEL * KERNEL).filter_map(|place| {
        let input = side(y, place / KERNEL)? * 28 + side(x, place % KERNEL)?;
        Some((input, 0.3 * number(1000 + 25 * map + place)))
    });
    terms.collect()
}

/// The terms of an output of every input.
fn dense(inputs: usize, output: usize) -> Vec<(usize, f64)> {
    let size = (inputs as f64).sqrt().recip();
    let term = |input| (input, size * number(17 * output + 31 * input));
    (0..inputs).map(term).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_those_of_the_paper() {
        let layers = layers();
        assert_eq!(layers[0].outputs, CONV);
        let conv: Vec<_> = (0..CONV).map(&layers[0].terms).collect();
        // Windows in the middle have 25 terms, those in a corner 16; the last row and column of
        // windows ends within.
        assert_eq!(conv[0].len(), 16);
        assert_eq!(conv[14].len(), 25);
        assert_eq!(conv.iter().flatten().map(|term| term.0).max(), Some(783));
        assert_eq!((layers[1].terms)(99).len() * layers[1].outputs, 84_500);
    }
}
