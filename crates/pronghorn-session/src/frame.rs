//! Frames: `u32` length, `u8` kind, payload; every length is checked against a bound before it is
//! used.

use std::io::{self, Read, Write};

use thiserror::Error;

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 5;

/// Longest payload of a handshake message, in bytes.
pub const MAX_HANDSHAKE: usize = 64 << 10;

/// Longest payload of an `Error` frame, in bytes.
pub const MAX_ERROR: usize = 4 << 10;

/// What is reserved for a payload before any of it has arrived, in bytes.
const FIRST_RESERVE: usize = 64 << 10;

/// Kinds of frames; the discriminants are on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The client's first message.
    ClientHello = 1,
    /// The server's first message.
    ServerHello = 2,
    /// The client asks for the plan.
    PlanRequest = 3,
    /// The plan.
    PlanBytes = 4,
    /// The client begins a batch.
    Begin = 5,
    /// One message of a machine.
    Data = 6,
    /// The server ends a batch.
    Done = 7,
    /// The sender failed and closes.
    Error = 8,
    /// The client leaves.
    Bye = 9,
    /// The client begins to prepare a batch.
    Prepare = 10,
    /// The server says whether it has the preparation that a `Begin` names.
    Begun = 11,
    /// The client proves that it has a token, before its hello.
    Token = 12,
    /// The client asks for the models, in place of its hello.
    ListingRequest = 13,
    /// The models.
    Listing = 14,
    /// Begins a message between the roles of `multi-key`, whose body follows as `Data`.
    Role = 15,
    /// The client shows a ticket of the admission service, before its hello.
    Ticket = 16,
}

impl Kind {
    const ALL: [Self; 16] = [
        Self::ClientHello,
        Self::ServerHello,
        Self::PlanRequest,
        Self::PlanBytes,
        Self::Begin,
        Self::Data,
        Self::Done,
        Self::Error,
        Self::Bye,
        Self::Prepare,
        Self::Begun,
        Self::Token,
        Self::ListingRequest,
        Self::Listing,
        Self::Role,
        Self::Ticket,
    ];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&kind| kind as u8 == byte)
    }
}

/// A kind of frame that may come next, and its longest payload in bytes.
pub type Accept = (Kind, usize);

/// Why a frame could not be read or written.
#[derive(Debug, Error)]
pub enum FrameError {
    /// The peer closed the connection between two frames.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer closed the connection within a frame.
    #[error("the connection ended after {read} of a frame's {expected} bytes")]
    Truncated {
        /// Bytes of the header or payload that arrived.
        read: usize,
        /// Bytes it has.
        expected: usize,
    },
    /// A kind no version has.
    #[error("a frame of unknown kind {kind} came")]
    UnknownKind {
        /// The kind's byte.
        kind: u8,
    },
    /// A known kind out of turn.
    #[error("a frame of kind {found:?} came where {expected:?} was expected")]
    Unexpected {
        /// What came.
        found: Kind,
        /// What may come.
        expected: Vec<Kind>,
    },
    /// A length above the bound; nothing was allocated for it.
    #[error("a frame of kind {kind:?} announces {length} bytes; at most {most} are accepted")]
    TooLong {
        /// What came.
        kind: Kind,
        /// Announced length of the payload.
        length: usize,
        /// Longest payload accepted.
        most: usize,
    },
    /// The peer was silent, sent too slowly, or did not read.
    #[error("the peer was silent or too slow for longer than its time limit")]
    Timeout,
    /// The transport failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::Timeout,
            _ => Self::Io(error),
        }
    }
}

/// A frame's kind and the length of its payload, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind.
    pub kind: Kind,
    /// Bytes of the payload.
    pub length: usize,
}

/// Reads a header. `Error` is always accepted, anything else only as listed.
///
/// # Errors
/// When the stream ends or fails, or the header is not of an accepted kind and length.
pub fn read_header(reader: &mut impl Read, accept: &[Accept]) -> Result<Header, FrameError> {
    let mut header = [0u8; HEADER_BYTES];
    match read_up_to(reader, &mut header)? {
        0 => return Err(FrameError::Closed),
        HEADER_BYTES => {}
        read => {
            return Err(FrameError::Truncated {
                read,
                expected: HEADER_BYTES,
            });
        }
    }
    let [length @ .., kind] = header;
    let length = u32::from_le_bytes(length) as usize;
    let kind = Kind::from_byte(kind).ok_or(FrameError::UnknownKind { kind })?;
    let most = match accept.iter().find(|(accepted, _)| *accepted == kind) {
        Some(&(_, most)) => most,
        None if kind == Kind::Error => MAX_ERROR,
        None => {
            let expected = accept.iter().map(|&(kind, _)| kind).collect();
            return Err(FrameError::Unexpected {
                found: kind,
                expected,
            });
        }
    };
    if length > most {
        return Err(FrameError::TooLong { kind, length, most });
    }
    Ok(Header { kind, length })
}

/// Reads a payload into `payload`, in place of what that holds. Memory grows with what arrives, not
/// with what was announced. Memory that is there is not cleared before.
///
/// # Errors
/// When the stream ends or fails before `length` bytes.
pub fn read_payload(
    reader: &mut impl Read,
    length: usize,
    payload: &mut Vec<u8>,
) -> Result<(), FrameError> {
    payload.truncate(length);
    let mut read = read_up_to(reader, payload)?;
    if read == payload.len() {
        payload.reserve((length - read).min(FIRST_RESERVE));
        read += reader.take((length - read) as u64).read_to_end(payload)?;
    }
    if read < length {
        payload.truncate(read);
        return Err(FrameError::Truncated {
            read,
            expected: length,
        });
    }
    Ok(())
}

/// Reads one frame: [`read_header`], then [`read_payload`].
///
/// # Errors
/// As those.
pub fn read_frame(
    reader: &mut impl Read,
    accept: &[Accept],
    payload: &mut Vec<u8>,
) -> Result<Kind, FrameError> {
    let header = read_header(reader, accept)?;
    read_payload(reader, header.length, payload)?;
    Ok(header.kind)
}

/// Writes one frame.
///
/// # Errors
/// When the payload has 2^32 bytes or more, or the stream fails.
pub fn write_frame(writer: &mut impl Write, kind: Kind, payload: &[u8]) -> Result<(), FrameError> {
    let too_long = |_| FrameError::TooLong {
        kind,
        length: payload.len(),
        most: u32::MAX as usize,
    };
    let length = u32::try_from(payload.len()).map_err(too_long)?;
    let mut header = [0u8; HEADER_BYTES];
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4] = kind as u8;
    writer.write_all(&header)?;
    writer.write_all(payload)?;
    Ok(())
}

/// Fills as much of `buffer` as the stream has.
fn read_up_to(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ACCEPT: [Accept; 2] = [(Kind::Data, 100), (Kind::Bye, 0)];

    fn frame(length: u32, kind: u8, payload: &[u8]) -> Vec<u8> {
        [&length.to_le_bytes()[..], &[kind], payload].concat()
    }

    fn read(bytes: &[u8], payload: &mut Vec<u8>) -> Result<Kind, FrameError> {
        read_frame(&mut &bytes[..], &ACCEPT, payload)
    }

    proptest! {
        #[test]
        fn frames_round_trip(payload in prop::collection::vec(any::<u8>(), 0..=100)) {
            let mut bytes = Vec::new();
            write_frame(&mut bytes, Kind::Data, &payload).unwrap();
            prop_assert_eq!(&bytes, &frame(payload.len() as u32, 6, &payload));
            let mut found = vec![1, 2, 3];
            prop_assert_eq!(read(&bytes, &mut found).unwrap(), Kind::Data);
            prop_assert_eq!(found, payload);
        }

        #[test]
        fn truncation_at_every_byte_is_an_error(length in 1usize..50) {
            let bytes = frame(length as u32, 6, &vec![7; length]);
            let mut payload = Vec::new();
            prop_assert!(matches!(read(&[], &mut payload), Err(FrameError::Closed)));
            for cut in 1..bytes.len() {
                let error = read(&bytes[..cut], &mut payload);
                prop_assert!(matches!(error, Err(FrameError::Truncated { .. })), "{:?}", error);
            }
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(kind) = read(&bytes, &mut Vec::new()) {
                prop_assert!(matches!(kind, Kind::Data | Kind::Bye | Kind::Error));
            }
        }
    }

    #[test]
    fn oversized_lengths_allocate_nothing() {
        let mut payload = Vec::new();
        for (length, kind, most) in [
            (101, 6, 100),
            (u32::MAX, 6, 100),
            (1, 9, 0),
            (MAX_ERROR as u32 + 1, 8, MAX_ERROR),
        ] {
            match read(&frame(length, kind, &[]), &mut payload) {
                Err(FrameError::TooLong {
                    length: found,
                    most: bound,
                    ..
                }) => {
                    assert_eq!((found, bound), (length as usize, most));
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(payload.capacity(), 0);
        }
    }

    #[test]
    fn announced_but_missing_bytes_are_not_allocated() {
        let mut payload = Vec::new();
        let bytes = frame(1 << 30, 6, &[0; 10]);
        let error = read_frame(&mut &bytes[..], &[(Kind::Data, 1 << 30)], &mut payload);
        assert!(matches!(
            error,
            Err(FrameError::Truncated {
                read: 10,
                expected: 0x4000_0000
            })
        ));
        assert!(payload.capacity() <= FIRST_RESERVE);
    }

    #[test]
    fn unknown_and_unexpected_kinds_are_refused() {
        let mut payload = Vec::new();
        for kind in (0..=u8::MAX).filter(|kind| !(1..=16).contains(kind)) {
            assert!(
                matches!(read(&frame(0, kind, &[]), &mut payload), Err(FrameError::UnknownKind { kind: k }) if k == kind)
            );
        }
        let error = read(&frame(0, 5, &[]), &mut payload);
        assert!(matches!(
            error,
            Err(FrameError::Unexpected {
                found: Kind::Begin,
                ..
            })
        ));
        assert_eq!(
            read(&frame(2, 8, &[1, 0]), &mut payload).unwrap(),
            Kind::Error
        );
    }
}
