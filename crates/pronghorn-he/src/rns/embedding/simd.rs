//! The loops of the embedding, compiled at every SIMD level from one plain body.
//!
//! Levels of blocks of 16 and more go two at a time along the block. The last three levels, blocks
//! of 8, go across eight blocks at once, turned into eight vectors. Smaller polynomials go level by
//! level.
#![allow(unsafe_code)] // calls of #[target_feature] functions after run-time detection

use pronghorn_ring::vectorised;

use super::{Complex, Tail};

vectorised! {
    /// From coefficients to leaves.
    pub fn forward(roots: &Complex, tails: &Tail, re: &mut [f64], im: &mut [f64]) {
        let n = re.len();
        assert!(n.is_power_of_two() && im.len() == n && roots.re.len() == n && roots.im.len() == n);
        let outer = outer_levels(n);
        let mut nodes = 1;
        if outer % 2 == 1 {
            forward_level(roots, nodes, re, im);
            nodes = 2;
        }
        while nodes < 1 << outer {
            forward_two_levels(roots, nodes, re, im);
            nodes *= 4;
        }
        if outer > 0 {
            forward_tail(tails, re, im);
        } else {
            while nodes < n {
                forward_level(roots, nodes, re, im);
                nodes *= 2;
            }
        }
    }
}

vectorised! {
    /// From leaves to `n` times the coefficients.
    pub fn inverse(roots: &Complex, tails: &Tail, re: &mut [f64], im: &mut [f64]) {
        let n = re.len();
        assert!(n.is_power_of_two() && im.len() == n && roots.re.len() == n && roots.im.len() == n);
        let outer = outer_levels(n);
        let mut nodes = n;
        if outer > 0 {
            inverse_tail(tails, re, im);
            nodes = n / 8;
        }
        while nodes > 1 && (outer == 0 || nodes.trailing_zeros() == 1) {
            nodes /= 2;
            inverse_level(roots, nodes, re, im);
        }
        while nodes > 1 {
            if nodes == 2 {
                nodes = 1;
                inverse_level(roots, nodes, re, im);
            } else {
                nodes /= 4;
                inverse_two_levels(roots, nodes, re, im);
            }
        }
    }
}

/// Levels above blocks of 8, where there are enough of these for the tail; otherwise none.
#[inline(always)]
fn outer_levels(n: usize) -> u32 {
    if n >= 64 { n.trailing_zeros() - 3 } else { 0 }
}

/// Splits each of `nodes` blocks in two: `u + w v`, `u - w v`.
#[inline(always)]
fn forward_level(roots: &Complex, nodes: usize, re: &mut [f64], im: &mut [f64]) {
    let block = re.len() / nodes;
    for (node, (re, im)) in re
        .chunks_exact_mut(block)
        .zip(im.chunks_exact_mut(block))
        .enumerate()
    {
        let (w_re, w_im) = (roots.re[nodes + node], roots.im[nodes + node]);
        let (u_re, v_re) = re.split_at_mut(block / 2);
        let (u_im, v_im) = im.split_at_mut(block / 2);
        for (((u_re, u_im), v_re), v_im) in u_re.iter_mut().zip(u_im).zip(v_re).zip(v_im) {
            let product_re = *v_re * w_re - *v_im * w_im;
            let product_im = *v_re * w_im + *v_im * w_re;
            *v_re = *u_re - product_re;
            *v_im = *u_im - product_im;
            *u_re += product_re;
            *u_im += product_im;
        }
    }
}

/// Undoes [`forward_level`], times two.
#[inline(always)]
fn inverse_level(roots: &Complex, nodes: usize, re: &mut [f64], im: &mut [f64]) {
    let block = re.len() / nodes;
    for (node, (re, im)) in re
        .chunks_exact_mut(block)
        .zip(im.chunks_exact_mut(block))
        .enumerate()
    {
        let (w_re, w_im) = (roots.re[nodes + node], -roots.im[nodes + node]);
        let (u_re, v_re) = re.split_at_mut(block / 2);
        let (u_im, v_im) = im.split_at_mut(block / 2);
        for (((u_re, u_im), v_re), v_im) in u_re.iter_mut().zip(u_im).zip(v_re).zip(v_im) {
            let (difference_re, difference_im) = (*u_re - *v_re, *u_im - *v_im);
            *u_re += *v_re;
            *u_im += *v_im;
            *v_re = difference_re * w_re - difference_im * w_im;
            *v_im = difference_re * w_im + difference_im * w_re;
        }
    }
}

/// Two levels, from `nodes` blocks to four times as many: with `w`, `v` the factors of a node and
/// of its first child (its second child's is `i v`), `a + w c + (v b + w v d)` and so on.
#[inline(always)]
fn forward_two_levels(roots: &Complex, nodes: usize, re: &mut [f64], im: &mut [f64]) {
    let block = re.len() / nodes;
    let quarter = block / 4;
    for (node, (re, im)) in re
        .chunks_exact_mut(block)
        .zip(im.chunks_exact_mut(block))
        .enumerate()
    {
        let w = root(roots, nodes + node);
        let v = root(roots, 2 * (nodes + node));
        let u = mul(w, v);
        let ([a_re, b_re, c_re, d_re], [a_im, b_im, c_im, d_im]) = (quarters(re), quarters(im));
        for i in 0..quarter {
            let b = mul((b_re[i], b_im[i]), v);
            let c = mul((c_re[i], c_im[i]), w);
            let d = mul((d_re[i], d_im[i]), u);
            let (sum, difference) = butterfly((a_re[i], a_im[i]), c);
            let (inner, turned) = butterfly(b, d);
            let (a, b) = butterfly(sum, inner);
            let (c, d) = butterfly(difference, (-turned.1, turned.0));
            (a_re[i], a_im[i]) = a;
            (b_re[i], b_im[i]) = b;
            (c_re[i], c_im[i]) = c;
            (d_re[i], d_im[i]) = d;
        }
    }
}

/// Undoes [`forward_two_levels`], times four.
#[inline(always)]
fn inverse_two_levels(roots: &Complex, nodes: usize, re: &mut [f64], im: &mut [f64]) {
    let block = re.len() / nodes;
    let quarter = block / 4;
    for (node, (re, im)) in re
        .chunks_exact_mut(block)
        .zip(im.chunks_exact_mut(block))
        .enumerate()
    {
        let w = conjugate(root(roots, nodes + node));
        let v = conjugate(root(roots, 2 * (nodes + node)));
        let u = mul(w, v);
        let ([a_re, b_re, c_re, d_re], [a_im, b_im, c_im, d_im]) = (quarters(re), quarters(im));
        for i in 0..quarter {
            let (sum, inner) = butterfly((a_re[i], a_im[i]), (b_re[i], b_im[i]));
            let (difference, turned) = butterfly((c_re[i], c_im[i]), (d_re[i], d_im[i]));
            let (a, c) = butterfly(sum, difference);
            let (b, d) = butterfly(inner, (turned.1, -turned.0));
            (a_re[i], a_im[i]) = a;
            (b_re[i], b_im[i]) = mul(b, v);
            (c_re[i], c_im[i]) = mul(c, w);
            (d_re[i], d_im[i]) = mul(d, u);
        }
    }
}

/// Lanes of the tail: one for each of eight blocks.
type Lanes = [f64; 8];

/// The last three levels.
#[inline(always)]
fn forward_tail(tails: &Tail, re: &mut [f64], im: &mut [f64]) {
    for (group, (re, im)) in re
        .chunks_exact_mut(64)
        .zip(im.chunks_exact_mut(64))
        .enumerate()
    {
        let [w1, w2, w3, w4] = factors(tails, group);
        let (mut x, mut y) = (turned(re), turned(im));
        for i in 0..4 {
            lanes_forward(&mut x, &mut y, i, i + 4, &w1, false);
        }
        for i in 0..2 {
            lanes_forward(&mut x, &mut y, i, i + 2, &w2, false);
            lanes_forward(&mut x, &mut y, i + 4, i + 6, &w2, true);
        }
        lanes_forward(&mut x, &mut y, 0, 1, &w3, false);
        lanes_forward(&mut x, &mut y, 2, 3, &w3, true);
        lanes_forward(&mut x, &mut y, 4, 5, &w4, false);
        lanes_forward(&mut x, &mut y, 6, 7, &w4, true);
        turn_back(&x, re);
        turn_back(&y, im);
    }
}

/// Undoes [`forward_tail`], times eight.
#[inline(always)]
fn inverse_tail(tails: &Tail, re: &mut [f64], im: &mut [f64]) {
    for (group, (re, im)) in re
        .chunks_exact_mut(64)
        .zip(im.chunks_exact_mut(64))
        .enumerate()
    {
        let [w1, w2, w3, w4] = factors(tails, group);
        let (mut x, mut y) = (turned(re), turned(im));
        lanes_inverse(&mut x, &mut y, 0, 1, &w3, false);
        lanes_inverse(&mut x, &mut y, 2, 3, &w3, true);
        lanes_inverse(&mut x, &mut y, 4, 5, &w4, false);
        lanes_inverse(&mut x, &mut y, 6, 7, &w4, true);
        for i in 0..2 {
            lanes_inverse(&mut x, &mut y, i, i + 2, &w2, false);
            lanes_inverse(&mut x, &mut y, i + 4, i + 6, &w2, true);
        }
        for i in 0..4 {
            lanes_inverse(&mut x, &mut y, i, i + 4, &w1, false);
        }
        turn_back(&x, re);
        turn_back(&y, im);
    }
}

/// The four factors of eight blocks.
#[inline(always)]
fn factors(tails: &Tail, group: usize) -> [(Lanes, Lanes); 4] {
    let lanes = |factors: &Complex| {
        let at = |values: &[f64]| {
            let mut lanes = [0.0; 8];
            lanes.copy_from_slice(&values[8 * group..8 * group + 8]);
            lanes
        };
        (at(&factors.re), at(&factors.im))
    };
    [
        lanes(&tails.first),
        lanes(&tails.second),
        lanes(&tails.third),
        lanes(&tails.fourth),
    ]
}

/// Eight blocks of eight as vectors across the blocks.
#[inline(always)]
fn turned(values: &[f64]) -> [Lanes; 8] {
    let mut vectors = [[0.0; 8]; 8];
    for i in 0..8 {
        for block in 0..8 {
            vectors[i][block] = values[8 * block + i];
        }
    }
    vectors
}

#[inline(always)]
fn turn_back(vectors: &[Lanes; 8], values: &mut [f64]) {
    for block in 0..8 {
        for i in 0..8 {
            values[8 * block + i] = vectors[i][block];
        }
    }
}

/// `u + w v`, `u - w v` at places `u` and `v`, with `i w` in place of `w` where `turn` says so.
#[inline(always)]
fn lanes_forward(
    re: &mut [Lanes; 8],
    im: &mut [Lanes; 8],
    u: usize,
    v: usize,
    w: &(Lanes, Lanes),
    turn: bool,
) {
    for lane in 0..8 {
        let product = mul((re[v][lane], im[v][lane]), (w.0[lane], w.1[lane]));
        let product = if turn {
            (-product.1, product.0)
        } else {
            product
        };
        let (sum, difference) = butterfly((re[u][lane], im[u][lane]), product);
        (re[u][lane], im[u][lane]) = sum;
        (re[v][lane], im[v][lane]) = difference;
    }
}

/// Undoes [`lanes_forward`], times two.
#[inline(always)]
fn lanes_inverse(
    re: &mut [Lanes; 8],
    im: &mut [Lanes; 8],
    u: usize,
    v: usize,
    w: &(Lanes, Lanes),
    turn: bool,
) {
    for lane in 0..8 {
        let (sum, difference) = butterfly((re[u][lane], im[u][lane]), (re[v][lane], im[v][lane]));
        let difference = if turn {
            (difference.1, -difference.0)
        } else {
            difference
        };
        (re[u][lane], im[u][lane]) = sum;
        (re[v][lane], im[v][lane]) = mul(difference, (w.0[lane], -w.1[lane]));
    }
}

#[inline(always)]
fn quarters(x: &mut [f64]) -> [&mut [f64]; 4] {
    let quarter = x.len() / 4;
    let (a, x) = x.split_at_mut(quarter);
    let (b, x) = x.split_at_mut(quarter);
    let (c, d) = x.split_at_mut(quarter);
    [a, b, c, &mut d[..quarter]]
}

#[inline(always)]
fn root(roots: &Complex, node: usize) -> (f64, f64) {
    (roots.re[node], roots.im[node])
}

#[inline(always)]
fn conjugate((re, im): (f64, f64)) -> (f64, f64) {
    (re, -im)
}

#[inline(always)]
fn mul(x: (f64, f64), y: (f64, f64)) -> (f64, f64) {
    (x.0 * y.0 - x.1 * y.1, x.0 * y.1 + x.1 * y.0)
}

#[inline(always)]
fn butterfly(u: (f64, f64), v: (f64, f64)) -> ((f64, f64), (f64, f64)) {
    ((u.0 + v.0, u.1 + v.1), (u.0 - v.0, u.1 - v.1))
}
