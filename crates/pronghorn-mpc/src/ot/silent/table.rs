//! Blocks that are read at random places, in huge pages where the system gives them.
//!
//! With pages of 4 KiB a table of 8 MiB has more of them than a CPU keeps translations for, and
//! reads of it wait twice.

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::Block;

/// A huge page of x86-64, and of ARM with pages of 4 KiB.
const HUGE: usize = 2 << 20;

/// Secret blocks. Wiped on drop; no Debug.
pub struct Table(Memory);

enum Memory {
    Heap(Zeroizing<Vec<Block>>),
    /// Of the mapped bytes the blocks begin at `first`, a multiple of a huge page.
    Mapped {
        map: MmapMut,
        first: usize,
        blocks: usize,
    },
}

impl Table {
    /// Zeros.
    pub fn zeros(blocks: usize) -> Self {
        Self(match blocks * Block::BYTES < HUGE {
            true => Memory::heap(blocks),
            false => Memory::mapped(blocks).unwrap_or_else(|| Memory::heap(blocks)),
        })
    }
}

impl Memory {
    fn heap(blocks: usize) -> Self {
        Self::Heap(Zeroizing::new(vec![Block::ZERO; blocks]))
    }

    /// `None` where the system gives no such memory.
    fn mapped(blocks: usize) -> Option<Self> {
        let bytes = (blocks * Block::BYTES).next_multiple_of(HUGE);
        // Room for an aligned start, since a map may begin at any page.
        let map = MmapMut::map_anon(bytes + HUGE).ok()?;
        let first = map.as_ptr().align_offset(HUGE);
        // Without huge pages it is as slow as any other memory, and no less right.
        #[cfg(target_os = "linux")]
        let _ = map.advise_range(memmap2::Advice::HugePage, first, bytes);
        Some(Self::Mapped { map, first, blocks })
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::zeros(0)
    }
}

impl From<Zeroizing<Vec<Block>>> for Table {
    fn from(blocks: Zeroizing<Vec<Block>>) -> Self {
        Self(Memory::Heap(blocks))
    }
}

impl Deref for Table {
    type Target = [Block];

    fn deref(&self) -> &[Block] {
        match &self.0 {
            Memory::Heap(blocks) => blocks,
            Memory::Mapped { map, first, blocks } => {
                bytemuck::cast_slice(&map[*first..][..blocks * Block::BYTES])
            }
        }
    }
}

impl DerefMut for Table {
    fn deref_mut(&mut self) -> &mut [Block] {
        match &mut self.0 {
            Memory::Heap(blocks) => blocks,
            Memory::Mapped { map, first, blocks } => {
                bytemuck::cast_slice_mut(&mut map[*first..][..*blocks * Block::BYTES])
            }
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        bytemuck::cast_slice_mut::<_, u64>(self).zeroize();
    }
}

impl ZeroizeOnDrop for Table {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_every_size_keep_their_blocks() {
        for blocks in [
            0,
            1,
            HUGE / 16 - 1,
            HUGE / 16,
            HUGE / 16 + 1,
            3 * HUGE / 16 + 5,
        ] {
            let mut table = Table::zeros(blocks);
            assert_eq!(table.len(), blocks);
            assert!(table.iter().all(|block| *block == Block::ZERO));
            for (i, block) in table.iter_mut().enumerate() {
                *block = Block::from_u128(i as u128);
            }
            let kept = |(i, block): (usize, &Block)| *block == Block::from_u128(i as u128);
            assert!(table.iter().enumerate().all(kept));
        }
    }

    #[test]
    fn large_tables_begin_at_a_huge_page() {
        let table = Table::zeros(HUGE);
        assert_eq!(table.as_ptr().align_offset(HUGE), 0);
    }
}
