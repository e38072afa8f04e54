//! One machine over one connection.

use pronghorn_engine::{EngineError, Machine, Progress, Want};

use crate::{
    error::SessionError,
    frame::{Kind, MAX_HANDSHAKE},
    link::Link,
    message::{self, Done},
};

/// The longest message that is read while the machine works on another, in bytes. No plan counts
/// this memory.
const MOST_FOLLOWING: usize = 4 << 20;

/// Sends and receives for `machine` until it is done; calls `on_progress` after every message that
/// was not sent ahead.
///
/// Before it waits for the peer it sends what the machine can make already, and does what needs no
/// message. So both parties work at a time. While the machine works on a message the next one is
/// read, where the peer sends one in any case and it is short.
pub(crate) fn drive<M: Machine<Error = EngineError> + Send + ?Sized>(
    machine: &mut M,
    link: &mut Link,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<(), SessionError> {
    let (mut incoming, ends) = (Incoming::default(), link.ends().clone());
    loop {
        match machine.want() {
            Want::Send => {
                let mut message = buffer(machine, link);
                ends.compute(|| machine.send(&mut message))?;
                link.send(Kind::Data, message)?;
            }
            Want::Receive => {
                if incoming.send_ahead(machine, link)? {
                    continue;
                }
                ends.compute(|| machine.meanwhile())?;
                if incoming.send_ahead(machine, link)? {
                    continue;
                }
                incoming.take(machine, link)?;
            }
            Want::Done => {
                link.note(&incoming.message);
                return Ok(());
            }
        }
        on_progress(machine.progress());
    }
}

/// A buffer for the machine's next message.
fn buffer<M: Machine<Error = EngineError> + ?Sized>(machine: &M, link: &mut Link) -> Vec<u8> {
    let mut buffer = link.buffer();
    if !machine.writes_over() {
        buffer.clear();
    }
    buffer
}

/// What has come from the peer.
#[derive(Default)]
struct Incoming {
    /// The last message that the machine has, or is about to take.
    message: Vec<u8>,
    /// Memory for the one behind it.
    following: Vec<u8>,
    /// The place of the message, where the machine has yet to take it.
    due: Option<u64>,
}

impl Incoming {
    /// Gives the machine the peer's next message, and reads the one behind it meanwhile.
    fn take<M: Machine<Error = EngineError> + Send + ?Sized>(
        &mut self,
        machine: &mut M,
        link: &mut Link,
    ) -> Result<(), SessionError> {
        if self.due.take().is_none() {
            // The last one is added to the transcript only now that this side has nothing to do but
            // wait.
            link.note(&self.message);
            link.receive_data(machine.max_incoming(), &mut self.message)?;
        }
        let ends = link.ends().clone();
        let following = machine.max_following();
        let Some(most) = following.filter(|&most| most <= MOST_FOLLOWING) else {
            return Ok(ends.compute(|| machine.receive(&self.message))?);
        };
        let (message, following) = (&self.message, &mut self.following);
        let (place, mut taken, mut refusal) = (link.place(), Ok(()), None);
        let came = rayon::in_place_scope(|scope| {
            scope.spawn(|_| {
                taken = ends.compute(|| machine.receive(message));
                // A peer that hears nothing of it may send no more.
                refusal = taken.is_err().then(|| ends.refuse());
            });
            link.note(message);
            link.receive_data(most, following)
        });
        drop(refusal);
        taken?;
        came?;
        std::mem::swap(&mut self.message, &mut self.following);
        self.due = Some(place);
        Ok(())
    }

    /// Sends the machine's next message, if that can be made before the peer's have come. Whether it
    /// was sent. It never blocks, since the peer may be doing the same.
    fn send_ahead<M: Machine<Error = EngineError> + ?Sized>(
        &self,
        machine: &mut M,
        link: &mut Link,
    ) -> Result<bool, SessionError> {
        let Some(frames) = machine.ahead().filter(|_| link.has_room()) else {
            return Ok(false);
        };
        let mut message = buffer(machine, link);
        link.ends().compute(|| machine.send_ahead(&mut message))?;
        let next = self.due.unwrap_or_else(|| link.place());
        link.send_ahead(next + frames, message)?;
        Ok(true)
    }
}

impl Done {
    /// What a client says, to whom images are not granted.
    pub(crate) fn of(batch: u32) -> Self {
        Self {
            batch,
            images_left: None,
            leaves: false,
        }
    }

    /// Waits for the peer's, and with that for its word that both have seen the same messages.
    pub(crate) fn receive(link: &mut Link) -> Result<Self, SessionError> {
        let mut payload = Vec::new();
        link.receive(&[(Kind::Done, MAX_HANDSHAKE)], &mut payload)?;
        message::decode(Kind::Done, &payload)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use pronghorn_engine::exchange::{Exchange, Message, Messages, Party, Protocol, Turn};

    use super::*;
    use crate::link::tests::links;

    const NAME: &str = "a part";
    const PARTS: usize = 5;
    const TURNS: usize = 6;
    /// More than a socket buffers, in a turn.
    const BYTES: usize = 4 << 20;

    /// Turns of several parts, of which each answers the same part of the turn before.
    fn list() -> Messages {
        let party = |turn| match turn % 2 {
            0 => Party::Server,
            _ => Party::Client,
        };
        let turn = |turn| [Message::new(party(turn), NAME, BYTES); PARTS];
        Messages::new("toy").with_all((0..TURNS).flat_map(turn))
    }

    /// One party; what it saw.
    #[derive(Default)]
    struct Toy<const CLIENT: bool> {
        taken: Vec<usize>,
        made: Vec<usize>,
        /// The message that it refuses.
        refuses: Option<usize>,
        /// Whether it sends nothing ahead, like versions before.
        waits: bool,
    }

    impl<const CLIENT: bool> Protocol for Toy<CLIENT> {
        const PARTY: Party = match CLIENT {
            true => Party::Client,
            false => Party::Server,
        };

        fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
            self.made.push(turn.index);
            out.resize(BYTES, turn.index as u8);
            Ok(())
        }

        fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
            if self.refuses == Some(turn.index) {
                let state = "refuses this message";
                return Err(EngineError::OutOfTurn { state });
            }
            assert!(message.iter().all(|&byte| byte == turn.index as u8));
            self.taken.push(turn.index);
            Ok(())
        }

        fn is_ready(&self, turn: Turn) -> bool {
            let before = turn.index.checked_sub(PARTS);
            !self.waits && before.is_some_and(|before| self.taken.contains(&before))
        }
    }

    type Ended<const CLIENT: bool> = Result<Exchange<Toy<CLIENT>>, SessionError>;

    /// Both over a connection, up to the word that they have seen the same.
    fn run(client: Toy<true>, server: Toy<false>) -> (Ended<true>, Ended<false>) {
        let [mut near, mut far] = links();
        let server = thread::spawn(move || {
            let mut server = Exchange::new(list(), server);
            drive(&mut server, &mut far, &mut |_| {})?;
            far.send(Kind::Done, message::encode(&Done::of(1)))?;
            Ok(server)
        });
        let mut client = Exchange::new(list(), client);
        let driven = drive(&mut client, &mut near, &mut |_| {});
        let done = driven.and_then(|()| Done::receive(&mut near));
        drop(near);
        let server = server.join().expect("it does not panic");
        (done.map(|_| client), server)
    }

    /// Both directions are full at times, and nobody waits for ever: with parties that send ahead,
    /// and with one that does not.
    #[test]
    fn crossing_messages_block_nobody() {
        for [waiting_client, waiting_server] in
            [[false, false], [false, true], [true, false], [true, true]]
        {
            let client = Toy {
                waits: waiting_client,
                ..Toy::default()
            };
            let server = Toy {
                waits: waiting_server,
                ..Toy::default()
            };
            let (client, server) = run(client, server);
            let client = client.expect("it succeeds").finish().expect("it is over");
            let server = server.expect("it succeeds").finish().expect("it is over");
            assert_eq!(client.made, server.taken);
            assert_eq!(server.made, client.taken);
            assert_eq!(client.made.len() + server.made.len(), TURNS * PARTS);
        }
    }

    #[test]
    fn a_refusal_ends_both_while_messages_wait() {
        let started = Instant::now();
        for refuses in [0, 7, 12] {
            let client = Toy {
                refuses: Some(refuses),
                ..Toy::default()
            };
            let server = Toy {
                refuses: Some(refuses),
                ..Toy::default()
            };
            let (client, server) = run(client, server);
            let of_server = |turn: usize| turn.is_multiple_of(2);
            let refused = match of_server(refuses / PARTS) {
                true => client.as_ref().err().map(ToString::to_string),
                false => server.as_ref().err().map(ToString::to_string),
            };
            assert!(client.is_err() && server.is_err());
            let refused = refused.expect("it failed");
            assert!(refused.contains("refuses this message"), "{refused}");
        }
        // Far below the limits of reads and writes.
        assert!(started.elapsed() < Duration::from_secs(60));
    }
}
