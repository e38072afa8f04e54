//! Limits of a cloud on clients and addresses: refused with a code, while others go on.

use std::{io::Read, net::TcpStream, thread, time::Duration};

use crate::roles::*;
use pronghorn_session::{
    ErrorCode, SessionError,
    frame::{self, Kind, MAX_ERROR},
    limits::table::Caps,
    multikey::{CloudClient, CloudError, CloudLimits, CloudOptions, Refusal},
};

fn limited(limits: &[(&str, u64)]) -> CloudOptions {
    let caps = limits.iter().fold(Caps::default(), |caps, (name, most)| {
        caps.with(name, Some(*most)).expect("it is a limit")
    });
    let limits = CloudLimits {
        caps,
        queue: Duration::from_millis(10),
        ..CloudLimits::default()
    };
    CloudOptions {
        limits,
        ..CloudOptions::default()
    }
}

/// A refusal in the words of roles, which names the limit.
fn refused<T>(found: Result<T, CloudError>, refusal: Refusal, name: &str) {
    match found.err() {
        Some(error @ CloudError::Refused { refusal: of, .. }) if of == refusal => {
            assert!(error.to_string().contains(name), "{error}");
            assert_eq!(error.reason(), refusal.name());
            assert_eq!(error.is_retryable(), refusal == Refusal::Busy);
        }
        found => panic!("{found:?} in place of {refusal:?}"),
    }
}

/// A connection beyond the limit is told so, and closed. When another ends it may come.
#[test]
fn an_address_has_so_many_connections() {
    for name in ["max-connections", "max-connections-in-all"] {
        let scratch = Scratch::new();
        let cloud = Cloud::start(&scratch, limited(&[(name, 2)]));
        let owner = Attending::start(&scratch, &cloud, 8, 1);
        let silent = TcpStream::connect(cloud.address()).expect("it listens");
        // The cloud has accepted it once a third is refused.
        let mut third = TcpStream::connect(cloud.address()).expect("it listens");
        let mut body = Vec::new();
        let kind = frame::read_frame(&mut third, &[(Kind::Error, MAX_ERROR)], &mut body);
        assert_eq!(kind.expect("a frame"), Kind::Error);
        assert!(String::from_utf8_lossy(&body).contains(name));
        assert_eq!(third.read(&mut [0; 1]).expect("the end"), 0);
        let seed = seed(&scratch, "client");
        let meet = || CloudClient::meet(&cloud.address(), owner.party, &seed, options());
        let error = meet().err().expect("the silent one has the place");
        assert_eq!((error.reason(), error.is_retryable()), ("busy", true));
        assert!(matches!(
            error,
            CloudError::Session(SessionError::Peer {
                code: ErrorCode::Busy,
                ..
            })
        ));
        drop(silent);
        cloud.events.wait("left", 1);
        while meet().is_err() {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// One client, or address, does not take the places of all. The owner needs none.
#[test]
fn clients_have_so_many_places() {
    for (name, most) in [
        ("max-sessions-per-client", 1),
        ("max-sessions-per-address", 1),
        ("max-clients", 1),
        ("max-connections-per-client", 2),
    ] {
        let scratch = Scratch::new();
        let cloud = Cloud::start(&scratch, limited(&[(name, most)]));
        let owner = Attending::start(&scratch, &cloud, 8, 1);
        let mut first = client(&scratch, &cloud, owner.party, "first");
        let seed = seed(&scratch, "second");
        let meet = || CloudClient::meet(&cloud.address(), owner.party, &seed, options());
        let named = if name == "max-clients" { "busy" } else { name };
        refused(meet(), Refusal::Busy, named);
        check(first.predict(&IMAGE), &IMAGE);
        first.leave();
        cloud.events.wait("left", 2);
        meet().expect("the first has left");
    }
}

/// Hellos and images count together. Some are allowed again while a slow machine asks for more.
#[test]
fn requests_have_a_rate() {
    let scratch = Scratch::new();
    let cloud = Cloud::start(&scratch, limited(&[("max-requests-per-client", 4)]));
    let owner = Attending::start(&scratch, &cloud, 1000, 1);
    let mut asking = client(&scratch, &cloud, owner.party, "client");
    let name = "max-requests-per-client";
    let over = (0..100)
        .map(|_| asking.predict(&IMAGE))
        .find(Result::is_err);
    refused(over.expect("four a minute"), Refusal::Busy, name);
    let seed = seed(&scratch, "client");
    let meet = || CloudClient::meet(&cloud.address(), owner.party, &seed, options());
    let over = (0..100).map(|_| meet()).find(Result::is_err);
    refused(over.expect("four a minute"), Refusal::Busy, name);
}

/// Keys are limited before a byte of them comes. Those that the cloud has count no more.
#[test]
fn setups_are_limited_by_the_day() {
    let scratch = Scratch::new();
    let cloud = Cloud::start(&scratch, limited(&[("max-setups-per-client", 1)]));
    let owner = Attending::start(&scratch, &cloud, 8, 1);
    let mut first = client(&scratch, &cloud, owner.party, "first");
    let mut second = meet(&scratch, &cloud, owner.party, "second");
    admit(&scratch, second.party());
    let none = |_| panic!("no keys are wanted");
    refused(second.join(none), Refusal::Limit, "max-setups-per-client");
    check(first.predict(&IMAGE), &IMAGE);
    let mut again = meet(&scratch, &cloud, owner.party, "first");
    again.join(none).expect("its keys are there");
}

/// Images and bytes are counted over restarts of the cloud: by the day, since no client has a name.
#[test]
fn images_and_bytes_are_counted_over_restarts() {
    for (limit, most, images) in [
        ("max-daily-images-per-client", 2, 2),
        ("max-daily-images-in-all", 1, 1),
        ("max-daily-bytes-per-client", 1, 0),
    ] {
        let scratch = Scratch::new();
        for images in [images, 0] {
            let cloud = Cloud::start(&scratch, limited(&[(limit, most)]));
            let owner = Attending::start(&scratch, &cloud, 8, 1);
            let mut asking = client(&scratch, &cloud, owner.party, "client");
            for _ in 0..images {
                check(asking.predict(&IMAGE), &IMAGE);
            }
            for _ in 0..2 {
                refused(asking.predict(&IMAGE), Refusal::Limit, limit);
            }
        }
    }
}

/// A client with several connections evaluates so many images at once, and others more.
#[test]
fn evaluations_at_once_are_limited() {
    let scratch = Scratch::new();
    let name = "max-memory-share-per-client";
    let mut options = limited(&[(name, 50)]);
    options.limits.evaluations = 2;
    options.limits.queue = Duration::ZERO;
    let cloud = Cloud::start(&scratch, options);
    let owner = Attending::start(&scratch, &cloud, 4000, 1);
    let mut clients = ["first", "second"].map(|name| client(&scratch, &cloud, owner.party, name));
    let mut asked = 0;
    loop {
        let found = thread::scope(|scope| {
            let ask = |client| {
                let predict = move |client: &mut CloudClient| client.predict(&IMAGE);
                scope.spawn(move || predict(client))
            };
            let running: Vec<_> = clients.iter_mut().map(ask).collect();
            running
                .into_iter()
                .map(|one| one.join().expect("no panic"))
                .collect::<Vec<_>>()
        });
        let (done, busy): (Vec<_>, Vec<_>) = found.into_iter().partition(Result::is_ok);
        assert!(!done.is_empty(), "who holds nothing may have one");
        done.into_iter().for_each(|result| check(result, &IMAGE));
        if let Some(result) = busy.into_iter().next() {
            return refused(result, Refusal::Busy, name);
        }
        asked += 1;
        assert!(asked < 1000, "two are never evaluated at once");
    }
}
