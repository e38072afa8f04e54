//! Products.

use pronghorn_graph::matrices::Matrices;
use proptest::prelude::*;

use super::*;
use crate::garbled::{
    Factors, OnlineProductClient, OnlineProductServer, PrepareProductClient, PrepareProductServer,
    PreparedProductClient, PreparedProductServer, ProductClient, ProductServer, Products,
};

pub fn layout(elements: usize, images: usize, bits: u32) -> Products {
    Products::squares("square".to_owned(), elements, images, bits)
}

fn both(
    squares: &Products,
    [client, server]: [Share; 2],
    (client_ots, server_ots): &(ReceiverOts, SenderOts),
    limits: &Limits,
) -> Result<([Share; 2], Traffic), EngineError> {
    step(
        ProductClient::with_limits(squares.clone(), client, client_ots.clone(), limits)?,
        ProductServer::with_limits(squares.clone(), server, server_ots.clone(), limits)?,
    )
}

fn check(elements: usize, images: usize, bits: u32, limits: &Limits) {
    let random = &mut Random((elements * images) as u64);
    let (low, high) = (-1 << (bits - 1), (1 << (bits - 1)) - 1);
    let values = random.values(elements * images, low, high);
    let shares = random.shares(&values, images, bits);
    let squares = layout(elements, images, bits);
    let ([client, server], _) = both(&squares, shares, &connection(), limits).unwrap();
    let expected = ideal::squares(&values, bits);
    assert_eq!(opened(&client, &server, bits), expected);
}

#[test]
fn squares_of_every_width() {
    for bits in 1..=32 {
        check(7, 3, bits, &Limits::DEFAULT);
    }
}

#[test]
fn squares_over_chunks_and_windows() {
    for (elements, images) in [(1, 1), (1, 37), (100, 37), (0, 1)] {
        check(elements, images, 20, &SMALL);
    }
    for labels in [1, 1 << 10, 1 << 14] {
        let limits = Limits { labels, ..SMALL };
        check(100, 1, 20, &limits);
    }
}

#[test]
fn zero_shares() {
    let (squares, ots) = (layout(3, 1, 12), connection());
    let mut words = Batch::zeros(3, 1);
    words.words_mut().copy_from_slice(&[-9, 0, 40]);
    for shares in [
        [Share::Words(words.clone()), Share::Zero],
        [Share::Zero, Share::Words(words)],
    ] {
        let ([client, server], _) = both(&squares, shares, &ots, &SMALL).unwrap();
        assert_eq!(opened(&client, &server, 12), [81, 0, 1600]);
    }
}

/// Bytes of the documentation.
#[test]
fn a_square_has_its_bytes() {
    let shares = [Share::Zero, Share::Zero];
    let squares = layout(2048, 1, 20);
    let (_, traffic) = both(&squares, shares, &connection(), &Limits::DEFAULT).unwrap();
    assert_eq!(traffic.turns, 1);
    let (up, down) = (traffic.up as f64 / 2048.0, traffic.down as f64 / 2048.0);
    assert!((62.0..66.0).contains(&up), "{up}");
    assert!((23.75..23.76).contains(&down), "{down}");
}

#[test]
fn hostile_peers() {
    hostile_peers_of(&layout(20, 3, 16));
    for case in &CASES {
        hostile_peers_of(&case.products(3, 16));
    }
}

fn hostile_peers_of(squares: &Products) {
    let (ots, chunks) = (connection(), squares.sums().len());
    let machines = || {
        (
            ProductClient::new(squares.clone(), Share::Zero, ots.0.clone()).unwrap(),
            ProductServer::new(squares.clone(), Share::Zero, ots.1.clone()).unwrap(),
        )
    };
    let (mut client, mut server) = machines();
    let mut message = Vec::new();
    assert!(server.send(&mut message).is_err());
    assert!(client.receive(&message).is_err());
    for _ in 0..chunks {
        message.clear();
        client.send(&mut message).unwrap();
        for length in [0, 1, message.len() - 1] {
            assert!(matches!(
                server.receive(&message[..length]),
                Err(EngineError::Ot { .. })
            ));
        }
        server.receive(&message).unwrap();
    }
    for _ in 0..chunks {
        let mut answer = Vec::new();
        server.send(&mut answer).unwrap();
        for length in [0, 1, answer.len() - 1] {
            assert!(matches!(
                client.receive(&answer[..length]),
                Err(EngineError::Length { .. })
            ));
        }
        // Garbage is wrong values for the one who gets it, or bits that are none.
        answer.fill(0xa5);
        if let Err(error) = client.receive(&answer) {
            assert!(matches!(error, EngineError::Ot { .. }), "{error}");
            break;
        }
    }

    let (mut client, mut server) = machines();
    message.clear();
    client.send(&mut message).unwrap();
    message[200] ^= 1;
    assert!(matches!(
        server.receive(&message),
        Err(EngineError::Ot { .. })
    ));
    assert!(!ots.1.is_ready(), "the OTs are destroyed");
}

#[test]
fn shapes_are_checked() {
    let ots = connection();
    for (squares, share) in [
        (layout(3, 1, 0), Share::Zero),
        (layout(3, 1, 33), Share::Zero),
        (layout(3, 0, 8), Share::Zero),
        (layout(usize::MAX, 9, 8), Share::Zero),
        (layout(3, 1, 8), Share::Words(Batch::zeros(2, 1))),
    ] {
        let refused = ProductClient::new(squares.clone(), share.clone(), ots.0.clone());
        assert!(matches!(refused.err(), Some(EngineError::Layout { .. })));
        let refused = ProductServer::new(squares, share, ots.1.clone());
        assert!(matches!(refused.err(), Some(EngineError::Layout { .. })));
    }
}

/// Shapes of two values and of their product, with the elements that each product multiplies.
struct Case {
    shapes: [&'static [usize]; 3],
    pairs: fn(usize) -> [usize; 2],
}

const CASES: [Case; 6] = [
    Case {
        shapes: [&[5], &[5], &[5]],
        pairs: |i| [i, i],
    },
    // A gate, and one on the left.
    Case {
        shapes: [&[9, 3, 2], &[9, 1, 1], &[9, 3, 2]],
        pairs: |i| [i, i / 6],
    },
    Case {
        shapes: [&[2, 1], &[2, 7], &[2, 7]],
        pairs: |i| [i / 7, i],
    },
    // A number for all.
    Case {
        shapes: [&[2, 3], &[1, 1], &[2, 3]],
        pairs: |i| [i, 0],
    },
    // Either is broadcast.
    Case {
        shapes: [&[4, 1], &[1, 3], &[4, 3]],
        pairs: |i| [i / 3, i % 3],
    },
    // The dimension in the middle.
    Case {
        shapes: [&[2, 3, 2], &[2, 1, 2], &[2, 3, 2]],
        pairs: |i| [i, i / 6 * 2 + i % 2],
    },
];

impl Case {
    fn products(&self, images: usize, bits: u32) -> Products {
        let [left, right, product] = self.shapes;
        Products {
            step: "product".to_owned(),
            elements: product.iter().product(),
            images,
            bits,
            factors: Factors::two([left, right], product),
        }
    }

    /// Shares of two random values, the client's of both first, and what their products are.
    fn shares(&self, images: usize, bits: u32, seed: u64) -> ([Vec<Share>; 2], Vec<i64>) {
        let random = &mut Random(seed);
        let (low, high) = (-1 << (bits - 1), (1 << (bits - 1)) - 1);
        let [left, right] = [0, 1].map(|value| {
            let elements: usize = self.shapes[value].iter().product();
            random.values(elements * images, low, high)
        });
        let [first, second] = [&left, &right].map(|values| random.shares(values, images, bits));
        let [[a, b], [c, d]] = [first, second];
        let products: usize = self.shapes[2].iter().product();
        let pairs: Vec<[usize; 2]> = (0..products).map(self.pairs).collect();
        let expected = ideal::products([&left, &right], &pairs, images, bits);
        ([vec![a, c], vec![b, d]], expected)
    }
}

/// Messages of a few words, and of one word with many products.
const TINY: Limits = Limits {
    labels: 1 << 10,
    ..SMALL
};

fn check_case(case: &Case, images: usize, bits: u32, limits: &Limits) {
    let products = case.products(images, bits);
    let (shares, expected) = case.shares(images, bits, u64::from(bits));
    let shares = shares.map(|shares| products.join(shares).unwrap());
    let ([client, server], traffic) = both(&products, shares, &connection(), limits).unwrap();
    assert_eq!(opened(&client, &server, bits), expected);
    assert!(limits.labels < Limits::DEFAULT.labels || traffic.turns == 1);
}

#[test]
fn products_of_two_values() {
    for case in &CASES {
        for (images, bits) in [(1, 1), (1, 20), (3, 17), (9, 32)] {
            for limits in [&Limits::DEFAULT, &SMALL, &TINY] {
                check_case(case, images, bits, limits);
            }
        }
    }
}

/// Sizes of matrices: parts, rows, inner, columns.
const MATRICES: [[usize; 4]; 4] = [[1, 1, 1, 1], [2, 3, 4, 5], [3, 7, 2, 1], [1, 1, 9, 6]];

fn matrices([parts, rows, inner, columns]: [usize; 4], images: usize, bits: u32) -> Products {
    let sizes = Matrices::of(&[parts, rows, inner], &[parts, inner, columns]);
    Products {
        step: "product".to_owned(),
        elements: parts * rows * columns,
        images,
        bits,
        factors: Factors::Matrices(sizes.unwrap()),
    }
}

/// Shares of two random factors, the client's of both first, and their product.
fn matrix_shares(
    [parts, rows, inner, columns]: [usize; 4],
    images: usize,
    bits: u32,
) -> ([Vec<Share>; 2], Vec<i64>) {
    let random = &mut Random(u64::from(bits));
    let (low, high) = (-1 << (bits - 1), (1 << (bits - 1)) - 1);
    let left = random.values(parts * rows * inner * images, low, high);
    let right = random.values(parts * inner * columns * images, low, high);
    let [[a, b], [c, d]] = [&left, &right].map(|values| random.shares(values, images, bits));
    let expected = ideal::matrices([&left, &right], [parts, rows, inner, columns], images, bits);
    ([vec![a, c], vec![b, d]], expected)
}

#[test]
fn products_of_matrices() {
    for sizes in MATRICES {
        for (images, bits) in [(1, 1), (1, 20), (3, 17), (9, 32)] {
            for limits in [&Limits::DEFAULT, &SMALL, &TINY] {
                let products = matrices(sizes, images, bits);
                let (shares, expected) = matrix_shares(sizes, images, bits);
                let shares = shares.map(|shares| products.join(shares).unwrap());
                let ([client, server], _) = both(&products, shares, &connection(), limits).unwrap();
                assert_eq!(opened(&client, &server, bits), expected);
            }
        }
    }
}

#[test]
fn products_of_matrices_in_two_phases() {
    let ots = connection();
    for sizes in MATRICES {
        for (images, bits) in [(1, 20), (3, 17)] {
            let (shares, expected) = matrix_shares(sizes, images, bits);
            check_two_phases(&matrices(sizes, images, bits), shares, &expected, &ots);
        }
    }
}

/// 3 and -2 in shares of 8 bits, times 5 and 7.
#[test]
fn a_known_product() {
    let words = |words: &[i32]| {
        let mut batch = Batch::zeros(words.len(), 1);
        batch.words_mut().copy_from_slice(words);
        Share::Words(batch)
    };
    let products = Products {
        step: "product".to_owned(),
        elements: 4,
        images: 1,
        bits: 8,
        factors: Factors::two([&[2, 1], &[1, 2]], &[2, 2]),
    };
    let client = products
        .join(vec![words(&[103, 54]), words(&[-27, 7])])
        .unwrap();
    let server = products
        .join(vec![words(&[-100, 200]), words(&[32, 0])])
        .unwrap();
    let ots = connection();
    let ([client, server], _) = both(&products, [client, server], &ots, &SMALL).unwrap();
    assert_eq!(opened(&client, &server, 8), [15, 21, -10, -14]);
}

#[test]
fn products_in_two_phases() {
    let ots = connection();
    for case in &CASES {
        for (images, bits) in [(1, 20), (3, 17), (37, 2)] {
            let products = case.products(images, bits);
            let (shares, expected) = case.shares(images, bits, 7);
            check_two_phases(&products, shares, &expected, &ots);
        }
    }
}

fn check_two_phases(
    products: &Products,
    shares: [Vec<Share>; 2],
    expected: &[i64],
    ots: &(ReceiverOts, SenderOts),
) {
    let [client_share, server_share] = shares.map(|shares| products.join(shares).unwrap());
    let mut client = PrepareProductClient::new(products.clone(), ots.0.clone()).unwrap();
    let mut server =
        PrepareProductServer::new(products.clone(), server_share, ots.1.clone()).unwrap();
    run(&mut client, &mut server).unwrap();
    let client = client.into_prepared().unwrap().to_bytes();
    let server = server.into_prepared().unwrap();
    let ahead = server.share();
    let server = server.to_bytes();
    let client = PreparedProductClient::from_bytes(products.clone(), &client).unwrap();
    let server = PreparedProductServer::from_bytes(products.clone(), &server).unwrap();
    let client = OnlineProductClient::with_limits(client, client_share, &SMALL).unwrap();
    let server = OnlineProductServer::with_limits(server, &SMALL);
    let ([client, server], traffic) = step(client, server).unwrap();
    assert_eq!(opened(&client, &server, products.bits), expected);
    let words = |share: &Share| share.clone().into_words("product").unwrap();
    assert_eq!(words(&server).words(), words(&ahead).words());
    assert_eq!(traffic.turns, 1);
}

/// Bytes of the documentation: a gate, equal shapes.
#[test]
fn products_have_their_bytes() {
    for (right, ots, up, down) in [
        (vec![64, 1, 1], 803_840, 2_692, 1_706),
        (vec![64, 28, 28], 1_605_632, 5_357, 1_706),
    ] {
        let products = Products {
            step: "gate".to_owned(),
            elements: 64 * 784,
            images: 1,
            bits: 16,
            factors: Factors::two([&[64, 28, 28], &right], &[64, 28, 28]),
        };
        let words: usize = products.sums().iter().map(|sum| sum.words.len()).sum();
        assert_eq!(16 * words, ots);
        let shares = [Share::Zero, Share::Zero];
        let (_, traffic) = both(&products, shares, &connection(), &Limits::DEFAULT).unwrap();
        let kilobytes = [traffic.up, traffic.down].map(|bytes| (bytes + 500) / 1000);
        assert_eq!(kilobytes, [up, down]);
    }
}

#[test]
fn factors_are_checked() {
    let products = CASES[1].products(2, 8);
    let words = |elements: usize, images: usize| Share::Words(Batch::zeros(elements, images));
    for shares in [
        vec![words(53, 2), words(9, 2)],
        vec![words(54, 2), words(54, 2)],
        vec![words(54, 1), words(9, 1)],
    ] {
        let refused = products.join(shares);
        assert!(matches!(refused.err(), Some(EngineError::Layout { .. })));
    }
    let zeros = products.join(vec![Share::Zero, Share::Zero]).unwrap();
    assert!(matches!(zeros, Share::Zero));
    let joined = products.join(vec![Share::Zero, words(9, 2)]).unwrap();
    assert_eq!(joined.into_words("product").unwrap().elements(), 63);
    let ots = connection();
    for bits in [0, 33] {
        let products = CASES[1].products(2, bits);
        let refused = ProductClient::new(products, Share::Zero, ots.0.clone());
        assert!(matches!(refused.err(), Some(EngineError::Layout { .. })));
    }
    // One factor's share alone.
    let refused = ProductServer::new(products, words(54, 2), ots.1.clone());
    assert!(matches!(refused.err(), Some(EngineError::Layout { .. })));
}

/// Halves of products are not those of squares, nor of other factors.
#[test]
fn stored_products_are_checked() {
    let ots = connection();
    let products = CASES[1].products(2, 8);
    let mut client = PrepareProductClient::new(products.clone(), ots.0.clone()).unwrap();
    let mut server = PrepareProductServer::new(products.clone(), Share::Zero, ots.1).unwrap();
    run(&mut client, &mut server).unwrap();
    let client = client.into_prepared().unwrap().to_bytes();
    let server = server.into_prepared().unwrap().to_bytes();
    let squares = layout(54, 2, 8);
    let gate = Products {
        factors: Factors::two([&[9, 3, 2], &[9, 3, 1]], &[9, 3, 2]),
        ..products.clone()
    };
    for other in [squares, gate, CASES[1].products(2, 9)] {
        assert!(PreparedProductClient::from_bytes(other.clone(), &client).is_err());
        assert!(PreparedProductServer::from_bytes(other, &server).is_err());
    }
    assert!(PreparedProductClient::from_bytes(products.clone(), &server).is_err());
    assert!(PreparedProductClient::from_bytes(products.clone(), &client).is_ok());
    assert!(PreparedProductServer::from_bytes(products, &server).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_squares(elements in 1usize..60, images in 1usize..40, bits in 1u32..=32) {
        check(elements, images, bits, &SMALL);
    }

    #[test]
    fn any_products(case in 0usize..6, images in 1usize..20, bits in 1u32..=32) {
        check_case(&CASES[case], images, bits, &SMALL);
    }
}
