//! Protocols as state machines: messages in, messages out, no sockets.

/// What a machine waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// To be asked for its next message.
    Send,
    /// To be given the peer's next message.
    Receive,
    /// Nothing: it has finished.
    Done,
}

/// How far a machine is, in rows of ciphertext made or read, or another unit of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Rows done.
    pub done: u64,
    /// Rows in all.
    pub total: u64,
}

/// One party's half of a protocol.
pub trait Machine {
    /// What can go wrong in it.
    type Error;

    /// What it waits for now.
    fn want(&self) -> Want;

    /// Appends exactly one message to `out`; or writes it over what that has
    /// ([`Machine::writes_over`]).
    ///
    /// # Errors
    /// When it is not this party's turn to send, or no message can be made.
    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), Self::Error>;

    /// Whether messages are written over what `out` has, which then need not be cleared.
    fn writes_over(&self) -> bool {
        false
    }

    /// Takes the peer's next message.
    ///
    /// # Errors
    /// When the message is malformed or out of turn; the machine is then of no further use.
    fn receive(&mut self, message: &[u8]) -> Result<(), Self::Error>;

    /// While it waits for the peer: how many messages come before its own next one, where that one
    /// can be made already. They are of both parties, in the protocol's order.
    ///
    /// To send it now changes no byte of either direction. It saves the wait alone.
    fn ahead(&self) -> Option<u64> {
        None
    }

    /// Writes the message of [`Machine::ahead`] to `out`, as [`Machine::send`] does.
    ///
    /// # Errors
    /// As [`Machine::send`].
    fn send_ahead(&mut self, out: &mut Vec<u8>) -> Result<(), Self::Error> {
        self.send(out)
    }

    /// Messages of both parties that are still to come, where that is known.
    fn left(&self) -> Option<u64> {
        None
    }

    /// Does what needs no message, before it waits for one.
    ///
    /// # Errors
    /// As [`Machine::send`].
    fn meanwhile(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The longest message it would take next, in bytes: the bound before anything is allocated.
    fn max_incoming(&self) -> usize;

    /// The longest message that the peer sends right behind its next one, in bytes, where it sends
    /// one whatever becomes of that.
    fn max_following(&self) -> Option<usize> {
        None
    }

    /// How far it is. Machines of a few short messages report nothing.
    fn progress(&self) -> Progress {
        Progress::default()
    }
}
