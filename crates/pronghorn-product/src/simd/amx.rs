//! Products of byte tiles on AMX: the loops over one tile of columns for [`ByteWeights`].

use std::arch::asm;
use std::arch::x86_64::*;
use std::sync::OnceLock;

use pronghorn_ring::Word;

use super::x86::Vnni;
use crate::bytes::{ByteWeights, Line, NONE, QUAD_LINES, SIDE};
use crate::nest::Job;
use crate::{Rows, TILE};

/// Bytes of a word.
const BYTES: usize = 4;

/// Columns worked on together: two tiles of them.
const BLOCK: usize = 2 * SIDE;

/// Bytes from one row of a tile of columns to the next.
const QUAD_STRIDE: usize = QUAD_LINES * size_of::<Line>();

/// 32-bit words of a tile of sums.
const TILE_WORDS: usize = SIDE * SIDE;

/// How many quads before they are packed their input is asked for.
const FETCH_AHEAD: usize = 3;

/// Primes below this have too little in their upper halves; see [`Reduction`].
const LEAST_PRIME: u64 = 1 << 20;

/// Proof that the CPU has AMX for bytes beside [`Vnni`], and that this process may use it.
#[derive(Clone, Copy)]
pub(crate) struct Amx(pub(super) Vnni);

impl Amx {
    pub(super) fn detect() -> Option<Self> {
        static USABLE: OnceLock<bool> = OnceLock::new();
        let vnni = Vnni::detect()?;
        (*USABLE.get_or_init(|| has_tiles() && permit())).then_some(Self(vnni))
    }

    /// Computes one tile of the output as `ByteWeights` say; false where the modulus is not fit for
    /// it, and nothing was done.
    pub(super) fn run<W: Word>(
        self,
        job: &Job<'_, W>,
        tile: usize,
        output: &mut [W],
        scratch: &mut Scratch,
    ) -> bool {
        let Some(weights) = &job.weights.bytes else {
            return false;
        };
        if W::BITS != 32 || job.modulus.value() < LEAST_PRIME {
            return false;
        }
        let product = Product {
            weights,
            q: job.modulus.value() as u32,
            input: rows_of_u32(job.input),
            columns: job.columns,
            addend: job.addend.map(as_u32),
        };
        // SAFETY: the token says that the CPU has these features.
        unsafe { product.run(tile, as_u32_mut(output), scratch) };
        true
    }
}

impl Amx {
    /// Multiplies tiles in the first-level cache `calls` times; how many words were multiplied with
    /// a weight and added, four bytes being one word.
    pub(crate) fn multiply_tiles(self, steps: usize, calls: usize) -> usize {
        let depth = steps.clamp(1, 8);
        let weights = vec![Line([1; 64]); depth * SIDE];
        let columns = vec![Line([1; 64]); depth * SIDE * QUAD_LINES];
        let mut sums = vec![0; BYTES * 4 * TILE_WORDS];
        let _configured = Configured::new();
        for _ in 0..calls {
            let columns = std::hint::black_box([&columns[..], &columns[BYTES..]]);
            // SAFETY: the operands have `depth` tiles each, the sums four; tiles are configured
            // while this runs.
            unsafe {
                multiply_four([&weights; 2], columns, depth);
                store_four(&mut sums, TILE_WORDS);
            }
        }
        calls * depth * 4 * TILE_WORDS * 4 * SIDE / BYTES
    }
}

/// True if CPU and operating system have tiles and products of bytes: CPUID leaf 7, and the tile
/// state in XCR0.
fn has_tiles() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const AMX: u32 = 1 << 24 | 1 << 25;
    const STATE: u32 = 1 << 17 | 1 << 18;
    if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    let enabled: u32;
    // SAFETY: the bit above says that the instruction exists; it reads a register.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") enabled, out("edx") _, options(nomem, nostack));
    }
    __cpuid_count(7, 0).edx & AMX == AMX && enabled & STATE == STATE
}

/// Asks the operating system for the tile registers (Linux, "Using XSTATE features in user space
/// applications").
#[cfg(target_os = "linux")]
fn permit() -> bool {
    const ARCH_PRCTL: u64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    let result: i64;
    // SAFETY: the call sets a permission of this process, and touches none of its memory.
    unsafe {
        asm!("syscall", inlateout("rax") ARCH_PRCTL => result, in("rdi") ARCH_REQ_XCOMP_PERM, in("rsi") TILE_DATA,
            out("rcx") _, out("r11") _, options(nostack));
    }
    result == 0
}

/// Elsewhere they are not asked for.
#[cfg(not(target_os = "linux"))]
fn permit() -> bool {
    false
}

/// Memory for one tile of columns.
#[derive(Default)]
pub(crate) struct Scratch {
    /// `[quad][tile of columns][byte]`.
    packed: Vec<Line>,
    /// Those of two items.
    sums: Vec<Sums>,
}

/// `[tile of outputs][tile of columns][byte][output][column]`.
#[repr(align(64))]
struct Sums([i32; BYTES * 4 * TILE_WORDS]);

struct Product<'a> {
    weights: &'a ByteWeights,
    q: u32,
    input: Rows<'a, u32>,
    columns: usize,
    addend: Option<&'a [u32]>,
}

/// One or two tiles of outputs of a group, and [`BLOCK`] columns.
#[derive(Clone, Copy)]
struct Item {
    out_y: usize,
    group: usize,
    /// The first tile of outputs.
    outputs: usize,
    /// The first column in the tile of columns.
    column: usize,
}

impl Product<'_> {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    fn run(&self, tile: usize, output: &mut [u32], scratch: &mut Scratch) {
        let Scratch { packed, sums } = scratch;
        if packed.len() < self.weights.packed_lines {
            packed.resize(self.weights.packed_lines, Line([0; 64]));
        }
        sums.resize_with(2, || Sums([0; BYTES * 4 * TILE_WORDS]));
        let [now, then] = &mut sums[..] else {
            unreachable!("there are two")
        };
        let reduction = Reduction::new(self.q);
        // With small weights, bytes below the upper half change a quotient by one at most.
        let is_small = u64::from(self.weights.norm) << 18 <= u64::from(self.q);
        let target = Target {
            output,
            tile,
            sums: [now, then],
        };
        let configured = &Configured::new();
        match is_small {
            true => self.run_columns::<true>(configured, target, &reduction, packed),
            false => self.run_columns::<false>(configured, target, &reduction, packed),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    fn run_columns<const SMALL: bool>(
        &self,
        configured: &Configured,
        target: Target<'_>,
        reduction: &Reduction,
        packed: &mut [Line],
    ) {
        let Target {
            output,
            tile,
            sums: [mut now, mut then],
        } = target;
        let weights = self.weights;
        let columns = (self.columns - tile * TILE).min(TILE).div_ceil(BLOCK) * BLOCK;
        let mut parts = [[0; TILE]; 4];
        // Sums are read while those of the next item are under way.
        let mut before: Option<Item> = None;
        for out_y in 0..weights.output_height() {
            for y in weights.new_rows(out_y) {
                for group in 0..weights.groups {
                    let quads = weights.row_of_quads(group, y);
                    self.pack(quads, tile * TILE, columns, &mut parts, packed);
                }
            }
            for group in 0..weights.groups {
                for outputs in (0..weights.output_tiles()).step_by(2) {
                    for column in (0..columns).step_by(BLOCK) {
                        let item = Item {
                            out_y,
                            group,
                            outputs,
                            column,
                        };
                        self.fetch_outputs(item, output);
                        for part in 0..self.parts(item) {
                            self.multiply(configured, item, part, packed);
                            // Tiles are multiplied while the vector units reduce.
                            if let Some(before) = before {
                                let part = [part, self.parts(item)];
                                self.reduce::<SMALL>(before, part, reduction, then, output);
                            }
                            self.store(configured, item, part, now);
                        }
                        before = Some(item);
                        std::mem::swap(&mut now, &mut then);
                    }
                }
            }
        }
        if let Some(before) = before {
            self.reduce::<SMALL>(before, [0, 1], reduction, then, output);
        }
    }

    /// Packs a row of quads for the columns from `begin` on; `parts` is room for rows that end
    /// before the tile does.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    fn pack(
        &self,
        (quads, first): (&[[u32; 4]], usize),
        begin: usize,
        columns: usize,
        parts: &mut [[u32; TILE]; 4],
        packed: &mut [Line],
    ) {
        const ZEROS: [u32; TILE] = [0; TILE];
        let packed = &mut packed.as_chunks_mut::<QUAD_LINES>().0[first..];
        for (place, (rows, packed)) in quads.iter().zip(packed).enumerate() {
            // One tile's rows follow each other, which the CPU foresees.
            if self.columns > TILE
                && let Some(rows) = quads.get(place + FETCH_AHEAD)
            {
                let rows = rows.iter().filter(|&&row| row != NONE);
                rows.for_each(|&row| fetch(self.input.get(row as usize), begin, TILE));
            }
            let mut words = [&ZEROS; 4];
            for ((words, part), &row) in words.iter_mut().zip(&mut *parts).zip(rows) {
                if row == NONE {
                    continue;
                }
                let row = &self.input.get(row as usize)[begin..];
                *words = match row.first_chunk() {
                    Some(words) => words,
                    None => {
                        *part = ZEROS;
                        part[..row.len()].copy_from_slice(row);
                        part
                    }
                };
            }
            let [words0, words1, words2, words3] = words.map(|words| words.as_chunks::<SIDE>().0);
            let tiles = words0.iter().zip(words1).zip(words2.iter().zip(words3));
            for (((words0, words1), (words2, words3)), lines) in tiles
                .take(columns / SIDE)
                .zip(packed.as_chunks_mut::<BYTES>().0)
            {
                let words = [load(words0), load(words1), load(words2), load(words3)];
                store_lines(lines, transpose(words));
            }
        }
    }

    /// Begins to load the places of an item's residues: a store waits for its line.
    #[inline]
    fn fetch_outputs(&self, item: Item, output: &[u32]) {
        let places = self.weights.places[item.outputs * SIDE..].iter();
        for &place in places.take(2 * SIDE) {
            if let Some(row) = self.weights.output_row(item.out_y, item.group, place) {
                fetch(output, row * TILE + item.column, BLOCK);
            }
        }
    }

    /// Products of an item that are made together: those of a byte, or of a tile of columns.
    #[inline]
    fn parts(&self, item: Item) -> usize {
        match item.outputs + 1 < self.weights.output_tiles() {
            true => BYTES,
            false => 2,
        }
    }

    /// Makes four tiles of an item's sums in the registers, which no compiled code uses: it is not
    /// allowed tiles.
    #[inline]
    fn multiply(&self, _: &Configured, item: Item, part: usize, packed: &[Line]) {
        let (weights, depth) = (self.weights, self.weights.depth);
        assert!(depth > 0, "tiles of weights");
        let first = weights.tile_of_outputs(item.out_y, item.outputs);
        let quad = weights.first_quad(item.out_y, item.group);
        let column = item.column / SIDE;
        let quads = &packed[quad * QUAD_LINES..][..depth * SIDE * QUAD_LINES];
        let operand = |column: usize, byte: usize| &quads[column * BYTES + byte..];
        // SAFETY: the operands have `depth` tiles each; tiles are configured while this runs.
        unsafe {
            if self.parts(item) == BYTES {
                let second = weights.tile_of_outputs(item.out_y, item.outputs + 1);
                let columns = [0, 1].map(|next| operand(column + next, part));
                multiply_four([first, second], columns, depth);
            } else {
                let bytes = std::array::from_fn(|byte| operand(column + part, byte));
                multiply_bytes(first, bytes, depth);
            }
        }
    }

    /// Stores them, `[tile of outputs][tile of columns][byte][output][column]`.
    #[inline]
    fn store(&self, _: &Configured, item: Item, part: usize, sums: &mut Sums) {
        let (first, apart) = match self.parts(item) {
            BYTES => (part, BYTES),
            _ => (part * BYTES, 1),
        };
        // SAFETY: four tiles were made, and there is room for sixteen; tiles are configured.
        unsafe { store_four(&mut sums.0[first * TILE_WORDS..], apart * TILE_WORDS) };
    }

    /// Writes a part of the residues of an item.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    fn reduce<const SMALL: bool>(
        &self,
        item: Item,
        [part, parts]: [usize; 2],
        reduction: &Reduction,
        sums: &Sums,
        output: &mut [u32],
    ) {
        let weights = self.weights;
        let first = item.outputs * SIDE;
        let places = &weights.places[first..];
        let count = places.len().min(2 * SIDE);
        let range = part * count / parts..(part + 1) * count / parts;
        for (place, &output_place) in places.iter().enumerate().take(range.end).skip(range.start) {
            let Some(row) = weights.output_row(item.out_y, item.group, output_place) else {
                continue;
            };
            let addend = reduction.addend(self.addend.map_or(0, |addend| addend[row]));
            let out = &mut output[row * TILE + item.column..][..BLOCK];
            let sums = &sums.0[place / SIDE * 2 * BYTES * TILE_WORDS + place % SIDE * SIDE..];
            for (column, out) in out.as_chunks_mut::<SIDE>().0.iter_mut().enumerate() {
                let sums = &sums[column * BYTES * TILE_WORDS..];
                let sums = [
                    load_sums(&sums[..SIDE]),
                    load_sums(&sums[TILE_WORDS..][..SIDE]),
                    load_sums(&sums[2 * TILE_WORDS..][..SIDE]),
                    load_sums(&sums[3 * TILE_WORDS..][..SIDE]),
                ];
                let residues = reduction.apply::<SMALL>(sums, addend);
                // SAFETY: there are 16 words.
                unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), residues) };
            }
        }
    }
}

/// Begins to load words.
#[inline]
fn fetch(words: &[u32], begin: usize, count: usize) {
    if let Some(words) = words.get(begin..begin + count) {
        for word in (0..count).step_by(SIDE) {
            // SAFETY: within the slice; besides, prefetching any address is no access.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(words.as_ptr().add(word).cast()) };
        }
    }
}

/// Where the outputs of a tile of columns go, and room for the sums of two items.
struct Target<'a> {
    output: &'a mut [u32],
    tile: usize,
    sums: [&'a mut Sums; 2],
}

/// From sums of bytes to residues.
///
/// The sum is `s = 2^16 h + l` with `h` exact in 32 bits and `0 <= l < 2^16`, the addend likewise.
/// Its quotient by `q` is at most `2^16`; from `h` alone, in `f32`, it is known to 2^-7 and to
/// `2^17 / q <= 1/8`, so that after rounding the remainder is between `-0.51 q` and `0.64 q`.
///
/// With small weights `h` is the sum of the two upper bytes alone, and `l`, which is below
/// `2^16 norm <= q / 4` in magnitude, that of the others: the remainder is within `0.89 q` of zero.
struct Reduction {
    q: u32,
    /// `2^16 / q`.
    quotient: f32,
}

/// Adding this to a float of small magnitude rounds it to an integer, left in the low bits.
const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23

/// An addend's upper half, and its lower word with what takes [`ROUND`] off again.
type Addend = (i32, u32);

impl Reduction {
    fn new(q: u32) -> Self {
        Self {
            q,
            quotient: (65_536.0 / f64::from(q)) as f32,
        }
    }

    #[inline(always)]
    fn addend(&self, word: u32) -> Addend {
        let round = ROUND.to_bits().wrapping_mul(self.q);
        ((word >> 16) as i32, word.wrapping_add(round))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn apply<const SMALL: bool>(
        &self,
        [s0, s1, s2, s3]: [__m512i; 4],
        (high, low): Addend,
    ) -> __m512i {
        let q = _mm512_set1_epi32(self.q as i32);
        let upper = _mm512_add_epi32(s2, _mm512_slli_epi32::<8>(s3));
        let mut carried = _mm512_add_epi32(upper, _mm512_set1_epi32(high));
        if !SMALL {
            let carry = _mm512_srai_epi32::<8>(_mm512_add_epi32(s1, _mm512_srai_epi32::<8>(s0)));
            carried = _mm512_add_epi32(carried, carry);
        }
        let quotient = _mm512_fmadd_ps(
            _mm512_cvtepi32_ps(carried),
            _mm512_set1_ps(self.quotient),
            _mm512_set1_ps(ROUND),
        );
        let lower = _mm512_add_epi32(s0, _mm512_set1_epi32(low as i32));
        let lower = _mm512_add_epi32(lower, _mm512_slli_epi32::<8>(s1));
        let sum = _mm512_add_epi32(lower, _mm512_slli_epi32::<16>(upper));
        let rest = _mm512_sub_epi32(sum, _mm512_mullo_epi32(_mm512_castps_si512(quotient), q));
        // A negative remainder is a huge unsigned number.
        _mm512_min_epu32(rest, _mm512_add_epi32(rest, q))
    }
}

/// From four vectors of words to their bytes, lowest first: a lane has one of each vector, in
/// order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transpose([w0, w1, w2, w3]: [__m512i; 4]) -> [__m512i; 4] {
    const UPPER_WORDS: u32 = 0xaaaa_aaaa;
    const ODD_BYTES: u64 = 0xaaaa_aaaa_aaaa_aaaa;
    // Bytes 0 and 1, or 2 and 3, of two vectors.
    let low02 = _mm512_mask_blend_epi16(UPPER_WORDS, w0, _mm512_slli_epi32::<16>(w2));
    let low13 = _mm512_mask_blend_epi16(UPPER_WORDS, w1, _mm512_slli_epi32::<16>(w3));
    let high02 = _mm512_mask_blend_epi16(UPPER_WORDS, _mm512_srli_epi32::<16>(w0), w2);
    let high13 = _mm512_mask_blend_epi16(UPPER_WORDS, _mm512_srli_epi32::<16>(w1), w3);
    // Bytes of 16-bit words, exchanged.
    let swap = _mm512_broadcast_i32x4(_mm_setr_epi8(
        1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14,
    ));
    [
        _mm512_mask_shuffle_epi8(low02, ODD_BYTES, low13, swap),
        _mm512_mask_shuffle_epi8(low13, !ODD_BYTES, low02, swap),
        _mm512_mask_shuffle_epi8(high02, ODD_BYTES, high13, swap),
        _mm512_mask_shuffle_epi8(high13, !ODD_BYTES, high02, swap),
    ]
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(words: &[u32; SIDE]) -> __m512i {
    // SAFETY: there are 16 words.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store_lines(lines: &mut [Line; BYTES], [v0, v1, v2, v3]: [__m512i; BYTES]) {
    let [Line(line0), Line(line1), Line(line2), Line(line3)] = lines;
    // SAFETY: lines have 64 bytes.
    unsafe {
        _mm512_storeu_si512(line0.as_mut_ptr().cast(), v0);
        _mm512_storeu_si512(line1.as_mut_ptr().cast(), v1);
        _mm512_storeu_si512(line2.as_mut_ptr().cast(), v2);
        _mm512_storeu_si512(line3.as_mut_ptr().cast(), v3);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_sums(words: &[i32]) -> __m512i {
    assert!(words.len() == SIDE);
    // SAFETY: there are 16 words.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

/// While it lives, all tile registers have 16 rows of 64 bytes.
struct Configured(());

impl Configured {
    fn new() -> Self {
        #[repr(align(64))]
        struct Configuration([u8; 64]);
        let mut configuration = Configuration([0; 64]);
        configuration.0[0] = 1; // the palette
        for register in 0..8 {
            configuration.0[16 + 2 * register] = 64; // bytes of a row
            configuration.0[48 + register] = SIDE as u8;
        }
        // SAFETY: by [`Amx`], whose run alone gets here, there are tile registers; the
        // configuration is valid.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &configuration, options(nostack, readonly));
        }
        Self(())
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { asm!("tilerelease", options(nomem, nostack)) };
    }
}

/// `sum_depth weights[outputs] columns`, for two tiles of both, in the registers 0 to 3.
///
/// # Safety
/// Tiles must be configured, and the operands have `depth >= 1` tiles each.
#[inline]
unsafe fn multiply_four(weights: [&[Line]; 2], columns: [&[Line]; 2], depth: usize) {
    // SAFETY: by contract, the loads and stores are in the slices.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "2:",
            "tileloadd tmm4, [{weights0} + {row}*1]",
            "tileloadd tmm6, [{columns0} + {quad}*1]",
            "tdpbsud tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{columns1} + {quad}*1]",
            "tdpbsud tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{weights1} + {row}*1]",
            "tdpbsud tmm2, tmm5, tmm6",
            "tdpbsud tmm3, tmm5, tmm7",
            "add {weights0}, 1024",
            "add {weights1}, 1024",
            "add {columns0}, {quads}",
            "add {columns1}, {quads}",
            "dec {depth}",
            "jnz 2b",
            weights0 = inout(reg) weights[0].as_ptr() => _,
            weights1 = inout(reg) weights[1].as_ptr() => _,
            columns0 = inout(reg) columns[0].as_ptr() => _,
            columns1 = inout(reg) columns[1].as_ptr() => _,
            depth = inout(reg) depth => _,
            row = in(reg) size_of::<Line>(),
            quad = in(reg) QUAD_STRIDE,
            quads = const SIDE * QUAD_STRIDE,
            options(nostack),
        );
    }
}

/// `sum_depth weights bytes[byte]`, for one tile of outputs and one of columns, in the registers 0
/// to 3.
///
/// # Safety
/// As [`multiply_four`].
#[inline]
unsafe fn multiply_bytes(weights: &[Line], bytes: [&[Line]; BYTES], depth: usize) {
    // SAFETY: by contract, the loads and stores are in the slices.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "2:",
            "tileloadd tmm4, [{weights} + {row}*1]",
            "tileloadd tmm5, [{byte0} + {quad}*1]",
            "tdpbsud tmm0, tmm4, tmm5",
            "tileloadd tmm6, [{byte1} + {quad}*1]",
            "tdpbsud tmm1, tmm4, tmm6",
            "tileloadd tmm7, [{byte2} + {quad}*1]",
            "tdpbsud tmm2, tmm4, tmm7",
            "tileloadd tmm5, [{byte3} + {quad}*1]",
            "tdpbsud tmm3, tmm4, tmm5",
            "add {weights}, 1024",
            "add {byte0}, {quads}",
            "add {byte1}, {quads}",
            "add {byte2}, {quads}",
            "add {byte3}, {quads}",
            "dec {depth}",
            "jnz 2b",
            weights = inout(reg) weights.as_ptr() => _,
            byte0 = inout(reg) bytes[0].as_ptr() => _,
            byte1 = inout(reg) bytes[1].as_ptr() => _,
            byte2 = inout(reg) bytes[2].as_ptr() => _,
            byte3 = inout(reg) bytes[3].as_ptr() => _,
            depth = inout(reg) depth => _,
            row = in(reg) size_of::<Line>(),
            quad = in(reg) QUAD_STRIDE,
            quads = const SIDE * QUAD_STRIDE,
            options(nostack),
        );
    }
}

/// Words of 32 bits as such.
fn as_u32<W: Word>(words: &[W]) -> &[u32] {
    assert!(W::BITS == 32);
    // SAFETY: words are plain integers, of 32 bits.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
}

/// Stores the registers 0 to 3, so many words from one to the next.
///
/// # Safety
/// Tiles must be configured.
#[inline]
unsafe fn store_four(sums: &mut [i32], apart: usize) {
    assert!(sums.len() >= 3 * apart + TILE_WORDS, "four tiles of sums");
    let sums = [0, 1, 2, 3].map(|tile| sums.as_mut_ptr().wrapping_add(tile * apart));
    // SAFETY: by contract; each has room for a tile.
    unsafe {
        asm!(
            "tilestored [{sums0} + {row}*1], tmm0",
            "tilestored [{sums1} + {row}*1], tmm1",
            "tilestored [{sums2} + {row}*1], tmm2",
            "tilestored [{sums3} + {row}*1], tmm3",
            sums0 = in(reg) sums[0],
            sums1 = in(reg) sums[1],
            sums2 = in(reg) sums[2],
            sums3 = in(reg) sums[3],
            row = in(reg) size_of::<Line>(),
            options(nostack),
        );
    }
}

/// Rows of words of 32 bits as such.
fn rows_of_u32<W: Word>(rows: Rows<'_, W>) -> Rows<'_, u32> {
    assert!(W::BITS == 32);
    match rows {
        Rows::Together(words, columns) => Rows::Together(as_u32(words), columns),
        // SAFETY: words are plain integers, of 32 bits, so that both are slices of the same slices.
        Rows::Apart(rows) => Rows::Apart(unsafe {
            std::slice::from_raw_parts(rows.as_ptr().cast::<&[u32]>(), rows.len())
        }),
    }
}

/// Words of 32 bits as such.
fn as_u32_mut<W: Word>(words: &mut [W]) -> &mut [u32] {
    assert!(W::BITS == 32);
    // SAFETY: words are plain integers, of 32 bits.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len()) }
}
