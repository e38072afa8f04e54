//! Graphs for tests: a builder that computes shapes, and random networks.

pub mod quantised;

use std::collections::BTreeMap;

use pronghorn_graph::{
    geometry::Window,
    graph::{Graph, Node, Op, Tensor},
    shape,
};

/// A small generator, the same for a seed everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    /// `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// `low..=high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// Uniform in `[low, high)`.
    pub fn real(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * (self.next() as f32 / (1u64 << 53) as f32)
    }

    pub fn reals(&mut self, count: usize, low: f32, high: f32) -> Vec<f32> {
        (0..count).map(|_| self.real(low, high)).collect()
    }
}

/// A graph in the making.
pub struct Net {
    pub graph: Graph,
    pub random: Random,
}

impl Net {
    pub fn new(shape: &[usize], seed: u64) -> Self {
        let input = Node {
            name: "input".into(),
            op: Op::Input,
            inputs: vec![],
            shape: shape.into(),
        };
        let graph = Graph {
            name: "test".into(),
            nodes: vec![input],
            output: 0,
            tensors: BTreeMap::new(),
        };
        Self {
            graph,
            random: Random::new(seed),
        }
    }

    pub fn shape(&self, value: usize) -> Vec<usize> {
        self.graph.nodes[value].shape.clone()
    }

    /// Adds a node, which becomes the output.
    pub fn push(&mut self, op: Op, inputs: &[usize], shape: Vec<usize>) -> usize {
        let index = self.graph.nodes.len();
        let name = format!("{}{index}", op.name());
        self.graph.nodes.push(Node {
            name,
            op,
            inputs: inputs.into(),
            shape,
        });
        self.graph.output = index;
        index
    }

    /// Adds a node whose result has the shape of its input.
    pub fn same(&mut self, op: Op, input: usize) -> usize {
        let shape = self.shape(input);
        self.push(op, &[input], shape)
    }

    /// A tensor under a new name.
    pub fn tensor(&mut self, shape: &[usize], data: Vec<f32>) -> String {
        let name = format!("t{}", self.graph.tensors.len());
        let tensor = Tensor::new(shape, data);
        self.graph.tensors.insert(name.clone(), tensor);
        name
    }

    fn weights(&mut self, shape: &[usize]) -> String {
        let count = shape.iter().product();
        let fan_in: usize = shape[1..].iter().product();
        let most = 1.5 / (fan_in as f32).sqrt();
        let data = self.random.reals(count, -most, most);
        self.tensor(shape, data)
    }

    pub fn conv(&mut self, input: usize, out: usize, window: Window, groups: usize) -> usize {
        let shape = self.shape(input);
        let [height, width] = window.output([shape[1], shape[2]]).unwrap();
        let [kernel_h, kernel_w] = window.kernel;
        let weight = self.weights(&[out, shape[0] / groups, kernel_h, kernel_w]);
        let bias = self.random.reals(out, -0.5, 0.5);
        let bias = (self.random.below(2) == 0).then(|| self.tensor(&[out], bias));
        self.push(
            Op::Conv {
                window,
                groups,
                weight,
                bias,
            },
            &[input],
            vec![out, height, width],
        )
    }

    pub fn dense(&mut self, input: usize, out: usize) -> usize {
        let inputs = self.shape(input)[0];
        let weight = self.weights(&[out, inputs]);
        let bias = self.random.reals(out, -0.5, 0.5);
        let bias = Some(self.tensor(&[out], bias));
        self.push(Op::Dense { weight, bias }, &[input], vec![out])
    }

    /// An affine map with `count` constants each.
    pub fn affine(&mut self, input: usize, count: usize) -> usize {
        let (mul, add) = (
            self.random.reals(count, 0.5, 1.5),
            self.random.reals(count, -0.3, 0.3),
        );
        let mul = Some(self.tensor(&[count], mul));
        let add = Some(self.tensor(&[count], add));
        self.same(Op::Affine { mul, add }, input)
    }

    pub fn flatten(&mut self, input: usize) -> usize {
        let elements = self.shape(input).iter().product();
        self.push(Op::Reshape, &[input], vec![elements])
    }

    pub fn pad(&mut self, input: usize, before: [usize; 3], after: [usize; 3]) -> usize {
        let (before, after) = (before.to_vec(), after.to_vec());
        let shape = shape::pad(&self.shape(input), &before, &after).unwrap();
        self.push(Op::Pad { before, after }, &[input], shape)
    }

    pub fn concat(&mut self, inputs: &[usize], axis: usize) -> usize {
        let shapes: Vec<Vec<usize>> = inputs.iter().map(|&input| self.shape(input)).collect();
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        let shape = shape::concat(&shapes, axis).unwrap();
        self.push(Op::Concat { axis }, inputs, shape)
    }

    pub fn take(&mut self, input: usize, axis: usize, indices: &[usize]) -> usize {
        let indices = indices.to_vec();
        let shape = shape::take(&self.shape(input), axis, &indices).unwrap();
        self.push(Op::Take { axis, indices }, &[input], shape)
    }

    pub fn add(&mut self, left: usize, right: usize) -> usize {
        let shape = self.shape(left);
        self.push(Op::Add, &[left, right], shape)
    }

    pub fn pool(&mut self, input: usize, op: impl Fn(Window) -> Op, window: Window) -> usize {
        let shape = shape::pool(&self.shape(input), &window).unwrap();
        self.push(op(window), &[input], shape)
    }

    /// A random window that goes with the image `input`.
    fn window(&mut self, input: usize, pooling: bool) -> Window {
        let shape = self.shape(input);
        let random = &mut self.random;
        loop {
            let kernel = [random.between(1, 3), random.between(1, 3)];
            let most = if pooling {
                kernel.map(|kernel| kernel - 1)
            } else {
                [2, 2]
            };
            let mut pad = |axis: usize| random.below(most[axis] + 1);
            let padding = [pad(0), pad(1), pad(0), pad(1)];
            let window = Window {
                kernel,
                stride: [random.between(1, 2), random.between(1, 2)],
                dilation: [random.between(1, 2), 1],
                padding,
            };
            if window.pool_output([shape[1], shape[2]]).is_ok() {
                return window;
            }
        }
    }

    /// One more random operator on the image `input`.
    fn random_step(&mut self, input: usize) -> usize {
        let shape = self.shape(input);
        let (channels, elements) = (shape[0], shape.iter().product());
        match self.random.below(15) {
            0 | 1 => {
                let window = self.window(input, false);
                let out = self.random.between(1, 5);
                self.conv(input, out, window, 1)
            }
            2 => {
                let window = self.window(input, false);
                let out = channels * self.random.between(1, 2);
                self.conv(input, out, window, channels)
            }
            3 => {
                let count = [1, channels, elements][self.random.below(3)];
                self.affine(input, count)
            }
            4 => self.same(Op::Relu, input),
            5 => self.same(
                Op::Clip {
                    min: Some(-0.5),
                    max: Some(0.75),
                },
                input,
            ),
            6 => self.same(Op::LeakyRelu { alpha: 0.25 }, input),
            7 => {
                let window = self.window(input, true);
                self.pool(input, |window| Op::MaxPool { window }, window)
            }
            8 => {
                let window = self.window(input, true);
                let count_include_pad = self.random.below(2) == 0;
                self.pool(
                    input,
                    |window| Op::AveragePool {
                        window,
                        count_include_pad,
                    },
                    window,
                )
            }
            9 => {
                let relu = self.same(Op::Relu, input);
                self.add(relu, input)
            }
            10 => {
                let affine = self.affine(input, channels);
                self.concat(&[input, affine], 0)
            }
            11 => {
                let top = self.random.below(2);
                let front = usize::from(self.random.below(4) == 0);
                self.pad(input, [front, top, 1], [0, 0, 1])
            }
            12 => {
                let shape = vec![shape[0], shape[2], shape[1]];
                self.push(
                    Op::Transpose {
                        permutation: vec![0, 2, 1],
                    },
                    &[input],
                    shape,
                )
            }
            13 => {
                let axis = self.random.below(3);
                let count = self.random.between(1, shape[axis] + 1);
                let places: Vec<usize> =
                    (0..count).map(|_| self.random.below(shape[axis])).collect();
                self.take(input, axis, &places)
            }
            _ => {
                let shape = vec![shape[0], 1, shape[1] * shape[2]];
                self.push(Op::Reshape, &[input], shape)
            }
        }
    }
}

/// A random network of up to `steps` operators on images, most with a classifier behind.
pub fn random_network(seed: u64, steps: usize) -> Net {
    let mut net = Net::new(&[2, 5, 6], seed);
    let steps = net.random.between(1, steps);
    let mut value = 0;
    for _ in 0..steps {
        value = net.random_step(value);
    }
    if net.random.below(3) > 0 {
        value = net.flatten(value);
        value = net.dense(value, 4);
        if net.random.below(4) == 0 {
            value = net.same(Op::Square, value);
            net.dense(value, 3);
        }
    }
    net.graph.validate().unwrap();
    net
}

/// Root of the mean square.
pub fn rms(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, n), x| (sum + x * x, n + 1));
    (sum / count.max(1) as f64).sqrt()
}

/// Rms difference.
pub fn difference(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    rms(a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b)))
}

/// Rms of values.
pub fn size(a: &[f32]) -> f64 {
    rms(a.iter().map(|&a| a.into()))
}
