//! TLS between real sockets: who is let in, who is not, and what both are told.

use std::{
    fs,
    io::{Read, Write},
    net::{IpAddr, Shutdown, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::common::{
    line::Line,
    relay::Relay,
    tls::{Keys, connect, replace, serve, with_tls},
    *,
};
use pronghorn_session::{
    ChannelError, Client, ClientChannel, ClientTls, ConnectOptions, ErrorCode, FrameError, Limits,
    Server, ServerChannel, ServerTls, Service, SessionError, Token, Trusted,
};

/// The error of a connection, which both parties hear of, and a good client after it.
fn refused(running: &Running, keys: &Keys, tls: ClientTls) -> SessionError {
    let error = connect(running.address(), tls)
        .err()
        .expect("it is refused");
    predicts(connect(running.address(), keys.client("alice")).expect("a good client is served"));
    error
}

fn channel(error: SessionError) -> ChannelError {
    match error {
        SessionError::Channel(error) => error,
        other => panic!("{other:?}"),
    }
}

/// What a server has told its client.
fn told(error: &SessionError, wanted: ErrorCode) -> String {
    match error {
        SessionError::Peer { code, text } if *code == wanted => text.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn certificates_and_tokens_are_let_in() {
    let keys = Keys::new();
    let running = serve(keys.server(), patient());
    predicts(connect(running.address(), keys.client("alice")).expect("she has a certificate"));
    predicts(connect(running.address(), keys.client("bob")).expect("he has a token"));
    for name in ["alice", "bob"] {
        running.wait_for_log(&format!("is {name}"));
    }
}

#[test]
fn each_way_to_know_a_server() {
    let keys = Keys::new();
    let running = serve(keys.server(), patient());
    let fingerprint = running
        .server()
        .fingerprint()
        .expect("it has a certificate");
    let mut pin = [0; 32];
    for (byte, digits) in pin.iter_mut().zip(fingerprint.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap();
    }
    let pinned = |trusted| ClientTls {
        trusted,
        ..keys.client("alice")
    };
    let client = connect(running.address(), pinned(Trusted::Fingerprint(pin)));
    predicts(client.expect("the certificate is the pinned one"));
    let mut other = pin;
    other[31] ^= 1;
    match channel(refused(
        &running,
        &keys,
        pinned(Trusted::Fingerprint(other)),
    )) {
        ChannelError::Fingerprint { expected, found } => {
            assert_eq!((expected, found), (other, pin))
        }
        error => panic!("{error:?}"),
    }
    running.wait_for_log("does not accept this server's certificate");
    let error = channel(refused(&running, &keys, pinned(Trusted::System)));
    assert!(matches!(error, ChannelError::UnknownIssuer), "{error:?}");
}

#[test]
fn another_ca_name_or_date_is_refused() {
    let (keys, others) = (Keys::new(), Keys::new());
    let running = serve(keys.server(), patient());
    let error = refused(&running, &keys, others.stranger());
    assert_eq!(
        (error.code(), error.is_retryable()),
        (ErrorCode::Channel, false)
    );
    assert!(matches!(channel(error), ChannelError::UnknownIssuer));
    let tls = ClientTls {
        name: Some("elsewhere.example".into()),
        ..keys.client("alice")
    };
    match channel(refused(&running, &keys, tls)) {
        ChannelError::WrongName { name, names } => {
            assert_eq!(name, "elsewhere.example");
            for name in ["localhost", "127.0.0.1"] {
                assert!(names.contains(&name.to_owned()), "{names:?}");
            }
        }
        error => panic!("{error:?}"),
    }
    let old = Keys::valid_for(-1);
    let running = serve(old.server(), patient());
    let error = connect(running.address(), old.client("bob"))
        .err()
        .expect("it has expired");
    assert!(matches!(channel(error), ChannelError::Expired));
}

#[test]
fn clients_without_a_certificate_hear_what_is_wanted() {
    let (keys, others) = (Keys::new(), Keys::new());
    let files = ServerTls {
        tokens: None,
        ..keys.server()
    };
    let running = serve(files, patient());
    let error = refused(&running, &keys, keys.stranger());
    assert_eq!(error.code(), ErrorCode::Unauthorised);
    assert!(matches!(channel(error), ChannelError::CertificateWanted));
    running.wait_for_log("the client's certificate is refused: it has none");
    let old = Keys::valid_for(-1);
    for other in [&others, &old] {
        let tls = ClientTls {
            certificate: other.client("alice").certificate,
            ..keys.stranger()
        };
        let error = channel(refused(&running, &keys, tls));
        assert!(
            matches!(error, ChannelError::CertificateRefused { .. }),
            "{error:?}"
        );
    }
    // A server's certificate is none of a client's, though of the same CA.
    let tls = ClientTls {
        certificate: Some((
            keys.path("server/server.pem"),
            keys.path("server/server.key"),
        )),
        ..keys.stranger()
    };
    let error = channel(refused(&running, &keys, tls));
    assert!(
        matches!(error, ChannelError::CertificateRefused { .. }),
        "{error:?}"
    );
}

#[test]
fn tokens_are_asked_for_and_checked() {
    let (keys, others) = (Keys::new(), Keys::new());
    let running = serve(keys.server(), patient());
    let error = refused(&running, &keys, keys.stranger());
    assert!(told(&error, ErrorCode::Unauthorised).contains("wants a token or a certificate"));
    let stolen = format!("bob.{}", "0".repeat(64));
    for token in [
        others.token("bob"),
        Token::parse(&stolen).expect("it has the form"),
    ] {
        let tls = ClientTls {
            token: Some(token),
            ..keys.stranger()
        };
        let error = refused(&running, &keys, tls);
        assert!(told(&error, ErrorCode::Unauthorised).contains("refuses this token"));
    }
    running.wait_for_log("the server refuses this token");
    // A new token replaces the old one, and the server need not start again.
    let old = keys.client("bob");
    keys.make(&[], &[], &["bob"], 30);
    let error = refused(&running, &keys, old);
    assert!(told(&error, ErrorCode::Unauthorised).contains("refuses this token"));
    predicts(connect(running.address(), keys.client("bob")).expect("it is the new one"));
}

#[test]
fn a_server_that_asks_nothing_serves_anybody() {
    let keys = Keys::new();
    let files = ServerTls {
        authority: None,
        tokens: None,
        ..keys.server()
    };
    let running = serve(files, patient());
    for tls in [keys.stranger(), keys.client("alice"), keys.client("bob")] {
        predicts(connect(running.address(), tls).expect("all are served"));
    }
}

#[test]
fn plain_and_tls_tell_each_other_apart() {
    let keys = Keys::new();
    let running = serve(keys.server(), patient());
    let error = running.connect().err().expect("the server speaks TLS");
    assert!(told(&error, ErrorCode::Channel).contains("this server speaks TLS"));
    running.wait_for_log("this server speaks TLS");
    predicts(connect(running.address(), keys.client("alice")).expect("a good client is served"));

    let plain = Running::real(patient());
    let error = connect(plain.address(), keys.client("alice")).err();
    let error = channel(error.expect("the server speaks plain TCP"));
    assert!(matches!(error, ChannelError::NotTls), "{error:?}");
    plain.serves_a_good_client(predicts);
}

/// A refusal before TLS is one that passes, in the client's own words.
#[test]
fn busy_servers_say_so_before_tls() {
    let keys = Keys::new();
    let limits = Limits {
        caps: caps(&[("max-connections-in-all", 1)]),
        ..patient()
    };
    let running = serve(keys.server(), limits);
    let silent = TcpStream::connect(running.address()).expect("it listens");
    let error = loop {
        match connect(running.address(), keys.client("alice")) {
            Ok(_) => thread::sleep(Duration::from_millis(5)),
            Err(error) => break error,
        }
    };
    assert!(
        error.is_retryable() && error.reason() == "busy",
        "{error:?}"
    );
    assert!(error.to_string().contains("said before TLS"), "{error}");
    drop(silent);
    while connect(running.address(), keys.client("alice")).is_err() {
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn foreign_bytes_are_refused() {
    let keys = Keys::new();
    let running = serve(keys.server(), patient());
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03"[..],
        &b"\x16\x03\x03\x00\x05hello"[..],
        &[22; 64],
        &[0; 64],
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(running.address()).expect("it listens");
        stream.write_all(bytes).expect("it is open");
        stream.shutdown(Shutdown::Write).expect("it is open");
        // The server closes, whatever it says.
        let _ = stream.read_to_end(&mut Vec::new());
        predicts(connect(running.address(), keys.client("alice")).expect("others are served"));
    }
}

/// The bytes that each side of a TLS connection sends until a prediction is over.
fn bytes_of(keys: &Keys, running: &Running) -> [usize; 2] {
    let line = Line::new(running, |_, _| true);
    attempt(&line.address(), keys).expect("the line is good");
    thread::sleep(Duration::from_millis(100));
    line.bytes()
}

#[test]
fn a_line_that_is_cut_anywhere_ends_one_session() {
    let keys = Keys::new();
    let running = serve(keys.server(), patient());
    let lengths = bytes_of(&keys, &running);
    for (way, length) in lengths.into_iter().enumerate() {
        let early = (0..40).map(|step| step * 50);
        let later = (1..20).map(|step| length * step / 20);
        for cut in early.chain(later).filter(|&cut| cut < length) {
            let line = Line::new(&running, move |found, at| found != way || at < cut);
            let outcome = attempt(&line.address(), &keys);
            // The last bytes are the goodbyes; signatures differ in length by some bytes.
            let is_late = cut + 100 >= length;
            assert!(
                is_late || outcome.is_err(),
                "way {way}, byte {cut} of {length}"
            );
        }
    }
    predicts(connect(running.address(), keys.client("alice")).expect("others are served"));
}

/// A prediction whose result, if there is one, is right.
fn attempt(address: &str, keys: &Keys) -> Result<(), SessionError> {
    let options = ConnectOptions {
        timeout: Duration::from_secs(20),
        ..with_tls(keys.client("alice"))
    };
    let mut client = Client::connect(address, options)?;
    let inputs = numbers(INPUTS);
    let found = client.predict(&inputs, 1, &mut |_| {})?;
    let wanted = pronghorn_session::in_process(&model(), &inputs, 1).expect("the run succeeds");
    assert_eq!(found.outputs, wanted.outputs(client.plan()));
    Ok(())
}

#[test]
fn a_flipped_bit_is_never_a_wrong_result() {
    let keys = Keys::new();
    let running = serve(keys.server(), patient());
    let lengths = bytes_of(&keys, &running);
    for (way, length) in lengths.into_iter().enumerate() {
        let mut noticed = 0;
        for step in 0..25 {
            let place = 5 + step * (length - 100) / 25;
            let line = Line::changing(&running, move |found, at| {
                (found == way && at == place).then_some(1 << (place % 8))
            });
            noticed += usize::from(attempt(&line.address(), &keys).is_err());
        }
        // The version in a record's header means nothing, and a flip there changes nothing.
        assert!(noticed >= 20, "way {way}: {noticed} of 25");
    }
    predicts(connect(running.address(), keys.client("alice")).expect("others are served"));
}

#[test]
fn slow_handshakes_end_and_block_nobody() {
    let keys = Keys::new();
    let limits = Limits {
        hello_timeout: Duration::from_millis(1500),
        ..patient()
    };
    let running = serve(keys.server(), limits);
    // More than there are places.
    let mut silent: Vec<_> = (0..20)
        .map(|_| TcpStream::connect(running.address()).expect("it listens"))
        .collect();
    for stream in &mut silent[..10] {
        stream.write_all(b"\x16").expect("it is open");
    }
    predicts(connect(running.address(), keys.client("alice")).expect("others are served"));
    let started = Instant::now();
    // A byte now and then does not help.
    for mut stream in silent {
        stream
            .set_read_timeout(Some(Duration::from_millis(50)))
            .expect("it is open");
        while !matches!(stream.read(&mut [0; 64]), Ok(0)) {
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "it is never closed"
            );
            if stream.write_all(b"\x03").is_err() {
                break;
            }
        }
    }
    running.wait_for_log("too slow for longer than its time limit");
    predicts(connect(running.address(), keys.client("alice")).expect("others are served"));
}

#[test]
fn a_silent_server_ends_a_clients_handshake_in_time_or_at_once() {
    let keys = Keys::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    let options = ConnectOptions {
        connect_timeout: Duration::from_millis(300),
        ..with_tls(keys.client("alice"))
    };
    let error = Client::connect(&address, options.clone())
        .err()
        .expect("nobody answers");
    assert!(
        matches!(error, SessionError::Frame(FrameError::Timeout)),
        "{error:?}"
    );
    let cancel = Arc::<AtomicBool>::default();
    let options = ConnectOptions {
        connect_timeout: Duration::from_secs(100),
        cancel: cancel.clone(),
        ..options
    };
    let client = thread::spawn(move || Client::connect(&address, options).err());
    thread::sleep(Duration::from_millis(100));
    cancel.store(true, Ordering::SeqCst);
    let error = client
        .join()
        .expect("it does not panic")
        .expect("it is cancelled");
    assert!(matches!(error, SessionError::Cancelled), "{error:?}");
}

#[test]
fn certificates_rotate_without_a_restart() {
    let keys = Keys::new();
    let running = serve(keys.server(), patient());
    let fingerprint = || {
        running
            .server()
            .fingerprint()
            .expect("it has a certificate")
    };
    let mut kept = connect(running.address(), keys.client("alice")).expect("she is served");
    let first = fingerprint();
    keys.make(&["localhost"], &[], &[], 30);
    predicts(connect(running.address(), keys.client("alice")).expect("the CA is the same"));
    let second = fingerprint();
    assert_ne!(first, second);
    running.wait_for_log(&second);
    // One that cannot be used changes nothing.
    let key = keys.path("server/server.key");
    let bytes = fs::read(&key).expect("it is there");
    replace(&key, b"nonsense");
    predicts(connect(running.address(), keys.client("alice")).expect("the old ones serve on"));
    running.wait_for_log("those of before serve on");
    replace(&key, &bytes);
    predicts(connect(running.address(), keys.client("alice")).expect("all is well again"));
    assert_eq!(fingerprint(), second);
    // Connections are not cut.
    kept.predict(&numbers(INPUTS), 1, &mut |_| {})
        .expect("it is the same connection");
}

/// An address of this machine that is not loopback, where it has one.
fn beyond_loopback() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // No packet is sent.
    socket.connect("192.0.2.1:9").ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_loopback()).then_some(own)
}

#[test]
fn plain_tcp_beyond_loopback_must_be_asked_for_on_both_sides() {
    let bind = |channel| Server::bind_over("0.0.0.0:0", vec![model().into()], patient(), channel);
    let error = bind(ServerChannel::default())
        .err()
        .expect("it is no loopback");
    assert!(
        error.to_string().contains("--insecure-plain-tcp"),
        "{error}"
    );
    assert!(matches!(channel(error), ChannelError::PlainListen { .. }));
    let server = bind(ServerChannel::InsecurePlainTcp).expect("it was asked for");
    let running = Running::start(server);
    let Some(own) = beyond_loopback() else {
        eprintln!("this machine has loopback alone");
        return;
    };
    let address = format!("{own}:{}", running.address().port());
    let over = |channel| {
        let options = ConnectOptions {
            channel,
            ..options()
        };
        Client::connect(&address, options)
    };
    let error = channel(
        over(ClientChannel::Default)
            .err()
            .expect("it is no loopback"),
    );
    assert!(matches!(error, ChannelError::NotTls), "{error:?}");
    predicts(over(ClientChannel::InsecurePlainTcp).expect("it was asked for"));
}

#[test]
fn readers_that_do_not_read_are_cut_under_tls() {
    let keys = Keys::new();
    let service: Box<dyn Service> = Box::<Mock>::default();
    let channel = ServerChannel::Tls(keys.server());
    let limits = Limits {
        hello_timeout: Duration::from_secs(100),
        ..limits()
    };
    let server = Server::bind_over("127.0.0.1:0", vec![service.into()], limits, channel);
    let running = Running::start(server.expect("a port is free"));
    // The line swallows what the server sends after the hellos.
    let line = Line::stopping(&running, 1, 6000);
    let options = ConnectOptions {
        timeout: Duration::from_secs(5),
        ..with_tls(keys.client("alice"))
    };
    let mut client = Client::connect(&line.address(), options).expect("the hellos pass");
    let outcome = client.run(&mut PingPong::client(FLOODS), FLOODS, &mut |_| {});
    assert!(outcome.is_err());
    running.wait_for_log("too slow for longer than its time limit");
    let good = connect(running.address(), keys.client("alice")).expect("others are served");
    plays(good);
}

#[test]
fn a_client_can_be_cancelled_and_a_server_stopped_under_tls() {
    let keys = Keys::new();
    let mut running = serve(keys.server(), patient());
    let cancel = Arc::<AtomicBool>::default();
    let options = ConnectOptions {
        cancel: cancel.clone(),
        ..with_tls(keys.client("alice"))
    };
    let address = running.address().to_string();
    let mut client = Client::connect(&address, options).expect("it is served");
    cancel.store(true, Ordering::SeqCst);
    let error = client.predict(&numbers(INPUTS), 1, &mut |_| {}).err();
    assert!(matches!(error, Some(SessionError::Cancelled)), "{error:?}");
    running.wait_for_log("the client's user cancelled");
    let mut waiting = connect(running.address(), keys.client("alice")).expect("it is served");
    running.stop();
    let error = waiting
        .predict(&numbers(INPUTS), 1, &mut |_| {})
        .expect_err("it is gone");
    assert!(error.is_retryable(), "{error:?}");
}

#[test]
fn a_relay_of_whole_frames_cannot_read_the_channel() {
    // The relay of other tests reads frames by their lengths: of TLS it makes nothing.
    let keys = Keys::new();
    let running = serve(keys.server(), patient());
    let relay = Relay::new(running.address(), |_| true);
    let options = ConnectOptions {
        connect_timeout: Duration::from_millis(500),
        ..with_tls(keys.client("alice"))
    };
    assert!(Client::connect(&relay.address(), options).is_err());
    assert!(relay.seen().is_empty());
}

#[test]
fn images_of_a_client_are_counted_by_name_over_restarts() {
    let keys = Keys::new();
    let store = keys.path("store");
    let limits = Limits {
        caps: caps(&[("max-clients", 4), ("max-images", 5)]),
        ..patient()
    };
    let serve = || {
        let channel = ServerChannel::Tls(keys.server());
        let server =
            Server::bind_over("127.0.0.1:0", vec![model().into()], limits.clone(), channel);
        Running::start(server.unwrap().with_store(&store).expect("it is made"))
    };
    let left = |running: &Running, name| {
        let client = connect(running.address(), keys.client(name)).expect("it is known");
        client.images_left()
    };
    let running = serve();
    predicts(connect(running.address(), keys.client("alice")).expect("she is known"));
    assert_eq!(left(&running, "alice"), Some(2));
    // The other has the same address, and images of its own.
    assert_eq!(left(&running, "bob"), Some(5));
    drop(running);
    // A new certificate of the same name is the same client.
    keys.make(&[], &["alice"], &[], 30);
    let running = serve();
    assert_eq!(left(&running, "alice"), Some(2));
    let mut alice = connect(running.address(), keys.client("alice")).expect("she is known");
    let error = alice.predict(&numbers(INPUTS * 3), 3, &mut |_| {}).err();
    assert!(
        matches!(error, Some(SessionError::Quota { asked: 3, left: 2 })),
        "{error:?}"
    );
}

#[cfg(unix)]
#[test]
fn stores_that_others_may_enter_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let keys = Keys::new();
    let store = keys.path("store");
    fs::create_dir(&store).expect("it is ours");
    for (mode, fine) in [
        (0o755, false),
        (0o750, false),
        (0o701, false),
        (0o700, true),
    ] {
        fs::set_permissions(&store, fs::Permissions::from_mode(mode)).expect("it is ours");
        let server = Server::bind("127.0.0.1:0", model(), patient()).expect("a port is free");
        let opened = server.with_store(&store);
        match opened.err() {
            None => assert!(fine, "{mode:o}"),
            Some(error) => {
                assert!(!fine && error.to_string().contains("chmod 700"), "{error}");
            }
        }
    }
}

/// A name whose keys are false is served no more, in this process and the next one with the store,
/// until the server's owner removes it. Others are served on.
#[test]
fn a_name_with_false_keys_is_barred() {
    let keys = Keys::new();
    let store = keys.path("store");
    private_directory(&store);
    let start = || {
        let channel = ServerChannel::Tls(keys.server());
        let mock: Box<dyn Service> = Box::new(Mock::default());
        let server = Server::bind_over("127.0.0.1:0", vec![mock.into()], patient(), channel);
        Running::start(
            server
                .and_then(|server| server.with_store(&store))
                .expect("a port"),
        )
    };
    let barred = |running: &Running, name: &str| {
        let error = connect(running.address(), keys.client(name)).err();
        told(&error.expect("it is refused"), ErrorCode::FalseKeys)
    };
    let running = start();
    let mut client = connect(running.address(), keys.client("alice")).expect("she is let in");
    let machine = &mut PingPong::client(FALSE_KEYS);
    let error = client.run(machine, FALSE_KEYS, &mut |_| {});
    told(
        &error.expect_err("her keys are false"),
        ErrorCode::FalseKeys,
    );
    running.wait_for_log("ATTACK: a client has sent false keys: alice is served no more");
    assert!(barred(&running, "alice").contains("alice is served no more"));
    plays(connect(running.address(), keys.client("bob")).expect("he is let in"));
    drop(running);
    let running = start();
    barred(&running, "alice");
    fs::remove_file(store.join("server").join("barred")).expect("it is there");
    plays(connect(running.address(), keys.client("alice")).expect("she is let in again"));
}
