//! What programs and peers are told of an error: a name, whether to try again, and words without
//! this side's affairs.

use pronghorn_engine::EngineError;

use crate::{
    error::{ErrorCode, SessionError},
    frame::FrameError,
    store::StoreError,
};

impl ErrorCode {
    /// A name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Protocol => "protocol",
            Self::Version => "wrong-version",
            Self::Trust => "wrong-trust",
            Self::Plan => "wrong-plan",
            Self::Limit => "limit",
            Self::Busy => "busy",
            Self::Timeout => "timeout",
            Self::Engine => "engine",
            Self::Internal => "internal",
            Self::Stopping => "stopping",
            Self::Cancelled => "cancelled",
            Self::Damaged => "damaged",
            Self::Idle => "idle",
            Self::Channel => "channel",
            Self::Unauthorised => "unauthorised",
            Self::FalseKeys => "false-keys",
            Self::Model => "unknown-model",
            Self::Turn => "turn",
            Self::Other(_) => "other",
        }
    }
}

impl SessionError {
    /// A name for programs: that of [`SessionError::code`], or of what concerns this side alone:
    /// `unreachable`, `address`, `closed`, `over`, `store`, `option`, and `failed-check` where a
    /// decrypted value lies outside its range, of which the server is told nothing.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "unreachable",
            Self::Address { .. } | Self::Bind { .. } => "address",
            Self::Frame(FrameError::Closed | FrameError::Truncated { .. } | FrameError::Io(_)) => {
                "closed"
            }
            Self::Over | Self::AnotherServer | Self::Store(StoreError::Lost { .. }) => "over",
            Self::Engine(EngineError::Opened { .. } | EngineError::Decryption { .. }) => {
                "failed-check"
            }
            Self::Channel(error) if error.is_about_options() => "option",
            Self::Limits { .. } | Self::Store(StoreError::Open { .. }) => "option",
            Self::Store(StoreError::Disk { .. } | StoreError::File { .. }) => "store",
            other => other.code().name(),
        }
    }

    /// Whether the same may succeed on a new connection, at once or later.
    pub fn is_retryable(&self) -> bool {
        let passing = [
            "busy",
            "timeout",
            "stopping",
            "closed",
            "idle",
            "turn",
            "damaged",
            "unreachable",
            "over",
        ];
        passing.contains(&self.reason())
    }

    /// What a server tells its client. The paths of its files and the state of its machine are for
    /// its log.
    pub(crate) fn told_to_client(&self) -> String {
        match self {
            Self::Store(
                StoreError::Disk { .. }
                | StoreError::Open { .. }
                | StoreError::Lost { .. }
                | StoreError::File { .. },
            ) => "the server cannot use its store".into(),
            Self::System { .. } => "the server is short of threads or handles".into(),
            other => other.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn what_passes_can_be_tried_again() {
        let peer = |code| SessionError::Peer {
            code,
            text: String::new(),
        };
        let io = || io::Error::from(io::ErrorKind::ConnectionReset);
        for (error, reason, retryable) in [
            (peer(ErrorCode::Busy), "busy", true),
            (peer(ErrorCode::Idle), "idle", true),
            (peer(ErrorCode::Stopping), "stopping", true),
            (peer(ErrorCode::Plan), "wrong-plan", false),
            (peer(ErrorCode::Limit), "limit", false),
            (peer(ErrorCode::Turn), "turn", true),
            (peer(ErrorCode::Model), "unknown-model", false),
            (peer(ErrorCode::Other(99)), "other", false),
            (SessionError::Damaged, "damaged", true),
            (SessionError::Cancelled, "cancelled", false),
            (SessionError::Frame(FrameError::Timeout), "timeout", true),
            (SessionError::Frame(FrameError::Io(io())), "closed", true),
            (
                SessionError::Frame(FrameError::UnknownKind { kind: 0 }),
                "protocol",
                false,
            ),
            (SessionError::NotPronghorn, "protocol", false),
        ] {
            assert_eq!((error.reason(), error.is_retryable()), (reason, retryable));
        }
    }

    #[test]
    fn paths_stay_with_the_server() {
        let error = SessionError::Store(StoreError::Disk {
            path: "/srv/secret".into(),
            source: io::Error::from(io::ErrorKind::StorageFull),
        });
        assert!(error.to_string().contains("/srv/secret"));
        assert!(!error.told_to_client().contains("secret"));
    }
}
