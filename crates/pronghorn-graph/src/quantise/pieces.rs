//! Linear pieces of a smooth function, of unequal widths: wide where the function is straight.
//!
//! A table has entries of one width, but circuits pay for segments: aligned ranges of entries in
//! which the value is a sum of multiples of the argument's bits. So the window is halved again and
//! again where that is worth a segment, and each part has its best-fit line. A price of a segment
//! in squares of units decides; the largest price is taken with which the table is good enough.

use super::function::{SLACK, Shape, TOLERANCE};
use crate::fixed::{Interval, MAX_FINE, Table};

/// Arguments tried for each of the narrowest parts.
const PROBES: u32 = 8;

/// Prices tried: each half of that before, from the squares of a table that is just good enough.
const PRICES: u32 = 24;

/// The narrowest parts of a window, and what they have in them.
pub(super) struct Pieces<'s> {
    shape: &'s Shape,
    /// Integers of a narrowest part, as a power of two.
    drop: u32,
    /// Arguments after the first of the window, and their best summands, by part.
    probes: Vec<Vec<(i64, f64)>>,
    /// How many of the probes occur; errors of others do not make up for theirs.
    count: usize,
    /// Sums by width and place: single parts first, then pairs.
    sums: Vec<Vec<Sums>>,
}

/// A range of parts: the first and the power of two of their number.
type Piece = (usize, u32);

impl<'s> Pieces<'s> {
    /// The window in parts of `2^drop` integers.
    pub fn new(shape: &'s Shape, drop: u32) -> Self {
        let (start, end) = shape.window;
        let parts = (end - start) >> drop;
        let probes = (0..parts).map(|part| probes(shape, part << drop, drop));
        let probes: Vec<_> = probes.collect();
        let all = probes.iter().flatten();
        let occurs = all.filter(|(x, _)| shape.occurs((start + x) as f64));
        let count = occurs.count().max(1);
        let mut sums = vec![probes.iter().map(|part| Sums::of(part)).collect::<Vec<_>>()];
        // Both sides of zero have pieces of their own.
        let least = if start < 0 && end > 0 { 2 } else { 1 };
        while sums[sums.len() - 1].len() > least {
            let last = &sums[sums.len() - 1];
            let pairs = last.chunks(2).map(|pair| pair[0].plus(&pair[1]));
            sums.push(pairs.collect());
        }
        Self {
            shape,
            drop,
            probes,
            count,
            sums,
        }
    }

    /// The table with the fewest pieces that is good enough, or next to the most precise where none
    /// is; with its mean square error.
    pub fn cheapest(&self) -> (Table, f64) {
        let mut best = self.finest();
        let enough = TOLERANCE.max(SLACK * best.1);
        let squares = enough * self.count as f64;
        let priced = |halvings: u32| self.table(squares * (-f64::from(halvings)).exp2());
        // Errors fall with prices, nearly.
        let (mut dear, mut cheap) = (0, PRICES);
        while dear < cheap {
            let middle = (dear + cheap) / 2;
            let found = priced(middle);
            if found.1 <= enough {
                best = found;
                cheap = middle;
            } else {
                dear = middle + 1;
            }
        }
        best
    }

    /// The table of the narrowest pieces, and its mean square error.
    pub fn finest(&self) -> (Table, f64) {
        self.table(0.0)
    }

    /// The table where a piece has a price, and its mean square error.
    fn table(&self, price: f64) -> (Table, f64) {
        let pieces = self.pieces(price);
        let narrowest = pieces.iter().map(|&(_, width)| width).min().unwrap_or(0);
        let lines: Vec<Line> = pieces
            .iter()
            .map(|&(first, width)| self.sums[width as usize][first >> width].line())
            .collect();
        let drop = self.drop + narrowest;
        let rise = |line: &Line| (line.slope * f64::from(drop).exp2()).round();
        let steepest = lines
            .iter()
            .map(|line| rise(line).abs())
            .fold(1.0, f64::max);
        // The largest step of the bits that are left out is half a unit.
        let fine = (steepest.log2().ceil() as u32).min(drop).min(MAX_FINE);
        let mut table = Table {
            rectified: self.shape.function.is_rectifier(),
            drop,
            first: (self.shape.window.0 >> drop) as i32,
            entries: Vec::new(),
            fine,
            rises: Vec::new(),
        };
        let mut squares = 0.0;
        for (&(first, width), line) in pieces.iter().zip(&lines) {
            let probes = self.probes[first..first + (1 << width)].iter().flatten();
            let fit = Fit {
                shape: self.shape,
                table: &table,
                first: (self.shape.window.0 >> drop) + (first as i64 >> narrowest),
                width: width - narrowest,
                slope: line.slope,
            };
            let probes: Vec<_> = probes.copied().collect();
            let (piece, error) = fit.piece(&probes);
            squares += error;
            table.entries.extend(piece.entries);
            table.rises.extend(piece.rises);
        }
        (table, squares / self.count as f64)
    }

    /// The pieces with the least sum of squares and prices, in order.
    fn pieces(&self, price: f64) -> Vec<Piece> {
        // The least sum for each range, and whether the range is one piece.
        let mut least: Vec<Vec<(f64, bool)>> = Vec::new();
        for sums in &self.sums {
            let next = sums.iter().enumerate().map(|(place, sums)| {
                let one = sums.line().squares + price;
                match least.last() {
                    Some(halves) => {
                        let two = halves[2 * place].0 + halves[2 * place + 1].0;
                        (one.min(two), one <= two)
                    }
                    None => (one, true),
                }
            });
            let next = next.collect();
            least.push(next);
        }
        let (mut pieces, top) = (Vec::new(), least.len() as u32 - 1);
        let mut open: Vec<(usize, u32)> = (0..least[top as usize].len())
            .rev()
            .map(|place| (place, top))
            .collect();
        while let Some((place, width)) = open.pop() {
            if least[width as usize][place].1 {
                pieces.push((place << width, width));
            } else {
                open.extend([(2 * place + 1, width - 1), (2 * place, width - 1)]);
            }
        }
        pieces
    }
}

/// Arguments of a part that occur, after the window's first, and their best summands.
fn probes(shape: &Shape, start: i64, drop: u32) -> Vec<(i64, f64)> {
    let width = f64::from(drop).exp2();
    let probe = |probe: u32| {
        // By the golden ratio, so that arguments lie anywhere between two integers.
        let place = (f64::from(probe) + 0.5) * 0.618_033_988_749_895;
        let x = (shape.window.0 + start) as f64 - 0.5 + place.fract() * width;
        let rounded = (x + 0.5).floor() as i64;
        let occurs = (shape.clamp.0.into()..=shape.clamp.1.into()).contains(&rounded);
        occurs.then(|| (rounded - shape.window.0, shape.summand(x)))
    };
    (0..PROBES).filter_map(probe).collect()
}

/// Sums over the probes of a range, of which its best-fit line follows.
#[derive(Clone, Copy, Default)]
struct Sums {
    count: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

/// A best-fit line's slope, and the sum of squares of what it misses.
struct Line {
    slope: f64,
    squares: f64,
}

impl Sums {
    fn of(probes: &[(i64, f64)]) -> Self {
        let each = probes.iter().map(|&(x, y)| {
            let x = x as f64;
            Self {
                count: 1.0,
                x,
                y,
                xx: x * x,
                xy: x * y,
                yy: y * y,
            }
        });
        each.fold(Self::default(), |sums, next| sums.plus(&next))
    }

    fn plus(&self, other: &Self) -> Self {
        Self {
            count: self.count + other.count,
            x: self.x + other.x,
            y: self.y + other.y,
            xx: self.xx + other.xx,
            xy: self.xy + other.xy,
            yy: self.yy + other.yy,
        }
    }

    fn line(&self) -> Line {
        let count = self.count.max(1.0);
        let spread = self.xx - self.x * self.x / count;
        let common = self.xy - self.x * self.y / count;
        let total = (self.yy - self.y * self.y / count).max(0.0);
        // Probes of one integer have no slope.
        let slope = if spread > 0.25 { common / spread } else { 0.0 };
        Line {
            slope,
            squares: (total - slope * common).max(0.0),
        }
    }
}

/// A piece to be rounded, in the table whose width of entries and fine bits are known.
struct Fit<'t> {
    shape: &'t Shape,
    table: &'t Table,
    /// The index of its first entry.
    first: i64,
    /// Its entries, as a power of two.
    width: u32,
    slope: f64,
}

impl Fit<'_> {
    /// The piece as a table of its own, and its sum of squares over the probes.
    fn piece(&self, probes: &[(i64, f64)]) -> (Table, f64) {
        let mut piece = self.line();
        let start = self.first << piece.drop;
        let end = start + (1 << (piece.drop + self.width));
        let line = |x: i64| piece.summand(x) as f64;
        let errors = probes
            .iter()
            .map(|&(x, y)| y - line(self.shape.window.0 + x));
        let mean = errors.sum::<f64>() / probes.len().max(1) as f64;
        // Where all arguments beyond the window have its end's value, that one is exact.
        let pinned = self.shape.limit(start, end).map(|limit| {
            let at = if start == self.shape.window.0 {
                start
            } else {
                end - 1
            };
            limit - line(at)
        });
        shift(&mut piece, pinned.unwrap_or(mean).round() as i64);
        self.bound(&mut piece, start, end);
        let errors = probes.iter().map(|&(x, y)| {
            let found = piece.summand(self.shape.window.0 + x);
            (y - found as f64).powi(2)
        });
        let squares = errors.sum();
        (piece, squares)
    }

    /// The multiples of all bits, from 0 on.
    fn line(&self) -> Table {
        let drop = self.table.drop;
        let rise = |bit: u32| (self.slope * f64::from(drop + bit).exp2()).round() as i32;
        let entry = |place: u32| {
            let set = (0..self.width).filter(|bit| place >> bit & 1 == 1);
            set.map(rise).fold(0, i32::wrapping_add)
        };
        let entries: Vec<i32> = (0..1 << self.width).map(entry).collect();
        let rises = match self.table.fine {
            0 => Vec::new(),
            _ => vec![self.rise(); entries.len()],
        };
        Table {
            first: self.first as i32,
            entries,
            rises,
            ..*self.table
        }
    }

    /// The rise over an entry with the best steps: they are rounded, so that the nearest integer
    /// need not be it.
    fn rise(&self) -> i32 {
        let (fine, drop) = (self.table.fine, self.table.drop);
        let errors = |rise: i32| {
            let error = |bit: u32| {
                let wanted = self.slope * f64::from(drop + bit - fine).exp2();
                (Table::step_of(rise, bit, fine) as f64 - wanted).powi(2)
            };
            (0..fine).map(error).sum::<f64>()
        };
        let nearest = (self.slope * f64::from(drop).exp2()).round() as i32;
        let around = (-2..=2).map(|by| nearest.saturating_add(by));
        let best = around.min_by(|&one, &other| errors(one).total_cmp(&errors(other)));
        best.unwrap_or(nearest)
    }

    /// A range around all values, found quickly.
    fn enclosed(&self, piece: &Table, arguments: Interval) -> Interval {
        let rise = piece.rises.first().copied().unwrap_or(0);
        let steps = (0..piece.fine).map(|bit| Table::step_of(rise, bit, piece.fine));
        let (falls, rises) = steps.fold((0, 0), |(falls, rises), step| {
            (falls + step.min(0), rises + step.max(0))
        });
        let entries = piece.entries.iter().map(|&entry| i64::from(entry));
        let base = |x: i64| if piece.rectified { x.max(0) } else { 0 };
        Interval {
            low: base(arguments.low) + entries.clone().min().unwrap_or(0) + falls,
            high: base(arguments.high) + entries.max().unwrap_or(0) + rises,
        }
    }

    /// Moves it so that values of arguments that occur stay in their range.
    fn bound(&self, piece: &mut Table, start: i64, end: i64) {
        let (low, high) = self.shape.clamp;
        let arguments = Interval {
            low: start.max(low.into()),
            high: (end - 1).min(high.into()),
        };
        let (low, high) = self.shape.value;
        let enclosed = self.enclosed(piece, arguments);
        let within = i64::from(low) <= enclosed.low && enclosed.high <= high.into();
        if arguments.low > arguments.high || within {
            return;
        }
        let values = piece.bounds_within(arguments);
        let up = (i64::from(low) - values.low).max(0);
        let down = (values.high + up - i64::from(high)).max(0);
        shift(piece, up - down);
    }
}

fn shift(piece: &mut Table, by: i64) {
    for entry in &mut piece.entries {
        let moved = i64::from(*entry) + by;
        *entry = moved.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    }
}
