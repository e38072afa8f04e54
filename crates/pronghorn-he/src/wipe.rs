//! Wiping many words at the speed of memory.

use zeroize::optimization_barrier;

/// Overwrites with zeros, which the compiler may not leave out. (`Zeroize` for slices writes one
/// word at a time.)
pub(crate) fn wipe<T: Copy + Default>(values: &mut [T]) {
    values.fill(T::default());
    optimization_barrier(values);
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_is_left() {
        let mut values = [1u64, 2, 3];
        super::wipe(&mut values);
        assert_eq!(values, [0; 3]);
    }
}
