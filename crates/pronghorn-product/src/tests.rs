//! The fast products against the formula, on every back end this CPU has.

use pronghorn_graph::geometry::{ConvGeometry, Window};
use pronghorn_ring::{Prime, SimdLevel, Word};
use proptest::prelude::*;

use crate::bytes::ByteWeights;
use crate::simd::Backend;
use crate::{
    PackedWeights, ProductError, Rows, Tiles, ceiling, multiply, multiply_on, multiply_reference,
};

fn geometry(channels: [usize; 2], input: [usize; 2], kernel: [usize; 2]) -> ConvGeometry {
    ConvGeometry {
        in_channels: channels[0],
        out_channels: channels[1],
        input,
        window: Window {
            kernel,
            stride: [1, 1],
            dilation: [1, 1],
            padding: [0; 4],
        },
        groups: 1,
    }
}

fn weight_count(geometry: &ConvGeometry) -> usize {
    let [height, width] = geometry.window.kernel;
    geometry.out_channels * geometry.in_channels / geometry.groups * height * width
}

/// A cheap generator of test values (SplitMix64).
fn values(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Residues with the extremes and the halves, where carries and signs change, made frequent.
fn residues<W: Word>(q: u64, count: usize, seed: u64) -> Vec<W> {
    let mut next = values(seed);
    let mut residue = || match next() % 9 {
        0 => next() % 2,
        1 => q - 1 - next() % 2,
        2 => q / 2 + next() % 2,
        3 => (q / 2).wrapping_sub(0x8000 + next() % 2) % q,
        4 => 0x7fff + next() % 2,
        5 => 0x7fff_7fff_7fff + next() % 2,
        _ => next(),
    };
    (0..count).map(|_| W::from_u64(residue() % q)).collect()
}

fn weights(count: usize, largest: i16, seed: u64) -> Vec<i16> {
    let mut next = values(seed);
    let mut weight = || match next() % 4 {
        0 => largest,
        1 => -largest,
        _ => ((next() % (2 * largest as u64 + 1)) as i32 - i32::from(largest)) as i16,
    };
    (0..count).map(|_| weight()).collect()
}

fn backends() -> Vec<Backend> {
    let levels = SimdLevel::available();
    levels.into_iter().flat_map(Backend::all).collect()
}

/// Compares every back end with the reference.
fn check<W: Word>(
    geometry: &ConvGeometry,
    weights: &[i16],
    q: &Prime<W>,
    columns: usize,
    with_addend: bool,
    seed: u64,
) {
    let packed = PackedWeights::new(geometry, weights).expect("valid geometry");
    let input = residues::<W>(q.value(), packed.inputs() * columns, seed);
    let addend = residues::<W>(q.value(), packed.outputs(), seed ^ 1);
    let addend = with_addend.then_some(&addend[..]);
    let expected = multiply_reference(geometry, weights, q, &input, columns, addend);
    let to_u64 = |words: &[W]| words.iter().map(|word| word.to_u64()).collect::<Vec<_>>();
    // Bytes wherever they can be, not only where they are faster.
    let mut tiled = PackedWeights::new(geometry, weights).expect("valid geometry");
    tiled.bytes = ByteWeights::new(&tiled.shape, weights).map(Box::new);
    let variants = backends()
        .into_iter()
        .flat_map(|backend| [(backend, &packed), (backend, &tiled)]);
    for (backend, packed) in variants {
        let mut output = Tiles::new(packed.outputs(), columns);
        // Together, and each for itself.
        let apart: Vec<&[W]> = match columns {
            0 => vec![&[]; packed.inputs()],
            _ => input.chunks(columns).collect(),
        };
        for input in [Rows::Together(&input, columns), Rows::Apart(&apart)] {
            multiply_on(backend, packed, q, input, addend, &mut output);
            let mut row = vec![W::from_u64(0); columns];
            for index in 0..packed.outputs() {
                output.read_row(index, &mut row);
                let expected = &expected[index * columns..][..columns];
                assert_eq!(
                    to_u64(&row),
                    to_u64(expected),
                    "row {index} of {geometry:?}"
                );
            }
        }
    }
}

fn geometries() -> impl Strategy<Value = ConvGeometry> {
    let pair = |most: usize| [1..=most, 1..=most];
    let channels = prop_oneof![
        3 => (1..=7_usize, 1..=30_usize, Just(1_usize)),
        1 => (1..=3_usize, 1..=3_usize, 2..=5_usize),
        1 => (Just(1_usize), Just(1_usize), 1..=5_usize),
    ];
    let window = (
        pair(4),
        pair(3),
        pair(3),
        [0..=4_usize, 0..=4, 0..=4, 0..=4],
    );
    (channels, pair(7), window).prop_map(
        |((group_in, group_out, groups), input, (kernel, stride, dilation, padding))| {
            let mut geometry = ConvGeometry {
                in_channels: group_in * groups,
                out_channels: group_out * groups,
                input,
                window: Window {
                    kernel,
                    stride,
                    dilation,
                    padding,
                },
                groups,
            };
            for axis in 0..2 {
                // Enlarge the image until the window fits.
                let window = &geometry.window;
                let span = window.dilation[axis] * (window.kernel[axis] - 1) + 1;
                let padding = window.padding[axis] + window.padding[axis + 2];
                geometry.input[axis] = geometry.input[axis].max(span.saturating_sub(padding));
            }
            geometry
        },
    )
}

fn largest_weights() -> impl Strategy<Value = i16> {
    prop_oneof![Just(1), Just(7), Just(127), Just(2_000), Just(32_767)]
}

fn prime<W: Word>(q: u64) -> Prime<W> {
    Prime::new(q).expect("a prime")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_geometry_of_32_bit_words(
        geometry in geometries(),
        largest in largest_weights(),
        q in prop_oneof![
            3 => Just(2_147_483_647_u64), // 2^31 - 1, the largest allowed
            1 => Just(1_073_692_673),
            1 => prop_oneof![Just(3_u64), Just(257), Just(65_521), Just(65_537), Just(131_071)],
        ],
        columns in prop_oneof![Just(1_usize), Just(64), 2..150_usize],
        with_addend: bool,
        seed: u64,
    ) {
        let weights = weights(weight_count(&geometry), largest, seed);
        check(&geometry, &weights, &prime::<u32>(q), columns, with_addend, seed);
    }

    /// What products of bytes take: small weights, one group, no dilation.
    #[test]
    fn any_geometry_of_bytes(
        mut geometry in geometries().prop_filter("one group", |geometry| geometry.groups == 1),
        largest in prop_oneof![Just(1), Just(15), Just(127), Just(128)],
        q in prop_oneof![Just(2_147_483_647_u64), Just(268_369_921), Just(1_048_583), Just(1_048_573)],
        columns in prop_oneof![Just(128_usize), 2..300_usize],
        with_addend: bool,
        seed: u64,
    ) {
        geometry.window.dilation = [1, 1];
        let weights = weights(weight_count(&geometry), largest, seed);
        check(&geometry, &weights, &prime::<u32>(q), columns, with_addend, seed);
    }

    #[test]
    fn any_geometry_of_64_bit_words(
        geometry in geometries(),
        largest in largest_weights(),
        q in prop_oneof![
            2 => Just(4_611_686_018_427_387_847_u64), // 2^62 - 57, the largest allowed
            1 => Just(2_305_843_009_213_693_951), // 2^61 - 1
            1 => Just(281_474_976_710_597), // 2^48 - 59, the largest in three limbs
            1 => Just(1_125_899_906_842_597), // 2^50 - 27
            1 => Just(4_294_967_291), // 2^32 - 5
            1 => prop_oneof![Just(3_u64), Just(65_537), Just(2_147_483_647)],
        ],
        columns in prop_oneof![Just(1_usize), Just(64), 2..150_usize],
        with_addend: bool,
        seed: u64,
    ) {
        let weights = weights(weight_count(&geometry), largest, seed);
        check(&geometry, &weights, &prime::<u64>(q), columns, with_addend, seed);
    }
}

#[test]
fn dense_layers_of_any_size_of_block() {
    let q = prime::<u32>(2_147_483_647);
    for outputs in 1..=26 {
        let geometry = geometry([33, outputs], [1, 1], [1, 1]);
        check(&geometry, &weights(33 * outputs, 900, 5), &q, 70, true, 5);
        check(
            &geometry,
            &weights(33 * outputs, 32_767, 5),
            &q,
            70,
            true,
            6,
        );
    }
}

/// The worst case of a chunk: all limbs and weights at their largest, signs equal.
#[test]
fn sums_at_the_edge_of_32_bits() {
    fn extreme<W: Word>(q: u64, word: u64) {
        for (inputs, weight) in [
            (2, 32_767),
            (2_048, 31),
            (516, 127),
            (3, 32_767),
            (4, 32_767),
        ] {
            let geometry = geometry([inputs, 13], [1, 1], [1, 1]);
            for weight in [weight, -weight] {
                // Four weights of norm 2^16, just too much for one chunk: two of them are one.
                let small = |i: usize| inputs == 4 && i % 4 >= 2;
                let weight = |i| {
                    if small(i) {
                        i16::signum(weight)
                    } else {
                        weight
                    }
                };
                let weights: Vec<i16> = (0..13 * inputs).map(weight).collect();
                let packed = PackedWeights::new(&geometry, &weights).expect("valid");
                let input = vec![W::from_u64(word); inputs * 64];
                let addend = [W::from_u64(word); 13];
                let (q, addend) = (prime::<W>(q), Some(&addend[..]));
                let expected = multiply_reference(&geometry, &weights, &q, &input, 64, addend);
                for backend in backends() {
                    let mut output = Tiles::new(13, 64);
                    multiply_on(
                        backend,
                        &packed,
                        &q,
                        Rows::Together(&input, 64),
                        addend,
                        &mut output,
                    );
                    let mut row = vec![W::from_u64(0); 64];
                    output.read_row(12, &mut row);
                    assert_eq!(row[63].to_u64(), expected[64 * 13 - 1].to_u64());
                }
            }
        }
    }
    // Limbs of -2^15 and 2^15 - 1 in every place, as far as the modulus allows.
    for word in [
        0x8000,
        0x7fff,
        0x3fff_8000,
        0x3fff_7fff,
        0x4000_7fff,
        2_147_483_646 / 2,
    ] {
        extreme::<u32>(2_147_483_647, word);
    }
    let q = 4_611_686_018_427_387_847;
    for word in [
        0x7fff_7fff_7fff,
        0x1fff_8000_8000_8000,
        q / 2,
        q / 2 + 1,
        q - 1,
    ] {
        extreme::<u64>(q, word);
    }
}

#[test]
fn larger_layers_walk_weights_in_the_other_order() {
    let mut wide = geometry([120, 100], [3, 4], [3, 3]);
    wide.window.padding = [1; 4];
    let few = weights(weight_count(&wide), 9, 3);
    check(&wide, &few, &prime::<u32>(2_147_483_647), 20, true, 3);
}

#[test]
fn multiply_chooses_a_level_by_itself() {
    let geometry = geometry([3, 2], [1, 1], [1, 1]);
    let packed = PackedWeights::new(&geometry, &[1, -2, 3, 0, 0, -1]).expect("valid");
    let input: Vec<u32> = vec![10, 20, 30, 40, 50, 60];
    let mut output = Tiles::new(2, 2);
    let q = prime::<u32>(65_537);
    multiply(
        &packed,
        &q,
        Rows::Together(&input, 2),
        Some(&[5, 0]),
        &mut output,
    );
    let mut row = [0; 2];
    output.read_row(0, &mut row);
    assert_eq!(row, [10 + 150 + 5 - 60, 20 + 180 + 5 - 80]);
    output.read_row(1, &mut row);
    assert_eq!(row, [65_537 - 50, 65_537 - 60]);
}

#[test]
fn no_columns_are_no_work() {
    let geometry = geometry([3, 2], [4, 4], [3, 3]);
    let packed = PackedWeights::new(&geometry, &[1; 54]).expect("valid");
    let mut output = Tiles::<u32>::new(packed.outputs(), 0);
    multiply(
        &packed,
        &prime(65_537),
        Rows::Together(&[], 0),
        None,
        &mut output,
    );
    output.read_row(7, &mut []);
    assert_eq!((output.rows(), output.columns()), (8, 0));
    assert_eq!(Tiles::<u32>::new(0, 100).rows(), 0);
}

#[test]
fn multiply_adds_counts_what_the_formula_multiplies() {
    let mut convolution = geometry([1, 5], [28, 28], [5, 5]);
    convolution.window.stride = [2, 2];
    let count = |geometry: &ConvGeometry| {
        let weights = vec![1; weight_count(geometry)];
        PackedWeights::new(geometry, &weights)
            .expect("valid")
            .multiply_adds()
    };
    assert_eq!(count(&convolution), 5 * 12 * 12 * 25);
    assert_eq!(count(&geometry([845, 100], [1, 1], [1, 1])), 84_500);
    // With a padding of one, 3x3 windows on 2x2 pixels have four inputs each.
    let mut padded = geometry([4, 6], [2, 2], [3, 3]);
    padded.window.padding = [1; 4];
    padded.groups = 2;
    assert_eq!(count(&padded), 6 * 2 * 4 * 4);
}

#[test]
fn hostile_geometries_are_errors() {
    let good = geometry([4, 6], [5, 5], [3, 3]);
    let weights = vec![1; weight_count(&good)];
    assert!(PackedWeights::new(&good, &weights).is_ok());
    let error_of = |change: &dyn Fn(&mut ConvGeometry)| {
        let mut geometry = good.clone();
        change(&mut geometry);
        match PackedWeights::new(&geometry, &weights) {
            Err(ProductError::Geometry(_)) => "geometry",
            Err(ProductError::BandTooLarge { .. }) => "band",
            Err(ProductError::WeightCount { .. }) => "weights",
            Err(ProductError::WeightTooLarge { .. }) => "large weight",
            Ok(_) => "none",
        }
    };
    assert_eq!(error_of(&|g| g.in_channels = 0), "geometry");
    assert_eq!(error_of(&|g| g.out_channels = 1 << 40), "geometry");
    assert_eq!(error_of(&|g| g.groups = 0), "geometry");
    assert_eq!(error_of(&|g| g.groups = 3), "geometry");
    assert_eq!(error_of(&|g| g.input = [0, 5]), "geometry");
    assert_eq!(error_of(&|g| g.input = [usize::MAX, 5]), "geometry");
    assert_eq!(error_of(&|g| g.window.kernel = [3, 0]), "geometry");
    assert_eq!(error_of(&|g| g.window.kernel = [6, 3]), "geometry");
    assert_eq!(error_of(&|g| g.window.stride = [0, 1]), "geometry");
    assert_eq!(
        error_of(&|g| g.window.dilation = [1, usize::MAX]),
        "geometry"
    );
    assert_eq!(
        error_of(&|g| g.window.padding = [usize::MAX; 4]),
        "geometry"
    );
    assert_eq!(error_of(&|g| g.window.padding = [1 << 24; 4]), "geometry");
    assert_eq!(
        error_of(&|g| {
            g.input = [1 << 13, 1 << 12];
            g.window.dilation = [1 << 11, 1];
            g.window.stride = [1 << 11, 1];
        }),
        "band"
    );
    assert_eq!(error_of(&|g| g.in_channels = 6), "weights");
    // Padding beyond the image and dilation beyond both are odd, but valid.
    let mut odd = geometry([1, 2], [2, 3], [2, 3]);
    odd.window.dilation = [5, 7];
    odd.window.padding = [6, 9, 5, 8];
    check(&odd, &[1; 12], &prime::<u32>(65_537), 9, true, 1);
}

#[test]
fn wrong_weights_are_errors() {
    let geometry = geometry([2, 2], [1, 1], [1, 1]);
    let error = |weights: &[i16]| PackedWeights::new(&geometry, weights).err();
    assert_eq!(
        error(&[1, 2, 3]),
        Some(ProductError::WeightCount {
            expected: 4,
            found: 3
        })
    );
    assert_eq!(
        error(&[1, 2, -32_768, 3]),
        Some(ProductError::WeightTooLarge { index: 2 })
    );
    assert_eq!(error(&[32_767, -32_767, 0, 0]), None);
}

#[test]
#[should_panic(expected = "input words")]
fn input_of_another_size_is_refused() {
    let packed = PackedWeights::new(&geometry([2, 2], [1, 1], [1, 1]), &[0; 4]).expect("valid");
    let mut output = Tiles::<u32>::new(2, 3);
    multiply(
        &packed,
        &prime(65_537),
        Rows::Together(&[0; 5], 3),
        None,
        &mut output,
    );
}

#[test]
fn layers_for_bytes() {
    let bytes = |geometry: &ConvGeometry, weight: i16| {
        let weights = vec![weight; weight_count(geometry)];
        let packed = PackedWeights::new(geometry, &weights).expect("valid");
        packed.bytes.is_some()
    };
    let dense = geometry([845, 100], [1, 1], [1, 1]);
    assert!(bytes(&dense, 77) && bytes(&dense, -77));
    // Sums of more than 2^16, and weights of more than a byte.
    assert!(!bytes(&dense, 78) && !bytes(&geometry([64, 64], [1, 1], [1, 1]), 128));
    let mut convolution = geometry([16, 16], [8, 8], [3, 3]);
    assert!(bytes(&convolution, 50));
    convolution.window.dilation = [1, 2];
    assert!(!bytes(&convolution, 50));
    // Few outputs share what is packed.
    let mut first = geometry([1, 5], [28, 28], [5, 5]);
    first.window.stride = [2, 2];
    first.window.padding = [1; 4];
    assert!(!bytes(&first, 50));
    // Two of 16 outputs and three of 64 inputs: most of the products would be with zeros.
    assert!(!bytes(&geometry([3, 2], [1, 1], [1, 1]), 1));
}

#[test]
fn every_available_level_has_a_ceiling() {
    for level in SimdLevel::available() {
        assert!(ceiling(level, 1).is_some_and(|ceiling| ceiling.rate > 0.0));
    }
}

/// Padding, dilation or gaps far beyond the image: what is packed grows with the image alone.
#[test]
fn padding_beyond_the_image_is_not_packed() {
    let cases = [
        // input channels, width, kernel, dilation, stride, padding
        (2, 1, 2, 1 << 20, [1, 1], [0, 0, 0, 1 << 20]),
        (1, 1, 2, 1 << 20, [1, 1], [0, 1 << 20, 0, 0]),
        (
            2,
            3,
            4,
            1,
            [1, 1 << 20],
            [0, (1 << 20) - 3, 0, (1 << 20) - 1],
        ),
        (1, 8, 3, 18, [1, 1], [0, 18, 0, 18]),
        (3, 8, 3, 18, [1, 1], [0, 18, 0, 18]),
    ];
    let q = prime::<u32>(2_147_389_441);
    for (channels, width, kernel, dilation, stride, padding) in cases {
        let mut geometry = geometry([channels, 2], [2, width], [1, kernel]);
        geometry.window.dilation[1] = dilation;
        (geometry.window.stride, geometry.window.padding) = (stride, padding);
        let weights = weights(weight_count(&geometry), 2_000, 8);
        let packed = PackedWeights::new(&geometry, &weights).expect("valid geometry");
        assert!(
            packed.shape.row_pixels() <= 4 * width + kernel,
            "{geometry:?}"
        );
        if packed.outputs() < 1 << 12 {
            check(&geometry, &weights, &q, 40, true, 9);
        }
    }
}

/// Many weights: the unit keeps all image rows, and no weights for other orders of them.
#[test]
fn many_weights_of_bytes() {
    let mut geometry = geometry([128, 128], [5, 4], [3, 3]);
    geometry.window.padding = [1; 4];
    let weights = weights(weight_count(&geometry), 31, 5);
    let q = prime::<u32>(2_147_389_441);
    check(&geometry, &weights, &q, 40, true, 6);
}

/// Weights just small enough for reduction without carries, and a little larger ones.
#[test]
fn small_weights_of_bytes_at_the_edge() {
    let geometry = geometry([65, 20], [1, 1], [1, 1]);
    let q = prime::<u32>(2_147_389_441);
    for weight in [126, 127, -126] {
        let weights = vec![weight; weight_count(&geometry)];
        check(&geometry, &weights, &q, 150, true, 7);
    }
}
