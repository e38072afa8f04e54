//! TLS handshakes within a time limit, a record at a time, so that no byte behind the handshake is
//! taken from the line.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

use rustls::{
    CommonState, Error, ExtractedSecrets, SupportedCipherSuite,
    client::{ClientConnectionData, UnbufferedClientConnection},
    kernel::KernelConnection,
    pki_types::CertificateDer,
    server::{ServerConnectionData, UnbufferedServerConnection},
    unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus},
};

use super::{
    binding::{Binding, LABEL},
    exporter::Exporter,
    record::{HEADER, Opener, Sealer, directions, record_length},
};
use crate::{
    error::SessionError,
    frame::FrameError,
    transport::{Ends, Timed, Transport},
};

/// The first byte of a TLS connection: a record of the handshake.
pub(super) const HANDSHAKE: u8 = 22;

/// A socket with a limit on the whole of a handshake.
pub(super) fn timed(
    socket: &TcpStream,
    ends: &Ends,
    limit: Duration,
) -> Result<Timed, SessionError> {
    let what = "a handle";
    let handle = Transport::try_clone(socket);
    let handle = handle.map_err(|source| SessionError::System { what, source })?;
    let mut timed = Timed::new(handle, ends.clone());
    timed.allow(limit, limit);
    Ok(timed)
}

/// Why a handshake failed.
pub(super) enum Failure {
    Line(FrameError),
    Tls(Error),
    /// The peer's first bytes are no record.
    Plain([u8; HEADER], Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Line(error.into())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Tls(error)
    }
}

/// A connection whose handshake is over. Secret: no Debug.
pub(super) struct Established {
    pub sealer: Sealer,
    pub opener: Opener,
    pub binding: Binding,
    /// The peer's certificates, its own first.
    pub certificates: Vec<CertificateDer<'static>>,
}

/// rustls's connections of both roles.
pub(super) trait Handshake:
    std::ops::Deref<Target: std::ops::Deref<Target = CommonState>>
{
    type Data: Send + 'static;

    /// Whether a peer may give tickets for later connections, of which nothing is made.
    const TAKES_TICKETS: bool;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data>;

    fn into_kernel(self) -> Result<(ExtractedSecrets, KernelConnection<Self::Data>), Error>;
}

/// [`Handshake`] of a role: rustls has the same methods for both, in no trait.
macro_rules! handshake {
    ($connection:ty, $data:ty, takes_tickets: $takes_tickets:literal) => {
        impl Handshake for $connection {
            type Data = $data;

            const TAKES_TICKETS: bool = $takes_tickets;

            fn process<'c, 'i>(
                &'c mut self,
                incoming: &'i mut [u8],
            ) -> UnbufferedStatus<'c, 'i, Self::Data> {
                self.process_tls_records(incoming)
            }

            fn into_kernel(
                self,
            ) -> Result<(ExtractedSecrets, KernelConnection<Self::Data>), Error> {
                self.dangerous_into_kernel_connection()
            }
        }
    };
}

handshake!(UnbufferedClientConnection, ClientConnectionData, takes_tickets: true);
handshake!(UnbufferedServerConnection, ServerConnectionData, takes_tickets: false);

/// Exchanges messages until the handshake is over on this side. `read` is what was read already of
/// the first record. A peer that is refused is told by an alert.
pub(super) fn complete(
    mut connection: impl Handshake,
    exporter: &Exporter,
    read: &[u8],
    line: &mut Timed,
) -> Result<Established, Failure> {
    let mut incoming = read.to_vec();
    let mut is_first = true;
    if !incoming.is_empty() {
        read_record(line, &mut incoming, 0, is_first)?;
        is_first = false;
    }
    let mut outgoing = Vec::new();
    loop {
        let UnbufferedStatus { discard, state, .. } = connection.process(&mut incoming);
        let step = match state {
            Ok(ConnectionState::EncodeTlsData(data)) => encode(data, &mut outgoing)?,
            Ok(ConnectionState::TransmitTlsData(data)) => {
                line.write_all(&outgoing)?;
                line.flush()?;
                outgoing.clear();
                data.done();
                Step::On
            }
            Ok(ConnectionState::BlockedHandshake) => Step::Read,
            Ok(ConnectionState::WriteTraffic(_)) => Step::Ready,
            Ok(_) => return Err(Failure::Line(FrameError::Closed)),
            Err(error) => {
                incoming.drain(..discard);
                tell(&mut connection, incoming, outgoing, line);
                return Err(Failure::Tls(error));
            }
        };
        incoming.drain(..discard);
        match step {
            Step::On => {}
            // A server could write before the client has finished.
            Step::Ready if !connection.is_handshaking() => break,
            Step::Read | Step::Ready => {
                let start = incoming.len();
                read_record(line, &mut incoming, start, is_first)?;
                is_first = false;
            }
        }
    }
    established(connection, exporter)
}

enum Step {
    On,
    Read,
    Ready,
}

/// Appends a message of the handshake to what is sent next.
fn encode<Data>(mut data: EncodeTlsData<'_, Data>, outgoing: &mut Vec<u8>) -> Result<Step, Error> {
    let start = outgoing.len();
    let mut room = 0;
    loop {
        outgoing.resize(start + room, 0);
        match data.encode(&mut outgoing[start..]) {
            Ok(written) => {
                outgoing.truncate(start + written);
                return Ok(Step::On);
            }
            Err(EncodeError::InsufficientSize(needed)) if needed.required_size > room => {
                room = needed.required_size;
            }
            Err(error) => return Err(Error::General(error.to_string())),
        }
    }
}

/// Sends the alerts of a handshake that has failed, as far as the line takes them.
fn tell(
    connection: &mut impl Handshake,
    mut incoming: Vec<u8>,
    mut outgoing: Vec<u8>,
    line: &mut Timed,
) {
    // Nothing is read any more: rustls may not see the refused message twice.
    while connection.wants_write() {
        let UnbufferedStatus { discard, state, .. } = connection.process(&mut incoming);
        match state {
            Ok(ConnectionState::EncodeTlsData(data)) => drop(encode(data, &mut outgoing)),
            _ => break,
        }
        incoming.drain(..discard);
    }
    // The peer may have gone.
    let _ = line.write_all(&outgoing).and_then(|()| line.flush());
}

/// Reads the record that begins at `start`, behind what is there of it.
fn read_record(
    line: &mut Timed,
    incoming: &mut Vec<u8>,
    start: usize,
    is_first: bool,
) -> Result<(), Failure> {
    fill(line, incoming, start + HEADER)?;
    let header = &incoming[start..];
    let length = match (record_length(header), header.first_chunk()) {
        (Err(error), Some(first)) if is_first => return Err(Failure::Plain(*first, error)),
        (length, _) => length?.unwrap_or(HEADER),
    };
    fill(line, incoming, start + length)
}

/// Reads until `incoming` has a length.
fn fill(line: &mut Timed, incoming: &mut Vec<u8>, length: usize) -> Result<(), Failure> {
    let mut there = incoming.len();
    incoming.resize(length, 0);
    while there < length {
        match line.read(&mut incoming[there..])? {
            0 => return Err(Failure::Line(FrameError::Closed)),
            read => there += read,
        }
    }
    Ok(())
}

/// Takes the keys from rustls.
fn established<H: Handshake>(connection: H, exporter: &Exporter) -> Result<Established, Failure> {
    let certificates = connection.peer_certificates().unwrap_or_default();
    let certificates = certificates.iter().map(|one| one.clone().into_owned());
    let certificates = certificates.collect();
    let Some(SupportedCipherSuite::Tls13(suite)) = connection.negotiated_cipher_suite() else {
        return Err(Failure::Tls(Error::HandshakeNotComplete));
    };
    let binding = Binding::new(exporter.export(suite, LABEL)?);
    let (secrets, kernel) = connection.into_kernel()?;
    let (sealer, opener) = directions(suite, secrets, kernel, H::TAKES_TICKETS);
    Ok(Established {
        sealer,
        opener,
        binding,
        certificates,
    })
}

/// The first byte of what a peer sends.
pub(super) fn first_byte(line: &mut Timed) -> Result<[u8; 1], FrameError> {
    let mut first = [0];
    match line.read(&mut first)? {
        0 => Err(FrameError::Closed),
        _ => Ok(first),
    }
}
