//! Publications: read back, offered again, of other secrets, and asked for by hostile clients.

use super::*;

#[test]
fn publications_are_read_back_from_their_bytes() {
    for word in [WordSize::U32, WordSize::U64] {
        let plan = plan(&small_geometry(), word, 2);
        let (client, server) = published(&plan, 1, [7; 32]);
        assert_eq!(client.seed, server.seed);
        let names = (client.epoch, client.seed);
        let read = PublicationClient::read(&plan, names, &client.bytes).unwrap();
        assert_eq!((read.epoch, read.seed), names);
        assert_eq!(read.bytes, client.bytes);
        for step in 0..plan.steps.len() {
            let words = words_of(&read, step);
            assert_eq!(words, words_of(&client, step));
            // The same where they are unpacked for each batch.
            assert_eq!(words, words_of(&client.packed(), step));
        }
        assert!(words_of(&client, 0).is_empty() && !words_of(&client, 1).is_empty());
        let bytes = &client.bytes;
        let longer = [&bytes[..], &[0]].concat();
        for other in [&bytes[..bytes.len() - 1], &[], &longer] {
            let error = PublicationClient::read(&plan, names, other).err();
            assert!(
                matches!(error, Some(EngineError::Length { .. })),
                "{error:?}"
            );
        }
        let error = PublicationClient::read(&plan, names, &vec![0xff; bytes.len()]).err();
        assert!(matches!(error, Some(EngineError::Word { .. })), "{error:?}");
    }
}

#[test]
fn a_stored_publication_serves_where_the_secret_is_the_same() {
    let plan = plan(&small_geometry(), WordSize::U64, 1);
    let (stored, _) = published(&plan, 1, [7; 32]);
    for (secret, sent) in [([7; 32], false), ([8; 32], true)] {
        let mut parties = offering(&plan, 1, secret, Some((stored.clone(), 5)));
        exchange(parties.client.as_mut(), parties.server.as_mut()).unwrap();
        let (client, server) = (
            parties.slots.0.take().unwrap(),
            parties.slots.1.take().unwrap(),
        );
        assert_eq!(client.0.seed != stored.seed, sent);
        assert_eq!(client.0.seed, server.0.seed);
        let left = if sent { PUBLICATION_GRANT } else { 5 } - 2;
        assert_eq!((client.1, server.1), (left, left));
    }
}

/// A client's request with its digest.
fn request(epoch: &[u8; 32], seed: &[u8; 32], images: u32, wanted: u8) -> Vec<u8> {
    let fields = [&seed[..], &images.to_le_bytes(), &[wanted]].concat();
    let digest = Bound::new(epoch, &fields).digest();
    [fields, digest.to_vec()].concat()
}

/// What is left of the difference of two publications without `(f - f') a`: nothing where both hide
/// behind the same numbers.
fn difference(plan: &CheckedPlan, secrets: [[u8; 32]; 2]) -> Vec<u64> {
    let shape = shape_of(plan, 1);
    let ring = publication::ring::<u64>(&shape.linear.rlwe, "").unwrap();
    let (q, n, layout) = (ring.modulus(), shape.linear.rlwe.degree, &shape.layout);
    let seed = [3; 32];
    let mut sums = [0, 1].map(|which: usize| {
        let weights = which as u64 + 1;
        let names = seed;
        let mut server = server(plan, weights, secrets[which], &Connection::default(), 1);
        let mut message = Vec::new();
        server.send(&mut message).unwrap();
        let epoch = message.as_slice().try_into().unwrap();
        server.receive(&request(&epoch, &names, 1, 1)).unwrap();
        let mut bytes = Vec::new();
        while server.want() == Want::Send {
            message.clear();
            server.send(&mut message).unwrap();
            bytes.extend_from_slice(&message);
        }
        // As if it had been asked for as clients do.
        let polynomials = bytes.len() - 32;
        let all = request(&epoch, &seed, PUBLICATION_GRANT as u32, 1);
        let receipt = [&all[..37], &bytes[..polynomials]].concat();
        bytes[polynomials..].copy_from_slice(&Bound::new(&epoch, &receipt).digest());
        let read = PublicationClient::read(plan, (epoch, seed), &bytes).unwrap();
        let mut sum = words_of(&read, 1)[..n].to_vec();
        let (mut filter, mut a) = (vec![0; n], vec![0; n]);
        prepared::<u64>(plan, 1, weights).filter(layout, &ring, 0, 0, &mut filter);
        rlwe::expand_a(&publication::generator(&seed, 1), 0, q, &mut a);
        vector::mul_assign(q, &mut filter, &a);
        vector::sub_assign(q, &mut sum, &filter);
        sum
    });
    let [first, second] = &mut sums;
    vector::sub_assign(q, first, second);
    first.clone()
}

#[test]
fn publications_of_other_secrets_hide_behind_other_numbers() {
    let plan = plan(&small_geometry(), WordSize::U64, 1);
    // The control: one secret for two models is what must not be.
    assert!(
        difference(&plan, [[5; 32]; 2])
            .iter()
            .all(|&word| word == 0)
    );
    let other = difference(&plan, [[5; 32], [6; 32]]);
    assert!(other.iter().filter(|&&word| word == 0).count() < 3);
}

#[test]
fn hostile_requests_for_a_publication_are_refused() {
    let plan = plan(&small_geometry(), WordSize::U64, 1);
    let most = PUBLICATION_GRANT as u32;
    let epoch = publication::epoch(&Seed::from_bytes([7; 32]));
    let request = |images: u32, wanted: u8| request(&epoch, &[1; 32], images, wanted);
    let fails = |message: &[u8]| {
        let mut server = parties(&plan, 1, [7; 32]).server;
        server.send(&mut Vec::new()).unwrap();
        server.receive(message).err()
    };
    for (images, wanted) in [
        (0, 1),
        (1, 1),
        (most + 1, 1),
        (u32::MAX, 0),
        (5, 2),
        (5, 255),
    ] {
        let error = fails(&request(images, wanted));
        assert!(
            matches!(error, Some(EngineError::Unsupported { .. })),
            "{images} {wanted}"
        );
    }
    for (images, wanted) in [(2, 1), (most, 1), (2, 0)] {
        assert!(fails(&request(images, wanted)).is_none());
    }
    for length in [0, 37, 68, 70, 1000] {
        let error = fails(&vec![1; length]);
        assert!(
            matches!(error, Some(EngineError::Length { .. })),
            "{length}"
        );
    }
}

/// Every bit of what either party sends; the client has something stored, or not.
#[test]
fn no_flipped_bit_makes_a_publication_for_another_seed() {
    let plan = plan(&small_geometry(), WordSize::U64, 1);
    let (stored, _) = published(&plan, 1, [7; 32]);
    for offered in [None, Some((stored, 5))] {
        let flips = |message: usize, bit: usize| {
            let mut parties = offering(&plan, 1, [7; 32], offered.clone());
            let (client, server) = (parties.client.as_mut(), parties.server.as_mut());
            exchange_with(client, server, &mut |number, bytes| {
                let here = number == message && bit < 8 * bytes.len();
                if here {
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
                here
            })
        };
        let mut messages = 0;
        while flips(messages, 0).0 {
            for bit in 0..69 * 8 {
                let (changed, result) = flips(messages, bit);
                let noticed = matches!(
                    result,
                    Err(EngineError::Damaged { .. } | EngineError::Word { .. })
                );
                assert_eq!(
                    changed, noticed,
                    "message {messages}, bit {bit}: {result:?}"
                );
            }
            messages += 1;
        }
        // The epoch and the request, and without something stored polynomials and their receipt.
        assert!(messages >= if offered.is_some() { 2 } else { 4 });
    }
}

#[test]
fn publications_keep_turns() {
    let plan = plan(&small_geometry(), WordSize::U64, 1);
    let out_of_turn = |result: Result<(), EngineError>| {
        assert!(
            matches!(result, Err(EngineError::OutOfTurn { .. })),
            "{result:?}"
        );
    };
    let Parties {
        mut client,
        mut server,
        ..
    } = parties(&plan, 1, [7; 32]);
    assert_table(
        include_str!("../publication/mod.rs"),
        publication::names(&plan),
    );
    out_of_turn(server.receive(&[0; 37]));
    out_of_turn(client.send(&mut Vec::new()));
    let mut message = Vec::new();
    server.send(&mut message).unwrap();
    out_of_turn(server.send(&mut Vec::new()));
    let error = client.receive(&message[1..]);
    assert!(
        matches!(error, Err(EngineError::Length { .. })),
        "{error:?}"
    );
    client.receive(&message).unwrap();
    out_of_turn(client.receive(&message));
    message.clear();
    client.send(&mut message).unwrap();
    server.receive(&message).unwrap();
    out_of_turn(server.receive(&message));
    let rows = client.max_incoming();
    for length in [0, rows - 1, rows + 1] {
        let error = client.receive(&vec![0; length]);
        assert!(
            matches!(error, Err(EngineError::Length { .. })),
            "{error:?}"
        );
    }
    let error = client.receive(&vec![0xff; rows]);
    assert!(matches!(error, Err(EngineError::Word { .. })), "{error:?}");
    exchange(client.as_mut(), server.as_mut()).unwrap();
    out_of_turn(server.send(&mut Vec::new()));
    out_of_turn(client.receive(&[]));
    assert_eq!((client.max_incoming(), server.max_incoming()), (0, 0));
}
