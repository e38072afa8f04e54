//! What the server does, as data.

use std::fmt;

use pronghorn_graph::polynomial::{PolyGraph, PolyNode, PolyOp};
use serde::{Deserialize, Serialize};

use super::parameters::{EncryptedPlan, MAX_POLYS};
use crate::description::cut;

/// The nodes of a [`PolyGraph`], with rescalings in between, and what each ciphertext looks like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// In order; inputs of a node come before it.
    pub nodes: Vec<ProgramNode>,
    /// The node whose value is the result.
    pub output: usize,
}

/// One operation and its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramNode {
    /// What is done.
    pub op: ProgramOp,
    /// Nodes whose values it reads.
    pub inputs: Vec<usize>,
    /// Ciphertexts of its value.
    pub elements: usize,
    /// Polynomials of each.
    pub polys: usize,
    /// Primes left.
    pub limbs: usize,
    /// A value `v` is `v * scale` in a slot.
    pub scale: f64,
    /// Largest magnitude of the value, as seen on samples.
    pub reach: f64,
}

/// The operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProgramOp {
    /// The operator of this node of the [`PolyGraph`], word by word.
    Node(usize),
    /// Times the integer that brings the scale to that of the value.
    Scale,
    /// Division by the last so many primes.
    Rescale {
        /// How many.
        limbs: usize,
    },
    /// To two polynomials, by key switching, and division by the last so many primes, maybe none.
    Relinearise {
        /// How many.
        limbs: usize,
    },
}

impl ProgramOp {
    /// Whether it leads to another stage: it needs all words of a polynomial, or of all limbs.
    fn leads_on(self) -> bool {
        matches!(self, Self::Rescale { .. } | Self::Relinearise { .. })
    }
}

impl Program {
    /// Whether a program from a file is one of `graph`, which is sound, for a plan: inputs come
    /// before their nodes, values go together, and the last one is what the plan answers with.
    pub fn is_sound(&self, graph: &PolyGraph, plan: &EncryptedPlan) -> bool {
        let in_order = |index: usize| {
            let node = &self.nodes[index];
            node.inputs.iter().all(|&input| input < index)
                && (index == 0) == (node.op == ProgramOp::Node(0))
                && (1..=plan.primes.len()).contains(&node.limbs)
                && node.scale.is_normal()
                && node.scale > 0.0
                && self.goes_together(node, graph, plan)
        };
        // The input is kept as it came, and is no result.
        let answers =
            |node: &ProgramNode| (node.polys, node.limbs) == (plan.answer_polys, plan.flood_limbs);
        let result = self.nodes.get(self.output).filter(|_| self.output > 0);
        result.is_some_and(answers) && (0..self.nodes.len()).all(in_order)
    }

    /// Whether the sizes of a node, whose inputs come before it, are those of its operation.
    fn goes_together(&self, node: &ProgramNode, graph: &PolyGraph, plan: &EncryptedPlan) -> bool {
        let wanted = match node.op {
            ProgramOp::Node(of) => {
                let of = graph.nodes.get(of);
                of.and_then(|of| self.polys_of(node, of, graph))
            }
            ProgramOp::Scale => self.single(node, 0).map(|input| input.polys),
            // The input has no words of its own to divide.
            ProgramOp::Rescale { limbs } => self
                .single(node, limbs)
                .filter(|_| limbs > 0 && node.inputs[0] > 0)
                .map(|input| input.polys),
            ProgramOp::Relinearise { limbs } => self
                .single(node, limbs)
                .filter(|input| (3..=plan.key_power + 1).contains(&input.polys))
                .map(|_| 2),
        };
        wanted == Some(node.polys) && node.polys <= MAX_POLYS
    }

    /// The polynomials of a node that computes `of`; `None` where other sizes are not those of `of`.
    fn polys_of(&self, node: &ProgramNode, of: &PolyNode, graph: &PolyGraph) -> Option<usize> {
        let inputs = || node.inputs.iter().map(|&input| &self.nodes[input]);
        let polys = || inputs().map(|input| input.polys);
        let lengths = of.inputs.iter().map(|&input| graph.nodes[input].len());
        let fits = lengths.eq(inputs().map(|input| input.elements))
            && node.elements == of.len()
            && inputs().all(|input| input.limbs >= node.limbs);
        fits.then(|| match of.op {
            PolyOp::Input => 2,
            PolyOp::Square => 2 * polys().sum::<usize>() - 1,
            PolyOp::Multiply => polys().sum::<usize>() - 1,
            _ => polys().max().unwrap_or(2),
        })
    }

    /// The only input of a node, where the node has its elements and so many primes less.
    fn single(&self, node: &ProgramNode, dropped: usize) -> Option<&ProgramNode> {
        let [input] = node.inputs[..] else {
            return None;
        };
        let input = &self.nodes[input];
        let limbs = node.limbs.checked_add(dropped);
        (input.elements == node.elements && limbs == Some(input.limbs)).then_some(input)
    }

    /// For each node its stage: within a stage every operation acts on each word alone; rescalings
    /// lead to the next.
    pub fn stages(&self) -> Vec<usize> {
        let mut stages = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let before = node.inputs.iter().map(|&input| stages[input]).max();
            let rescaled = usize::from(node.op.leads_on());
            stages.push(before.unwrap_or(0) + rescaled);
        }
        stages
    }

    /// For each node the last stage that reads its stored value; none where it is read in its own
    /// stage only, and so never stored. The result is read after the last stage.
    pub fn stored_until(&self) -> Vec<Option<usize>> {
        let stages = self.stages();
        let mut until = vec![None; self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            for &input in &node.inputs {
                let of_input = &self.nodes[input];
                let input_is_stored = of_input.op.leads_on() || of_input.inputs.is_empty();
                if stages[index] != stages[input] || input_is_stored {
                    until[input] = until[input].max(Some(stages[index]));
                }
            }
        }
        until[self.output] = Some(usize::MAX);
        until
    }

    /// Bytes the server holds at most, with 32-bit words, where the client's rows take `request`.
    pub fn memory(&self, degree: usize, request: u64) -> u64 {
        let (stages, until) = (self.stages(), self.stored_until());
        let last = stages.iter().copied().max().unwrap_or(0);
        let bytes = |index: usize| match (index, &self.nodes[index]) {
            // Kept as it came.
            (0, _) => 0,
            (_, node) => (node.elements * node.polys * node.limbs * degree * 4) as u64,
        };
        let alive = |stage: usize| {
            let is_alive = |&index: &usize| {
                stages[index] <= stage && until[index].is_some_and(|until| until >= stage)
            };
            (0..self.nodes.len()).filter(is_alive).map(bytes).sum()
        };
        request + (0..=last).map(alive).max().unwrap_or(0)
    }

    /// The program as a table, with the names of `graph`'s nodes: ciphertexts of each, with their
    /// polynomials, primes, scale and bound.
    pub fn display<'a>(&'a self, graph: &'a PolyGraph) -> impl fmt::Display + 'a {
        Table {
            program: self,
            graph,
        }
    }
}

struct Table<'a> {
    program: &'a Program,
    graph: &'a PolyGraph,
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.program.nodes.iter().enumerate() {
            let (name, what) = match node.op {
                ProgramOp::Node(of) => {
                    let of = &self.graph.nodes[of];
                    (of.name.as_str(), of.op.name().to_owned())
                }
                ProgramOp::Scale => ("", "times an integer".to_owned()),
                ProgramOp::Rescale { limbs } => ("", format!("rescale by {limbs} primes")),
                ProgramOp::Relinearise { limbs } => ("", format!("relinearise, by {limbs} primes")),
            };
            writeln!(
                f,
                "  {index:>3} {:<24} {what:<22} {:>6} of {} polynomials, {} primes, scale 2^{:.1}, within {:.3}",
                cut(name, 24),
                node.elements,
                node.polys,
                node.limbs,
                node.scale.log2(),
                node.reach
            )?;
        }
        Ok(())
    }
}
