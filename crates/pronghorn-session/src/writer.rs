//! The thread that writes a connection's frames, and their hash.

use std::{
    io::{BufWriter, Write},
    net::Shutdown,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{
            Receiver, RecvTimeoutError, SendError, Sender, SyncSender, TryRecvError, TrySendError,
            channel, sync_channel,
        },
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    error::SessionError,
    frame::{self, FrameError, Kind},
    lock::lock,
    message::ErrorMessage,
    transcript::{Digest, Way},
    transport::{BUFFER, Ends, Timed, Timeouts, Transport, with_length},
};

/// Messages that wait for the writer.
pub(crate) const QUEUE: usize = 2;

/// How long last words wait before they try the queue again.
const LINGER_STEP: Duration = Duration::from_millis(5);

/// A frame to be written.
pub(crate) struct Outgoing {
    /// How many frames of both parties are before it in the protocol's order.
    pub place: u64,
    pub kind: Kind,
    pub payload: Vec<u8>,
    /// For a frame that is to be sealed: the digest of what has come.
    pub received: Option<Digest>,
}

/// What the thread has sent, as the other side has seen it.
pub(crate) struct Sent {
    state: Mutex<SentFrames>,
    changed: Condvar,
}

struct SentFrames {
    way: Way,
    count: u64,
    ended: bool,
}

impl Sent {
    fn new(way: Way) -> Self {
        Self {
            state: Mutex::new(SentFrames {
                way,
                count: 0,
                ended: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// The digest of so many frames and of those that have come; none where the thread has ended
    /// before these.
    pub(crate) fn digest(&self, frames: u64, received: &Digest) -> Option<Digest> {
        let unsettled = |state: &mut SentFrames| state.count < frames && !state.ended;
        let settled = self.changed.wait_while(lock(&self.state), unsettled);
        let state = settled.unwrap_or_else(PoisonError::into_inner);
        (state.count == frames).then(|| state.way.digest_with(received))
    }

    /// Adds a frame. One that is to be sealed was added when it was.
    fn add(&self, frame: &Outgoing) {
        if frame.kind != Kind::Error && frame.received.is_none() {
            let mut state = lock(&self.state);
            state.way.add(frame.place, frame.kind, &frame.payload);
            state.count += 1;
            self.changed.notify_all();
        }
    }

    /// Appends the digest to a frame that is to be sealed.
    fn seal(&self, frame: &mut Outgoing) {
        if let Some(received) = &frame.received {
            let mut state = lock(&self.state);
            state.way.add(frame.place, frame.kind, &frame.payload);
            state.count += 1;
            frame
                .payload
                .extend_from_slice(&state.way.digest_with(received));
            self.changed.notify_all();
        }
    }

    fn end(&self) {
        lock(&self.state).ended = true;
        self.changed.notify_all();
    }
}

/// Says that the thread has ended, even where it panics: whoever waits for it waits no longer.
struct Ending(Arc<Sent>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A thread that writes frames.
pub(crate) struct Writer {
    queue: SyncSender<Outgoing>,
    /// Frames that the thread has not taken from the queue.
    waiting: Arc<AtomicUsize>,
    /// Buffers that have been written; disconnected once the thread has ended.
    pub(crate) used: Receiver<Vec<u8>>,
    pub(crate) sent: Arc<Sent>,
    thread: JoinHandle<Result<(), FrameError>>,
}

impl Writer {
    pub(crate) fn start(
        way: Way,
        transport: Box<dyn Transport>,
        timeouts: Timeouts,
        ends: Ends,
    ) -> Result<Self, SessionError> {
        let (queue, jobs) = sync_channel(QUEUE);
        let (give_back, used) = channel();
        let sent = Arc::new(Sent::new(way));
        let waiting = Arc::new(AtomicUsize::new(0));
        let thread = thread::Builder::new()
            .name("pronghorn writer".into())
            .spawn({
                let ending = Ending(sent.clone());
                let transport = Timed::new(transport, ends);
                let jobs = Jobs {
                    queue: jobs,
                    waiting: waiting.clone(),
                };
                move || write_all(jobs, &give_back, &ending.0, transport, timeouts)
            })
            .map_err(|source| SessionError::System {
                what: "a thread",
                source,
            })?;
        Ok(Self {
            queue,
            waiting,
            used,
            sent,
            thread,
        })
    }

    /// Queues a frame; blocks while the queue is full.
    pub(crate) fn send(&self, frame: Outgoing) -> Result<(), SendError<Outgoing>> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.queue.send(frame)
    }

    /// Whether the next frame finds room in the queue. Nobody else fills it.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) < QUEUE
    }

    /// Queues last words, once there is room for them: a peer who reads nothing until then will not
    /// read these either.
    pub(crate) fn say(&self, message: &ErrorMessage, deadline: Instant) {
        let mut words = Outgoing {
            place: 0,
            kind: Kind::Error,
            payload: message.encode(),
            received: None,
        };
        self.waiting.fetch_add(1, Ordering::Relaxed);
        while let Err(TrySendError::Full(unsaid)) = self.queue.try_send(words) {
            if Instant::now() >= deadline {
                return;
            }
            words = unsaid;
            thread::sleep(LINGER_STEP);
        }
    }

    /// Lets the thread write what is queued, cuts it off at the deadline, and waits for it.
    pub(crate) fn finish(
        self,
        control: &dyn Transport,
        deadline: Instant,
    ) -> Result<(), SessionError> {
        drop(self.queue);
        loop {
            match self
                .used
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let _ = control.shutdown(Shutdown::Both);
                    break;
                }
            }
        }
        self.thread
            .join()
            .map_err(|_| SessionError::Bug)?
            .map_err(SessionError::from)
    }
}

/// The queue, at its end.
struct Jobs {
    queue: Receiver<Outgoing>,
    waiting: Arc<AtomicUsize>,
}

impl Jobs {
    /// The next frame. The queue has room for another one when it counts as taken.
    fn next(&self) -> Option<Outgoing> {
        let frame = self.queue.recv().ok()?;
        self.taken();
        Some(frame)
    }

    /// The next frame, where it is there.
    fn try_next(&self) -> Result<Outgoing, TryRecvError> {
        let frame = self.queue.try_recv()?;
        self.taken();
        Ok(frame)
    }

    fn taken(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A frame that is sent to nobody fails at once, so nothing waits for room.
impl Drop for Jobs {
    fn drop(&mut self) {
        self.waiting.store(0, Ordering::Relaxed);
    }
}

/// The writer thread: frames from the queue until it is closed; flushes whenever it is empty. A
/// frame is added to the transcript when it is on its way, and whoever waits for it has it.
fn write_all(
    jobs: Jobs,
    give_back: &Sender<Vec<u8>>,
    sent: &Sent,
    transport: Timed,
    timeouts: Timeouts,
) -> Result<(), FrameError> {
    let mut writer = BufWriter::with_capacity(BUFFER, transport);
    let mut write = || {
        let mut next = jobs.next();
        while let Some(mut frame) = next {
            sent.seal(&mut frame);
            let (time, stall) = (
                with_length(timeouts.idle, frame.payload.len()),
                timeouts.idle,
            );
            writer.get_mut().allow(time, stall);
            frame::write_frame(&mut writer, frame.kind, &frame.payload)?;
            let waiting = jobs.try_next();
            if waiting.is_err() {
                writer.flush()?;
            }
            sent.add(&frame);
            // Only these were taken from the pool: with others it would grow by a buffer a batch.
            if frame.kind == Kind::Data {
                // The session may have stopped asking for buffers.
                let _ = give_back.send(frame.payload);
            }
            next = match waiting {
                Err(TryRecvError::Empty) => jobs.next(),
                waiting => waiting.ok(),
            };
        }
        Ok(())
    };
    let result = write();
    if result.is_err() {
        // What is left in the buffer must not be tried again on drop.
        let _ = writer.into_parts();
    }
    result
}
