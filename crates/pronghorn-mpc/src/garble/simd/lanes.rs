//! Vectors of labels behind one interface, so that each gate is written once.

use aes::Aes128Enc;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};

use crate::Block;
use crate::circuit::TILE;

/// Rounds of AES-128.
pub(super) const ROUNDS: usize = 10;

/// The round constants in all columns.
pub(super) const RCON: [i32; ROUNDS] = [1, 2, 4, 8, 16, 32, 64, 128, 27, 54];

/// Vectors of the labels of [`COUNT`](Self::COUNT) instances. A value of a type that implements
/// this is a token: it exists only where the CPU has the instructions, which is what makes the
/// operations safe to call.
///
/// Everything is `inline(always)` so that it ends up inside a function compiled for the
/// instructions.
pub trait Lanes: Copy {
    /// Instances in a vector: 1, 2 or 4.
    const COUNT: usize;
    /// A block for each instance.
    type Vector: Copy;
    /// A bit for each instance.
    type Mask: Copy;
    /// An AES key for each instance.
    type Keys;

    /// The blocks from `at` on; `at + COUNT` must be at most [`TILE`].
    #[inline(always)]
    fn load(self, from: &[Block; TILE], at: usize) -> Self::Vector {
        self.load_row(bytemuck::cast_slice(from), at)
    }
    /// The same from bytes, which are those of `at + COUNT` blocks or more.
    fn load_row(self, from: &[u8], at: usize) -> Self::Vector;
    /// The inverse of [`load`](Self::load).
    fn store(self, to: &mut [Block; TILE], at: usize, vector: Self::Vector);
    /// The block in every lane.
    fn splat(self, block: Block) -> Self::Vector;
    /// `x + y`.
    fn xor(self, x: Self::Vector, y: Self::Vector) -> Self::Vector;
    /// `x + y + z`.
    fn xor3(self, x: Self::Vector, y: Self::Vector, z: Self::Vector) -> Self::Vector;
    /// [`Block::sigma`] of every lane.
    fn sigma(self, x: Self::Vector) -> Self::Vector;
    /// The lowest bits.
    fn colours(self, x: Self::Vector) -> Self::Mask;
    /// Bits from a word with two equal ones for each instance, the first instance lowest.
    fn mask(self, doubled: u32) -> Self::Mask;
    /// The bits of a mask, one for each instance, the first lowest.
    fn bits(self, mask: Self::Mask) -> u32;
    /// `x + y` where the mask is set, else `x`.
    fn xor_where(self, mask: Self::Mask, x: Self::Vector, y: Self::Vector) -> Self::Vector;
    /// The AES-128 key schedules of `start + counter`, `start + counter + 1`, ... in the order of
    /// the lanes.
    fn expand(self, start: Block, counter: u64) -> Self::Keys;
    /// Encrypts every block by the key of its lane.
    fn encrypt<const N: usize, const M: usize>(
        self,
        keys: &Self::Keys,
        blocks: [[Self::Vector; N]; M],
    ) -> [[Self::Vector; N]; M];
    /// [`encrypt`](Self::encrypt), then [`expand`](Self::expand) into the place of the keys. The
    /// two are interleaved, since a key schedule is a long chain of instructions that need each
    /// other.
    fn encrypt_expand<const N: usize, const M: usize>(
        self,
        keys: &mut Self::Keys,
        blocks: [[Self::Vector; N]; M],
        start: Block,
        counter: u64,
    ) -> [[Self::Vector; N]; M];
}

/// Plain Rust and the `aes` crate: any CPU.
#[derive(Clone, Copy)]
pub struct Portable;

impl Lanes for Portable {
    const COUNT: usize = 1;
    type Vector = Block;
    type Mask = bool;
    type Keys = Aes128Enc;

    #[inline(always)]
    fn load_row(self, from: &[u8], at: usize) -> Block {
        bytemuck::pod_read_unaligned(&from[16 * at..][..16])
    }

    #[inline(always)]
    fn store(self, to: &mut [Block; TILE], at: usize, vector: Block) {
        to[at] = vector;
    }

    #[inline(always)]
    fn splat(self, block: Block) -> Block {
        block
    }

    #[inline(always)]
    fn xor(self, x: Block, y: Block) -> Block {
        x ^ y
    }

    #[inline(always)]
    fn xor3(self, x: Block, y: Block, z: Block) -> Block {
        x ^ y ^ z
    }

    #[inline(always)]
    fn sigma(self, x: Block) -> Block {
        x.sigma()
    }

    #[inline(always)]
    fn colours(self, x: Block) -> bool {
        x.lsb()
    }

    #[inline(always)]
    fn mask(self, doubled: u32) -> bool {
        doubled & 1 == 1
    }

    #[inline(always)]
    fn bits(self, mask: bool) -> u32 {
        mask.into()
    }

    #[inline(always)]
    fn xor_where(self, mask: bool, x: Block, y: Block) -> Block {
        x ^ y.masked(mask)
    }

    #[inline(always)]
    fn expand(self, start: Block, counter: u64) -> Aes128Enc {
        let key = start ^ Block::from_u128(counter.into());
        Aes128Enc::new(&Array(key.to_bytes()))
    }

    #[inline(always)]
    fn encrypt<const N: usize, const M: usize>(
        self,
        keys: &Aes128Enc,
        mut blocks: [[Block; N]; M],
    ) -> [[Block; N]; M] {
        let flat: &mut [Block] = blocks.as_flattened_mut();
        keys.encrypt_blocks(Array::cast_slice_from_core_mut(bytemuck::cast_slice_mut(
            flat,
        )));
        blocks
    }

    #[inline(always)]
    fn encrypt_expand<const N: usize, const M: usize>(
        self,
        keys: &mut Aes128Enc,
        blocks: [[Block; N]; M],
        start: Block,
        counter: u64,
    ) -> [[Block; N]; M] {
        let blocks = self.encrypt(keys, blocks);
        *keys = self.expand(start, counter);
        blocks
    }
}
