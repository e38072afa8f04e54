//! Where values sit in polynomials, by hand; and how well what is published hides a layer.

use crate::common::{
    networks::{Middle, around, shared},
    window,
};
use pronghorn_graph::geometry::ConvGeometry;
use pronghorn_plan::{
    CheckedPlan, Derived, Engine,
    steps::linear::{
        coefficient::Layout,
        hiding::{Hiding, Lwe},
    },
};
use pronghorn_ring::security::SecurityLevel;

/// A convolution of a square image with a square kernel.
fn conv(channels: [usize; 2], side: usize, kernel: [usize; 3]) -> ConvGeometry {
    let [size, stride, padding] = kernel;
    ConvGeometry {
        in_channels: channels[0],
        out_channels: channels[1],
        input: [side; 2],
        window: window(size, stride, padding),
        groups: 1,
    }
}

fn layout(geometry: &ConvGeometry, degree: usize) -> Layout {
    Layout::new(geometry, degree).expect("the layer fits")
}

/// Words of an image, published polynomials, tiles, polynomials of a tile.
fn sizes(geometry: &ConvGeometry) -> [usize; 4] {
    let layout = layout(geometry, 2048);
    [
        layout.words(),
        layout.published(),
        layout.tiles(),
        layout.polynomials(),
    ]
}

#[test]
fn dense_layers_have_a_coefficient_an_input() {
    assert_eq!(sizes(&ConvGeometry::dense(100, 10)), [100, 10, 1, 1]);
    assert_eq!(sizes(&ConvGeometry::dense(2048, 3)), [2048, 3, 1, 1]);
    assert_eq!(sizes(&ConvGeometry::dense(2049, 3)), [2049, 3, 1, 2]);
    assert_eq!(layout(&ConvGeometry::dense(2049, 3), 4096).polynomials(), 1);
}

/// 8 x 8 with a border: a row takes 9 coefficients, since the padding at its end is that at the
/// next one's beginning; a channel takes 9 such rows.
#[test]
fn padding_is_shared() {
    let one = conv([1, 4], 8, [3, 1, 1]);
    assert_eq!(sizes(&one), [9 * 9 + 10, 4, 1, 1]);
    let two = conv([2, 4], 8, [3, 1, 1]);
    assert_eq!(sizes(&two), [81 + 9 * 9 + 10, 4, 1, 1]);
    // As many channels as fit.
    let layout = layout(&conv([64, 4], 8, [3, 1, 1]), 2048);
    assert_eq!(layout.channels(), (2048 - 91) / 81 + 1);
    assert_eq!(layout.polynomials(), 64usize.div_ceil(layout.channels()));
}

#[test]
fn without_padding_each_value_is_a_coefficient() {
    assert_eq!(sizes(&conv([3, 5], 8, [3, 1, 0])), [3 * 64, 5, 1, 1]);
    assert_eq!(sizes(&conv([3, 5], 8, [1, 1, 0])), [3 * 64, 5, 1, 1]);
}

#[test]
fn values_that_no_output_reads_are_not_sent() {
    assert_eq!(sizes(&conv([3, 5], 8, [1, 2, 0])), [3 * 16, 5, 1, 1]);
    assert_eq!(sizes(&conv([1, 1], 9, [2, 3, 0])), [36, 1, 1, 1]);
}

#[test]
fn outputs_are_where_strides_lead() {
    let layout = layout(&conv([1, 1], 8, [2, 2, 0]), 2048);
    let outputs: Vec<(usize, u32)> = layout.outputs(0).take(5).collect();
    // Two rows of eight coefficients on, two columns on.
    assert_eq!(outputs, [(0, 0), (1, 2), (2, 4), (3, 6), (4, 16)]);
    assert_eq!(layout.tap(0, [1, 1]), (0, 9));
    let sites: Vec<u32> = layout.sites(0).map(|site| site.position).collect();
    assert_eq!(sites, (0..64).collect::<Vec<u32>>());
}

/// Each output is of one tile, and all values are read.
#[test]
fn tiles_cover_an_image() {
    for (side, kernel, degree) in [
        (64, [3, 1, 1], 2048),
        (65, [5, 2, 2], 2048),
        (99, [3, 3, 0], 4096),
        (48, [7, 2, 3], 2048),
    ] {
        let geometry = conv([2, 3], side, kernel);
        let layout = layout(&geometry, degree);
        assert!(layout.tiles() > 1);
        assert_eq!(layout.published(), 3 * layout.tiles());
        let [height, width] = geometry.output().expect("the kernel fits");
        let tiles = 0..layout.tiles();
        let outputs = tiles.clone().flat_map(|tile| layout.outputs(tile));
        let mut positions: Vec<usize> = outputs.map(|(position, _)| position).collect();
        positions.sort_unstable();
        assert_eq!(positions, (0..height * width).collect::<Vec<_>>());
        let mut read = vec![false; 2 * side * side];
        for tile in tiles {
            for polynomial in 0..layout.polynomials() {
                for site in layout.sites(polynomial) {
                    assert!((site.position as usize) < degree);
                    if let Some(element) = layout.element(tile, site) {
                        let element = layout.first_element(polynomial) + element;
                        read[element] = true;
                    }
                }
            }
        }
        assert!(read.iter().all(|&read| read), "{side} {kernel:?}");
    }
}

#[test]
fn what_does_not_fit_has_no_layout() {
    let mut wide = conv([1, 1], 64, [3, 1, 0]);
    wide.window.dilation = [30, 30];
    assert!(Layout::new(&wide, 2048).is_none());
    assert!(Layout::new(&wide, 4096).is_some());
    assert!(Layout::new(&conv([1, 1], 4, [5, 1, 0]), 2048).is_none());
    assert!(Layout::new(&conv([0, 1], 4, [3, 1, 0]), 2048).is_none());
}

/// How well each layer of a plan that publishes polynomials is hidden, with its name.
fn hidings(plan: &CheckedPlan) -> Vec<(String, Hiding)> {
    let of = |(index, _, rlwe): (usize, &pronghorn_plan::Step, _)| match plan.derived(index) {
        Derived::Polynomials(layout) => {
            let hiding = Hiding::of(rlwe, layout).expect("its parameters are in the table");
            Some((plan.step_name(index), hiding))
        }
        _ => None,
    };
    plan.linear_steps().filter_map(of).collect()
}

/// What the coefficient engine publishes of planned layers meets the table, and hides more than the
/// paper's filters do.
#[test]
fn planned_layers_are_hidden() {
    let plan = shared(&around(Middle::Residual), Engine::Coefficient, None).plan;
    let found = hidings(&plan);
    assert_eq!(found.len(), plan.linear_steps().count());
    for (name, hiding) in &found {
        assert!(hiding.table >= SecurityLevel::Bits128);
        assert!(
            hiding.ours > 128.0 && hiding.paper < 64.0,
            "{name}: {hiding:?}"
        );
    }
    // First of two input channels under a kernel of 9, all in one polynomial.
    assert_eq!(found[0].1.paper_unknowns, 2 * 9);
    let plan = shared(&around(Middle::Relu), Engine::Batch, None).plan;
    assert!(plan.linear_steps().count() > 0 && hidings(&plan).is_empty());
}

/// A larger modulus helps the attacker, a larger ring does not.
#[test]
fn attacks_follow_degree_and_modulus() {
    let bits = |degree, log_q| Lwe::ternary(degree, log_q).bits();
    assert!(bits(2048, 30.0) > bits(2048, 40.0) && bits(2048, 40.0) > bits(2048, 54.0));
    assert!(bits(4096, 54.0) > bits(2048, 54.0));
    let attack = Lwe::ternary(2048, 54.0).attack().expect("there is one");
    assert!(attack.core_svp() < attack.bits());
    assert!((2048..=4097).contains(&attack.dimension), "{attack:?}");
}
