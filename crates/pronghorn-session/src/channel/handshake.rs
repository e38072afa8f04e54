//! TLS handshakes within a time limit.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

use rustls::Connection;

use super::binding::{Binding, LABEL};
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
    Tls(rustls::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Line(error.into())
    }
}

/// Exchanges messages until the handshake is over on this side. A peer that is refused is told by
/// an alert.
pub(super) fn complete(connection: &mut Connection, line: &mut Timed) -> Result<(), Failure> {
    loop {
        while connection.wants_write() {
            connection.write_tls(line)?;
        }
        line.flush()?;
        if !connection.is_handshaking() {
            return Ok(());
        }
        if connection.read_tls(line)? == 0 {
            return Err(Failure::Line(FrameError::Closed));
        }
        if let Err(error) = connection.process_new_packets() {
            while connection.wants_write() && connection.write_tls(line).is_ok() {}
            return Err(Failure::Tls(error));
        }
    }
}

/// The first byte of what a peer sends.
pub(super) fn first_byte(line: &mut Timed) -> Result<[u8; 1], FrameError> {
    let mut first = [0];
    match line.read(&mut first)? {
        0 => Err(FrameError::Closed),
        _ => Ok(first),
    }
}

/// The exporter of a connection whose handshake is over.
pub(super) fn binding(connection: &Connection) -> Result<Binding, rustls::Error> {
    let exporter = connection.export_keying_material([0; 32], LABEL, None)?;
    Ok(Binding::new(exporter))
}
