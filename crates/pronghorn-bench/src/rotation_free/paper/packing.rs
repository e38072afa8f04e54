//! Where the values of a layer sit in polynomials.

/// A layer of the paper's kind.
#[derive(Clone, Copy, Debug)]
pub enum Layer {
    /// A convolution that keeps its size but for the stride.
    Conv {
        /// Input and output channels.
        channels: [usize; 2],
        /// Columns and rows of an image with the zeros that pad it: a power of two. `kernel / 2` of
        /// them are zeros.
        width: usize,
        /// Columns and rows of a filter.
        kernel: usize,
        /// 1 or 2.
        stride: usize,
    },
    /// A fully connected layer.
    Dense {
        /// Inputs and outputs.
        sizes: [usize; 2],
    },
}

/// Where a layer's values are.
pub(super) struct Packing {
    /// Input polynomials.
    pub(super) polynomials: usize,
    /// Of each input element.
    pub(super) inputs: Vec<(usize, usize)>,
    pub(super) products: Vec<Product>,
    /// All outputs are at multiples of this.
    pub(super) fold: usize,
}

/// One filter polynomial for each input polynomial.
pub(super) struct Product {
    /// Input polynomial, exponent that is added, and element of the weights.
    pub(super) terms: Vec<(usize, isize, usize)>,
    /// Exponent, and output element.
    pub(super) outputs: Vec<(usize, usize)>,
}

impl Layer {
    pub(super) fn packing(&self, degree: usize, spread: usize) -> Option<Packing> {
        match *self {
            Self::Conv {
                channels,
                width,
                kernel,
                stride,
            } => conv(channels, (width, kernel, stride), degree, spread),
            Self::Dense { sizes } => dense(sizes, degree, spread),
        }
    }

    pub(super) fn sizes(&self) -> [usize; 3] {
        match *self {
            Self::Conv {
                channels: [ins, outs],
                width,
                kernel,
                stride,
            } => {
                let data = |width: usize| (width - kernel / 2) * (width - kernel / 2);
                [
                    ins * data(width),
                    outs * data(width / stride),
                    ins * outs * kernel * kernel,
                ]
            }
            Self::Dense { sizes: [ins, outs] } => [ins, outs, ins * outs],
        }
    }
}

fn conv(
    [ins, outs]: [usize; 2],
    (width, kernel, stride): (usize, usize, usize),
    degree: usize,
    spread: usize,
) -> Option<Packing> {
    let fits = degree / spread / (width * width);
    if !width.is_power_of_two() || fits == 0 {
        return None;
    }
    let packed = fits.min(ins.next_power_of_two());
    let at = |y: isize, x: isize, channel: usize| {
        ((y * width as isize + x) * packed as isize + channel as isize) * spread as isize
    };
    let (data, out) = (width - kernel / 2, width / stride - kernel / 2);
    let cells = |size: usize| (0..size).flat_map(move |y| (0..size).map(move |x| (y, x)));
    let inputs = (0..ins).flat_map(|channel| {
        let place = move |(y, x)| at(y as isize, x as isize, channel % packed) as usize;
        cells(data).map(move |cell| (channel / packed, place(cell)))
    });
    let half = (kernel / 2) as isize;
    let product = |output: usize| {
        let terms = (0..ins).flat_map(|channel| {
            cells(kernel).map(move |(y, x)| {
                let exponent = -at(y as isize - half, x as isize - half, channel % packed);
                let weight = ((output * ins + channel) * kernel + y) * kernel + x;
                (channel / packed, exponent, weight)
            })
        });
        let outputs = cells(out).enumerate().map(|(place, (y, x))| {
            let exponent = at((y * stride) as isize, (x * stride) as isize, 0) as usize;
            (exponent, output * out * out + place)
        });
        Product {
            terms: terms.collect(),
            outputs: outputs.collect(),
        }
    };
    Some(Packing {
        polynomials: ins.div_ceil(packed),
        inputs: inputs.collect(),
        products: (0..outs).map(product).collect(),
        fold: packed * spread * stride,
    })
}

fn dense([ins, outs]: [usize; 2], degree: usize, spread: usize) -> Option<Packing> {
    let rows = (degree / spread / ins).min(outs);
    if rows == 0 {
        return None;
    }
    let product = |first: usize| {
        let last = outs.min(first + rows);
        let weight = |row: usize, input: usize| {
            let exponent = (row as isize - first as isize) - (input * rows) as isize;
            (0, exponent * spread as isize, row * ins + input)
        };
        Product {
            terms: (first..last)
                .flat_map(|row| (0..ins).map(move |input| weight(row, input)))
                .collect(),
            outputs: (first..last)
                .map(|row| ((row - first) * spread, row))
                .collect(),
        }
    };
    Some(Packing {
        polynomials: 1,
        inputs: (0..ins).map(|input| (0, input * rows * spread)).collect(),
        products: (0..outs).step_by(rows).map(product).collect(),
        fold: spread,
    })
}
