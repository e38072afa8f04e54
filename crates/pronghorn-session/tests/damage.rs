//! A line that changes what it carries: no wrong result without an error, and nothing wrong is
//! kept.

mod common;

use std::{
    fs,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use common::{
    relay::{Passing, Relay, Way},
    *,
};
use pronghorn_engine::ServerModel;
use pronghorn_plan::{Built, Engine, TrustLevel};
use pronghorn_session::{
    Client, ConnectOptions, ErrorCode, Limits, Server, SessionError,
    frame::{HEADER_BYTES, Kind},
    in_process,
};

/// A directory of a test's own.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let own = NEXT.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("pronghorn-damage-{}-{own}", process::id()));
        private_directory(&path);
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const IMAGES: usize = 2;
/// Long enough for an honest side on a busy machine, short enough for a test: what a changed length
/// costs.
const PATIENCE: Duration = Duration::from_secs(2);

/// Sessions at once: most of their time is waiting.
const AT_ONCE: usize = 6;

/// Bytes of a client's request for what is published: a seed, a count, a choice and a digest.
const PUBLICATION_REQUEST: usize = 32 + 4 + 1 + 32;

/// What a session does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Predict,
    /// Prepares on the changed line, and predicts with that on a clean one.
    Prepare,
}

struct Case {
    trust: TrustLevel,
    built: Built,
    wanted: Vec<f32>,
}

impl Case {
    fn new(trust: TrustLevel, engine: Option<Engine>) -> Self {
        let built = built_in(trust, "relu", engine);
        let model = Arc::new(ServerModel::new(&built).expect("weights fit the plan"));
        let clean =
            in_process(&model, &numbers(INPUTS * IMAGES), IMAGES).expect("the run succeeds");
        Self {
            trust,
            wanted: clean.outputs(&built.plan),
            built,
        }
    }

    fn serve(&self, store: &Path) -> Running {
        let model = Arc::new(ServerModel::new(&self.built).expect("weights fit the plan"));
        let limits = Limits {
            max_clients: 64,
            idle_timeout: PATIENCE,
            message_timeout: PATIENCE,
            ..patient()
        };
        let server = Server::bind("127.0.0.1:0", model, limits).expect("a free port");
        Running::start(server.with_store(store).expect("it can be made"))
    }

    fn connect(
        &self,
        address: &str,
        store: &Path,
        timeout: Duration,
    ) -> Result<Client, SessionError> {
        let options = ConnectOptions {
            trust: Some(self.trust),
            store: Some(store.to_owned()),
            timeout,
            ..options()
        };
        Client::connect(address, options)
    }

    /// An error, or the right outputs.
    fn predicts(&self, client: Result<Client, SessionError>) -> Result<(), SessionError> {
        let found = client?.predict(&numbers(INPUTS * IMAGES), IMAGES, &mut |_| {})?;
        assert_eq!(found.outputs, self.wanted, "wrong outputs and no error");
        Ok(())
    }

    /// Does the work over a line that `change` sees; what it was like on that line.
    fn over(
        &self,
        work: Work,
        timeout: Duration,
        change: impl Fn(&mut Passing) -> bool + Send + Sync + 'static,
    ) -> (Result<(), SessionError>, Vec<Passing>) {
        let (ours, theirs) = (Scratch::new(), Scratch::new());
        let running = self.serve(&theirs.0);
        let relay = Relay::new(running.address(), change);
        let client = self.connect(&relay.address(), &ours.0, timeout);
        let outcome = match work {
            Work::Predict => self.predicts(client),
            Work::Prepare => client.and_then(|mut client| client.prepare(IMAGES, |_| {}).map(drop)),
        };
        let again = self.connect(
            &running.address().to_string(),
            &ours.0,
            Duration::from_secs(100),
        );
        self.predicts(again)
            .expect("the clean line gives right outputs with what was kept");
        (outcome, relay.seen())
    }

    /// Changes one bit in each frame at several places, in a session of its own each. How many
    /// changes were noticed as such by either party, and how many in all.
    fn flips(&self, work: Work) -> (usize, usize) {
        let (clean, frames) = self.over(work, Duration::from_secs(100), |_| true);
        clean.expect("nothing is changed");
        let flips: Vec<_> = frames.iter().flat_map(Flip::of).collect();
        (self.count_noticed(work, &flips), flips.len())
    }

    /// How many of these changes, in a session of its own each, were noticed as such.
    fn count_noticed(&self, work: Work, flips: &[Flip]) -> usize {
        let (next, noticed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while let Some(&flip) = flips.get(next.fetch_add(1, Ordering::SeqCst)) {
                        let seen = usize::from(self.notices(work, flip));
                        noticed.fetch_add(seen, Ordering::SeqCst);
                    }
                });
            }
        });
        noticed.into_inner()
    }

    /// Whether either party says that the line is to blame.
    fn notices(&self, work: Work, flip: Flip) -> bool {
        let (outcome, _) = self.over(work, PATIENCE, move |passing| {
            if (passing.way, passing.index) == (flip.way, flip.index) {
                passing.bytes[flip.place] ^= 1 << flip.bit;
            }
            true
        });
        match outcome {
            Ok(()) => {
                assert!(flip.is_of_the_end, "{flip:?} is no error");
                false
            }
            Err(error) => error.code() == ErrorCode::Damaged,
        }
    }
}

/// One changed bit.
#[derive(Clone, Copy, Debug)]
struct Flip {
    way: Way,
    index: usize,
    place: usize,
    bit: usize,
    /// Whoever says goodbye has results already.
    is_of_the_end: bool,
}

impl Flip {
    /// Of the header: the low and the high length and the kind; of the payload: its start, places
    /// within, and its end.
    fn of(frame: &Passing) -> Vec<Self> {
        let length = frame.bytes.len();
        let mut places = vec![0, 3, 4];
        let inner = [0, 1, 2, 3].map(|part| HEADER_BYTES + part * (length - HEADER_BYTES) / 4);
        places.extend(inner.into_iter().chain([length - 1]));
        places.retain(|&place| place < length);
        places.dedup();
        let flip = |place| Self {
            way: frame.way,
            index: frame.index,
            place,
            bit: (place * 5 + frame.index * 3) % 8,
            is_of_the_end: frame.kind() == Kind::Bye as u8,
        };
        places.into_iter().map(flip).collect()
    }
}

#[test]
fn no_flipped_bit_gives_a_wrong_result_between_two_parties() {
    let (noticed, all) = Case::new(TrustLevel::TwoParty, None).flips(Work::Predict);
    assert!(noticed > 10 && all > 100, "{noticed} of {all}");
}

#[test]
fn no_flipped_bit_gives_a_wrong_result_with_the_clients_aid() {
    let (noticed, all) = Case::new(TrustLevel::ClientAided, None).flips(Work::Predict);
    assert!(noticed > 5 && all > 40, "{noticed} of {all}");
}

#[test]
fn no_flipped_bit_spoils_a_preparation() {
    let (noticed, all) = Case::new(TrustLevel::TwoParty, None).flips(Work::Prepare);
    assert!(noticed > 5 && all > 50, "{noticed} of {all}");
}

/// The client's request for what is published, of which one bit would otherwise spoil its store for
/// good.
#[test]
fn no_flipped_bit_publishes_for_another_seed() {
    let case = Case::new(TrustLevel::TwoParty, Some(Engine::Coefficient));
    let (clean, frames) = case.over(Work::Predict, Duration::from_secs(100), |_| true);
    clean.expect("nothing is changed");
    let request = |frame: &&Passing| {
        frame.way == Way::Up && frame.bytes.len() == HEADER_BYTES + PUBLICATION_REQUEST
    };
    let request = frames.iter().find(request).expect("the client asks");
    // Of each byte another bit; the engine's own tests have all bits.
    let flip = |place| Flip {
        way: Way::Up,
        index: request.index,
        place,
        bit: place % 8,
        is_of_the_end: false,
    };
    let flips: Vec<_> = (HEADER_BYTES..request.bytes.len()).map(flip).collect();
    assert_eq!(
        case.count_noticed(Work::Predict, &flips),
        PUBLICATION_REQUEST
    );
}
