//! Affine maps of rows go behind selections and concatenations, next to the layers that read them.
//!
//! Tables are cut into columns that are scaled each, and put together again, or are compared with a
//! row of each class. The inverses of [feature scales](crate::features) come before all of that.

use std::collections::BTreeSet;

use super::{
    affine::{by_channel, constants, tensor},
    insert, insert_behind, is_reshape, only_reader, readers, redirect,
};
use crate::{
    graph::{Graph, Node, Op},
    layout, shape,
};

/// Brings one affine map behind a selection or a reshape that reads it, or those before a
/// concatenation behind it, or gives each reader of a map one of its own. Says whether there were
/// any.
pub(super) fn pass(graph: &mut Graph) -> bool {
    let ways = [pass_take, pass_reshape, pass_concat, part];
    (1..graph.nodes.len()).any(|index| ways.iter().any(|way| way(graph, index).is_some()))
}

/// `take(x * m + a) = take(x) * take(m) + take(a)`, of the places of a row, or of its repetitions.
fn pass_take(graph: &mut Graph, take: usize) -> Option<()> {
    let affine = *graph.nodes[take].inputs.first()?;
    let Op::Take { axis, indices } = graph.nodes[take].op.clone() else {
        return None;
    };
    let (mul, add) = element_constants(graph, affine)?;
    let sources = layout::take(&graph.nodes[affine].shape, axis, &indices);
    let taken = |all: &[f64]| sources.iter().map(|&at| all[at]).collect::<Vec<_>>();
    pass_behind(graph, affine, take, &taken(&mul), &taken(&add))
}

/// `reshape(x * m + a) = reshape(x) * m + a` of a map that belongs to the input, such as that of
/// feature scales: no layer before it could take the map up.
fn pass_reshape(graph: &mut Graph, reshape: usize) -> Option<()> {
    let affine = *graph.nodes[reshape].inputs.first()?;
    if !is_reshape(&graph.nodes[reshape]) || !is_of_input(graph, affine) {
        return None;
    }
    let (mul, add) = element_constants(graph, affine)?;
    pass_behind(graph, affine, reshape, &mul, &add)
}

/// Gives each of several readers of a map of the input a map of its own, where some are maps or
/// layers, which take it up.
fn part(graph: &mut Graph, affine: usize) -> Option<()> {
    if !matches!(graph.nodes[affine].op, Op::Affine { .. }) || !is_of_input(graph, affine) {
        return None;
    }
    let readers = readers(graph, affine)?;
    let takes_up = |&reader: &usize| {
        let op = &graph.nodes[reader].op;
        matches!(op, Op::Affine { .. } | Op::Dense { .. })
    };
    let last = readers.iter().copied().rfind(takes_up)?;
    if readers.len() < 2 {
        return None;
    }
    let copy = graph.nodes[affine].clone();
    insert_behind(graph, affine, copy);
    // All read the copy now, and have moved by one.
    graph.nodes[affine + 1].inputs = graph.nodes[affine].inputs.clone();
    for input in &mut graph.nodes[last + 1].inputs {
        if *input == affine + 1 {
            *input = affine;
        }
    }
    Some(())
}

/// Brings an affine map behind a node that reads it, with these constants there.
fn pass_behind(
    graph: &mut Graph,
    affine: usize,
    node: usize,
    mul: &[f64],
    add: &[f64],
) -> Option<()> {
    let behind = affine_of(graph, node, mul, add)?;
    graph.nodes[node].inputs = graph.nodes[affine].inputs.clone();
    insert_behind(graph, node, behind);
    Some(())
}

/// Where an affine map or layers read the concatenation: they take the map up.
fn pass_concat(graph: &mut Graph, concat: usize) -> Option<()> {
    let Op::Concat { axis: 0 } = graph.nodes[concat].op else {
        return None;
    };
    let is_taken_up = |&reader: &usize| {
        let op = &graph.nodes[reader].op;
        let moves = matches!(op, Op::Concat { axis: 0 } | Op::Take { axis: 0, .. });
        moves || matches!(op, Op::Dense { .. } | Op::Affine { .. })
    };
    if !readers(graph, concat)?.iter().all(is_taken_up) {
        return None;
    }
    let inputs = graph.nodes[concat].inputs.clone();
    // Another reader of a map keeps it, until that takes it up, too.
    let each: Vec<Option<(Vec<f64>, Vec<f64>)>> = inputs
        .iter()
        .map(|&input| row_constants(graph, input))
        .collect();
    if each.iter().all(Option::is_none) {
        return None;
    }
    let (mut mul, mut add, mut sources) = (Vec::new(), Vec::new(), Vec::new());
    for (&input, constants) in inputs.iter().zip(each) {
        let &[length] = graph.nodes[input].shape.as_slice() else {
            return None;
        };
        sources.push(match constants {
            Some(_) => graph.nodes[input].inputs[0],
            None => input,
        });
        let (m, a) = constants.unwrap_or_else(|| (vec![1.0; length], vec![0.0; length]));
        mul.extend(m);
        add.extend(a);
    }
    let behind = affine_of(graph, concat, &mul, &add)?;
    graph.nodes[concat].inputs = sources;
    insert_behind(graph, concat, behind);
    Some(())
}

/// Brings an affine map behind a concatenation of layers' values before it, for these to take up:
/// `concat(x, y) * m = concat(x * m1, y * m2)`. Says whether there was one.
pub(super) fn split(graph: &mut Graph) -> bool {
    (1..graph.nodes.len()).any(|index| split_concat(graph, index).is_some())
}

fn split_concat(graph: &mut Graph, affine: usize) -> Option<()> {
    let concat = *graph.nodes[affine].inputs.first()?;
    if graph.nodes[concat].op != (Op::Concat { axis: 0 }) || only_reader(graph, concat)? != affine {
        return None;
    }
    let channels = shape::channels(&graph.nodes[concat].shape).0;
    let (mul, add) = constants(graph, affine, channels)?;
    let (mut first, mut parts) = (0, Vec::new());
    for &input in &graph.nodes[concat].inputs {
        let end = first + shape::channels(&graph.nodes[input].shape).0;
        let (mul, add) = (&mul[first..end], &add[first..end]);
        first = end;
        if mul.iter().all(|&m| m == 1.0) && add.iter().all(|&a| a == 0.0) {
            continue;
        }
        if !is_taken_up(graph, input, [mul, add]) {
            return None;
        }
        parts.push((input, mul.to_vec(), add.to_vec()));
    }
    // From the last one, so that those before keep their places.
    parts.sort_by_key(|(input, ..)| std::cmp::Reverse(*input));
    let maps = parts
        .into_iter()
        .map(|(input, mul, add)| affine_of(graph, input, &mul, &add));
    let maps: Vec<Node> = maps.collect::<Option<_>>()?;
    redirect(graph, affine, concat);
    graph.nodes[affine].inputs.clear();
    for map in maps {
        insert_behind(graph, map.inputs[0], map);
    }
    Some(())
}

/// Whether the layer that makes the value, alone or before reshapes, takes up a map of it, whose
/// constants are alike within the layer's channels. A map that stayed would go behind the
/// concatenation again, and so on.
fn is_taken_up(graph: &Graph, value: usize, constants: [&[f64]; 2]) -> bool {
    let node = &graph.nodes[value];
    let is_alone = only_reader(graph, value).is_some();
    match &node.op {
        Op::Dense { .. } | Op::Conv { .. } => is_alone,
        Op::Reshape => {
            let before = node.inputs[0];
            let channels = shape::channels(&graph.nodes[before].shape).0;
            let merged = constants.map(|all| by_channel(all, channels));
            match &merged {
                [Some(mul), Some(add)] => is_alone && is_taken_up(graph, before, [mul, add]),
                _ => false,
            }
        }
        _ => false,
    }
}

/// The constants of an affine map of a row, one each.
fn row_constants(graph: &Graph, affine: usize) -> Option<(Vec<f64>, Vec<f64>)> {
    match (
        &graph.nodes[affine].op,
        graph.nodes[affine].shape.as_slice(),
    ) {
        (Op::Affine { .. }, &[length]) => constants(graph, affine, length),
        _ => None,
    }
}

/// The constants of an affine map, one an element, where it is of a row or belongs to the input.
fn element_constants(graph: &Graph, affine: usize) -> Option<(Vec<f64>, Vec<f64>)> {
    let Node { op, shape, .. } = &graph.nodes[affine];
    match op {
        Op::Affine { .. } if shape.len() == 1 || is_of_input(graph, affine) => {
            constants(graph, affine, shape.iter().product())
        }
        _ => None,
    }
}

/// Whether a node reads values of the input that selections, reshapes and concatenations alone have
/// moved. A transposition is none of these: maps go before it.
fn is_of_input(graph: &Graph, node: usize) -> bool {
    let moves = |op: &Op| matches!(op, Op::Take { .. } | Op::Reshape | Op::Concat { .. });
    let mut open = BTreeSet::from_iter(graph.nodes[node].inputs.iter().copied());
    while let Some(value) = open.pop_last() {
        match value {
            0 => return true,
            // The largest first: 0 is the last, and each is looked at once.
            value if moves(&graph.nodes[value].op) => open.extend(&graph.nodes[value].inputs),
            _ => return false,
        }
    }
    false
}

/// An affine map of the value `index`.
fn affine_of(graph: &mut Graph, index: usize, mul: &[f64], add: &[f64]) -> Option<Node> {
    let [mul, add] = [mul, add].map(|all| tensor(&[all.len()], all.iter().copied()));
    let (mul, add) = (mul?, add?);
    let name = format!("{}/scaled", graph.nodes[index].name);
    let op = Op::Affine {
        mul: Some(insert(graph, &name, "mul", mul)),
        add: Some(insert(graph, &name, "add", add)),
    };
    Some(Node {
        name,
        op,
        inputs: vec![index],
        shape: graph.nodes[index].shape.clone(),
    })
}
