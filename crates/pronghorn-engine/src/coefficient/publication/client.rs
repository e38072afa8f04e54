//! The data owner's half of a publication: asks, checks and keeps.

use std::{ops::Range, sync::Arc};

use pronghorn_plan::{
    CheckedPlan, WordSize,
    cost::{PUBLICATION_GRANT, PUBLICATION_IMAGES},
};
use pronghorn_ring::{Word, random::Seed};
use rayon::prelude::*;

use super::{
    Bound, ClientPublication, Cut, DIGEST, EPOCH, NAME, Offered, PART, Polynomials, RECEIPT, Rows,
    STEP, length, request_fields, ring,
};
use crate::{
    connection::{Connection, Kept},
    error::EngineError,
    exchange::{Exchange, Party, Protocol, Turn},
    machine::Exchanging,
    packed::PackedRow,
    persistent::{Persistent, Saved, Uses},
    protocol::{Prelude, PreludeKind, with_word},
};

/// The client's part in publications, for plans that have any.
pub(crate) fn prelude(plan: &CheckedPlan) -> Option<Box<dyn Prelude>> {
    let cut = Cut::new(plan);
    let prelude = |cut| ClientPrelude {
        cut: Arc::new(cut),
        steps: plan.steps.len(),
    };
    (!cut.steps.is_empty()).then(|| Box::new(prelude(cut)) as _)
}

struct ClientPrelude {
    cut: Arc<Cut>,
    steps: usize,
}

impl Prelude for ClientPrelude {
    fn kind(&self) -> PreludeKind {
        PreludeKind::Publication
    }

    fn start(
        &self,
        connection: &Connection,
        batch: usize,
    ) -> Result<Option<Exchanging>, EngineError> {
        let publication = connection.kept::<Kept<ClientPublication>>();
        if publication.spend(batch).is_some() {
            return Ok(None);
        }
        let offered = connection.kept::<Kept<Offered>>().take();
        let offered = offered.map(|(offered, images)| (offered.0, images));
        let client = PublicationClient::new(&self.cut, self.steps, batch, offered, publication)?;
        Ok(Some(Box::new(client)))
    }
}

/// The publication that a client keeps over connections: epoch, seed, and the polynomials with
/// their receipt as they came.
struct KeptPublication(CheckedPlan);

/// The publication of a plan that has any, for a store.
pub(crate) fn persistent(plan: &CheckedPlan) -> Option<Box<dyn Persistent>> {
    let publishes = plan.once().publication > 0;
    publishes.then(|| Box::new(KeptPublication(plan.clone())) as _)
}

impl Persistent for KeptPublication {
    fn name(&self) -> &'static str {
        "publication"
    }

    fn uses(&self) -> Option<Uses> {
        Some(Uses {
            most: PUBLICATION_IMAGES,
            grant: PUBLICATION_GRANT,
        })
    }

    fn offer(&self, connection: &Connection, bytes: &[u8], uses: usize) -> Result<(), EngineError> {
        let names = bytes.split_first_chunk::<NAME>();
        let names =
            names.and_then(|(epoch, rest)| Some((epoch, rest.split_first_chunk::<NAME>()?)));
        let Some((epoch, (seed, polynomials))) = names else {
            return Err(length("the file", bytes.len(), 2 * NAME));
        };
        let publication = PublicationClient::read(&self.0, (*epoch, *seed), polynomials)?;
        let offered: Kept<Offered> = connection.kept();
        offered.put_for(Offered(publication), uses);
        Ok(())
    }

    fn left(&self, connection: &Connection) -> usize {
        connection.kept::<Kept<ClientPublication>>().left()
    }

    fn saved(&self, connection: &Connection) -> Option<Saved> {
        let publication = connection.kept::<Kept<ClientPublication>>().get()?;
        Some(Saved {
            id: publication.seed,
            head: [publication.epoch, publication.seed].concat().into(),
            body: publication.bytes,
        })
    }
}

/// The client's half: fills its slot.
pub struct PublicationClient {
    cut: Arc<Cut>,
    slot: Kept<ClientPublication>,
    /// One of an earlier connection, and how many images it may still serve.
    stored: Option<(ClientPublication, usize)>,
    /// Images of the batch that comes next.
    batch: usize,
    /// Whether the polynomials are to be sent.
    wanted: bool,
    made: Made,
}

/// What has come so far.
struct Made {
    epoch: [u8; NAME],
    seed: [u8; NAME],
    ready: Vec<Option<Polynomials>>,
    bytes: Vec<u8>,
    /// The request, once it was made, and the polynomials so far.
    bound: Option<Bound>,
}

impl PublicationClient {
    /// Before a batch of so many images, for a plan of so many steps; `stored` is one of an earlier
    /// connection with the images it still serves, which is of use where the server's secret is the
    /// same.
    fn new(
        cut: &Arc<Cut>,
        steps: usize,
        batch: usize,
        stored: Option<(ClientPublication, usize)>,
        slot: Kept<ClientPublication>,
    ) -> Result<Exchange<Self>, EngineError> {
        let client = Self::with(cut.clone(), steps, batch, stored, slot)?;
        Ok(Exchange::new(cut.messages(), client))
    }

    fn with(
        cut: Arc<Cut>,
        steps: usize,
        batch: usize,
        stored: Option<(ClientPublication, usize)>,
        slot: Kept<ClientPublication>,
    ) -> Result<Self, EngineError> {
        let fits = |(publication, images): &(ClientPublication, usize)| {
            publication.ready.len() == steps && *images >= batch
        };
        Ok(Self {
            cut,
            slot,
            stored: stored.filter(fits),
            batch,
            wanted: true,
            made: Made {
                epoch: [0; NAME],
                seed: *Seed::from_os()?.as_bytes(),
                ready: vec![None; steps],
                bytes: Vec::new(),
                bound: None,
            },
        })
    }

    /// Reads one from its bytes as they came.
    ///
    /// # Errors
    /// They are not of this plan, or were not published for this epoch and seed.
    pub fn read(
        plan: &CheckedPlan,
        (epoch, seed): ([u8; NAME], [u8; NAME]),
        bytes: &[u8],
    ) -> Result<ClientPublication, EngineError> {
        let cut = Arc::new(Cut::new(plan));
        let mut reader = Self::with(cut, plan.steps.len(), 0, None, Kept::default())?;
        (reader.made.epoch, reader.made.seed) = (epoch, seed);
        reader.made.bound = Some(Bound::fetching(&epoch, &seed));
        let lengths: Vec<usize> = reader.cut.lengths().collect();
        let mut rest = bytes;
        for (index, expected) in lengths.into_iter().enumerate() {
            let (message, after) = rest
                .split_at_checked(expected)
                .ok_or_else(|| length("the file", bytes.len(), bytes.len() + expected))?;
            reader.take_part(index, message)?;
            rest = after;
        }
        if rest.len() != DIGEST {
            return Err(length(RECEIPT, rest.len(), DIGEST));
        }
        reader.made.check(rest)?;
        Ok(reader.made.finish(reader.cut))
    }

    fn take_part(&mut self, index: usize, message: &[u8]) -> Result<(), EngineError> {
        let (rows, range) = self.cut.part(index);
        match self.cut.is_ready {
            true => {
                let place = &mut self.made.ready[rows.step];
                let polynomials = place.get_or_insert_with(|| Polynomials::none(rows.rlwe.word));
                polynomials.read(rows, range, message)?;
            }
            // None is kept that a batch would refuse.
            false => rows.check(range, message)?,
        }
        // Half as much again would be in use while a vector grows.
        let room = (self.cut.bytes + DIGEST).saturating_sub(self.made.bytes.len());
        self.made.bytes.reserve_exact(room);
        self.made.add(message);
        Ok(())
    }

    fn request(&mut self, out: &mut Vec<u8>) {
        let (seed, images) = match &self.stored {
            Some((stored, images)) => (stored.seed, (*images).min(PUBLICATION_GRANT)),
            None => (self.made.seed, PUBLICATION_GRANT),
        };
        self.wanted = self.stored.is_none();
        let fields = request_fields(&seed, images, self.wanted);
        let bound = Bound::new(&self.made.epoch, &fields);
        out.extend_from_slice(&fields);
        out.extend_from_slice(&bound.digest());
        self.made.bound = Some(bound);
        if let Some((stored, _)) = self.stored.take() {
            self.slot.put_for(stored, images - self.batch);
        }
    }

    /// Keeps what has come, all of it.
    fn publish(&mut self) {
        let made = std::mem::replace(&mut self.made, Made::none());
        let publication = made.finish(self.cut.clone());
        self.slot
            .put_for(publication, PUBLICATION_GRANT - self.batch);
    }
}

impl Protocol for PublicationClient {
    const PARTY: Party = Party::Client;

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        match turn.name {
            EPOCH => {
                self.made.epoch.copy_from_slice(message);
                let epoch = self.made.epoch;
                self.stored.take_if(|(stored, _)| stored.epoch != epoch);
            }
            PART => self.take_part(turn.index, message)?,
            RECEIPT => {
                self.made.check(message)?;
                self.publish();
            }
            _ => return Err(turn.unknown()),
        }
        Ok(())
    }

    fn make(&mut self, _turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        self.request(out);
        Ok(())
    }

    fn is_due(&self, _name: &'static str) -> bool {
        self.wanted
    }
}

impl Made {
    fn none() -> Self {
        Self {
            epoch: [0; NAME],
            seed: [0; NAME],
            ready: Vec::new(),
            bytes: Vec::new(),
            bound: None,
        }
    }

    /// Keeps polynomials as they came.
    fn add(&mut self, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        if let Some(bound) = &mut self.bound {
            bound.add(message);
        }
    }

    /// Checks that the receipt is of all that came, and of the request; keeps it.
    fn check(&mut self, receipt: &[u8]) -> Result<(), EngineError> {
        let bound = self.bound.as_ref().ok_or(EngineError::OutOfTurn {
            state: "has not asked for a publication",
        })?;
        bound.check(receipt)?;
        self.bytes.extend_from_slice(receipt);
        Ok(())
    }

    fn finish(self, cut: Arc<Cut>) -> ClientPublication {
        ClientPublication {
            epoch: self.epoch,
            seed: self.seed,
            cut,
            ready: self.ready,
            bytes: Arc::new(self.bytes),
        }
    }
}

impl ClientPublication {
    /// The polynomials of a step; `None` where the step is of another engine. Those that are not
    /// ready are unpacked, which takes a transform for each.
    ///
    /// # Errors
    /// They hold a word that is no residue.
    pub fn polynomials(&self, step: usize) -> Result<Option<Polynomials>, EngineError> {
        let Some((rows, start)) = self.cut.of_step(step) else {
            return Ok(None);
        };
        if let Some(ready) = self.ready.get(step).and_then(Option::as_ref) {
            return Ok(Some(ready.clone()));
        }
        let mut polynomials = Polynomials::none(rows.rlwe.word);
        let bytes = &self.bytes[start..][..rows.count * rows.bytes()];
        polynomials.read(rows, 0..rows.count, bytes)?;
        Ok(Some(polynomials))
    }

    /// The same with none ready.
    #[cfg(test)]
    pub fn packed(&self) -> Self {
        Self {
            ready: vec![None; self.ready.len()],
            ..self.clone()
        }
    }
}

impl Polynomials {
    fn none(word: WordSize) -> Self {
        match word {
            WordSize::U32 => Self::U32(Arc::default()),
            WordSize::U64 => Self::U64(Arc::default()),
        }
    }

    /// Reads rows behind those that are there. Nobody else has these yet.
    fn read(&mut self, rows: &Rows, range: Range<usize>, bytes: &[u8]) -> Result<(), EngineError> {
        match self {
            Self::U32(words) => read_rows(rows, range, bytes, Arc::make_mut(words)),
            Self::U64(words) => read_rows(rows, range, bytes, Arc::make_mut(words)),
        }
    }
}

impl Rows {
    /// Checks that rows are of residues.
    fn check(&self, range: Range<usize>, message: &[u8]) -> Result<(), EngineError> {
        let rows = message.par_chunks_exact(self.bytes()).zip(range);
        // Words of 32 bits are packed in another order than those of 64.
        with_word!(self.rlwe.word, W => rows.try_for_each_init(
            || vec![W::default(); self.rlwe.degree],
            |words, (bytes, row)| unpack(self, row, bytes, words),
        ))
    }
}

/// Unpacks a row, and checks that it is of residues.
fn unpack<W: Word>(
    rows: &Rows,
    row: usize,
    bytes: &[u8],
    words: &mut [W],
) -> Result<(), EngineError> {
    let rlwe = &rows.rlwe;
    let packed = PackedRow {
        step: &rows.name,
        message: STEP,
        row,
        width: rlwe.answer_bits_a(),
    };
    packed.unpack_up_to((rlwe.modulus - 1) >> rlwe.dropped_bits_a, bytes, words)
}

/// Unpacks rows, checks that they are residues, and takes them to the NTT domain.
fn read_rows<W: Word>(
    rows: &Rows,
    range: Range<usize>,
    message: &[u8],
    words: &mut Vec<W>,
) -> Result<(), EngineError> {
    let rlwe = &rows.rlwe;
    let ring = ring::<W>(rlwe, &rows.name)?;
    words.resize(range.end * rlwe.degree, W::default());
    words[range.start * rlwe.degree..]
        .par_chunks_exact_mut(rlwe.degree)
        .zip(message.par_chunks_exact(rows.bytes()))
        .enumerate()
        .try_for_each(|(index, (words, bytes))| {
            unpack(rows, range.start + index, bytes, words)?;
            ring.restore_low_bits_public(words, rlwe.dropped_bits_a);
            Ok(())
        })
}

#[cfg(test)]
mod tests {
    use pronghorn_ring::bits;

    use super::*;

    /// All words are the largest allowed, or one more: in an order of other words, bits of
    /// neighbours make larger ones.
    #[test]
    fn rows_are_checked_in_words_of_their_plan() {
        fn check<W: Word>(rows: &Rows) {
            let rlwe = &rows.rlwe;
            let most = (rlwe.modulus - 1) >> rlwe.dropped_bits_a;
            let row = |word: u64| {
                let mut bytes = Vec::new();
                let words = vec![W::from_u64(word); rlwe.degree];
                bits::pack(&words, rlwe.answer_bits_a(), &mut bytes);
                bytes
            };
            rows.check(0..2, &row(most).repeat(2)).unwrap();
            let error = rows.check(3..5, &[row(most), row(most + 1)].concat());
            assert!(
                matches!(error, Err(EngineError::Word { row: 4, .. })),
                "{error:?}"
            );
        }
        for word in [WordSize::U32, WordSize::U64] {
            let plan = crate::coefficient::tests::small_plan(word);
            let rows = &Rows::all(&plan)[0];
            with_word!(word, W => check::<W>(rows));
        }
    }
}
