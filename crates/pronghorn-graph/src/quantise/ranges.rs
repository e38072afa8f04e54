//! The ranges that changes of precision clamp values to.

use super::{function::leave_room, scale::Range, whole};
use crate::{
    float::{Profile, ValueProfile},
    function::{Function, Span},
    graph::{Graph, Node, Op},
};

/// The range of each value on samples, with the margin: that of the input is its own. `whole`: the
/// values that [`whole::all`] says. `costly`: whether changes of precision are.
pub(super) fn of(
    graph: &Graph,
    profile: &Profile,
    whole: &[bool],
    margin: f32,
    costly: bool,
) -> Vec<Range> {
    let positive = are_positive(graph, profile);
    let squares = squares_of_features(graph);
    let of_value = |(index, value): (usize, &ValueProfile), before: &[Range]| {
        let node = &graph.nodes[index];
        let range = match node.op {
            Op::Clip { min, max } => Range::of(value, margin).clipped([min, max]),
            Op::Step => Range::new(0.0, 1.0),
            Op::Input => Range::of(value, 1.0),
            // A flag that no sample has is one all the same.
            Op::Relu if whole[index] => Range::of(value, margin).with_one(),
            _ if positive[index] => Range::of(value, margin),
            _ => Range::of(value, margin).across(value, margin),
        };
        let range_of = |input: usize| before[node.inputs[input]];
        let range = match (squares[index], image(&node.op, range_of)) {
            (true, _) => range.and_range(of_squares(node, range_of)),
            (false, Some(image)) => range.within(image.and(value)),
            (false, None) => range,
        };
        match costly && may_saturate(graph, index) {
            true => range.saturating(),
            false => range,
        }
    };
    let mut ranges = Vec::with_capacity(graph.nodes.len());
    for value in profile.values.iter().enumerate() {
        ranges.push(of_value(value, &ranges));
    }
    leave_room(graph, profile, margin, &mut ranges);
    if costly {
        share(graph, &mut ranges);
    }
    ranges
}

/// Whether each value is squares of features, or of linear maps of them, that stand beside others,
/// or has such squares.
///
/// Where a layer reads features and their squares, as distances are made of them, both are clamped
/// at the same features. Else the squares of outliers, clamped before them, make these near.
fn squares_of_features(graph: &Graph) -> Vec<bool> {
    let is_row = graph.nodes[0].shape.len() <= 2;
    let (mut features, mut squares) = (Vec::new(), Vec::new());
    for (index, node) in graph.nodes.iter().enumerate() {
        let any = |of: &[bool]| node.inputs.iter().any(|&input| of[input]);
        let all = |of: &[bool]| node.inputs.iter().all(|&input| of[input]);
        let is_feature = match &node.op {
            Op::Input => is_row,
            Op::Add | Op::Concat { .. } => all(&features),
            op => (op.is_linear() || is_move(op)) && all(&features),
        };
        let is_square = match &node.op {
            Op::Square => any(&features) && is_joined(graph, index),
            Op::Concat { .. } => any(&squares),
            op => is_move(op) && any(&squares),
        };
        features.push(is_feature);
        squares.push(is_square);
    }
    squares
}

fn is_move(op: &Op) -> bool {
    matches!(op, Op::Take { .. } | Op::Reshape | Op::Transpose { .. })
}

/// Whether a value stands beside others, at most moved.
fn is_joined(graph: &Graph, index: usize) -> bool {
    graph.readers(index).any(|(at, node)| match &node.op {
        Op::Concat { .. } => true,
        op => is_move(op) && is_joined(graph, at),
    })
}

/// What squares, moves and values beside each other make of all arguments in their ranges.
fn of_squares(node: &Node, range_of: impl Fn(usize) -> Range) -> Range {
    let all = (0..node.inputs.len()).map(range_of);
    let whole = all.reduce(Range::and_range).unwrap_or(Range::ALL);
    match node.op {
        Op::Square => Range::new(0.0, whole.reach().powi(2)),
        _ => whole,
    }
}

/// What a function, a pool or a move makes of all arguments in a range; `None` for other operators,
/// and where the range of the argument is another ([`leave_room`]).
fn image(op: &Op, range_of: impl Fn(usize) -> Range) -> Option<Range> {
    match op {
        Op::Function { function } => image_of(*function, range_of(0)),
        Op::LeakyRelu { alpha } => {
            let slope = f64::from(*alpha);
            values_at(|x| if x < 0.0 { x * slope } else { x }, BENDS, range_of(0))
        }
        // A mean may count zeros around the image.
        Op::AveragePool { .. } => Some(range_of(0).with_zero()),
        Op::MaxPool { .. } | Op::GlobalAveragePool => Some(range_of(0)),
        op if is_move(op) => Some(range_of(0)),
        _ => None,
    }
}

fn image_of(function: Function, argument: Range) -> Option<Range> {
    match function {
        // Of these two no grid tells the extremes.
        Function::Sin | Function::Cos => Some(Range::new(-1.0, 1.0)),
        Function::Swish { beta } => {
            values_at(|x| function.at(x), BENDS / f64::from(beta), argument)
        }
        Function::Decay { rate } => {
            values_at(|x| function.at(x), BENDS / f64::from(rate).abs(), argument)
        }
        _ if function.span() == Span::Positive => None,
        _ => values_at(|x| function.at(x), BENDS, argument),
    }
}

/// The range of a function's values over arguments; `None` where it has no end. A function bends
/// at arguments of at most `bends`: beyond them it rises or falls.
fn values_at(function: impl Fn(f64) -> f64, bends: f64, argument: Range) -> Option<Range> {
    let Range { low, high, .. } = argument;
    let near = [low, high].map(|end| end.clamp(-bends, bends));
    let step = (near[1] - near[0]) / f64::from(POINTS);
    let grid = (0..=POINTS).map(|point| near[0] + step * f64::from(point));
    let values = grid.chain([low, high]).map(function);
    let ends = |[low, high]: [f64; 2], value: f64| [low.min(value), high.max(value)];
    let [low, high] = values.fold([f64::INFINITY, f64::NEG_INFINITY], ends);
    (low.is_finite() && high.is_finite()).then_some(Range::new(low, high))
}

/// Points at which a function is looked at: its extremes are flat.
const POINTS: u16 = 512;

/// Functions without parameters have their extremes nearer to zero.
const BENDS: f64 = 16.0;

/// Whether each value is at least zero on all inputs like the samples: those of functions that are,
/// and what layers of such weights, moves and sums make of such values.
fn are_positive(graph: &Graph, profile: &Profile) -> Vec<bool> {
    let mut positive = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let has_no_sign = |name: &str| graph.tensors[name].data.iter().all(|&each| each >= 0.0);
        let of_inputs = node.inputs.iter().all(|&input| positive[input]);
        positive.push(match node.op {
            Op::Input => profile.values[0].min >= 0.0,
            Op::Relu | Op::Step | Op::Square => true,
            Op::Clip { min, max } => {
                let is_above = |bound: Option<f32>| bound.is_some_and(|bound| bound >= 0.0);
                is_above(min) || (of_inputs && max.is_none_or(|max| max >= 0.0))
            }
            Op::Function { function } if function.is_positive() => true,
            Op::Function { function } => function.keeps_sign() && of_inputs,
            ref op => of_inputs && op.tensors().all(has_no_sign),
        });
    }
    positive
}

/// The largest magnitudes in these ranges, where changes of precision are costly.
pub(crate) fn reaches(graph: &Graph, profile: &Profile, margin: f32) -> Vec<f64> {
    let ranges = of(graph, profile, &whole::all(graph), margin, true).into_iter();
    ranges.map(Range::reach).collect()
}

/// Whether words of a value may saturate: its range may have been brought to a power of two. Those
/// of inputs, functions and products never were, and a unit of theirs counts for more.
fn may_saturate(graph: &Graph, index: usize) -> bool {
    let is_own =
        |op: &Op| op.is_product() || matches!(op, Op::Function { .. } | Op::Step | Op::Square);
    let is_read = graph.readers(index).any(|(_, reader)| is_own(&reader.op));
    let op = &graph.nodes[index].op;
    !(is_read || is_own(op) || *op == Op::Input)
}

/// Whether all who read a value get it clamped to its range, where changes of precision are
/// costly: a layer or a product reads it or a part of it, or only layers do, behind moves.
pub(crate) fn is_clamped(graph: &Graph, index: usize) -> bool {
    let changes = |(_, node): (usize, &Node)| node.op.is_linear() || node.op.is_product();
    let wants = |(at, node): (usize, &Node)| match node.op {
        Op::Take { .. } => graph.readers(at).any(changes),
        _ => changes((at, node)),
    };
    graph.readers(index).any(wants) || moves_to_layers(graph, index)
}

/// Whether layers alone read a value, behind moves of it.
fn moves_to_layers(graph: &Graph, index: usize) -> bool {
    let is_layer = |(at, node): (usize, &Node)| match node.op {
        ref op if is_move(op) => moves_to_layers(graph, at),
        ref op => op.is_linear(),
    };
    let is_read = index != graph.output && graph.readers(index).next().is_some();
    is_read && graph.readers(index).all(is_layer)
}

/// Gives a part of the input or of an activation's value the range of the whole: no part needs a
/// requantisation of its own.
fn share(graph: &Graph, ranges: &mut [Range]) {
    let mut shares = vec![false; graph.nodes.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        match (&node.op, node.inputs.as_slice()) {
            (op, &[input]) if is_move(op) && shares[input] => {
                shares[index] = true;
                ranges[index] = ranges[input];
            }
            (op, _) => shares[index] = *op == Op::Input || op.is_activation(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_bound_their_values() {
        let of = |op: Op, argument| image(&op, |_| argument).map(|image| [image.low, image.high]);
        let silu = || Op::Function {
            function: Function::Swish { beta: 1.0 },
        };
        let [low, high] = of(silu(), Range::new(-8.0, 4.0)).unwrap();
        assert!((low + 0.2785).abs() < 1e-3 && (high - 3.928).abs() < 1e-3);
        let leaky = || Op::LeakyRelu { alpha: 0.125 };
        assert_eq!(of(leaky(), Range::new(-8.0, 4.0)), Some([-1.0, 4.0]));
        assert_eq!(of(Op::Reshape, Range::new(-8.0, 4.0)), Some([-8.0, 4.0]));
        assert_eq!(of(Op::Add, Range::new(-8.0, 4.0)), None);
        assert_eq!(of(leaky(), Range::ALL), None);
        // However far the arguments reach.
        let [low, high] = of(silu(), Range::new(-3000.0, 0.5)).unwrap();
        assert!((low + 0.2785).abs() < 1e-3 && (high - 0.3112).abs() < 1e-3);
        let slow = Op::Function {
            function: Function::Swish { beta: 0.01 },
        };
        let [low, _] = of(slow, Range::new(-3000.0, 0.5)).unwrap();
        assert!((low + 27.85).abs() < 0.1, "{low}");
        let sine = Op::Function {
            function: Function::Sin,
        };
        assert_eq!(of(sine, Range::new(-1e6, 1e6)), Some([-1.0, 1.0]));
        // Roots have ranges of their own.
        let root = Op::Function {
            function: Function::Sqrt,
        };
        assert_eq!(of(root, Range::new(1.0, 4.0)), None);
    }
}
