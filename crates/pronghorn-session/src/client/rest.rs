//! A connection that rests between two predictions, and what a client does where the server has
//! ended it.

use std::time::{Duration, Instant};

use super::{Client, ConnectOptions, unless_cancelled};
use crate::{
    error::{ErrorCode, SessionError},
    frame::FrameError,
};

/// How long a connection rests before it is looked at: a look takes a millisecond or two.
const RESTED: Duration = Duration::from_millis(500);

impl Client {
    /// Connects again where the connection was ended while it rested, and where another connection
    /// has its secret. Nothing is lost with it: no batch was under way. Whether a check of decrypted
    /// values failed plays no part, since the server sees a new connection.
    pub(super) fn wake(&mut self) -> Result<(), SessionError> {
        if !self.over && self.has_lost_a_secret() {
            return self.reconnect();
        }
        if self.over || self.again.is_none() || self.last_used.elapsed() < RESTED {
            return Ok(());
        }
        self.last_used = Instant::now();
        match self.link.look() {
            None => Ok(()),
            Some(error) if was_ended(&error) => self.reconnect(),
            Some(error) => {
                let error = unless_cancelled(&self.cancel, error);
                Err(self.end(error))
            }
        }
    }

    /// Does a part of the protocol that begins with this side's message, and does it once more on a
    /// new connection where the server has not read that message: it had ended the connection,
    /// which rested.
    pub(super) fn awake<T>(
        &mut self,
        mut part: impl FnMut(&mut Self) -> Result<T, SessionError>,
    ) -> Result<T, SessionError> {
        if self.leaves && !self.over && self.again.is_some() {
            self.reconnect()?;
        }
        let heard = self.link.heard();
        match part(self) {
            // A server that has answered had read it. Once more would be another prediction.
            Err(error)
                if may_come_again(error.code())
                    && self.again.is_some()
                    && self.link.heard() == heard =>
            {
                self.reconnect()?;
                part(self)
            }
            done => done,
        }
    }

    /// A new connection to the same address and plan, with what this one has that is not the
    /// connection's own.
    fn reconnect(&mut self) -> Result<(), SessionError> {
        let (address, options) = self.again.clone().ok_or(SessionError::Over)?;
        let same = ConnectOptions {
            plan: Some(self.plan().clone()),
            expected_plan_hash: Some(self.plan_hash),
            model: Some(self.id.clone().into()),
            ..options.clone()
        };
        let connected = Self::connect_sharing(&address, same, Some(self.store.clone()));
        let mut fresh = connected.inspect_err(|_| self.over = true)?;
        fresh.again = Some((address, options));
        fresh.link.traffic = fresh.link.traffic.after(self.link.traffic);
        fresh.refill = self.refill.take();
        fresh.kept = self.kept;
        *self = fresh;
        Ok(())
    }
}

/// Whether the server has ended the connection for its rest, or since others wait.
fn may_come_again(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::Idle | ErrorCode::Turn)
}

/// Whether the server has ended the connection for nothing but its rest, or is another process
/// since.
fn was_ended(error: &SessionError) -> bool {
    may_come_again(error.code())
        || matches!(
            error,
            SessionError::Frame(
                FrameError::Closed | FrameError::Truncated { .. } | FrameError::Io(_)
            )
        )
}
