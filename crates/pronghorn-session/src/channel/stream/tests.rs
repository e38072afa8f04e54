//! Records over real sockets, against rustls's own.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection,
    SupportedCipherSuite,
    client::UnbufferedClientConnection,
    crypto::CryptoProvider,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName},
    server::UnbufferedServerConnection,
    version::TLS13,
};

use super::{TlsStream, WRITE};
use crate::{
    channel::{
        ChannelError,
        binding::{Binding, LABEL},
        exporter::Exporter,
        handshake::{Established, Failure, complete, timed},
        pinned::{Pinned, fingerprint},
        provider,
        record::{FRAGMENT, HEADER, RECORD},
    },
    transport::{Ends, Transport},
};

/// Configurations of a server, and of a client that pins its certificate, with one cipher suite.
fn configs(suite: SupportedCipherSuite) -> (ClientConfig, ServerConfig) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("a name");
    let certificate = parameters.self_signed(&key).expect("a certificate");
    let certificate = certificate.der().clone();
    let provider = Arc::new(CryptoProvider {
        cipher_suites: vec![suite],
        ..(*provider()).clone()
    });
    let verifier = Pinned {
        fingerprint: fingerprint(&certificate),
        provider: provider.clone(),
    };
    let mut client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .expect("TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    client.enable_secret_extraction = true;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .expect("TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("its key");
    server.enable_secret_extraction = true;
    server.send_tls13_tickets = 0;
    (client, server)
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().unwrap()).expect("it listens");
    let (server, _) = listener.accept().expect("a client");
    for socket in [&client, &server] {
        socket.set_nodelay(true).expect("a socket");
    }
    (client, server)
}

fn name() -> ServerName<'static> {
    ServerName::try_from("localhost").expect("a name")
}

fn finished(result: Result<Established, Failure>) -> Established {
    match result {
        Ok(established) => established,
        Err(Failure::Line(error)) => panic!("{error}"),
        Err(Failure::Tls(error) | Failure::Plain(_, error)) => panic!("{error}"),
    }
}

/// A party with our records.
fn ours(socket: TcpStream, established: Established, records_a_key: Option<u64>) -> TlsStream {
    let mut sealer = established.sealer;
    if let Some(records) = records_a_key {
        sealer.limit_records(records);
    }
    TlsStream::new(socket, sealer, established.opener, ChannelError::of_server)
}

fn our_client(mut config: ClientConfig, socket: &TcpStream) -> Established {
    let exporter = Exporter::default();
    config.key_log = Arc::new(exporter.clone());
    let connection = UnbufferedClientConnection::new(Arc::new(config), name()).unwrap();
    let mut line = timed(socket, &Ends::default(), Duration::from_secs(20)).unwrap();
    finished(complete(connection, &exporter, &[], &mut line))
}

fn our_server(mut config: ServerConfig, socket: &TcpStream) -> Established {
    let exporter = Exporter::default();
    config.key_log = Arc::new(exporter.clone());
    let connection = UnbufferedServerConnection::new(Arc::new(config)).unwrap();
    let mut line = timed(socket, &Ends::default(), Duration::from_secs(20)).unwrap();
    finished(complete(connection, &exporter, &[], &mut line))
}

/// A party with rustls's records.
struct Theirs {
    connection: Connection,
    socket: TcpStream,
}

impl Theirs {
    /// Goes through the handshake.
    fn new(connection: impl Into<Connection>, mut socket: TcpStream) -> Self {
        let mut connection = connection.into();
        while connection.is_handshaking() {
            connection.complete_io(&mut socket).expect("a handshake");
        }
        while connection.wants_write() {
            connection.write_tls(&mut socket).expect("the end of it");
        }
        Self { connection, socket }
    }

    fn binding(&self) -> Binding {
        let exported = self.connection.export_keying_material([0; 32], LABEL, None);
        Binding::new(exported.expect("the handshake is over"))
    }

    fn read(&mut self, length: usize) -> Result<Vec<u8>, rustls::Error> {
        let mut data = vec![0; length];
        let mut there = 0;
        while there < length {
            match self.connection.reader().read(&mut data[there..]) {
                Ok(0) => break,
                Ok(read) => there += read,
                Err(_) => {
                    self.connection.read_tls(&mut self.socket).expect("bytes");
                    self.connection.process_new_packets()?;
                }
            }
        }
        data.truncate(there);
        Ok(data)
    }

    fn write(&mut self, data: &[u8]) {
        for part in data.chunks(FRAGMENT) {
            self.connection.writer().write_all(part).expect("memory");
            while self.connection.wants_write() {
                self.connection.write_tls(&mut self.socket).expect("room");
            }
        }
    }

    /// Sends back what comes, in rounds, under new keys each time; then waits for the goodbye.
    fn echo(mut self, rounds: usize, length: usize) {
        for _ in 0..rounds {
            let data = self.read(length).expect("good records");
            assert_eq!(data.len(), length);
            self.connection.refresh_traffic_keys().expect("TLS 1.3");
            self.write(&data);
        }
        assert!(self.read(1).expect("a goodbye").is_empty());
    }
}

fn read_all(stream: &mut TlsStream, data: &mut [u8]) {
    let mut there = 0;
    while there < data.len() {
        match stream.read(&mut data[there..]) {
            Ok(0) => panic!("it has ended"),
            Ok(read) => there += read,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}"),
        }
    }
}

/// Sends data in rounds, and expects it back.
fn exchange(mut stream: TlsStream, rounds: usize, length: usize) {
    for round in 0..rounds {
        let data: Vec<u8> = (0..length).map(|at| (at * 31 + round) as u8).collect();
        let mut back = vec![0; length];
        let mut sender = TlsStream {
            shared: stream.shared.clone(),
            socket: stream.socket.try_clone().expect("a handle"),
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                sender.write_all(&data).expect("it reads");
                while let Err(error) = sender.flush() {
                    assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
                }
            });
            read_all(&mut stream, &mut back);
        });
        assert!(back == data, "round {round}");
    }
    stream.shutdown(Shutdown::Write).expect("it is open");
}

/// Both parties keep to the standard: rustls reads our records, and we its, under each cipher and
/// over renewals of keys on both sides. Both export the same.
#[test]
fn rustls_reads_our_records_and_we_read_its() {
    const LENGTH: usize = 3 * WRITE + 12_345;
    for suite in provider().cipher_suites.clone() {
        for records_a_key in [None, Some(3)] {
            let (client, server) = configs(suite);
            let (near, far) = sockets();
            let peer = thread::spawn(move || {
                let theirs = Theirs::new(ServerConnection::new(Arc::new(server)).unwrap(), far);
                let binding = theirs.binding();
                theirs.echo(4, LENGTH);
                binding
            });
            let established = our_client(client, &near);
            let binding = established.binding;
            exchange(ours(near, established, records_a_key), 4, LENGTH);
            assert_eq!(peer.join().expect("it agrees"), binding);

            let (client, server) = configs(suite);
            let (near, far) = sockets();
            let peer = thread::spawn(move || {
                let connection = ClientConnection::new(Arc::new(client), name()).unwrap();
                let theirs = Theirs::new(connection, far);
                let binding = theirs.binding();
                theirs.echo(4, LENGTH);
                binding
            });
            let established = our_server(server, &near);
            let binding = established.binding;
            exchange(ours(near, established, records_a_key), 4, LENGTH);
            assert_eq!(peer.join().expect("it agrees"), binding);
        }
    }
}

/// Two of our parties, the second's socket in our hands.
fn connected() -> (TlsStream, Established, TcpStream) {
    let (client, server) = configs(provider().cipher_suites[0]);
    let (near, far) = sockets();
    let handle = far.try_clone().expect("a handle");
    let peer = thread::spawn(move || our_server(server, &handle));
    let established = our_client(client, &near);
    let peer = peer.join().expect("it agrees");
    (ours(near, established, None), peer, far)
}

/// What comes of some bytes in place of the peer's records: the data before an error, and the error.
fn outcome(stream: &mut TlsStream, mut line: &TcpStream, bytes: &[u8]) -> (Vec<u8>, String) {
    line.write_all(bytes).expect("room");
    line.shutdown(Shutdown::Write).expect("it is open");
    let mut data = Vec::new();
    let mut buffer = [0; 1 << 12];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (data, "ended".into()),
            Ok(read) => data.extend(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (data, error.to_string()),
        }
    }
}

/// Records as a peer seals them, one for each datum.
fn sealed(peer: &mut Established, data: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    for datum in data {
        let sealed = peer.sealer.seal_data(datum, |record| records.push(record));
        sealed.expect("a cipher");
    }
    records
}

/// No changed, lost, doubled or exchanged record gives data, and the records before it do.
#[test]
fn changed_records_are_errors() {
    type Change = fn(&mut Vec<Vec<u8>>);
    let changes: [(&str, Change, &[u8], &str); 9] = [
        ("nothing", |_| {}, b"onetwothree", "ended"),
        (
            "a byte",
            |records| records[1][HEADER] ^= 1,
            b"one",
            "decrypt",
        ),
        (
            "a tag",
            |records| *records[1].last_mut().unwrap() ^= 1,
            b"one",
            "decrypt",
        ),
        (
            "a kind",
            |records| records[1][0] = 22,
            b"one",
            "without protection",
        ),
        (
            "a length",
            |records| records[1][3] = 0xff,
            b"one",
            "MessageTooLarge",
        ),
        (
            "a version",
            |records| records[1][1] = 2,
            b"one",
            "UnknownProtocolVersion",
        ),
        ("lost", |records| drop(records.remove(1)), b"one", "decrypt"),
        (
            "doubled",
            |records| records[1] = records[0].clone(),
            b"one",
            "decrypt",
        ),
        ("exchanged", |records| records.swap(1, 2), b"one", "decrypt"),
    ];
    for (what, change, data, wanted) in changes {
        let (mut stream, mut peer, line) = connected();
        let mut records = sealed(&mut peer, &[b"one", b"two", b"three"]);
        change(&mut records);
        let (found, error) = outcome(&mut stream, &line, &records.concat());
        assert_eq!(found, data, "{what}");
        assert!(error.contains(wanted), "{what}: {error}");
    }
}

/// The peer hears of a record that is refused by one alert.
#[test]
fn a_refused_record_is_told() {
    let (mut stream, mut peer, line) = connected();
    let mut records = sealed(&mut peer, &[b"one"]);
    records[0][HEADER] ^= 1;
    outcome(&mut stream, &line, &records.concat());
    drop(stream);
    let mut told = Vec::new();
    (&line).read_to_end(&mut told).expect("an alert");
    assert!(told.len() < RECORD, "{} bytes", told.len());
    let error = peer.opener.open(&mut told).err().expect("an alert");
    let wanted = rustls::AlertDescription::BadRecordMac;
    assert_eq!(error, rustls::Error::AlertReceived(wanted));
}

/// Records without data, of which new keys are the dearest, end soon; a read of nothing takes nothing.
#[test]
fn records_without_data_are_counted() {
    for (renewals, wanted) in [(32, "ended"), (33, "TooManyEmptyFragments")] {
        let (mut stream, mut peer, line) = connected();
        let mut bytes = sealed(&mut peer, &[b"one"]).concat();
        for _ in 0..renewals {
            bytes.extend(peer.sealer.renew().expect("a cipher"));
        }
        bytes.extend(sealed(&mut peer, &[b"two"]).concat());
        assert_eq!(stream.read(&mut []).expect("nothing"), 0);
        let (found, error) = outcome(&mut stream, &line, &bytes);
        assert!(
            found.starts_with(b"one") && error.contains(wanted),
            "{error}"
        );
        assert_eq!(found == b"onetwo", wanted == "ended");
    }
}

/// Proxies give tickets, which change nothing.
#[test]
fn tickets_are_passed_over() {
    let (mut stream, mut peer, line) = connected();
    let mut bytes = sealed(&mut peer, &[b"one"]).concat();
    let tickets = peer.sealer.seal(
        rustls::ContentType::Handshake,
        &[4, 0, 0, 1, 0, 4, 0, 0, 2, 0, 0],
    );
    bytes.extend(tickets.expect("a cipher"));
    bytes.extend(sealed(&mut peer, &[b"two"]).concat());
    let outcome = outcome(&mut stream, &line, &bytes);
    assert_eq!(outcome, (b"onetwo".to_vec(), "ended".into()));
}

/// After the handshake nothing else comes but data, goodbyes, alerts and new keys.
#[test]
fn other_messages_are_refused() {
    for (kind, message, wanted) in [
        (22, &[4_u8, 0, 0, 1][..], "after the handshake"),
        (22, &[4, 0, 0, 1, 0, 13, 0, 0, 0], "after the handshake"),
        (22, &[], "after the handshake"),
        (22, &[24, 0, 0, 1, 2], "InvalidKeyUpdate"),
        (22, &[24, 0, 0, 1], "InvalidKeyUpdate"),
        (22, &[24, 0, 0, 1, 0, 24, 0, 0, 1, 0], "InvalidKeyUpdate"),
        (20, &[1], "IllegalMiddleboxChangeCipherSpec"),
        (21, &[1], "MessageTooShort"),
        (21, &[2, 80], "InternalError"),
        (21, &[1, 90], "ended"),
        (77, &[1], "InvalidContentType"),
    ] {
        let (mut stream, mut peer, line) = connected();
        let mut bytes = sealed(&mut peer, &[b"one"]).concat();
        let record = peer.sealer.seal(rustls::ContentType::from(kind), message);
        bytes.extend(record.expect("a cipher"));
        let (found, error) = outcome(&mut stream, &line, &bytes);
        assert_eq!(found, b"one");
        assert!(error.contains(wanted), "{kind} {message:?}: {error}");
    }
}
