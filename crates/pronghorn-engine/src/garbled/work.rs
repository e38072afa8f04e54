//! A layout cut into pieces, and what both parties do with them.

use std::{ops::Range, sync::Arc};

use pronghorn_mpc::{
    Block,
    circuit::TILE,
    garble::{Delta, Evaluator, GarbleError, Garbler, MESSAGE_BYTES},
    machine::{Machine as _, Want},
};
use pronghorn_ring::random::Prg;
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::{
    layout::{Group, Layout, Output, Words},
    schedule::{self, Chunk, Limits},
};
use crate::{
    error::EngineError,
    exchange::Messages,
    machine::Made,
    share::{Batch, Share},
};

/// A layout that was checked, and its pieces.
pub(super) struct Work {
    pub layout: Arc<Layout>,
    pieces: Vec<Piece>,
}

/// Instances of a group that are one garbling.
struct Piece {
    group: usize,
    /// By element, then by image.
    instances: Range<usize>,
    /// OTs: one a label, and up to 7 more so that choices are whole bytes.
    ots: usize,
    /// Bytes of its tables, its start included.
    tables: usize,
}

/// One party's words of the outputs of a piece.
type Outputs = Zeroizing<Vec<u64>>;

/// Where pieces write their tables: kept from one chunk to the next.
pub(super) type Buffers = Vec<Vec<u8>>;

impl Work {
    /// Checks a layout and cuts it into pieces and chunks.
    pub fn new(layout: Arc<Layout>, limits: &Limits) -> Result<(Self, Vec<Chunk>), EngineError> {
        layout.check()?;
        let mut pieces = Vec::new();
        for (index, group) in layout.circuits.groups.iter().enumerate() {
            let (all, step) = (
                group.elements.len() * layout.images,
                instances_of_piece(group, limits),
            );
            for first in (0..all).step_by(step) {
                pieces.push(Piece::new(index, group, first..all.min(first + step)));
            }
        }
        let chunks = chunks(&pieces, limits);
        Ok((Self { layout, pieces }, chunks))
    }

    /// The messages of its chunks, where one of `n` OTs has `bytes(n)` bytes.
    pub fn messages(
        &self,
        chunks: &[Chunk],
        limits: &Limits,
        bytes: impl Fn(usize) -> usize,
    ) -> Messages {
        let step = (self.layout.step.as_str(), self.layout.rows());
        let window = limits.window / Block::BYTES;
        schedule::messages(step, chunks, window, "the garbled tables", bytes)
    }

    /// A batch for the outputs.
    pub fn output(&self) -> Batch {
        Batch::zeros(self.layout.outputs, self.layout.images)
    }

    /// The choice bits of the client for the OTs of a chunk, packed.
    pub fn choices(&self, chunk: &Chunk, share: &Share) -> Zeroizing<Vec<u8>> {
        let mut choices = Zeroizing::new(Vec::with_capacity(chunk.ots / 8));
        let pieces = self.pieces[chunk.range.clone()].par_iter().map(|piece| {
            let values = self.values(piece, share, 0);
            let circuit = &self.group(piece).circuit;
            circuit.choices(&values, piece.instances.len())
        });
        for piece in pieces.collect::<Vec<_>>() {
            choices.extend_from_slice(&piece);
        }
        choices
    }

    /// Garbles a chunk: appends its tables to `out`, and puts the server's words of the outputs
    /// into `output`. The start of each piece is drawn from `starts`.
    pub fn garble(
        &self,
        chunk: &Chunk,
        share: &Share,
        (delta, starts): (&Delta, &Prg),
        zero_labels: &[Block],
        buffers: &mut Buffers,
        (out, output): (&mut Vec<u8>, &mut Batch),
    ) -> Result<(), EngineError> {
        let pieces = &self.pieces[chunk.range.clone()];
        buffers.resize_with(buffers.len().max(pieces.len()), Vec::new);
        let garbled = pieces
            .par_iter()
            .zip(split(pieces, zero_labels, |piece| piece.ots))
            .zip(buffers.par_iter_mut())
            .enumerate()
            .map(|(index, ((piece, labels), tables))| {
                tables.clear();
                let mut start = [0; Block::BYTES];
                let number = (chunk.range.start + index) as u64;
                starts.stream(number).fill(&mut start);
                let start = Block::from_bytes(start);
                self.garble_piece(piece, share, delta, start, labels, tables)
            });
        let garbled: Vec<Outputs> = garbled
            .collect::<Result<_, _>>()
            .map_err(|source| self.error(source))?;
        out.reserve_exact(chunk.answer);
        for tables in &buffers[..pieces.len()] {
            out.extend_from_slice(tables);
        }
        self.scatter(pieces, &garbled, output);
        Ok(())
    }

    fn garble_piece(
        &self,
        piece: &Piece,
        share: &Share,
        delta: &Delta,
        start: Block,
        labels: &[Block],
        tables: &mut Vec<u8>,
    ) -> Result<Outputs, GarbleError> {
        let (circuit, count) = (&self.group(piece).circuit, piece.instances.len());
        let mut garbler = Garbler::new(
            circuit.clone(),
            count,
            delta,
            start,
            self.values(piece, share, self.layout.circuits.offset),
            piece.labels(circuit.labelled_bits(), labels),
        )?;
        while garbler.want() == Want::Send {
            garbler.send(tables)?;
        }
        garbler.into_outputs()
    }

    /// Evaluates a chunk with its tables, `chunk.answer` bytes: puts the client's words of the
    /// outputs into `output`.
    pub fn evaluate(
        &self,
        chunk: &Chunk,
        share: &Share,
        labels: &[Block],
        tables: &[u8],
        output: &mut Batch,
    ) -> Result<(), EngineError> {
        let pieces = &self.pieces[chunk.range.clone()];
        let evaluated = pieces
            .par_iter()
            .zip(split(pieces, labels, |piece| piece.ots))
            .zip(split(pieces, tables, |piece| piece.tables))
            .map(|((piece, labels), tables)| self.evaluate_piece(piece, share, labels, tables));
        let evaluated: Vec<Outputs> = evaluated
            .collect::<Result<_, _>>()
            .map_err(|source| self.error(source))?;
        self.scatter(pieces, &evaluated, output);
        Ok(())
    }

    fn evaluate_piece(
        &self,
        piece: &Piece,
        share: &Share,
        labels: &[Block],
        tables: &[u8],
    ) -> Result<Outputs, GarbleError> {
        let (circuit, count) = (&self.group(piece).circuit, piece.instances.len());
        let mut evaluator = Evaluator::new(
            circuit.clone(),
            count,
            self.values(piece, share, 0),
            piece.labels(circuit.labelled_bits(), labels),
        )?;
        for message in tables.chunks(MESSAGE_BYTES) {
            evaluator.receive(message)?;
        }
        evaluator.into_outputs()
    }

    fn group(&self, piece: &Piece) -> &Group {
        &self.layout.circuits.groups[piece.group]
    }

    /// A party's words for a piece plus `offset`, by word, then by instance; bits above the words'
    /// widths are arbitrary.
    fn values(&self, piece: &Piece, share: &Share, offset: i64) -> Zeroizing<Vec<u64>> {
        let (group, count) = (self.group(piece), piece.instances.len());
        let words = group.words();
        let mut values = Zeroizing::new(vec![offset as u64; words * count]);
        let Share::Words(share) = share else {
            return values;
        };
        for (word, values) in values.chunks_exact_mut(count).enumerate() {
            self.for_each_row(piece, |at, place, images| {
                let row = share.row(group.sources.get(place * words + word));
                for (value, &word) in values[at..].iter_mut().zip(&row[images]) {
                    *value = i64::from(word).wrapping_add(offset) as u64;
                }
            });
        }
        values
    }

    /// Calls `f` with the first of a run of instances of one element (counted within the piece),
    /// the element's place in its group, and their images.
    fn for_each_row(&self, piece: &Piece, mut f: impl FnMut(usize, usize, Range<usize>)) {
        let (images, Range { start, end }) = (self.layout.images, piece.instances.clone());
        let mut instance = start;
        while instance < end {
            let (place, first) = (instance / images, instance % images);
            let last = images.min(first + end - instance);
            f(instance - start, place, first..last);
            instance += last - first;
        }
    }

    /// The client's output of the step. A value that it learns is brought into its range. One that
    /// was outside is in doubt, and the server must not hear of it.
    pub fn made(&self, mut output: Batch) -> Made {
        let Output::Signed { low, high, .. } = self.layout.circuits.output else {
            return Made::share(Share::Words(output));
        };
        let outside = output.clamp(low, high);
        let doubt = outside.map(|index| EngineError::Opened {
            step: self.layout.step.clone(),
            index,
            low,
            high,
        });
        Made::share(Share::Words(output)).doubting(doubt)
    }

    /// Puts the outputs of pieces where they belong.
    fn scatter(&self, pieces: &[Piece], outputs: &[Outputs], output: &mut Batch) {
        let images = self.layout.images;
        let words = output.words_mut();
        let unused = match self.layout.circuits.output {
            Output::Signed { bits, .. } => i32::BITS - bits,
            Output::Shares | Output::Unsigned => 0,
        };
        for (piece, values) in pieces.iter().zip(outputs) {
            let elements = &self.group(piece).elements;
            self.for_each_row(piece, |at, place, range| {
                let row = &mut words[elements.get(place) * images..][range];
                for (word, &value) in row.iter_mut().zip(&values[at..]) {
                    *word = (value as i32) << unused >> unused;
                }
            });
        }
    }

    fn error(&self, source: GarbleError) -> EngineError {
        let step = self.layout.step.clone();
        EngineError::Garble { step, source }
    }
}

/// How many instances make a piece: as many tiles as fit, at least one; where not even that fits a
/// message, some of a tile.
fn instances_of_piece(group: &Group, limits: &Limits) -> usize {
    let circuit = &group.circuit;
    let (tables, labels) = (
        |n| circuit.table_bytes(n),
        |n| circuit.labelled_bits().saturating_mul(n * Block::BYTES),
    );
    let tiles = |bytes: usize| limits.piece / bytes.max(1);
    let count = tiles(tables(TILE)).min(tiles(labels(TILE))) * TILE;
    if count > 0 {
        return count;
    }
    let mut count = TILE;
    while count > 1 && (tables(count) > limits.tables || labels(count) > limits.labels) {
        count /= 2;
    }
    count
}

/// As many pieces in each chunk as fit, at least one.
fn chunks(pieces: &[Piece], limits: &Limits) -> Vec<Chunk> {
    let mut chunks: Vec<Chunk> = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        match chunks.last_mut() {
            Some(chunk)
                if chunk.answer + piece.tables <= limits.tables
                    && (chunk.ots + piece.ots) * Block::BYTES <= limits.labels =>
            {
                chunk.range.end += 1;
                chunk.ots += piece.ots;
                chunk.answer += piece.tables;
            }
            _ => chunks.push(Chunk {
                range: index..index + 1,
                ots: piece.ots,
                answer: piece.tables,
            }),
        }
    }
    chunks
}

impl Piece {
    fn new(index: usize, group: &Group, instances: Range<usize>) -> Self {
        let (circuit, count) = (&group.circuit, instances.len());
        let labels = circuit.labelled_bits().saturating_mul(count);
        Self {
            group: index,
            instances,
            ots: labels.div_ceil(8).saturating_mul(8),
            tables: circuit.table_bytes(count).saturating_add(Block::BYTES),
        }
    }

    /// The labels among the blocks of its OTs.
    fn labels(&self, bits: usize, blocks: &[Block]) -> Zeroizing<Vec<Block>> {
        Zeroizing::new(blocks[..bits * self.instances.len()].to_vec())
    }
}

/// Slices for the pieces, one behind the other.
fn split<'a, T: Sync>(
    pieces: &[Piece],
    mut all: &'a [T],
    length: impl Fn(&Piece) -> usize,
) -> Vec<&'a [T]> {
    let next = |piece| {
        let (slice, rest) = all.split_at(length(piece));
        all = rest;
        slice
    };
    pieces.iter().map(next).collect()
}
