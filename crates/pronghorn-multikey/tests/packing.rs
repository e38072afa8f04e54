//! Packings on plain slots: each equals the layer, and clean ones hold nothing else.

use pronghorn_graph::{
    geometry::{ConvGeometry, Window},
    layout::patch,
};
use pronghorn_multikey::{
    layout::{Layout, Spot, fill},
    packing::{self, Input, Packing},
};
use proptest::prelude::*;

const SLOTS: usize = 1024;

/// A number that no other index has, by no sum of a few.
fn number(index: usize) -> f64 {
    ((index * 7919 + 13) % 65_521) as f64 / 64.0 - 500.0
}

/// `out[o]` by the definition.
fn layer(geometry: &ConvGeometry, x: &[f64]) -> Vec<f64> {
    let [height, width] = geometry.output().expect("valid");
    let (row, per_group) = (geometry.row_len(), geometry.out_channels / geometry.groups);
    let mut window = vec![0.0; row];
    let mut out = Vec::new();
    for channel in 0..geometry.out_channels {
        for position in 0..height * width {
            let at = [position / width, position % width];
            patch(geometry, channel / per_group, at, x, &mut window);
            let products = window.iter().enumerate();
            out.push(products.map(|(i, x)| x * number(channel * row + i)).sum());
        }
    }
    out
}

fn rotated(x: &[f64], steps: usize) -> Vec<f64> {
    (0..x.len()).map(|i| x[(i + steps) % x.len()]).collect()
}

/// The slots of the output that a packing makes of the input's.
fn run(packing: &Packing, input: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let of_output = packing.products.iter().map(|products| {
        let mut sum = vec![0.0; SLOTS];
        for product in products {
            let weights = fill(SLOTS, packing.period, &product.weights, number);
            let x = rotated(&input[product.rotation.ciphertext], product.rotation.steps);
            let products = weights.iter().zip(&x);
            // Zero times anything is zero, as for ciphertexts of weights.
            let terms = products.map(|(w, x)| if *w == 0.0 { 0.0 } else { w * x });
            sum.iter_mut()
                .zip(terms)
                .for_each(|(sum, term)| *sum += term);
        }
        for &fold in &packing.folds {
            let turned = rotated(&sum, fold);
            sum.iter_mut()
                .zip(turned)
                .for_each(|(sum, term)| *sum += term);
        }
        sum
    });
    of_output.collect()
}

/// Slots with elements in the places of a layout, and something else where it may be.
fn slots(layout: &Layout, values: &[f64]) -> Vec<Vec<f64>> {
    let spots = layout.spots();
    let of_ciphertext = spots.iter().map(|spots: &Vec<Spot>| {
        let mut slots = fill(SLOTS, layout.period(), spots, |i| values[i]);
        if !layout.clean {
            let taken = fill(SLOTS, layout.period(), spots, |_| 1.0);
            for (slot, taken) in slots.iter_mut().zip(taken) {
                *slot += 1e6 * (1.0 - taken);
            }
        }
        slots
    });
    of_ciphertext.collect()
}

fn of_input(input: &Input, values: &[f64]) -> Vec<Vec<f64>> {
    let spots = input.spots.iter();
    spots
        .map(|spots| fill(SLOTS, input.period, spots, |i| values[i]))
        .collect()
}

/// All elements are right, at every repetition; other slots are zero where they should be.
fn check(packing: &Packing, input: &[Vec<f64>], wanted: &[f64]) {
    let (found, layout) = (run(packing, input), &packing.output);
    let largest = wanted.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
    let near = |x: f64, y: f64| (x - y).abs() < 1e-9 * largest;
    let mut taken = vec![vec![false; SLOTS]; layout.ciphertexts()];
    assert_eq!(layout.places.len(), wanted.len());
    for (place, &wanted) in layout.places.iter().zip(wanted) {
        let place = place.expect("outputs have places");
        for slot in (place.slot..SLOTS).step_by(layout.period()) {
            let found = found[place.ciphertext][slot];
            assert!(near(found, wanted), "slot {slot}: {found}, {wanted}");
            assert!(
                !taken[place.ciphertext][slot],
                "two elements in slot {slot}"
            );
            taken[place.ciphertext][slot] = true;
        }
    }
    if layout.clean {
        let pairs = found.iter().flatten().zip(taken.iter().flatten());
        assert!(pairs.clone().all(|(&found, &taken)| taken || found == 0.0));
    }
}

fn values(count: usize) -> Vec<f64> {
    (0..count)
        .map(|i| ((i * 31 + 5) % 97) as f64 - 40.0)
        .collect()
}

/// Every packing there is for a layer over this layout.
fn every_packing(geometry: &ConvGeometry, layout: &Layout) {
    let x = values(layout.places.len());
    let (wanted, input) = (layer(geometry, &x), slots(layout, &x));
    let rows = packing::rows(geometry);
    for clean in [false, true] {
        let packing = packing::choose(geometry, layout, SLOTS, clean).expect("it fits");
        assert!(packing.output.clean || !clean);
        check(&packing, &input, &wanted);
    }
    if let Some(packing) = packing::windows(&rows, layout, SLOTS).filter(|_| rows.len() <= SLOTS) {
        check(&packing, &input, &wanted);
    }
    let mut period = 1;
    while period <= SLOTS {
        let base = |o: usize| packing_place(o, period);
        check(
            &packing::residues(&rows, layout, period, base).expect("few"),
            &input,
            &wanted,
        );
        period *= 4;
    }
}

fn packing_place(output: usize, period: usize) -> pronghorn_multikey::layout::Place {
    pronghorn_multikey::layout::Place {
        ciphertext: output / period,
        slot: output * 5 % period,
    }
}

#[test]
fn dense_layers_over_every_layout() {
    let plain = Layout::in_order(37, SLOTS);
    every_packing(&ConvGeometry::dense(37, 11), &plain);
    // Over the windows of a layer before, among its partial sums.
    let rows = packing::rows(&ConvGeometry::dense(37, 11));
    let windows = packing::windows(&rows, &plain, SLOTS)
        .expect("it fits")
        .output;
    assert!(!windows.clean);
    every_packing(&ConvGeometry::dense(11, 5), &windows);
    every_packing(&ConvGeometry::dense(11, 40), &windows);
    // Over two ciphertexts.
    every_packing(
        &ConvGeometry::dense(1500, 3),
        &Layout::in_order(1500, SLOTS),
    );
}

#[test]
fn convolutions_over_images_in_order() {
    let geometry =
        |channels: [usize; 2], kernel: usize, stride: usize, pad: usize, groups| ConvGeometry {
            in_channels: channels[0],
            out_channels: channels[1],
            input: [7, 6],
            window: Window {
                stride: [stride, 1],
                padding: [pad, 0, pad, pad],
                ..Window::plain([kernel, kernel])
            },
            groups,
        };
    every_packing(&geometry([2, 3], 3, 1, 1, 1), &Layout::in_order(84, SLOTS));
    every_packing(&geometry([2, 4], 2, 2, 0, 2), &Layout::in_order(84, SLOTS));
    every_packing(&geometry([1, 30], 3, 2, 0, 1), &Layout::in_order(42, SLOTS));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Patches of any first convolution, with any shifts.
    #[test]
    fn patches_of_first_convolutions(
        channels in (1..3usize, 1..6usize), kernel in (1..5usize, 1..5usize),
        stride in 1..3usize, pad in 0..2usize, size in (5..9usize, 5..8usize),
        shifts in (1..4usize, 1..3usize), depthwise in any::<bool>(),
    ) {
        let geometry = ConvGeometry {
            in_channels: channels.0,
            out_channels: if depthwise { channels.0 * 2 } else { channels.1 },
            input: [size.0, size.1],
            window: Window {
                stride: [stride, stride],
                padding: [pad, 0, 0, pad],
                ..Window::plain([kernel.0, kernel.1])
            },
            groups: if depthwise { channels.0 } else { 1 },
        };
        let x = values(geometry.in_channels * size.0 * size.1);
        let wanted = layer(&geometry, &x);
        if let Some((input, packing)) = packing::patches(&geometry, [shifts.0, shifts.1], SLOTS) {
            prop_assert!(packing.output.clean);
            check(&packing, &of_input(&input, &x), &wanted);
        }
        let chosen = packing::choose_first(&geometry, x.len(), SLOTS, true);
        let (input, packing) = chosen.expect("it fits");
        check(&packing, &of_input(&input, &x), &wanted);
    }
}

/// The counts that the module's documentation states for the network of ePrint 2019/524.
#[test]
fn the_papers_network_is_as_cheap_as_stated() {
    let slots = 16_384;
    let convolution = ConvGeometry {
        in_channels: 1,
        out_channels: 5,
        input: [28, 28],
        window: Window {
            stride: [2, 2],
            ..Window::plain([4, 4])
        },
        groups: 1,
    };
    let (input, first) = packing::choose_first(&convolution, 784, slots, false).expect("it fits");
    let second = packing::choose(&ConvGeometry::dense(845, 64), &first.output, slots, false);
    let second = second.expect("it fits");
    let third = packing::choose(&ConvGeometry::dense(64, 10), &second.output, slots, true);
    let third = third.expect("it fits");
    assert_eq!(input.spots.len(), 1);
    let counts = [&first, &second, &third].map(|packing| {
        let rotations = packing.rotations();
        let moving = rotations
            .iter()
            .filter(|rotation| rotation.steps > 0)
            .count();
        (packing.products[0].len(), moving, packing.folds.len())
    });
    assert_eq!(counts, [(1, 0, 4), (4, 3, 8), (10, 9, 6)]);
}
