//! A model owner: keys and their ledger in a directory, and the decryptions.

use std::{
    fs::File,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use pronghorn_graph::polynomial::PolyGraph;
use pronghorn_he::multikey::{Party, wire::VERSION};
use pronghorn_multikey::{
    Aim, Network,
    roles::{Description, Face, Owner, RoleError, Terms},
};
use pronghorn_ring::random::Seed;

use super::{
    error::{CloudError, Refusal},
    files::Directory,
    message::{Hello, Role, Wanted, What, malformed},
    peer::{Peer, connect, unless_cancelled},
};
use crate::{
    client::ConnectOptions,
    error::SessionError,
    log::{Entry, Level},
    text::hex,
};

/// How long the cloud may be silent. It says that it is there every
/// [`ALIVE`](super::attended::ALIVE).
const SILENCE: Duration = Duration::from_secs(60);
/// The pause before another attempt to connect, the first and the longest.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// Time between two looks at whether a pause should end.
const TICK: Duration = Duration::from_millis(100);

/// The secret that keys follow from.
pub(super) const SEED: &str = "owner.seed";
/// What all parties agree on.
pub(super) const TERMS: &str = "terms";
/// What was decrypted.
pub(super) const LEDGER: &str = "ledger";
/// Name of the publication, and hash of the network that was published.
pub(super) const PUBLISHED: &str = "published";
/// Names of clients, one a line.
pub(super) const CLIENTS: &str = "clients";
/// Bytes of a publication's name.
pub(super) const NAME: usize = 16;
/// Bytes of the name of a party.
const NAME_OF_PARTY: u64 = 32;
/// Where the key went, in a directory that has none any more.
pub(super) const HANDED_OVER: &str = "handed-over";
/// In the directory of a delegate.
pub(super) const DELEGATED: &str = "delegated";
/// The secret on its way to another directory.
pub(super) const LEAVING: &str = "leaving.seed";

/// A model owner's keys in a directory, which one process uses at a time.
///
/// | file | content |
/// |---|---|
/// | `owner.seed` | the secret, 32 bytes |
/// | `terms` | the description, public |
/// | `ledger` | results that were decrypted |
/// | `published` | name of the publication, and a hash of the network, secret as the weights |
/// | `clients` | names of clients that results are decrypted for, one a line; read at each introduction and each result |
/// | `handed-over` | in place of the secret: the directory that has it now |
/// | `clients.delegate` | the list of clients of a delegate that gave the key back; nothing reads it |
///
/// The ledger is on the disk before a partial decryption leaves. A key without its ledger is
/// refused. Who restores an old copy of the directory undoes that: make new keys after a restore.
pub struct OwnerKeys {
    directory: Directory,
    terms: Terms<u32>,
    owner: Owner<u32>,
    /// Results that are left, for whoever looks on.
    left: Arc<AtomicU64>,
    _lock: File,
}

/// The log of an owner.
type Log<'a> = &'a dyn Fn(&Entry);

impl OwnerKeys {
    /// The keys of a directory for a network; new ones where there are none, with results of this
    /// error and number.
    ///
    /// # Errors
    /// When the network cannot be computed at this level, the directory has keys of another network
    /// or no ledger, or the file system refuses.
    pub fn open(directory: &Path, graph: &PolyGraph, aim: Aim) -> Result<Self, CloudError> {
        let directory = Directory::open(directory)?;
        let lock = directory.lock()?;
        let (terms, owner) = match kept(&directory)? {
            Some((terms, owner)) => {
                let Description { network, face, .. } = &*terms.description;
                if *network != Network::of(graph).without_names() || *face != Face::of(graph) {
                    let of = "another network";
                    let path = directory.path().display().to_string();
                    return Err(CloudError::OtherKeys { path, of });
                }
                (terms, owner)
            }
            None => {
                let nonce = *Seed::from_os()?.as_bytes();
                let terms = Terms::choose(graph, aim, nonce)?;
                let seed = Seed::from_os()?;
                let owner = Owner::new(&terms, &seed)?;
                let description = postcard::to_stdvec(&*terms.description);
                let description = description.map_err(|error| malformed(error.to_string()))?;
                // The seed comes last: keys without a ledger must not look like old ones.
                let files = [
                    (TERMS, description.as_slice()),
                    (LEDGER, &owner.ledger()),
                    (SEED, seed.as_bytes()),
                ];
                for (name, bytes) in files {
                    put(&directory, name, bytes)?;
                }
                for name in [PUBLISHED, DELEGATED] {
                    let removed = directory.remove(name);
                    removed.map_err(CloudError::file(&directory.file(name)))?;
                }
                (terms, owner)
            }
        };
        Ok(Self::with(directory, lock, terms, owner))
    }

    /// The keys that an owner has [handed over](Self::hand_over), at its delegate, who has no
    /// weights.
    ///
    /// # Errors
    /// When the directory has no key, or no ledger.
    pub fn delegate(directory: &Path) -> Result<Self, CloudError> {
        let directory = Directory::open(directory)?;
        let lock = directory.lock()?;
        let path = || directory.path().display().to_string();
        let (terms, owner) = kept(&directory)?.ok_or_else(|| CloudError::NoKey { path: path() })?;
        Ok(Self::with(directory, lock, terms, owner))
    }

    fn with(directory: Directory, lock: File, terms: Terms<u32>, owner: Owner<u32>) -> Self {
        Self {
            directory,
            terms,
            left: Arc::new(AtomicU64::new(owner.results_left())),
            owner,
            _lock: lock,
        }
    }

    /// The owner's name, which clients must get by a way that the cloud does not control.
    pub fn party(&self) -> Party {
        self.owner.party()
    }

    /// What all parties agree on.
    pub fn terms(&self) -> &Terms<u32> {
        &self.terms
    }

    /// Results that may still be decrypted.
    pub fn results_left(&self) -> u64 {
        self.owner.results_left()
    }

    /// The number of results that may still be decrypted, now and later.
    pub fn left(&self) -> Arc<AtomicU64> {
        self.left.clone()
    }

    /// Publishes the network where the cloud has not got it, and takes part in decryptions until
    /// the options' `cancel` is set. A connection that ends is made again.
    ///
    /// # Errors
    /// When it is cancelled, `graph` is another network, or the cloud has another owner's model.
    pub fn attend(
        &mut self,
        graph: &PolyGraph,
        address: &str,
        options: &ConnectOptions,
        log: Log<'_>,
    ) -> Result<(), CloudError> {
        self.stay(Some(graph), address, options, log)
    }

    /// Takes part in decryptions for a model that the cloud has, until the options' `cancel` is
    /// set: a delegate's part, which needs no weights. A connection that ends is made again.
    ///
    /// # Errors
    /// When it is cancelled, or the cloud has another publication than the owner's last.
    pub fn attend_published(
        &mut self,
        address: &str,
        options: &ConnectOptions,
        log: Log<'_>,
    ) -> Result<(), CloudError> {
        self.stay(None, address, options, log)
    }

    fn stay(
        &mut self,
        graph: Option<&PolyGraph>,
        address: &str,
        options: &ConnectOptions,
        log: Log<'_>,
    ) -> Result<(), CloudError> {
        let mut pause = PAUSES[0];
        loop {
            let started = Instant::now();
            let Err(error) = self.session(graph, address, options, log);
            let error = unless_cancelled(options, error);
            if !is_passing(&error) {
                return Err(error);
            }
            if started.elapsed() > PAUSES[1] {
                pause = PAUSES[0];
            }
            let seconds = pause.as_secs();
            let text = format!("{error}; connecting again in {seconds} s");
            log(&Entry::new(Level::Warning, "away", &text));
            wait(pause, options)?;
            pause = (2 * pause).min(PAUSES[1]);
        }
    }

    /// One connection.
    fn session(
        &mut self,
        graph: Option<&PolyGraph>,
        address: &str,
        options: &ConnectOptions,
        log: Log<'_>,
    ) -> Result<std::convert::Infallible, CloudError> {
        let mut peer = connect(address, options)?;
        let outcome = self.serve(&mut peer, graph, options, log);
        if let Err(error) = &outcome {
            peer.close(Some(error));
        }
        outcome
    }

    fn serve(
        &mut self,
        peer: &mut Peer,
        graph: Option<&PolyGraph>,
        options: &ConnectOptions,
        log: Log<'_>,
    ) -> Result<std::convert::Infallible, CloudError> {
        let publication = match graph {
            Some(graph) => self.publication(graph)?,
            None => self.published()?,
        };
        let hello = Hello {
            role: Role::Owner(publication),
            owner: self.owner.party().0,
        };
        peer.send(What::Hello, &hello.encode())?;
        let wait = options.timeout;
        let wanted = Wanted::decode(&peer.take(wait, What::Wanted, Wanted::BYTES)?)?;
        if wanted.send {
            let graph = graph.ok_or(CloudError::NotPublished)?;
            let bytes = self.owner.publish(graph)?;
            let length = bytes.len() as u64;
            let text = format!("publishing the encrypted model and public keys: {length} bytes");
            log(&Entry::new(Level::Info, "publishing", &text).number("bytes", length));
            wanted.check(length)?;
            peer.send(What::Publication, &bytes)?;
        }
        peer.take(wait, What::Ready, 0)?;
        let text = format!(
            "attending: {} results may be decrypted",
            self.results_left()
        );
        log(&Entry::new(Level::Info, "attending", &text).number("results", self.results_left()));
        let most = self.terms.most_message_bytes() as u64;
        let accept = [
            (What::Alive, 0),
            (What::Introduction, most),
            (What::Pair, NAME_OF_PARTY),
            (What::Outcome, most),
        ];
        loop {
            let header = peer.begin(SILENCE, &accept)?;
            let body = peer.body(header)?;
            match self.answer(header.what, &body, log) {
                Ok((what, bytes)) => peer.send(what, &bytes)?,
                Err(error) => {
                    let text = format!("refused: {error}");
                    log(&Entry::new(Level::Warning, "refused", &text));
                    let refusal = match error {
                        RoleError::NotAdmitted { .. } => Refusal::NotAdmitted,
                        _ => Refusal::Owner,
                    };
                    peer.refuse(refusal, &error.to_string())?;
                }
            }
        }
    }

    /// The answer to a message of the cloud.
    fn answer(
        &mut self,
        what: What,
        body: &[u8],
        log: Log<'_>,
    ) -> Result<(What, Vec<u8>), RoleError> {
        match what {
            What::Introduction => {
                self.owner.admit(self.admitted());
                let client = self.owner.introduce(body).inspect_err(|error| {
                    if let RoleError::NotAdmitted { party } = error {
                        let text = format!(
                            "client {} asks for admission; if that is a name that its owner gave you, run \
                             `pronghorn multikey admit`",
                            hex(&party.0)
                        );
                        log(&Entry::new(Level::Warning, "unknown", &text));
                    }
                })?;
                let text = format!("client {client} is admitted");
                log(&Entry::new(Level::Info, "admitted", &text).text("client", hex(&client.0)));
                Ok((What::Alive, Vec::new()))
            }
            What::Pair => {
                let name = <[u8; 32]>::try_from(body).map_err(|_| RoleError::Message {
                    what: "name of a client",
                    reason: format!("it has {} bytes of {NAME_OF_PARTY}", body.len()),
                })?;
                self.owner.admit(self.admitted());
                let key = self.owner.pair(Party(name))?;
                let text = format!("made the key of the pair with client {}", Party(name));
                log(&Entry::new(Level::Info, "paired", &text).text("client", hex(&name)));
                Ok((What::PairKey, key))
            }
            What::Outcome => {
                // Who was struck off the list gets nothing more.
                self.owner.admit(self.admitted());
                let directory = &self.directory;
                let persist = |ledger: &[u8]| directory.replace(LEDGER, ledger);
                let answer = self.owner.answer(body, persist);
                // What failed half way counts, too.
                let left = self.results_left();
                self.left.store(left, Ordering::Relaxed);
                let answer = answer?;
                let text = format!("decrypted a result; {left} are left");
                log(&Entry::new(Level::Info, "decrypted", &text).number("left", left));
                Ok((What::Answer, answer))
            }
            _ => Ok((What::Alive, Vec::new())),
        }
    }

    /// The clients of the file. What cannot be read admits nobody.
    fn admitted(&self) -> Vec<Party> {
        let bytes = self.directory.read(CLIENTS).ok().flatten();
        let text = String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default();
        let names = text.lines().filter_map(|line| parse(line.trim()));
        names.collect()
    }

    /// The name of the owner's last publication.
    fn published(&self) -> Result<[u8; NAME], CloudError> {
        let kept = self.directory.read(PUBLISHED)?.unwrap_or_default();
        let name = kept.first_chunk().copied();
        name.ok_or(CloudError::NotPublished)
    }

    /// The name of the network's publication: another one for each network and key.
    fn publication(&self, graph: &PolyGraph) -> Result<[u8; NAME], CloudError> {
        let network = postcard::to_stdvec(graph);
        let network = network.map_err(|error| malformed(error.to_string()))?;
        let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 published network");
        hasher.update(&network);
        let digest = *hasher.finalize().as_bytes();
        if let Some(kept) = self.directory.read(PUBLISHED)?
            && let Some((name, of)) = kept.split_first_chunk()
            && *of == digest
        {
            return Ok(*name);
        }
        let random = Seed::from_os()?;
        let mut name = [0; NAME];
        name.copy_from_slice(&random.as_bytes()[..NAME]);
        put(&self.directory, PUBLISHED, &[&name[..], &digest].concat())?;
        Ok(name)
    }
}

/// An owner with what it agreed on.
pub(super) type Kept = (Terms<u32>, Owner<u32>);

/// Terms and owner of a directory; none where it has no key.
fn kept(directory: &Directory) -> Result<Option<Kept>, CloudError> {
    let Some(seed) = directory.seed(SEED)? else {
        return match directory.read(HANDED_OVER)? {
            Some(_) => Err(handed_over(directory)?),
            None => Ok(None),
        };
    };
    Ok(Some(resumed(directory, &seed)?))
}

/// Terms and owner of a directory's files with this seed, which may be elsewhere.
pub(super) fn resumed(directory: &Directory, seed: &Seed) -> Result<Kept, CloudError> {
    let path = || directory.path().display().to_string();
    let of = "an earlier version";
    let other = || CloudError::OtherKeys { path: path(), of };
    let bytes = directory.read(TERMS)?.ok_or_else(other)?;
    let description: Description = postcard::from_bytes(&bytes).map_err(|_| other())?;
    let terms = Terms::new(description)?;
    let ledger = directory.read(LEDGER)?;
    let ledger = ledger.ok_or_else(|| CloudError::NoLedger { path: path() })?;
    // The seed was another key's there.
    if ledger.first() != Some(&VERSION) {
        return Err(other());
    }
    let owner = Owner::resume(&terms, seed, &ledger)?;
    Ok((terms, owner))
}

/// The refusal of a directory whose key went elsewhere.
pub(super) fn handed_over(directory: &Directory) -> Result<CloudError, CloudError> {
    let to = directory.read(HANDED_OVER)?.unwrap_or_default();
    Ok(CloudError::HandedOver {
        path: directory.path().display().to_string(),
        to: String::from_utf8_lossy(&to).into_owned(),
    })
}

pub(super) fn put(directory: &Directory, name: &str, bytes: &[u8]) -> Result<(), CloudError> {
    let kept = directory.replace(name, bytes);
    kept.map_err(CloudError::file(&directory.file(name)))
}

/// A name of 64 hexadecimal digits.
fn parse(digits: &str) -> Option<Party> {
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    let mut name = [0; 32];
    for (byte, pair) in name.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(Party(name))
}

/// Whether another connection may go better.
fn is_passing(error: &CloudError) -> bool {
    match error {
        CloudError::Refused { refusal, .. } => {
            matches!(refusal, Refusal::Busy | Refusal::Stopping | Refusal::Away)
        }
        CloudError::Session(error) => !matches!(
            error,
            SessionError::Cancelled
                | SessionError::Channel(_)
                | SessionError::Address { .. }
                | SessionError::NotPronghorn
                | SessionError::Version { .. }
        ),
        _ => false,
    }
}

/// A pause that ends where it is cancelled.
fn wait(pause: Duration, options: &ConnectOptions) -> Result<(), CloudError> {
    let until = Instant::now() + pause;
    while Instant::now() < until {
        if options.cancel.load(Ordering::SeqCst) {
            return Err(SessionError::Cancelled.into());
        }
        thread::sleep(TICK);
    }
    Ok(())
}
