//! Work on large polynomials, limb by limb on several threads.

use rayon::prelude::*;

/// Words of a task from which a second thread is worth waking: some 30 microseconds of NTTs.
const LEAST: usize = 8192;

/// Does all tasks: on rayon's current threads where each has `words` enough, here otherwise.
pub(crate) fn each<T: Send>(words: usize, tasks: Vec<T>, work: impl Fn(T) + Sync) {
    if words < LEAST {
        return tasks.into_iter().for_each(work);
    }
    let tasks = tasks.into_par_iter().with_max_len(1);
    tasks.for_each(&work);
}

/// The limbs of `[poly][limb][N]`, as `[limb][poly]`.
pub(crate) fn by_limb<W>(words: &mut [W], limbs: usize, n: usize) -> Vec<Vec<&mut [W]>> {
    let mut by_limb: Vec<Vec<_>> = (0..limbs).map(|_| Vec::new()).collect();
    for (index, limb) in words.chunks_exact_mut(n).enumerate() {
        by_limb[index % limbs].push(limb);
    }
    by_limb
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limbs_of_all_polynomials_go_together() {
        for words in [1, LEAST] {
            let mut x: Vec<usize> = (0..12).collect();
            let tasks = by_limb(&mut x, 3, 2).into_iter().enumerate().collect();
            each(words, tasks, |(limb, polys)| {
                assert_eq!(polys.len(), 2);
                polys.into_iter().flatten().for_each(|x| *x += 100 * limb);
            });
            let expected = [0, 1, 102, 103, 204, 205, 6, 7, 108, 109, 210, 211];
            assert_eq!(x, expected);
        }
    }
}
