use pronghorn_ring::security::{SecurityLevel, max_log_q};

use super::*;

struct Random(u64);

impl Random {
    fn next(&mut self) -> i32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as i32
    }

    fn words(&mut self, count: usize) -> Vec<i32> {
        (0..count).map(|_| self.next()).collect()
    }
}

/// `X Y` modulo 2^32.
fn product(sizes: Sizes, x: &[i32], y: &[i32]) -> Vec<i32> {
    let Sizes {
        rows,
        inner,
        columns,
    } = sizes;
    let mut result = vec![0i32; rows * columns];
    for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
        let term = |step: usize| x[row * inner + step].wrapping_mul(y[step * columns + column]);
        result[row * columns + column] = (0..inner).map(term).fold(0, i32::wrapping_add);
    }
    result
}

/// Errors in units of the last guard bit, of each element.
fn errors(sizes: Sizes, bits: u32, guard: u32, most: bool) -> Vec<i32> {
    let setting = Setting::new(sizes, bits, guard).expect("there is one");
    let parameters = Parameters::new(&setting).unwrap();
    let random = &mut Random(u64::from(bits));
    let lengths = [sizes.rows * sizes.inner, sizes.inner * sizes.columns];
    // The largest numbers in the clear that there are, for the most noise.
    let largest = |count: usize| vec![1 << (bits - 1); count];
    let [x, y] = lengths.map(|count| {
        [
            random.words(count),
            match most {
                true => largest(count),
                false => random.words(count),
            },
        ]
    });
    let mut client = MatrixClient::generate(&parameters).unwrap();
    let mut key = Vec::new();
    client.encode_key(&mut key).unwrap();
    assert_eq!(key.len(), setting.key_bytes());
    let mut server = MatrixServer::new(&parameters, &key).unwrap().unwrap();
    let masks = MatrixMasks::new(&pronghorn_ring::random::Seed::from_bytes([7; 32]));
    let own = product(sizes, &x[1], &y[1]);
    let mut sums = vec![0; sizes.rows * sizes.columns];
    for number in 0..2u64 {
        sums.fill(0);
        for (place, layout) in setting.layouts().iter().enumerate() {
            let (mine, other) = match layout.side() {
                Side::Left => (&x[0], &y[1]),
                Side::Right => (&y[0], &x[1]),
            };
            let factors: Vec<_> = (0..layout.factors())
                .map(|factor| {
                    let mut message = Vec::new();
                    client.encode_factor(layout, factor, |element| mine[element], &mut message);
                    assert_eq!(message.len(), setting.factor_bytes());
                    server.receive(&message).unwrap()
                })
                .collect();
            let addend = |element: usize| if place == 0 { own[element] } else { 0 };
            let answers =
                server.answers((number, place), &factors, &|at| other[at], &addend, &masks);
            assert_eq!(answers.len(), layout.answers());
            for (answer, message) in answers.iter().enumerate() {
                let add =
                    |element: usize, word| sums[element] = parameters.add(sums[element], word);
                assert_eq!(message.len(), setting.answer_bytes(place, answer));
                client.add_answer(layout, answer, message, add).unwrap();
            }
        }
    }
    let mut shares = vec![0; sums.len()];
    masks.shares(&parameters, 1, &mut shares);
    let mine = product(sizes, &x[0], &y[0]);
    let all: [Vec<i32>; 2] = [&x, &y].map(|[first, second]| {
        first
            .iter()
            .zip(second)
            .map(|(a, b)| a.wrapping_add(*b))
            .collect()
    });
    let wanted = product(sizes, &all[0], &all[1]);
    let shift = 32 - bits - guard;
    let pairs = sums.iter().zip(&shares).zip(mine.iter().zip(&wanted));
    pairs
        .map(|((&sum, &share), (mine, wanted))| {
            let found = client
                .share(sum)
                .wrapping_add(share)
                .wrapping_add(mine << guard);
            found.wrapping_sub(wanted << guard) << shift >> shift
        })
        .collect()
}

const SIZES: [[usize; 3]; 7] = [
    [1, 1, 1],
    [3, 4, 5],
    [16, 8, 16],
    [1, 300, 2],
    [70, 33, 65],
    [197, 64, 197],
    [2, 1, 5000],
];

fn sizes([rows, inner, columns]: [usize; 3]) -> Sizes {
    Sizes {
        rows,
        inner,
        columns,
    }
}

#[test]
fn shares_add_up() {
    for (of, bits) in SIZES.into_iter().zip([1, 9, 16, 22, 26, 27, 20]) {
        for guard in [2, 3] {
            for most in [false, true] {
                let errors = errors(sizes(of), bits, guard, most);
                assert!(
                    errors.iter().all(|error| error.abs() <= 1),
                    "{of:?} {bits}: {errors:?}"
                );
            }
        }
    }
    let errors = errors(sizes([9, 20, 7]), 30, 2, true);
    assert!(errors.iter().all(|error| error.abs() <= 1));
}

#[test]
fn no_parameters() {
    for (of, bits, guard) in [
        ([3, 4, 5], 0, 2),
        ([3, 4, 5], 31, 2),
        ([3, 4, 5], u32::MAX, 1),
        ([0, 4, 5], 8, 2),
    ] {
        assert!(Setting::new(sizes(of), bits, guard).is_err());
    }
}

/// A hybrid over all answers of a key leaves 128 bits, by bits in inverse proportion to the modulus.
#[test]
fn answers_of_a_key_leave_128_bits() {
    for bits in 1..=30 {
        for of in SIZES {
            let setting = Setting::new(sizes(of), bits, 2).unwrap();
            let limit = max_log_q(setting.degree(), SecurityLevel::Bits128).unwrap();
            let of_one = 128.0 * f64::from(limit) / f64::from(setting.widths().factor);
            assert!(
                of_one - (MOST_ANSWERS as f64).log2() >= 128.0,
                "{of:?} {bits}"
            );
        }
    }
}
