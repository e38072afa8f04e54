//! The model owner's half of a publication: makes polynomials that hide its weights.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use pronghorn_he::{rlwe, shares::HideScratch};
use pronghorn_plan::{CheckedPlan, cost::PUBLICATION_GRANT};
use pronghorn_ring::{Word, bits, random::Seed};
use rayon::prelude::*;

use super::{
    super::server::PreparedLayer, Bound, Cut, DIGEST, EPOCH, PART, RECEIPT, REQUEST_BYTES, Rows,
    STEP, ServerPublication, epoch, generator, ring,
};
use crate::{
    connection::{Connection, Kept, Shelf},
    error::EngineError,
    exchange::{Exchange, Party, Protocol, Turn},
    machine::Exchanging,
    protocol::{Prelude, PreludeKind},
};

/// The server's part in them.
pub(crate) fn prelude(
    plan: &CheckedPlan,
    shelf: &Shelf,
    secret: &Arc<Seed>,
) -> Option<Box<dyn Prelude>> {
    let cut = Cut::new(plan);
    let prelude = |cut| ServerPrelude {
        cut: Arc::new(cut),
        layers: shelf.at(0),
        secret: secret.clone(),
    };
    (!cut.steps.is_empty()).then(|| Box::new(prelude(cut)) as _)
}

struct ServerPrelude {
    cut: Arc<Cut>,
    layers: Layers,
    secret: Arc<Seed>,
}

impl Prelude for ServerPrelude {
    fn kind(&self) -> PreludeKind {
        PreludeKind::Publication
    }

    fn start(
        &self,
        connection: &Connection,
        batch: usize,
    ) -> Result<Option<Exchanging>, EngineError> {
        let publication = connection.kept::<Kept<ServerPublication>>();
        if publication.spend(batch).is_some() {
            return Ok(None);
        }
        let server = PublicationServer {
            cut: self.cut.clone(),
            layers: self.layers.clone(),
            secret: self.secret.clone(),
            slot: publication,
            batch,
            publication: None,
            bound: None,
            wanted: false,
        };
        Ok(Some(Box::new(Exchange::new(self.cut.messages(), server))))
    }
}

/// Makes the published polynomials of a layer, in the words of its plan.
trait Publish: Send + Sync {
    /// Appends the polynomials of a range of rows.
    fn write(
        &self,
        rows: &Rows,
        range: Range<usize>,
        publication: &ServerPublication,
        out: &mut Vec<u8>,
    ) -> Result<(), EngineError>;
}

impl<W: Word> Publish for PreparedLayer<W> {
    fn write(
        &self,
        rows: &Rows,
        range: Range<usize>,
        publication: &ServerPublication,
        out: &mut Vec<u8>,
    ) -> Result<(), EngineError> {
        write_rows(rows, range, self, publication, out)
    }
}

/// The layers whose polynomials a server publishes, by step.
#[derive(Clone, Default)]
pub(crate) struct Layers(Arc<Mutex<BTreeMap<usize, Arc<dyn Publish>>>>);

impl Layers {
    /// Adds the layer of a step.
    pub fn add<W: Word>(&self, step: usize, layer: Arc<PreparedLayer<W>>) {
        let mut layers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        layers.insert(step, layer);
    }

    fn get(&self, step: usize) -> Option<Arc<dyn Publish>> {
        let layers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        layers.get(&step).cloned()
    }
}

/// The server's half.
pub struct PublicationServer {
    cut: Arc<Cut>,
    layers: Layers,
    secret: Arc<Seed>,
    slot: Kept<ServerPublication>,
    /// Images of the batch that comes next.
    batch: usize,
    publication: Option<ServerPublication>,
    /// The request, once it came, and the polynomials so far.
    bound: Option<Bound>,
    /// Whether the client wants the polynomials.
    wanted: bool,
}

impl PublicationServer {
    fn send_part(&mut self, index: usize, out: &mut Vec<u8>) -> Result<(), EngineError> {
        const MISSING: EngineError = EngineError::OutOfTurn {
            state: "has no layer or no seed for a publication",
        };
        let publication = self.publication.as_ref().ok_or(MISSING)?;
        let (rows, range) = self.cut.part(index);
        let layer = self.layers.get(rows.step).ok_or(MISSING)?;
        let start = out.len();
        layer.write(rows, range, publication, out)?;
        let bound = self.bound.as_mut().ok_or(MISSING)?;
        bound.add(&out[start..]);
        Ok(())
    }
}

impl Protocol for PublicationServer {
    const PARTY: Party = Party::Server;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        match turn.name {
            EPOCH => out.extend_from_slice(&epoch(&self.secret)),
            PART => self.send_part(turn.index, out)?,
            RECEIPT => {
                let bound = self.bound.as_ref().ok_or_else(|| turn.unknown())?;
                out.extend_from_slice(&bound.digest());
            }
            _ => return Err(turn.unknown()),
        }
        Ok(())
    }

    fn take(&mut self, _turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let (fields, digest) = message.split_at(REQUEST_BYTES - DIGEST);
        let bound = Bound::new(&epoch(&self.secret), fields);
        bound.check(digest)?;
        let (seed, rest) = fields.split_first_chunk().expect("the length was checked");
        let (images, wanted) = rest.split_first_chunk().expect("the length was checked");
        let images = u32::from_le_bytes(*images) as usize;
        if images < self.batch || images > PUBLICATION_GRANT || wanted[0] > 1 {
            return Err(EngineError::Unsupported {
                step: STEP.to_owned(),
                reason: "the client's request has too few or too many images, or an invalid wish",
            });
        }
        let publication = ServerPublication::new(&self.secret, *seed);
        self.slot.put_for(publication.clone(), images - self.batch);
        self.publication = Some(publication);
        self.bound = Some(bound);
        self.wanted = wanted[0] == 1;
        Ok(())
    }

    fn is_due(&self, _name: &'static str) -> bool {
        self.wanted
    }
}

/// Makes and packs rows of a step: `sum_i f_i a_i`, plus `u a_0 + e` where they are to hide `f`.
fn write_rows<W: Word>(
    rows: &Rows,
    range: Range<usize>,
    layer: &PreparedLayer<W>,
    publication: &ServerPublication,
    out: &mut Vec<u8>,
) -> Result<(), EngineError> {
    let (rlwe, layout) = (&rows.rlwe, &rows.layout);
    let ring = ring::<W>(rlwe, &rows.name)?;
    let generator = generator(&publication.seed, rows.step);
    let rerandomiser = publication.rerandomiser(rows.step);
    let (tiles, per_tile) = (layout.tiles(), layout.polynomials());
    let mut a_0 = vec![W::default(); rlwe.degree];
    let hiding = (tiles * per_tile) as u64;
    rlwe::expand_a(&generator, hiding, ring.modulus(), &mut a_0);
    let start = out.len();
    out.resize(start + range.len() * rows.bytes(), 0);
    let room = || {
        let words = || vec![W::default(); rlwe.degree];
        (words(), words(), words(), HideScratch::new(&ring))
    };
    out[start..]
        .par_chunks_exact_mut(rows.bytes())
        .zip(range)
        .for_each_init(room, |(sum, filter, a, scratch), (bytes, row)| {
            let (output, tile) = (row / tiles, row % tiles);
            sum.fill(W::default());
            for polynomial in layer.polynomials_of(layout, output) {
                layer.filter(layout, &ring, output, polynomial, filter);
                let row = (tile * per_tile + polynomial) as u64;
                rlwe::expand_a(&generator, row, ring.modulus(), a);
                pronghorn_ring::vector::mul_add_assign(ring.modulus(), sum, filter, a);
            }
            if rows.hidden {
                rerandomiser.rerandomise(&ring, row as u64, &a_0, scratch, sum);
            }
            ring.drop_low_bits_public(sum, rlwe.dropped_bits_a);
            bits::pack_into(sum, rlwe.answer_bits_a(), bytes);
        });
    Ok(())
}
