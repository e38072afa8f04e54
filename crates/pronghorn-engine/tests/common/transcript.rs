//! Golden transcripts: runs on fixed seeds, written down message by message and compared with a
//! file.
//!
//! All calls of the engine for transcripts are here. `tests/golden/README.md` says what a file
//! holds and when one may change.

use std::{env, fmt::Write as _, fs, path::PathBuf, sync::Arc};

use pronghorn_engine::{
    ClientModel, ClientPreparation, ClientPrepared, ClientRun, Connection, Connections,
    EngineError, Machine, ServerModel, ServerPreparation, ServerPrepared, ServerRun, Want,
    dither::Addends,
};
use pronghorn_graph::oracle;
use pronghorn_plan::{Built, Plan};
use pronghorn_ring::test_seed::TestSeeds;

use super::numbers;

/// Set to 1, it makes the tests write golden files instead of comparing with them.
const BLESS: &str = "PRONGHORN_BLESS";

/// Whether golden files are written and not compared.
pub fn blesses() -> bool {
    env::var(BLESS).is_ok_and(|value| value == "1")
}

/// What the parties of one case do, one after the other.
#[derive(Clone, Copy)]
pub enum Act {
    /// A batch of so many images.
    Batch(usize),
    /// The offline part of a batch of so many images.
    Prepare(usize),
    /// The online part of the batch that [`Act::Prepare`] left.
    Online(usize),
    /// A new connection, to which both parties bring what they keep: the publication, the seed of
    /// keys for slots, what was prepared.
    Reconnect,
}

/// The parties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The data owner.
    Client,
    /// The model owner.
    Server,
}

impl Party {
    fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// A message, or the bytes that a party stores.
pub struct Message {
    /// Who sends or stores it.
    pub party: Party,
    /// Its length in bytes.
    pub length: usize,
    /// The first half of its BLAKE3 hash, in hexadecimal.
    pub hash: String,
}

impl Message {
    fn new(party: Party, bytes: &[u8]) -> Self {
        Self {
            party,
            length: bytes.len(),
            hash: blake3::hash(bytes).to_hex()[..32].to_owned(),
        }
    }
}

/// What one [`Act`] put on the wire and into stores.
#[derive(Default)]
pub struct Record {
    /// The act, in words.
    pub title: String,
    /// Messages in order.
    pub messages: Vec<Message>,
    /// The bytes that each party stores for another connection.
    pub stored: Vec<Message>,
}

impl Record {
    /// Bytes that a party sent.
    pub fn bytes(&self, party: Party) -> u64 {
        let of = self
            .messages
            .iter()
            .filter(|message| message.party == party);
        of.map(|message| message.length as u64).sum()
    }
}

/// What the parties keep of one connection, and between connections.
struct Line<'a> {
    case: &'a str,
    built: &'a Built,
    client: Arc<ClientModel>,
    model: Arc<ServerModel>,
    connections: Connections,
    keys: (Connection, Connection),
    prepared: Option<(ClientPrepared, ServerPrepared)>,
}

/// The seeds of one party in one act.
fn seeds(case: &str, act: usize, party: Party) -> TestSeeds {
    TestSeeds::new(&format!("{case}, act {act}, {}", party.name()))
}

/// Follows a script on fixed seeds, and compares all results with the oracle.
pub fn record(case: &str, built: &Built, script: &[Act]) -> Vec<Record> {
    let mut model_seeds = TestSeeds::new(&format!("{case}, model"));
    let model = model_seeds.during(|| ServerModel::new(built));
    let connections = Connections::default();
    let client = ClientModel::new(built.plan.clone()).expect("plans can be followed");
    let mut line = Line {
        case,
        built,
        client: Arc::new(client),
        model: Arc::new(model.expect("weights fit the plan")),
        keys: (Connection::default(), connections.connect()),
        connections,
        prepared: None,
    };
    let follow = |(index, act): (usize, &Act)| line.follow(index, *act);
    script.iter().enumerate().map(follow).collect()
}

impl Line<'_> {
    fn follow(&mut self, index: usize, act: Act) -> Record {
        match act {
            Act::Batch(images) => self.batch(index, images, None),
            Act::Prepare(images) => self.prepare(index, images),
            Act::Online(images) => {
                let prepared = self.prepared.take();
                assert!(prepared.is_some(), "nothing is prepared");
                self.batch(index, images, prepared)
            }
            Act::Reconnect => self.reconnect(),
        }
    }

    fn batch(
        &self,
        index: usize,
        images: usize,
        prepared: Option<(ClientPrepared, ServerPrepared)>,
    ) -> Record {
        let title = match &prepared {
            Some(_) => format!("the online part of a batch of {images}"),
            None => format!("a batch of {images}"),
        };
        let plan = self.model.plan();
        let inputs = numbers(plan.input_len() * images, 1 + index as u64);
        let (ours, theirs) = prepared.unzip();
        let (mut client_seeds, mut server_seeds) = self.seeds(index);
        let client = || {
            ClientRun::with_prepared(self.client.clone(), &inputs, images, &self.keys.0, ours)
                .expect("inputs and preparation fit")
        };
        let server = || {
            ServerRun::with_prepared(&self.model, images, &self.keys.1, theirs)
                .expect("batch and preparation fit")
        };
        let mut client = client_seeds.during(client);
        let mut server = server_seeds.during(server);
        client.keep_rounded();
        server.keep_rounded();
        let messages = exchange(
            (&mut client, &mut client_seeds),
            (&mut server, &mut server_seeds),
        );
        let (integers, _) =
            oracle::quantise_input(self.built.plan.input(), &inputs).expect("inputs are numbers");
        let addends = Addends::of(plan, &mut client, &mut server);
        let wanted = self.built.oracle_of_run(&integers, images, &addends);
        let wanted = wanted.expect("whole images");
        let found = client.finish_integers().expect("the run is over");
        assert_eq!(found.len(), wanted.len());
        let mut differences = found.iter().zip(&wanted).map(|(f, w)| (f - w).abs());
        assert!(
            differences.all(|difference| difference <= self.built.tolerance()),
            "{}: {title} differs from the oracle",
            self.case
        );
        Record {
            title,
            messages,
            stored: Vec::new(),
        }
    }

    fn prepare(&mut self, index: usize, images: usize) -> Record {
        let (mut client_seeds, mut server_seeds) = self.seeds(index);
        let client =
            || ClientPreparation::new(&self.client, images, &self.keys.0).expect("it begins");
        let mut client = client_seeds.during(client);
        let server =
            || ServerPreparation::new(&self.model, images, &self.keys.1).expect("it begins");
        let mut server = server_seeds.during(server);
        let messages = exchange(
            (&mut client, &mut client_seeds),
            (&mut server, &mut server_seeds),
        );
        let client = client.into_prepared().expect("it is over");
        let server = server.into_prepared().expect("it is over");
        let stored = vec![
            Message::new(Party::Client, &bytes_of(|sink| client.write(sink))),
            Message::new(Party::Server, &bytes_of(|sink| server.write(sink))),
        ];
        self.prepared = Some((client, server));
        Record {
            title: format!("the offline part of a batch of {images}"),
            messages,
            stored,
        }
    }

    fn reconnect(&mut self) -> Record {
        let client = Connection::default();
        for value in self.client.persistent() {
            if let Some(saved) = value.saved(&self.keys.0) {
                let bytes = [saved.head.as_slice(), &saved.body].concat();
                // A publication comes again after one image, keys for slots do not.
                let uses = if value.name() == "slots" { 16 } else { 1 };
                value.offer(&client, &bytes, uses).expect("its own bytes");
            }
        }
        self.keys = (client, self.connections.connect());
        Record {
            title: "a new connection".into(),
            ..Record::default()
        }
    }

    fn seeds(&self, index: usize) -> (TestSeeds, TestSeeds) {
        let of = |party| seeds(self.case, index, party);
        (of(Party::Client), of(Party::Server))
    }
}

/// The bytes that `write` hands to its sink.
fn bytes_of(
    write: impl FnOnce(
        &mut dyn FnMut(&[u8]) -> Result<(), std::convert::Infallible>,
    ) -> Result<(), std::convert::Infallible>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let Ok(()) = write(&mut |part| {
        bytes.extend_from_slice(part);
        Ok(())
    });
    bytes
}

/// Drives both machines until both are done, each on its own seeds.
fn exchange<'a>(
    client: (&'a mut dyn Machine<Error = EngineError>, &mut TestSeeds),
    server: (&'a mut dyn Machine<Error = EngineError>, &mut TestSeeds),
) -> Vec<Message> {
    let ((client, client_seeds), (server, server_seeds)) = (client, server);
    // What a buffer has shows in no message.
    let (mut messages, mut bytes) = (Vec::new(), vec![0; 1 << 20]);
    loop {
        bytes.fill(0xaa);
        let party = match (client.want(), server.want()) {
            (Want::Send, Want::Receive) => Party::Client,
            (Want::Receive, Want::Send) => Party::Server,
            (Want::Done, Want::Done) => return messages,
            (client, server) => panic!("stuck: client wants {client:?}, server wants {server:?}"),
        };
        let client = (&mut *client, &mut *client_seeds);
        let server = (&mut *server, &mut *server_seeds);
        let ((from, from_seeds), (to, to_seeds)) = match party {
            Party::Client => (client, server),
            Party::Server => (server, client),
        };
        let sent = from_seeds.during(|| from.send(&mut bytes));
        sent.expect("an honest party sends");
        assert!(
            bytes.len() <= to.max_incoming(),
            "message {}",
            messages.len()
        );
        let received = to_seeds.during(|| to.receive(&bytes));
        received.expect("an honest message is taken");
        messages.push(Message::new(party, &bytes));
    }
}

/// A transcript as its golden file has it, in three sections that are compared one by one.
struct Golden {
    plan: String,
    order: String,
    hashes: String,
}

impl Golden {
    fn new(plan: &Plan, records: &[Record]) -> Self {
        let (mut order, mut hashes) = (String::new(), String::new());
        for record in records {
            _ = writeln!(order, "{}", record.title);
            _ = writeln!(hashes, "{}", record.title);
            let sent = record.messages.iter().map(|message| ("", message));
            let stored = record.stored.iter().map(|bytes| (" stores", bytes));
            for (index, (verb, message)) in sent.chain(stored).enumerate() {
                let (party, length) = (message.party.name(), message.length);
                _ = writeln!(order, "{index:4} {party}{verb} {length}");
                _ = writeln!(hashes, "{index:4} {}", message.hash);
            }
            if !record.messages.is_empty() {
                let sums = [Party::Client, Party::Server].map(|party| record.bytes(party));
                _ = writeln!(order, "     client {}, server {} in all", sums[0], sums[1]);
            }
        }
        Self {
            plan: format!("{}\n", plan.hash_hex()),
            order,
            hashes,
        }
    }

    fn sections(&self) -> [(&'static str, &str); 3] {
        [
            ("plan", &self.plan),
            ("order and lengths", &self.order),
            ("hashes", &self.hashes),
        ]
    }

    fn text(&self) -> String {
        let mut text = "A golden transcript: see README.md before you change it.\n".to_owned();
        for (name, section) in self.sections() {
            _ = write!(text, "\n[{name}]\n{section}");
        }
        text
    }

    /// The section of this name in a golden file.
    fn section<'a>(text: &'a str, name: &str) -> &'a str {
        let heading = format!("\n[{name}]\n");
        let Some((_, rest)) = text.split_once(&heading) else {
            return "";
        };
        rest.split_once("\n[").map_or(rest, |(section, _)| section)
    }

    /// How a golden file differs, a line for each section that does.
    fn differences(&self, golden: &str) -> Vec<String> {
        let mut differences = Vec::new();
        for (name, found) in self.sections() {
            let mut wanted = Self::section(golden, name).trim_end().lines();
            let mut found = found.trim_end().lines();
            let mut place = "";
            loop {
                let (wanted, found) = (wanted.next(), found.next());
                if wanted != found {
                    let [wanted, found] = [wanted, found].map(|line| line.unwrap_or("the end"));
                    differences.push(format!(
                        "[{name}] {place}: the file has {:?}, the run {:?}",
                        wanted.trim(),
                        found.trim()
                    ));
                    break;
                }
                let Some(line) = found else { break };
                if !line.starts_with(' ') {
                    place = line;
                }
            }
        }
        differences
    }
}

/// Where the golden file of a case is.
fn path(case: &str) -> PathBuf {
    directory().join(format!("{case}.txt"))
}

/// Where all golden files are.
pub fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Compares records with the golden file of a case, or writes it where that is asked for.
pub fn compare(case: &str, plan: &Plan, records: &[Record]) {
    let golden = Golden::new(plan, records);
    let path = path(case);
    if blesses() {
        fs::write(&path, golden.text()).expect("the golden file is written");
        return;
    }
    let wanted = fs::read_to_string(&path).unwrap_or_default();
    let differences = golden.differences(&wanted);
    assert!(
        differences.is_empty(),
        "{case} differs from {}:\n{}\n{BLESS}=1 writes the file; tests/golden/README.md says when it may change",
        path.display(),
        differences.join("\n")
    );
}
