//! One connection: frames in, frames out through a writer thread, time limits, counters.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read},
    net::Shutdown,
    time::{Duration, Instant},
};

use crate::{
    channel::Binding,
    error::SessionError,
    frame::{self, Accept, FrameError, HEADER_BYTES, Kind},
    message::ErrorMessage,
    store::file::Party,
    transcript::{Way, split_digest},
    transport::{AHEAD, Ends, Holding, TICK, Timed, Timeouts, Transport, with_length},
    writer::{Outgoing, Writer},
};

/// How long a failed session goes on for, so that its last words arrive.
const LINGER: Duration = Duration::from_secs(1);

/// How long a look at a resting connection takes.
const LOOK: Duration = Duration::from_millis(1);

/// A connection in use.
pub(crate) struct Link {
    /// Frames so far but `Error`, of both parties in the order of their protocol. Those that were
    /// sent ahead count when the frames before them have come.
    frames: u64,
    /// The places of frames that were sent ahead, in order.
    ahead: VecDeque<u64>,
    /// Frames of this party, and of the peer.
    sent: u64,
    heard: u64,
    /// The peer's frames.
    received: Way,
    /// One of them that is to be added yet: its place and kind.
    unread: Option<(u64, Kind)>,
    reader: BufReader<Timed>,
    /// None once closed.
    writer: Option<Writer>,
    control: Box<dyn Transport>,
    timeouts: Timeouts,
    ends: Ends,
    /// Counters of this connection.
    pub traffic: Traffic,
}

/// What went over a connection, headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub messages: u64,
}

impl Traffic {
    /// What went over since it was `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            bytes_sent: self.bytes_sent - earlier.bytes_sent,
            bytes_received: self.bytes_received - earlier.bytes_received,
            messages: self.messages - earlier.messages,
        }
    }

    /// With what went over an earlier connection.
    pub(crate) fn after(self, earlier: Self) -> Self {
        Self {
            bytes_sent: earlier.bytes_sent + self.bytes_sent,
            bytes_received: earlier.bytes_received + self.bytes_received,
            messages: earlier.messages + self.messages,
        }
    }
}

impl Link {
    /// Takes over a connection on a channel with this binding; `ends` make the next send or receive fail, and end the waiting of
    /// one under way.
    pub(crate) fn new(
        party: Party,
        transport: Box<dyn Transport>,
        binding: Option<&Binding>,
        timeouts: Timeouts,
        ends: Ends,
    ) -> Result<Self, SessionError> {
        let (control, writing) = (handle(&*transport)?, handle(&*transport)?);
        let sent = Way::on_channel(party, binding);
        Ok(Self {
            frames: 0,
            ahead: VecDeque::new(),
            sent: 0,
            heard: 0,
            received: Way::on_channel(party.peer(), binding),
            unread: None,
            writer: Some(Writer::start(sent, writing, timeouts, ends.clone())?),
            reader: BufReader::with_capacity(AHEAD, Timed::new(transport, ends.clone())),
            control,
            timeouts,
            ends,
            traffic: Traffic::default(),
        })
    }

    /// A handle that ends the connection while another thread waits on it.
    pub(crate) fn control(&self) -> Result<Box<dyn Transport>, SessionError> {
        handle(&*self.control)
    }

    /// What ends its waiting.
    pub(crate) fn ends(&self) -> &Ends {
        &self.ends
    }

    /// A buffer for the next message, with an earlier one where possible.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        let used = self
            .writer
            .as_ref()
            .and_then(|writer| writer.used.try_recv().ok());
        used.unwrap_or_default()
    }

    /// Queues a frame; blocks only while the queue is full. `Done` is sealed with the transcript's
    /// digest.
    pub(crate) fn send(&mut self, kind: Kind, payload: Vec<u8>) -> Result<(), SessionError> {
        self.queue(self.frames, kind, payload)?;
        self.pass();
        Ok(())
    }

    /// Whether a frame can be queued without blocking.
    pub(crate) fn has_room(&self) -> bool {
        self.writer.as_ref().is_some_and(Writer::has_room)
    }

    /// How many frames of both parties are before the next one.
    pub(crate) fn place(&self) -> u64 {
        self.frames
    }

    /// Queues a message of a machine for a place behind that of a message of the peer's, which the
    /// machine has yet to take. Who waits for the peer must not block, so ask [`Link::has_room`]
    /// first.
    pub(crate) fn send_ahead(&mut self, place: u64, payload: Vec<u8>) -> Result<(), SessionError> {
        self.queue(place, Kind::Data, payload)?;
        self.ahead.push_back(place);
        self.skip();
        Ok(())
    }

    /// Goes on by a frame, and by those behind it that were sent ahead.
    fn pass(&mut self) {
        self.frames += 1;
        self.skip();
    }

    /// Goes on by those that were sent ahead.
    fn skip(&mut self) {
        while self.ahead.front() == Some(&self.frames) {
            self.ahead.pop_front();
            self.frames += 1;
        }
    }

    fn queue(&mut self, place: u64, kind: Kind, payload: Vec<u8>) -> Result<(), SessionError> {
        self.check_stop()?;
        let received = (kind == Kind::Done).then(|| self.received.digest());
        let sealed = received.map_or(0, |digest| digest.len());
        let bytes = (HEADER_BYTES + payload.len() + sealed) as u64;
        let outgoing = Outgoing {
            place,
            kind,
            payload,
            received,
        };
        let writer = self.writer.as_ref().ok_or(SessionError::Over)?;
        if writer.send(outgoing).is_err() {
            return Err(self.write_failure());
        }
        self.sent += 1;
        self.traffic.bytes_sent += bytes;
        self.traffic.messages += 1;
        Ok(())
    }

    /// Waits for the peer's next frame within the idle limit. An `Error` frame becomes
    /// [`SessionError::Peer`]. `Done` comes without its digest, which is checked.
    pub(crate) fn receive(
        &mut self,
        accept: &[Accept],
        payload: &mut Vec<u8>,
    ) -> Result<Kind, SessionError> {
        self.receive_within(self.timeouts.idle, accept, payload)
    }

    /// The same within another limit for the first byte.
    pub(crate) fn receive_within(
        &mut self,
        idle: Duration,
        accept: &[Accept],
        payload: &mut Vec<u8>,
    ) -> Result<Kind, SessionError> {
        self.check_stop()?;
        let received = self.receive_frame(idle, accept, payload);
        self.received(received, payload)
    }

    /// The peer's first frame, all of which must come within a limit.
    pub(crate) fn receive_first(
        &mut self,
        limit: Duration,
        accept: &[Accept],
        payload: &mut Vec<u8>,
    ) -> Result<Kind, SessionError> {
        self.check_stop()?;
        self.reader.get_mut().allow(limit, limit);
        let received = frame::read_frame(&mut self.reader, accept, payload);
        self.received(received, payload)
    }

    /// A frame of a machine's, which is added to the transcript by [`Link::note`] when nobody waits
    /// for what follows from it.
    pub(crate) fn receive_data(
        &mut self,
        most: usize,
        payload: &mut Vec<u8>,
    ) -> Result<(), SessionError> {
        self.check_stop()?;
        let received = self.receive_frame(self.timeouts.idle, &[(Kind::Data, most)], payload);
        self.count(received, payload).map(drop)
    }

    /// Frames that have come from the peer, but for errors.
    pub(crate) fn heard(&self) -> u64 {
        self.heard
    }

    /// Adds the frame of [`Link::receive_data`], where that was not done yet.
    pub(crate) fn note(&mut self, payload: &[u8]) {
        if let Some((place, kind)) = self.unread.take() {
            self.received.add(place, kind, payload);
        }
    }

    /// Counts a frame and adds it to the transcript; opens a sealed one.
    fn received(
        &mut self,
        received: Result<Kind, FrameError>,
        payload: &mut Vec<u8>,
    ) -> Result<Kind, SessionError> {
        let kind = self.count(received, payload)?;
        match kind {
            Kind::Done => self.open(kind, payload)?,
            _ => self.note(payload),
        }
        Ok(kind)
    }

    /// Counts a frame. An `Error` is the peer's.
    fn count(
        &mut self,
        received: Result<Kind, FrameError>,
        payload: &[u8],
    ) -> Result<Kind, SessionError> {
        // A server that stops cuts the line: that is why it ended, whatever the line says.
        let kind = received.map_err(|error| self.check_stop().err().unwrap_or(error.into()))?;
        self.traffic.bytes_received += (HEADER_BYTES + payload.len()) as u64;
        self.traffic.messages += 1;
        if kind == Kind::Error {
            let ErrorMessage { code, text } = ErrorMessage::decode(payload)?;
            return Err(SessionError::Peer { code, text });
        }
        debug_assert!(self.unread.is_none(), "frames are added in their order");
        self.unread = Some((self.frames, kind));
        self.heard += 1;
        self.pass();
        Ok(kind)
    }

    /// Takes the digest off a sealed frame, where it is this side's too.
    fn open(&mut self, kind: Kind, payload: &mut Vec<u8>) -> Result<(), SessionError> {
        let (message, theirs) = split_digest(kind, payload)?;
        let length = message.len();
        self.note(message);
        let received = self.received.digest();
        let writer = self.writer.as_ref().ok_or(SessionError::Over)?;
        let ours = writer.sent.digest(self.sent, &received);
        // A writer that has ended has sent less than the peer claims to have seen.
        if ours != Some(*theirs) {
            return Err(SessionError::Damaged);
        }
        payload.truncate(length);
        Ok(())
    }

    /// Says that the session holds memory that others may wait for, until the result is dropped.
    pub(crate) fn holds_memory(&self) -> Holding {
        self.ends.hold()
    }

    /// Waits until the peer's next message begins, or there is an `end` to that, which is asked for
    /// now and then.
    ///
    /// # Errors
    /// When nothing comes within `rest`, the connection has ended, or the end.
    pub(crate) fn rest(
        &mut self,
        rest: Duration,
        end: &dyn Fn() -> Option<SessionError>,
    ) -> Result<(), SessionError> {
        let started = Instant::now();
        loop {
            if let Some(error) = end() {
                return Err(error);
            }
            let left = rest.saturating_sub(started.elapsed());
            let step = left.min(TICK);
            self.reader.get_mut().allow(step, step);
            let error = match self.reader.fill_buf() {
                Ok([]) => FrameError::Closed,
                Ok(_) => return Ok(()),
                Err(error) => error.into(),
            };
            self.check_stop()?;
            if !matches!(error, FrameError::Timeout) || left <= TICK {
                return Err(error.into());
            }
        }
    }

    /// Why the peer has ended a connection on which it is this side's turn; none where it has not.
    pub(crate) fn look(&mut self) -> Option<SessionError> {
        match self.rest(LOOK, &|| None) {
            Err(SessionError::Frame(FrameError::Timeout)) => None,
            Err(error) => Some(error),
            Ok(()) => self.receive(&[], &mut Vec::new()).err(),
        }
    }

    fn receive_frame(
        &mut self,
        idle: Duration,
        accept: &[Accept],
        payload: &mut Vec<u8>,
    ) -> Result<Kind, FrameError> {
        self.reader.get_mut().allow(idle, idle);
        if self.reader.fill_buf()?.is_empty() {
            return Err(FrameError::Closed);
        }
        let message = self.timeouts.message;
        self.reader.get_mut().allow(message, message);
        let header = frame::read_header(&mut self.reader, accept)?;
        self.reader
            .get_mut()
            .allow(with_length(message, header.length), message);
        frame::read_payload(&mut self.reader, header.length, payload)?;
        Ok(header.kind)
    }

    /// Ends the session: with the last words of this side if there are any, with all that is queued
    /// otherwise. Takes little more than [`LINGER`] when the peer does not read.
    pub(crate) fn close(&mut self, last_words: Option<&ErrorMessage>) {
        let Some(writer) = self.writer.take() else {
            return;
        };
        let deadline = Instant::now() + LINGER;
        if let Some(message) = last_words {
            writer.say(message, deadline);
        }
        let _ = writer.finish(self.control.as_ref(), deadline);
        let _ = self.control.shutdown(Shutdown::Write);
        if last_words.is_some() {
            self.drain();
        }
    }

    /// Reads until the peer has closed too: closing with unread data would reset the connection and
    /// might destroy the last words on their way.
    fn drain(&mut self) {
        self.reader.get_mut().allow(LINGER, LINGER);
        let mut waste = [0; 4096];
        while matches!(self.reader.read(&mut waste), Ok(read) if read > 0) {}
    }

    fn check_stop(&self) -> Result<(), SessionError> {
        if self.ends.is_stopping() {
            Err(SessionError::Stopping)
        } else {
            Ok(())
        }
    }

    /// Why the writer is gone: what the peer says, if it still said something, or the writer's own
    /// error.
    fn write_failure(&mut self) -> SessionError {
        let Some(writer) = self.writer.take() else {
            return SessionError::Over;
        };
        let failure = match writer.finish(self.control.as_ref(), Instant::now() + LINGER) {
            Ok(()) => SessionError::Bug,
            Err(error) => error,
        };
        match self.receive_within(LINGER, &[], &mut Vec::new()) {
            Err(
                said @ (SessionError::Peer { .. }
                | SessionError::Stopping
                | SessionError::Channel(_)),
            ) => said,
            _ => failure,
        }
    }
}

fn handle(transport: &dyn Transport) -> Result<Box<dyn Transport>, SessionError> {
    let what = "a handle";
    let handle = transport.try_clone();
    handle.map_err(|source| SessionError::System { what, source })
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close(None);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{
        net::{TcpListener, TcpStream},
        sync::{Arc, atomic::AtomicUsize},
        thread,
    };

    use super::*;
    use crate::{frame::MAX_HANDSHAKE, writer::QUEUE};

    fn link(party: Party, stream: TcpStream, ends: Ends) -> Link {
        stream.set_nodelay(true).expect("it is connected");
        let limit = Duration::from_secs(100);
        let timeouts = Timeouts {
            idle: limit,
            message: limit,
        };
        Link::new(party, Box::new(stream), None, timeouts, ends).expect("handles are left")
    }

    /// Both ends of a connection.
    pub(crate) fn links() -> [Link; 2] {
        links_with(Ends::default())
    }

    /// The same, with what ends the server's waiting.
    fn links_with(ends: Ends) -> [Link; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let near = TcpStream::connect(address).expect("it listens");
        let (far, _) = listener.accept().expect("it was connected");
        [
            link(Party::Client, near, Ends::default()),
            link(Party::Server, far, ends),
        ]
    }

    fn send(link: &mut Link, kind: Kind, length: usize) {
        let mut payload = match kind {
            Kind::Data => link.buffer(),
            _ => Vec::new(),
        };
        payload.clear();
        payload.resize(length, 1);
        link.send(kind, payload).expect("the peer reads");
    }

    /// Buffers that wait to be used again, all of which are taken out.
    fn pooled(link: &mut Link) -> usize {
        thread::sleep(Duration::from_millis(100));
        let writer = link.writer.as_ref().expect("it is open");
        writer.used.try_iter().count()
    }

    /// Both send ahead of what they take, and count alike: the sealed frame opens.
    #[test]
    fn crossing_frames_keep_their_places() {
        let [mut client, mut server] = links();
        let mut payload = Vec::new();
        let mut take = |link: &mut Link| {
            link.note(&payload);
            link.receive_data(10, &mut payload).expect("it was sent");
            link.note(&payload);
        };
        // The list: c0 c1 s0 s1 c2 c3 s2.
        send(&mut client, Kind::Data, 1);
        send(&mut client, Kind::Data, 2);
        take(&mut server);
        // s0 before c1 is taken, c2 and c3 before s0 and s1 are.
        let place = server.place();
        server
            .send_ahead(place + 1, vec![3; 3])
            .expect("the peer reads");
        for (frames, length) in [(2, 4), (3, 5)] {
            while !client.has_room() {
                thread::yield_now();
            }
            let place = client.place() + frames;
            let sent = client.send_ahead(place, vec![4; length]);
            sent.expect("the peer reads");
        }
        take(&mut server);
        send(&mut server, Kind::Data, 6);
        // s2 before c2 and c3.
        let place = server.place();
        server
            .send_ahead(place + 2, vec![7; 7])
            .expect("the peer reads");
        (0..3).for_each(|_| take(&mut client));
        (0..2).for_each(|_| take(&mut server));
        assert_eq!((client.frames, server.frames), (7, 7));
        assert_eq!((client.heard(), server.heard()), (3, 4));
        send(&mut server, Kind::Done, 1);
        let accept = [(Kind::Done, MAX_HANDSHAKE)];
        let kind = client.receive(&accept, &mut payload);
        assert!(matches!(kind, Ok(Kind::Done)));
    }

    /// A client that uploads reads nothing meanwhile. What the server sends it ahead waits, however
    /// short the limits where others wait for memory.
    #[test]
    fn a_peer_that_sends_may_read_later() {
        const LONG: usize = 32 << 20;
        const UPLOADS: u64 = 30;
        let waiting = Arc::new(AtomicUsize::new(1));
        let limit = Duration::from_secs(2);
        let [mut client, mut server] = links_with(Ends::sharing(Arc::default(), waiting, limit));
        let _held = server.holds_memory();
        let uploading = thread::spawn(move || {
            for _ in 0..UPLOADS {
                thread::sleep(Duration::from_millis(100));
                send(&mut client, Kind::Data, 1);
            }
            let mut payload = Vec::new();
            let read = client.receive_data(LONG, &mut payload);
            client.note(&payload);
            read.map(|()| payload.len())
        });
        let queued = server.send_ahead(UPLOADS, vec![0; LONG]);
        queued.expect("there is room");
        let mut payload = Vec::new();
        for _ in 0..UPLOADS {
            server.receive_data(1, &mut payload).expect("it was sent");
            server.note(&payload);
        }
        let read = uploading.join().expect("it does not panic");
        assert_eq!(read.expect("it was sent"), LONG);
    }

    /// A frame with another place than the peer's is found.
    #[test]
    fn frames_at_other_places_are_damage() {
        let [mut client, mut server] = links();
        let mut payload = Vec::new();
        client.send_ahead(1, vec![1]).expect("the peer reads");
        server.receive_data(10, &mut payload).expect("it was sent");
        server.note(&payload);
        send(&mut server, Kind::Done, 1);
        let accept = [(Kind::Done, MAX_HANDSHAKE)];
        let found = client.receive(&accept, &mut payload);
        assert!(matches!(found, Err(SessionError::Damaged)));
    }

    #[test]
    fn many_predictions_keep_few_buffers() {
        let [mut client, mut server] = links();
        let mut payload = Vec::new();
        for _ in 0..300 {
            for (from_client, kind) in [
                (true, Kind::Begin),
                (true, Kind::Data),
                (false, Kind::Data),
                (false, Kind::Done),
            ] {
                let (from, to) = match from_client {
                    true => (&mut client, &mut server),
                    false => (&mut server, &mut client),
                };
                send(from, kind, 1000);
                to.receive(&[(kind, MAX_HANDSHAKE)], &mut payload)
                    .expect("it was sent");
            }
        }
        // Those that wait for the writer, the one being written and the one being filled.
        for link in [&mut client, &mut server] {
            assert!(pooled(link) <= QUEUE + 2);
        }
    }
}
