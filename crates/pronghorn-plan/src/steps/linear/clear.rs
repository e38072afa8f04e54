//! A linear layer whose answer the client decrypts, in the batch engine (`client-aided`).
//!
//! One ciphertext row an element, one coefficient an image; in a convolution with a 1x1 kernel one
//! row a channel, one coefficient a position and image. What the client learns: the layer's
//! value, and with it the weights. The server learns nothing.

use pronghorn_graph::{
    fixed::{Interval, ValueSpec},
    geometry::ConvGeometry,
    shape::OperatorError,
};
use pronghorn_he::rlwe::Encoding;
use serde::{Deserialize, Serialize};

use super::{Rows, describe, kind, range};
use crate::{
    bands::{self, Band, height::MOST_BANDS, rows_of},
    cost::{Cost, MAX_BATCH, StepCost, StepMemory},
    description::Description,
    rlwe::Rlwe,
    share_form::{Node, ShareRules, Takes},
    step::{Compiled, Place, StepPlan},
    trust::TrustLevel,
};

/// A linear layer whose answer the client decrypts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClearLinear {
    /// Sizes of the convolution or dense layer.
    pub geometry: ConvGeometry,
    /// Ring, modulus and dropped bits.
    pub rlwe: Rlwe,
    /// A message `m` is `m << scale_log` in a coefficient.
    pub scale_log: u32,
    /// The answers of each element: one, or several for weights cut into digits, the highest first.
    pub parts: Vec<Part>,
}

/// One answer of a linear step. The element is the sum of its parts, each shifted up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Bits by which it is shifted up.
    pub left_shift: u32,
    /// Smallest integer it can be.
    pub low: i32,
    /// Largest integer it can be.
    pub high: i32,
}

impl Part {
    /// The part that is a whole value.
    pub fn whole(value: &ValueSpec) -> Self {
        Self {
            left_shift: 0,
            low: value.low,
            high: value.high,
        }
    }

    /// The middle of its range. Answers hold `message - centre`.
    pub fn centre(&self) -> i64 {
        (i64::from(self.low) + i64::from(self.high)).div_euclid(2)
    }
}

/// Most parts of a linear step.
pub const MAX_PARTS: usize = 4;

/// Most bits of a digit but the highest, and one.
pub(crate) const MAX_LOW_BITS: u32 = 8;

impl ClearLinear {
    /// How messages sit in the words of one part of the answer.
    pub fn encoding(&self, part: &Part) -> Encoding {
        Encoding {
            scale_log: self.scale_log,
            dropped_bits: self.rlwe.dropped_bits,
            centre: part.centre(),
            low: part.low,
            high: part.high,
        }
    }

    /// Bits of a digit but the highest; 0 for a layer in one part.
    pub fn digit_bits(&self) -> u32 {
        let last_but_one = self.parts.len().checked_sub(2);
        last_but_one.map_or(0, |place| self.parts[place].left_shift)
    }

    /// The layer at one position, and its positions, where these are columns as images are: in a
    /// layer that maps each position alike and alone. Then one `a` serves a channel and not an
    /// element, under a secret of its own for each `N` columns.
    pub fn pointwise(&self) -> Option<(ConvGeometry, usize)> {
        let positions = shared_positions(&self.rlwe, positions(&self.geometry));
        let geometry = self.geometry.at_a_position()?;
        (positions > 1).then_some((geometry, positions))
    }

    /// The columns of the bands of a pointwise layer, each but the last and the last, and how many
    /// have them.
    fn columns_of_bands(&self, place: &Place<'_>, batch: usize) -> [(usize, usize); 2] {
        let (_, band) = bands::height::of_step(place, self, batch);
        let rows = rows_of(&place.value().shape);
        let columns = |part: usize| self.sizes(place).columns(batch).saturating_mul(part) / rows;
        let last = rows % band.max(1);
        [
            (columns(band), rows / band.max(1)),
            (columns(last), usize::from(last > 0)),
        ]
    }

    /// Bytes of the client's in a band of a pointwise layer, and of those that stay for the next: its
    /// secrets, whose memory serves again, and where there are several bands the rows of `a'`.
    fn client_memory(
        &self,
        rows: &Rows,
        place: &Place<'_>,
        batch: usize,
        band: &Band,
    ) -> (u64, u64) {
        let height = rows_of(&place.value().shape);
        let columns = rows.columns(batch).saturating_mul(band.rows.len()) / height;
        let answers = rows.answers().saturating_mul(self.rlwe.degree as u64);
        let public = match band.rows.len() < height {
            true => answers.saturating_mul(self.rlwe.word.rates().bytes),
            false => 0,
        };
        let all = self.secrets(columns).saturating_add(public);
        (all, if band.rows.end < height { all } else { 0 })
    }

    /// Bytes of the client's secrets for so many columns of a pointwise layer, with their quotients.
    fn secrets(&self, columns: usize) -> u64 {
        let words = columns.next_multiple_of(self.rlwe.degree) as u64;
        2 * words * self.rlwe.word.rates().bytes
    }

    pub(crate) fn sizes(&self, place: &Place<'_>) -> Rows {
        let positions = self.pointwise().map_or(1, |(_, positions)| positions);
        Rows {
            inputs: place.input().len() / positions,
            outputs: place.value().len() / positions,
            parts: self.parts.len(),
            positions,
        }
    }

    fn check_messages(&self, place: &Place<'_>) -> Result<(), String> {
        let modulus = self.rlwe.modulus;
        let fits = |messages: i64| (i128::from(messages) << self.scale_log) < i128::from(modulus);
        let input = place.input();
        let reach = 2 * i64::from(input.low.unsigned_abs().max(input.high.unsigned_abs())) + 1;
        if !fits(reach) {
            return Err(format!(
                "its inputs, {reach} at scale 2^{}, exceed the modulus {modulus}",
                self.scale_log
            ));
        }
        for part in &self.parts {
            if part.low > part.high || part.left_shift > 31 {
                return Err(format!(
                    "a part has range {}..={}, shifted by {}",
                    part.low, part.high, part.left_shift
                ));
            }
            let width = i64::from(part.high) - i64::from(part.low) + 2;
            if !fits(width) {
                return Err(format!(
                    "its answers, {width} at scale 2^{}, exceed the modulus {modulus}",
                    self.scale_log
                ));
            }
        }
        Ok(())
    }
}

/// As many of these positions as one `a` serves: all, or 1 where that leaves too little security. A
/// full batch has a secret for each block of all positions, and each band begins a block.
pub(crate) fn shared_positions(rlwe: &Rlwe, positions: usize) -> usize {
    let blocks = (MAX_BATCH / rlwe.degree).saturating_mul(positions);
    match rlwe.serves(blocks.saturating_add(MOST_BANDS)) {
        true => positions,
        false => 1,
    }
}

/// The positions of a layer that maps each alike and alone; 1 for any other.
pub(crate) fn positions(geometry: &ConvGeometry) -> usize {
    let [height, width] = geometry.input;
    match geometry.at_a_position() {
        Some(_) => height.saturating_mul(width),
        None => 1,
    }
}

impl ShareRules for ClearLinear {
    fn takes(&self) -> Takes {
        Takes::PowerOfTwo
    }

    fn margin(&self) -> i64 {
        1
    }

    fn input_bits(&self, bits: u32, _place: usize, _input: &Node<'_>) -> u32 {
        bits
    }
}

impl StepPlan for ClearLinear {
    fn kind(&self) -> &'static str {
        kind(&self.geometry)
    }

    fn trust(&self) -> &'static [TrustLevel] {
        &[TrustLevel::ClientAided]
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        range(&self.geometry, inputs, value)
    }

    fn check(&self, place: &Place<'_>) -> Result<(), String> {
        self.rlwe.check()?;
        let (bits, dropped) = (self.rlwe.modulus_bits(), self.rlwe.dropped_bits);
        let dropped_a = self.rlwe.dropped_bits_a;
        if self.scale_log == 0 || self.scale_log >= bits || dropped.max(dropped_a) >= self.scale_log
        {
            return Err(format!(
                "scale 2^{} and {dropped_a} or {dropped} dropped bits do not go with a modulus of \
                 {bits} bits",
                self.scale_log
            ));
        }
        if !(1..=MAX_PARTS).contains(&self.parts.len()) {
            return Err(format!(
                "its answer has {} parts, not 1 to {MAX_PARTS}",
                self.parts.len()
            ));
        }
        self.check_messages(place)?;
        let is_valid = match self.parts.as_slice() {
            [part] => *part == Part::whole(place.value()),
            parts => {
                let bits = self.digit_bits();
                let shifts = (0..parts.len() as u32).rev().map(|place| place * bits);
                (1..MAX_LOW_BITS).contains(&bits)
                    && shifts.eq(parts.iter().map(|part| part.left_shift))
            }
        };
        match is_valid {
            true => Ok(()),
            false => Err("its parts are neither its value nor digits of it".into()),
        }
    }

    fn cost(&self, step: &Compiled<'_>, batch: usize) -> Cost {
        let pointwise = self.pointwise();
        let geometry = pointwise
            .as_ref()
            .map_or(&self.geometry, |(at_one, _)| at_one);
        let rows = self.sizes(&step.place);
        let cost = rows.cost(&self.rlwe, geometry, batch);
        let [bytes_up, bytes_down] = match rows.positions {
            1 => [cost.bytes_up, cost.bytes_down],
            _ => rows.bytes(&self.rlwe, self.columns_of_bands(&step.place, batch)),
        };
        Cost::online(StepCost {
            rounds: bands::height::count(&step.place, self, batch) as u32,
            bytes_up,
            bytes_down,
            ..cost
        })
    }

    fn memory(&self, step: &Compiled<'_>, batch: usize) -> StepMemory {
        let rows = self.sizes(&step.place);
        let secrets = match rows.positions {
            1 => 0,
            _ => self.secrets(rows.columns(batch)),
        };
        StepMemory {
            client: secrets,
            ..rows.memory(&self.rlwe, batch)
        }
    }

    fn rows(&self, place: &Place<'_>) -> Option<bands::Rows> {
        let Self { geometry, .. } = self;
        let [height, width] = geometry.input;
        let [rows, columns] = geometry.output().ok()?;
        let is_layers = place.input().shape == [geometry.in_channels, height, width]
            && place.value().shape == [geometry.out_channels, rows, columns];
        is_layers.then(|| bands::Rows::alike().then(&geometry.window, height))
    }

    fn keeps_rows(&self) -> bool {
        true
    }

    /// The server's memory goes from band to band: as many buffers as rows in, `a'` and `b'` need,
    /// each as large as the largest.
    fn band_memory(
        &self,
        step: &Compiled<'_>,
        batch: usize,
        band: &Band,
    ) -> (StepMemory, StepMemory) {
        let place = &step.place;
        let words = |value: &ValueSpec, rows: usize| value.len() / rows_of(&value.shape) * rows;
        let word = self.rlwe.word.rates().bytes;
        let largest = words(place.input(), band.window.len())
            .max(words(place.value(), band.rows.len()) * self.parts.len());
        let halo = words(place.input(), band.halo().len()) as u64 * batch as u64;
        let kept = halo * word;
        let (rows, degree) = (self.sizes(place), self.rlwe.degree);
        let of_a = rows
            .inputs
            .max(rows.answers() as usize)
            .saturating_mul(degree);
        let of_a = match rows.positions {
            1 => largest.saturating_mul(degree),
            _ => of_a,
        };
        let buffer = largest.saturating_mul(batch).max(of_a) as u64;
        let server = 3 * buffer * word + kept;
        let (client, stays) = match rows.positions {
            1 => (0, 0),
            _ => self.client_memory(&rows, place, batch, band),
        };
        let stays = StepMemory {
            server: kept,
            client: stays,
        };
        (StepMemory { server, client }, stays)
    }

    fn rlwe(&self) -> Option<&Rlwe> {
        Some(&self.rlwe)
    }

    fn describe(&self, _step: &Compiled<'_>) -> Description {
        let parts = match self.parts.len() {
            1 => "",
            2 => ", two digits",
            3 => ", three digits",
            _ => ", four digits",
        };
        let parameters = format!("scale 2^{}, {}", self.scale_log, self.rlwe.describe());
        Description {
            what: describe("batch engine", &self.geometry) + parts,
            ..Description::with_ring(&self.rlwe, parameters)
        }
    }

    fn block(&self) -> usize {
        self.rlwe.degree
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_graph::geometry::Window;
    use pronghorn_ring::modulus::largest_ntt_prime;

    use super::*;
    use crate::rlwe::WordSize;

    fn layer(window: Window, bits: u32) -> ClearLinear {
        let word = if bits > 31 {
            WordSize::U64
        } else {
            WordSize::U32
        };
        ClearLinear {
            geometry: ConvGeometry {
                in_channels: 8,
                out_channels: 48,
                input: [112; 2],
                window,
                groups: 1,
            },
            rlwe: Rlwe {
                word,
                degree: 2048,
                modulus: largest_ntt_prime(bits, 2048).expect("there is one"),
                dropped_bits: 0,
                dropped_bits_a: 0,
            },
            scale_log: 8,
            parts: Vec::new(),
        }
    }

    /// 112 x 112 positions of 16,384 images are 100,352 blocks, and bands begin 128 more.
    #[test]
    fn positions_share_an_a_where_the_modulus_leaves_room() {
        let point = || Window::plain([1; 2]);
        let positions = |bits| {
            layer(point(), bits)
                .pointwise()
                .map(|(_, positions)| positions)
        };
        // Eight bits below the limit of 53 at N = 2048.
        assert_eq!([31, 45].map(positions), [Some(112 * 112); 2]);
        assert_eq!([46, 51].map(positions), [None; 2]);
        let (at_one, _) = layer(point(), 31).pointwise().expect("it has room");
        assert_eq!((at_one.input, at_one.out_channels), ([1; 2], 48));
        let others = [
            Window::plain([3; 2]),
            Window {
                stride: [2; 2],
                ..point()
            },
            Window {
                padding: [1; 4],
                ..point()
            },
        ];
        for window in others {
            assert_eq!(layer(window, 31).pointwise(), None);
        }
    }
}
