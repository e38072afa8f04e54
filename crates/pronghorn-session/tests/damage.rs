//! A line that changes what it carries: no wrong result without an error, and nothing wrong is
//! kept.

use std::{
    fs, mem,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::common::{
    relay::{self, Passing, Relay, Way},
    tls::Keys,
    *,
};
use pronghorn_engine::ServerModel;
use pronghorn_plan::{
    BuildOptions, Built, CheckedPlan, Engine, StepKind, TrustLevel,
    steps::activation::{
        garbled::Garbled,
        lean::{Lean, Transfers},
    },
};
use pronghorn_session::{
    Client, ClientChannel, ConnectOptions, ErrorCode, Limits, Server, ServerChannel, SessionError,
    frame::HEADER_BYTES, in_process,
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
const AT_ONCE: usize = 16;

/// Of the changes of a line one in so many is tried, unless `PRONGHORN_LONG` is set: from one frame
/// to the next others.
const ONE_IN: usize = 3;

/// One in so many changes is tried.
fn one_in() -> usize {
    match std::env::var_os("PRONGHORN_LONG") {
        Some(_) => 1,
        None => ONE_IN,
    }
}

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
    built: Built,
    wanted: Vec<f32>,
    /// Of a TLS channel; changes are then of its records.
    keys: Option<Keys>,
}

impl Case {
    fn new(trust: TrustLevel, engine: Option<Engine>) -> Self {
        let activation = match trust {
            TrustLevel::Encrypted => "square",
            _ => "relu",
        };
        // Keys are checked as always, among fewer sets: they are most of a session's work.
        let options = BuildOptions {
            trust: Some(trust),
            engine,
            key_checks: 2,
            ..BuildOptions::default()
        };
        Self::of(built_with(activation, options))
    }

    fn of(built: Built) -> Self {
        let model = Arc::new(ServerModel::new(&built).expect("weights fit the plan"));
        let clean =
            in_process(&model, &numbers(INPUTS * IMAGES), IMAGES).expect("the run succeeds");
        Self {
            wanted: clean.outputs(&built.plan),
            built,
            keys: None,
        }
    }

    fn over_tls(self) -> Self {
        Self {
            keys: Some(Keys::new()),
            ..self
        }
    }

    fn serve(&self, store: &Path) -> Running {
        let model = Arc::new(ServerModel::new(&self.built).expect("weights fit the plan"));
        let limits = Limits {
            caps: caps(&[("max-clients", 64)]),
            // The client gives up first: an error of the server would complete a cut result.
            idle_timeout: 2 * PATIENCE,
            message_timeout: PATIENCE,
            ..patient()
        };
        let channel = match &self.keys {
            Some(keys) => ServerChannel::Tls(keys.server()),
            None => ServerChannel::Loopback,
        };
        let server = Server::bind_over("127.0.0.1:0", vec![model.into()], limits, channel);
        let server = server.expect("a free port").with_store(store);
        Running::start(server.expect("it can be made"))
    }

    fn connect(
        &self,
        address: &str,
        store: &Path,
        timeout: Duration,
    ) -> Result<Client, SessionError> {
        let channel = match &self.keys {
            Some(keys) => ClientChannel::Tls(keys.client("alice")),
            None => ClientChannel::Default,
        };
        let options = ConnectOptions {
            trust: Some(self.built.plan.trust),
            store: Some(store.to_owned()),
            timeout,
            channel,
            ..options()
        };
        Client::connect(address, options)
    }

    /// An error, or the right outputs.
    fn predicts(&self, client: Result<Client, SessionError>) -> Result<(), SessionError> {
        let found = client?.predict(&numbers(INPUTS * IMAGES), IMAGES, &mut |_| {})?;
        let most = self.most_error();
        let near = |(found, wanted): (&f32, &f32)| (found - wanted).abs() <= most;
        let all = found.outputs.iter().zip(&self.wanted).all(near);
        assert!(all, "wrong outputs and no error");
        Ok(())
    }

    /// Two runs on ciphertexts differ by their noise.
    fn most_error(&self) -> f32 {
        let unit = f64::from(-self.built.plan.result().fraction_bits).exp2() as f32;
        match self.built.plan.trust {
            TrustLevel::Encrypted => 2.0 * self.built.tolerance() as f32 * unit,
            _ => 0.0,
        }
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
        let framing = match &self.keys {
            Some(_) => relay::record,
            None => relay::frame,
        };
        let relay = Relay::of(framing, running.address(), change);
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
        let log = running.log();
        let errors = log.iter().filter(|line| line.contains("error")).count();
        assert!(errors <= 1, "one damaged session has one error: {log:?}");
        (outcome, relay.seen())
    }

    /// Changes one bit in each frame at several places, in a session of its own each. How many
    /// changes were noticed as such by either party, and how many in all.
    fn flips(&self, work: Work) -> (usize, usize) {
        let flips = self.changes(
            work,
            match self.keys {
                Some(_) => What::flips_of_a_record,
                None => What::flips,
            },
        );
        (self.count_noticed(work, &flips), flips.len())
    }

    /// Drops, doubles, delays and cuts each frame, in a session of its own each. How many changes
    /// there were.
    fn losses(&self, work: Work) -> usize {
        let losses = self.changes(work, What::losses);
        self.count_noticed(work, &losses);
        losses.len()
    }

    /// Changes of each frame of a clean session.
    fn changes(&self, work: Work, of: fn(&Passing) -> Vec<What>) -> Vec<Change> {
        let (clean, frames) = self.over(work, Duration::from_secs(100), |_| true);
        clean.expect("nothing is changed");
        let changes = frames.iter().enumerate().flat_map(|(at, frame)| {
            // Frames of one way often alternate in kind: the phase moves by neither.
            let tried = of(frame).into_iter().skip(at * 7 / 4 % one_in());
            tried.step_by(one_in()).map(|what| Change {
                way: frame.way,
                index: frame.index,
                what,
            })
        });
        changes.collect()
    }

    /// Whether nobody reads what was changed of these frames.
    fn is_harmless(&self, change: Change, frames: &[Passing]) -> bool {
        let (way, what) = (change.way, change.what);
        let same = frames.iter().filter(|found| found.way == way);
        let mut ahead = same.filter(|found| found.index >= change.index);
        // Records differ in number from run to run.
        if ahead.next().is_none() {
            return true;
        }
        let ahead = ahead.count();
        // A client's goodbye, and the end of a channel each way.
        let (ends, is_ignored) = match (&self.keys, way) {
            (None, Way::Up) => (1, false),
            (None, Way::Down) => (0, false),
            (Some(_), way) => {
                // Records of TLS 1.3 have a type and a version of no meaning, and each party's
                // second one is for old routers (RFC 8446, sections 5.2 and D.4).
                let is_header = matches!(what, What::Flip { place: 0..3, .. });
                let ends = if way == Way::Up { 2 } else { 1 };
                (ends, is_header || change.index == 1)
            }
        };
        let unread = match what {
            What::Double => ends + 1,
            _ => ends,
        };
        is_ignored || ahead < unread
    }

    /// How many of these changes, in a session of its own each, were noticed as such.
    fn count_noticed(&self, work: Work, changes: &[Change]) -> usize {
        let (next, noticed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while let Some(&change) = changes.get(next.fetch_add(1, Ordering::SeqCst)) {
                        let seen = usize::from(self.notices(work, change));
                        noticed.fetch_add(seen, Ordering::SeqCst);
                    }
                });
            }
        });
        noticed.into_inner()
    }

    /// Whether either party says that the line is to blame.
    fn notices(&self, work: Work, change: Change) -> bool {
        let late = Mutex::new(Vec::new());
        let (outcome, frames) = self.over(work, PATIENCE, move |passing| {
            change.apply(passing, &mut late.lock().unwrap());
            true
        });
        match outcome {
            Ok(()) => {
                assert!(self.is_harmless(change, &frames), "{change:?} is no error");
                false
            }
            Err(error) => error.code() == ErrorCode::Damaged,
        }
    }
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug)]
enum What {
    Flip {
        place: usize,
        bit: usize,
    },
    Drop,
    /// It goes twice.
    Double,
    /// It goes behind the next one, if there is a next one.
    Delay,
    /// So many bytes alone go on.
    Cut(usize),
}

impl What {
    /// Of the header: the low and the high length and the kind; of the payload: its start, places
    /// within, and its end.
    fn flips(frame: &Passing) -> Vec<Self> {
        let length = frame.bytes.len();
        let mut places = vec![0, 3, 4];
        let inner = [0, 1, 2, 3].map(|part| HEADER_BYTES + part * (length - HEADER_BYTES) / 4);
        places.extend(inner.into_iter().chain([length - 1]));
        places.retain(|&place| place < length);
        places.dedup();
        let flip = |place| Self::Flip {
            place,
            bit: (place * 5 + frame.index * 3) % 8,
        };
        places.into_iter().map(flip).collect()
    }

    /// A record is authenticated as a whole: its length, and one place within.
    fn flips_of_a_record(frame: &Passing) -> Vec<Self> {
        let length = frame.bytes.len();
        let inner = HEADER_BYTES + frame.index * 97 % (length - HEADER_BYTES);
        let bit = frame.index % 8;
        vec![
            Self::Flip { place: 4, bit },
            Self::Flip { place: inner, bit },
        ]
    }

    fn losses(frame: &Passing) -> Vec<Self> {
        let length = frame.bytes.len();
        let cut = Self::Cut([1, length / 2, length - 1][frame.index % 3]);
        vec![Self::Drop, Self::Double, Self::Delay, cut]
    }
}

/// One changed frame.
#[derive(Clone, Copy, Debug)]
struct Change {
    way: Way,
    index: usize,
    what: What,
}

impl Change {
    /// `late` is what has been held back.
    fn apply(&self, passing: &mut Passing, late: &mut Vec<u8>) {
        if passing.way != self.way {
            return;
        }
        if passing.index == self.index {
            // Records differ in length from run to run.
            let bytes = &mut passing.bytes;
            let last = bytes.len() - 1;
            match self.what {
                What::Flip { place, bit } => bytes[place.min(last)] ^= 1 << bit,
                What::Drop => bytes.clear(),
                What::Double => bytes.extend_from_within(..),
                What::Delay => *late = mem::take(bytes),
                What::Cut(length) => bytes.truncate(length.min(last)),
            }
        } else if passing.index == self.index + 1 {
            passing.bytes.append(late);
        }
    }
}

#[test]
fn no_flipped_bit_gives_a_wrong_result_between_two_parties() {
    let (noticed, all) = Case::new(TrustLevel::TwoParty, None).flips(Work::Predict);
    assert!(
        noticed > 10 / one_in() && all > 100 / one_in(),
        "{noticed} of {all}"
    );
}

#[test]
fn no_flipped_bit_gives_a_wrong_result_with_the_clients_aid() {
    let (noticed, all) = Case::new(TrustLevel::ClientAided, None).flips(Work::Predict);
    assert!(
        noticed > 5 / one_in() && all > 40 / one_in(),
        "{noticed} of {all}"
    );
}

#[test]
fn no_flipped_bit_spoils_a_preparation() {
    let (noticed, all) = Case::new(TrustLevel::TwoParty, None).flips(Work::Prepare);
    assert!(
        noticed > 5 / one_in() && all > 50 / one_in(),
        "{noticed} of {all}"
    );
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
    let flip = |place| Change {
        way: Way::Up,
        index: request.index,
        what: What::Flip {
            place,
            bit: place % 8,
        },
    };
    let flips: Vec<_> = (HEADER_BYTES..request.bytes.len()).map(flip).collect();
    assert_eq!(
        case.count_noticed(Work::Predict, &flips),
        PUBLICATION_REQUEST
    );
}

/// Its activation is lean.
fn lean() -> Case {
    let mut built = built_in(TrustLevel::TwoParty, "relu", Some(Engine::Coefficient));
    let mut plan = built.plan.plan().clone();
    for step in &mut plan.steps {
        if let StepKind::Garbled(Garbled { ops }) = &step.kind {
            step.kind = StepKind::Lean(Lean {
                ops: ops.clone(),
                transfers: Transfers::Extension,
            });
        }
    }
    assert_ne!(&plan, built.plan.plan(), "no step is lean");
    built.plan = CheckedPlan::new(plan).expect("it is a clamp");
    Case::of(built)
}

#[test]
fn lost_frames_are_errors_between_two_parties() {
    for (case, least) in [
        (Case::new(TrustLevel::TwoParty, None), 40),
        (Case::new(TrustLevel::TwoParty, Some(Engine::Slot)), 40),
        (lean(), 40),
    ] {
        let all = case.losses(Work::Predict);
        assert!(all > least / one_in(), "{all} changes");
    }
}

#[test]
fn lost_frames_are_errors_with_the_clients_aid() {
    for engine in [Engine::Batch, Engine::Coefficient] {
        let all = Case::new(TrustLevel::ClientAided, Some(engine)).losses(Work::Predict);
        assert!(all > 40 / one_in(), "{all} changes");
    }
}

#[test]
fn changed_frames_of_ciphertexts_are_errors() {
    let case = Case::new(TrustLevel::Encrypted, None);
    let ((noticed, flips), losses) = (case.flips(Work::Predict), case.losses(Work::Predict));
    assert!(
        noticed > 5 / one_in() && flips > 40 / one_in(),
        "{noticed} of {flips}"
    );
    assert!(losses > 20 / one_in(), "{losses} changes");
}

#[test]
fn lost_frames_spoil_no_preparation() {
    let all = Case::new(TrustLevel::TwoParty, None).losses(Work::Prepare);
    assert!(all > 40 / one_in(), "{all} changes");
}

/// Records of TLS, those of the handshake among them.
#[test]
fn changed_records_are_errors_at_every_level() {
    for case in [
        Case::new(TrustLevel::TwoParty, None),
        Case::new(TrustLevel::ClientAided, None),
        Case::new(TrustLevel::Encrypted, None),
    ] {
        let case = case.over_tls();
        let ((_, flips), losses) = (case.flips(Work::Predict), case.losses(Work::Predict));
        assert!(
            flips > 20 / one_in() && losses > 40 / one_in(),
            "{flips} and {losses} changes"
        );
    }
}
