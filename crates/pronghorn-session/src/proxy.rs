//! The PROXY protocol, versions 1 and 2: a load balancer says who connects through it.
//!
//! The header is believed from named addresses alone, which must send one. It comes before TLS, and
//! nothing vouches for it but the network between balancer and server.
//! <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>

use std::{
    io::{self, Read},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::{self, FromStr},
};

use thiserror::Error;

use crate::text::printable;

/// The first bytes of version 2.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Longest header of version 1, its end included.
const LONGEST_LINE: usize = 107;

/// Longest rest of a header of version 2 that is read: addresses, and what a balancer adds.
const LONGEST_REST: usize = 2048;

/// Addresses that share their first bits, such as `10.1.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

/// Text that is no network.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "{text:?} is no address and no network: give one such as 10.0.0.7, 10.1.0.0/16 or fd00::/8"
)]
pub struct NetworkError {
    /// What was given.
    text: String,
}

impl Network {
    /// Whether an address is one of it.
    pub fn has(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let mask = u32::MAX.checked_shl(32 - self.bits).unwrap_or(0);
                (ours.to_bits() ^ theirs.to_bits()) & mask == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let mask = u128::MAX.checked_shl(128 - self.bits).unwrap_or(0);
                (ours.to_bits() ^ theirs.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let wrong = || NetworkError { text: text.into() };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u32>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        match bits <= most {
            true => Ok(Self { address, bits }),
            false => Err(wrong()),
        }
    }
}

/// Why a balancer's header is refused.
#[derive(Debug, Error)]
pub enum ProxyError {
    /// The connection ended, or took too long.
    #[error("no whole PROXY header came: {0}")]
    Io(#[from] io::Error),
    /// It begins otherwise.
    #[error(
        "the connection does not begin with a PROXY header: let the load balancer send one (send-proxy-v2)"
    )]
    Missing,
    /// It makes no sense.
    #[error("the PROXY header is malformed: {0}")]
    Malformed(String),
}

/// Reads a header, and not a byte more: who connects through the balancer, or none where the
/// balancer itself does, such as for a probe.
///
/// # Errors
/// The line ends or is too slow, or there is no header, or one that makes no sense.
pub fn read_header(line: &mut impl Read) -> Result<Option<SocketAddr>, ProxyError> {
    let mut first = [0];
    line.read_exact(&mut first)?;
    match first[0] {
        b'P' => read_line(line),
        b'\r' => read_binary(line),
        _ => Err(ProxyError::Missing),
    }
}

fn malformed<T>(what: impl Into<String>) -> Result<T, ProxyError> {
    Err(ProxyError::Malformed(what.into()))
}

/// Version 1: `PROXY TCP4 192.0.2.1 192.0.2.2 56324 443`.
fn read_line(line: &mut impl Read) -> Result<Option<SocketAddr>, ProxyError> {
    let mut header = vec![b'P'];
    while !header.ends_with(b"\r\n") {
        if header.len() == LONGEST_LINE {
            return malformed("its line does not end");
        }
        let mut next = [0];
        line.read_exact(&mut next)?;
        header.push(next[0]);
    }
    header.truncate(header.len() - 2);
    let text = str::from_utf8(&header).unwrap_or("bytes that are no text");
    let fields: Vec<&str> = text.split(' ').collect();
    match fields[..] {
        ["PROXY", "UNKNOWN", ..] => Ok(None),
        ["PROXY", family @ ("TCP4" | "TCP6"), source, _, port, _] => {
            let parsed = source.parse::<IpAddr>().ok().zip(port.parse().ok());
            let fits = |&(source, _): &(IpAddr, u16)| source.is_ipv4() == (family == "TCP4");
            match parsed.filter(fits) {
                Some((source, port)) => Ok(Some(SocketAddr::new(source, port))),
                None => malformed(printable(text, " ")),
            }
        }
        _ if !header.starts_with(b"PROXY ") => Err(ProxyError::Missing),
        _ => malformed(printable(text, " ")),
    }
}

/// Version 2: the signature, version and command, family, length, addresses, and what is left out.
fn read_binary(line: &mut impl Read) -> Result<Option<SocketAddr>, ProxyError> {
    let mut start = [0; 16];
    start[0] = b'\r';
    line.read_exact(&mut start[1..])?;
    if start[..12] != SIGNATURE {
        return Err(ProxyError::Missing);
    }
    let [command, family, high, low] = [start[12], start[13], start[14], start[15]];
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > LONGEST_REST {
        return malformed(format!("{length} bytes, and {LONGEST_REST} are read"));
    }
    let mut rest = vec![0; length];
    line.read_exact(&mut rest)?;
    match (command, family) {
        (0x20, _) => Ok(None),
        (0x21, 0x11) => source::<4, 8>(&rest, |octets| Ipv4Addr::from(octets).into()),
        (0x21, 0x21) => source::<16, 32>(&rest, |octets| Ipv6Addr::from(octets).into()),
        (0x21, _) => malformed(format!("family {family:#x}, and not TCP over IPv4 or IPv6")),
        _ => malformed(format!("version and command {command:#x}")),
    }
}

/// The source in a header's addresses: two of them come before two ports.
fn source<const BYTES: usize, const PORTS: usize>(
    rest: &[u8],
    address: impl Fn([u8; BYTES]) -> IpAddr,
) -> Result<Option<SocketAddr>, ProxyError> {
    let port = rest.get(PORTS..).and_then(<[u8]>::first_chunk);
    let _destination = rest.get(PORTS + 2..PORTS + 4);
    match rest.first_chunk().zip(port).zip(_destination) {
        Some(((octets, port), _)) => Ok(Some(SocketAddr::new(
            address(*octets),
            u16::from_be_bytes(*port),
        ))),
        None => malformed("its addresses are cut"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> (Result<Option<SocketAddr>, ProxyError>, usize) {
        let mut left = bytes;
        let found = read_header(&mut left);
        (found, left.len())
    }

    fn found(bytes: &[u8]) -> Option<String> {
        let all = [bytes, b"next"].concat();
        let (found, left) = read(&all);
        assert_eq!(left, 4, "not a byte more is read");
        found
            .expect("it is a header")
            .map(|source| source.to_string())
    }

    /// A header of version 2, by the examples of the specification.
    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).expect("it is short");
        let mut header = SIGNATURE.to_vec();
        header.extend([command, family]);
        header.extend(length.to_be_bytes());
        header.extend(rest);
        header
    }

    #[test]
    fn sources_are_read() {
        let source = |text: &str| Some(text.to_owned());
        assert_eq!(
            found(b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n"),
            source("192.0.2.1:56324")
        );
        assert_eq!(
            found(b"PROXY TCP6 2001:db8::1 2001:db8::2 1 443\r\n"),
            source("[2001:db8::1]:1")
        );
        assert_eq!(found(b"PROXY UNKNOWN\r\n"), None);
        assert_eq!(found(b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n"), None);
        let v4 = [192, 0, 2, 7, 192, 0, 2, 2, 0x1F, 0x90, 1, 187];
        assert_eq!(found(&binary(0x21, 0x11, &v4)), source("192.0.2.7:8080"));
        // With what a balancer adds.
        let more = [&v4[..], &[3, 0, 1, 9]].concat();
        assert_eq!(found(&binary(0x21, 0x11, &more)), source("192.0.2.7:8080"));
        let mut v6 = [0; 36];
        (v6[0], v6[15], v6[33]) = (0xFD, 1, 9);
        assert_eq!(found(&binary(0x21, 0x21, &v6)), source("[fd00::1]:9"));
        assert_eq!(found(&binary(0x20, 0, &[])), None);
    }

    #[test]
    fn other_bytes_are_refused() {
        let cut = |bytes: &[u8]| matches!(read(bytes).0, Err(ProxyError::Io(_)));
        let missing = |bytes: &[u8]| matches!(read(bytes).0, Err(ProxyError::Missing));
        let malformed = |bytes: &[u8]| matches!(read(bytes).0, Err(ProxyError::Malformed(_)));
        assert!(cut(b"") && cut(b"PROXY TCP4 1") && cut(&SIGNATURE));
        assert!(missing(b"\x16\x03\x01") && missing(b"PRONGHRN\r\n") && missing(&[b'\r'; 16]));
        for line in [
            "PROXY TCP4 192.0.2.1 192.0.2.2 56324\r\n",
            "PROXY TCP4 ::1 ::1 1 1\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 99999 1\r\n",
            "PROXY UDP4 192.0.2.1 192.0.2.2 1 1\r\n",
            "PROXY \r\n",
        ] {
            assert!(malformed(line.as_bytes()), "{line}");
        }
        assert!(malformed(&[b'P'; 200]));
        assert!(malformed(&binary(0x21, 0x11, &[0; 11])));
        assert!(malformed(&binary(0x21, 0x31, &[0; 216])));
        assert!(malformed(&binary(0x31, 0x11, &[0; 12])));
        assert!(malformed(&binary(0x22, 0x11, &[0; 12])));
        assert!(malformed(&binary(0x21, 0x11, &[0; 3000])));
    }

    #[test]
    fn networks_have_their_addresses() {
        let network = |text: &str| text.parse::<Network>();
        let has = |text: &str, address: &str| {
            let address = address.parse().expect("it is an address");
            network(text).expect("it is a network").has(address)
        };
        assert!(has("10.1.0.0/16", "10.1.255.1") && !has("10.1.0.0/16", "10.2.0.1"));
        assert!(has("10.1.0.0/16", "::ffff:10.1.0.1") && !has("10.1.0.0/16", "fd00::1"));
        assert!(has("192.0.2.1", "192.0.2.1") && !has("192.0.2.1", "192.0.2.2"));
        assert!(has("0.0.0.0/0", "1.2.3.4") && has("fd00::/8", "fdff::1"));
        assert!(!has("fd00::/8", "fe80::1") && has("::/0", "::1"));
        for text in [
            "",
            "10.0.0.0/33",
            "::/129",
            "host",
            "10.0.0.0/",
            "10.0.0.0/-1",
        ] {
            assert!(network(text).is_err(), "{text}");
        }
    }
}
