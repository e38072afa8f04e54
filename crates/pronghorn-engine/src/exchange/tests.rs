//! A toy protocol, and the tables of all protocols.

use std::collections::{BTreeMap, VecDeque};

use super::*;

/// Checks that the table of messages at the top of a module's source has these names, in order.
pub(crate) fn assert_table<'a>(source: &str, names: impl IntoIterator<Item = &'a str>) {
    let lines = source.lines().map(str::trim_start);
    let mut lines = lines.skip_while(|line| !line.starts_with("//! | message | from |"));
    assert!(lines.next().is_some(), "there is a table of messages");
    assert_eq!(lines.next(), Some("//! |---|---|---|"));
    let rows = lines.map_while(|line| line.strip_prefix("//! | "));
    let rows: Vec<&str> = rows.collect();
    let names: Vec<&str> = names.into_iter().collect();
    assert_eq!(rows.len(), names.len(), "{rows:?}");
    for (row, name) in rows.iter().zip(names) {
        assert!(row.starts_with(name), "{name}: {row}");
    }
}

/// The names of a list, each where it comes first.
pub(crate) fn names(messages: &Messages) -> impl Iterator<Item = &'static str> {
    let first = messages.runs.iter().filter(|run| run.first == 0);
    first.map(|run| run.message.name)
}

/// Runs both to the end through two lines; the length of each message, in the order of the list.
///
/// `choose(n)` draws who is next of `n`, and what it does: send, also ahead, work meanwhile, or
/// take a message that has come.
pub(crate) fn crossed<C: Protocol, S: Protocol>(
    client: &mut Exchange<C>,
    server: &mut Exchange<S>,
    mut choose: impl FnMut(usize) -> usize,
) -> Result<Vec<usize>, EngineError> {
    let mut lines: [VecDeque<(u64, Vec<u8>)>; 2] = Default::default();
    let (mut lengths, mut idle) = (BTreeMap::new(), 0);
    while client.want() != Want::Done || server.want() != Want::Done {
        let party = choose(2);
        let place = [client.place.number, server.place.number][party];
        let machine: &mut dyn Machine<Error = EngineError> = match party {
            0 => client,
            _ => server,
        };
        let (mut message, ahead) = (Vec::new(), machine.ahead());
        let sent = match (machine.want(), ahead) {
            (Want::Send, _) => {
                machine.send(&mut message)?;
                Some(place)
            }
            (Want::Receive, Some(before)) if choose(2) == 0 => {
                machine.send_ahead(&mut message)?;
                Some(place + before)
            }
            (Want::Receive, _) => {
                if choose(2) == 0 {
                    machine.meanwhile()?;
                }
                idle += 1;
                assert!(idle < 10_000, "neither party can go on");
                if let Some((at, message)) = lines[party].pop_front() {
                    idle = 0;
                    assert_eq!(at, place, "both parties count alike");
                    assert!(message.len() <= machine.max_incoming());
                    machine.receive(&message)?;
                }
                None
            }
            (Want::Done, _) => None,
        };
        if let Some(place) = sent {
            assert!(lengths.insert(place, message.len()).is_none());
            lines[1 - party].push_back((place, message));
        }
    }
    assert!(lengths.keys().copied().eq(0..lengths.len() as u64));
    Ok(lengths.into_values().collect())
}

const QUESTION: &str = "a question";
const HINT: &str = "a hint";
const ANSWER: &str = "the answer";

/// Questions of three bytes, then a hint if the first question asks for one (it begins with 1),
/// then an answer.
fn toy(questions: usize) -> Messages {
    Messages::new("toy")
        .with_all((0..questions).map(|_| Message::client(QUESTION, 3).rows(2)))
        .with(Message::server(HINT, 10).open().rows(3).optional())
        .with(Message::server(ANSWER, 1).rows(1))
}

/// One party; what it saw.
#[derive(Default)]
struct Toy<const CLIENT: bool> {
    hint: bool,
    turns: Vec<Turn>,
    taken: BTreeMap<&'static str, Vec<u8>>,
}

impl<const CLIENT: bool> Protocol for Toy<CLIENT> {
    const PARTY: Party = if CLIENT { Party::Client } else { Party::Server };

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        self.turns.push(turn);
        match turn.name {
            QUESTION => out.extend_from_slice(&[u8::from(self.hint), 7, turn.index as u8]),
            HINT => out.extend_from_slice(&[4; 4]),
            ANSWER => out.push(42),
            _ => return Err(turn.unknown()),
        }
        Ok(())
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        if message.contains(&0xff) {
            return Err(turn.unknown());
        }
        self.hint |= turn.name == QUESTION && message[0] == 1;
        self.turns.push(turn);
        self.taken.insert(turn.name, message.to_vec());
        Ok(())
    }

    fn is_due(&self, name: &'static str) -> bool {
        assert_eq!(name, HINT, "asked of optional messages alone");
        self.hint
    }

    /// Answer `i` can be made after question `i`, and questions at any time.
    fn is_ready(&self, turn: Turn) -> bool {
        let questions = self.turns.iter().filter(|turn| turn.name == QUESTION);
        turn.name == QUESTION || questions.count() > turn.index
    }
}

type Parties = (Exchange<Toy<true>>, Exchange<Toy<false>>);

fn parties(questions: usize, hint: bool) -> Parties {
    let client = Toy {
        hint,
        ..Toy::default()
    };
    (
        Exchange::new(toy(questions), client),
        Exchange::new(toy(questions), Toy::default()),
    )
}

/// Hands one message over; its bytes, none at the end.
fn step((client, server): &mut Parties) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    match (client.want(), server.want()) {
        (Want::Send, Want::Receive) => {
            client.send(&mut message).unwrap();
            server.receive(&message).unwrap();
        }
        (Want::Receive, Want::Send) => {
            server.send(&mut message).unwrap();
            client.receive(&message).unwrap();
        }
        (Want::Done, Want::Done) => return None,
        wants => panic!("{wants:?}"),
    }
    Some(message)
}

/// Runs both to the end; the bytes of each message.
fn run(parties: &mut Parties) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| step(parties)).collect()
}

fn out_of_turn(result: Result<(), EngineError>, text: &str) {
    match result {
        Err(EngineError::OutOfTurn { state }) => assert_eq!(state, text),
        other => panic!("{other:?}"),
    }
}

#[test]
fn messages_go_in_order_and_each_knows_its_place() {
    let mut parties = parties(2, false);
    let messages = run(&mut parties);
    assert_eq!(messages, [vec![0, 7, 0], vec![0, 7, 1], vec![42]]);
    let turn = |name, index, last| Turn { name, index, last };
    let turns = [
        turn(QUESTION, 0, false),
        turn(QUESTION, 1, true),
        turn(ANSWER, 0, true),
    ];
    let (client, server) = (parties.0.finish().unwrap(), parties.1.finish().unwrap());
    assert_eq!(client.turns, turns);
    assert_eq!(server.turns, turns);
    assert_eq!(client.taken[ANSWER], [42]);
}

#[test]
fn optional_messages_are_exchanged_where_both_say_so() {
    let mut parties = parties(1, true);
    assert_eq!(run(&mut parties), [vec![1, 7, 0], vec![4; 4], vec![42]]);
}

#[test]
fn another_length_is_refused_and_changes_nothing() {
    let mut parties = parties(2, false);
    let server = &mut parties.1;
    for length in [0, 2, 4, 1000] {
        match server.receive(&vec![1; length]) {
            Err(EngineError::Length {
                step,
                message,
                found,
                expected,
            }) => assert_eq!(
                (step.as_str(), message, found, expected),
                ("toy", QUESTION, length, 3)
            ),
            other => panic!("{other:?}"),
        }
    }
    // Neither does a content that is refused.
    assert!(server.receive(&[0xff; 3]).is_err());
    assert_eq!(server.progress().done, 0);
    assert_eq!(run(&mut parties).len(), 3);
}

#[test]
fn an_open_length_is_bounded_and_left_to_its_reader() {
    let mut parties = parties(1, true);
    step(&mut parties);
    let (mut client, _) = parties;
    assert_eq!(client.max_incoming(), 10);
    let longer = client.receive(&[9; 11]);
    assert!(matches!(longer, Err(EngineError::Length { found: 11, .. })));
    client.receive(&[9; 6]).unwrap();
    assert_eq!(client.max_incoming(), 1);
    out_of_turn(client.finish().map(drop), "has not finished");
}

#[test]
fn turns_are_kept() {
    let mut parties = parties(1, false);
    let bounds = |(client, server): &Parties| [client.max_incoming(), server.max_incoming()];
    assert_eq!(bounds(&parties), [0, 3]);
    let (waits, over) = ("waits for the client's message", "is over");
    out_of_turn(parties.1.send(&mut Vec::new()), waits);
    out_of_turn(parties.0.receive(&[1]), "is at the client's turn");
    step(&mut parties);
    let waits = "waits for the server's message";
    out_of_turn(parties.0.send(&mut Vec::new()), waits);
    out_of_turn(parties.1.receive(&[0; 3]), "is at the server's turn");
    run(&mut parties);
    out_of_turn(parties.0.send(&mut Vec::new()), over);
    out_of_turn(parties.1.receive(&[0; 3]), over);
    assert_eq!(bounds(&parties), [0, 0]);
}

#[test]
fn progress_counts_rows() {
    for (hint, expected) in [(false, vec![0, 2, 7, 8]), (true, vec![0, 2, 4, 7, 8])] {
        let mut parties = parties(2, hint);
        let mut done = vec![parties.0.progress().done];
        while step(&mut parties).is_some() {
            let progress = parties.0.progress();
            assert_eq!(progress, parties.1.progress());
            assert_eq!(progress.total, 8);
            done.push(progress.done);
        }
        assert_eq!(done, expected);
    }
}

#[test]
fn progress_is_scaled_to_the_rows_of_a_step() {
    let message = Message::client(QUESTION, 3).rows(1);
    let list = Messages::new("toy").with_all([message; 3]).in_rows(10);
    let mut client = Exchange::new(list, Toy::<true>::default());
    let mut done = Vec::new();
    while client.want() == Want::Send {
        done.push(client.progress().done);
        client.send(&mut Vec::new()).unwrap();
    }
    assert_eq!(done, [0, 3, 6]);
    assert_eq!(
        client.progress(),
        Progress {
            done: 10,
            total: 10
        }
    );
    // An empty list is over, and all of it is done.
    let empty = Exchange::new(Messages::new("toy").in_rows(4), Toy::<true>::default());
    assert_eq!(empty.want(), Want::Done);
    assert_eq!(empty.progress(), Progress { done: 4, total: 4 });
}

#[test]
fn indices_go_on_where_messages_of_a_name_come_in_several_runs() {
    let (question, answer) = (Message::client(QUESTION, 3), Message::server(ANSWER, 1));
    let window = [question, question, answer];
    let list = Messages::new("toy").with_all([window; 2].concat());
    assert_eq!(names(&list).collect::<Vec<_>>(), [QUESTION, ANSWER]);
    let mut parties = (
        Exchange::new(list.clone(), Toy::<true>::default()),
        Exchange::new(list, Toy::<false>::default()),
    );
    run(&mut parties);
    let turns = parties.0.finish().unwrap().turns.into_iter();
    let places: Vec<_> = turns.map(|turn| (turn.index, turn.last)).collect();
    let expected = [
        (0, false),
        (1, false),
        (0, false),
        (2, false),
        (3, true),
        (1, true),
    ];
    assert_eq!(places, expected);
}

#[test]
fn thousands_of_equal_messages_are_one_run() {
    let parts = Parts {
        items: 100_001,
        most: 10,
    };
    let list = Messages::new("toy").with_all(parts.messages(Party::Client, QUESTION, 4));
    assert_eq!(list.runs.len(), 2);
    let text = "client  10000 x a question, 40 bytes\nclient  1 x a question, 4 bytes\n";
    assert_eq!(list.to_string(), text);
    assert_eq!(list.totals(), [100_001; 2]);
    assert_eq!(parts.range(10_000), 100_000..100_001);
    let none = Parts { items: 0, most: 10 };
    assert_eq!(none.messages(Party::Client, QUESTION, 4).count(), 0);
}

/// Three questions, their answers, three more.
fn windows() -> Messages {
    let (question, answer) = (Message::client(QUESTION, 3), Message::server(ANSWER, 1));
    let window = [question, question, question, answer, answer, answer];
    Messages::new("toy").with_all([window; 2].concat())
}

#[test]
fn messages_that_are_sent_ahead_keep_their_places() {
    let mut client = Exchange::new(windows(), Toy::<true>::default());
    let mut server = Exchange::new(windows(), Toy::<false>::default());
    let mut message = Vec::new();
    assert_eq!(client.ahead(), None, "it is the client's turn");
    assert_eq!(server.ahead(), None, "there is nothing to answer");
    for _ in 0..3 {
        message.clear();
        client.send(&mut message).unwrap();
        server.receive(&message).unwrap();
    }
    // Both may be ahead: the client by its next questions, behind three answers.
    for before in 3..6 {
        assert_eq!(client.ahead(), Some(before));
        client.send_ahead(&mut message).unwrap();
    }
    assert_eq!(client.ahead(), None, "no more questions");
    assert_eq!((client.left(), server.left()), (Some(9), Some(9)));
    assert_eq!(client.want(), Want::Receive);
    assert_eq!(client.place.number, 3);
    for _ in 0..3 {
        message.clear();
        server.send(&mut message).unwrap();
        client.receive(&message).unwrap();
    }
    // The questions are through with the last answer before them.
    assert_eq!(client.place.number, 9);
    assert_eq!((client.left(), server.left()), (Some(3), Some(6)));
    assert_eq!((client.want(), client.ahead()), (Want::Receive, None));
    out_of_turn(
        client.send_ahead(&mut message),
        "waits for the server's message",
    );
}

#[test]
fn what_comes_behind_an_optional_message_is_not_sent_ahead() {
    let (question, hint) = (
        Message::client(QUESTION, 3),
        Message::server(HINT, 10).open().optional(),
    );
    let list = Messages::new("toy").with_all([question, hint, question]);
    let toy = Toy::<true> {
        hint: true,
        ..Toy::default()
    };
    let mut client = Exchange::new(list, toy);
    assert_eq!(client.left(), None, "the hint may not be due");
    client.send(&mut Vec::new()).unwrap();
    assert_eq!((client.want(), client.ahead()), (Want::Receive, None));
}

#[test]
fn crossing_messages_end_where_others_do() {
    let mut state = 1_u64;
    for _ in 0..200 {
        let mut client = Exchange::new(windows(), Toy::<true>::default());
        let mut server = Exchange::new(windows(), Toy::<false>::default());
        let lengths = crossed(&mut client, &mut server, |count| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 40) as usize % count
        });
        assert_eq!(lengths.unwrap(), [3, 3, 3, 1, 1, 1, 3, 3, 3, 1, 1, 1]);
        assert_eq!(client.progress(), server.progress());
        let turns = |turns: Vec<Turn>, name| -> Vec<usize> {
            let turns = turns.into_iter().filter(|turn| turn.name == name);
            turns.map(|turn| turn.index).collect()
        };
        for turns_of in [
            client.finish().unwrap().turns,
            server.finish().unwrap().turns,
        ] {
            for name in [QUESTION, ANSWER] {
                assert_eq!(turns(turns_of.clone(), name), [0, 1, 2, 3, 4, 5]);
            }
        }
    }
}
