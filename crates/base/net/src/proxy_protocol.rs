//! The PROXY protocol, versions 1 and 2, by which a load balancer reports the client of a connection.
//!
//! Read it only from trusted peers. Extensions (TLVs) are skipped unread, including their checksum.

use std::net::{IpAddr, SocketAddr};

use ppp::{v1, v2};

/// Maximum length of a version 1 line including its end (specification, section 2.1).
pub const MAX_TEXT: usize = 107;
/// Maximum length of a version 2 header: 16 bytes, addresses of any family, and room for extensions, which may contain
/// a client's certificate. The specification permits 65,551 bytes.
pub const MAX_BINARY: usize = 16 * 1024;

const BINARY_HEAD: usize = 16;
const TEXT_PREFIX: &[u8] = b"PROXY ";

/// Result of [`parse`] for the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More bytes are needed: at most [`MAX_TEXT`] or [`MAX_BINARY`] in all.
    Incomplete,
    /// `source` connected to `destination`.
    Header {
        /// The client.
        source: SocketAddr,
        /// The address that the client connected to.
        destination: SocketAddr,
        /// Length of the header; the bytes after it belong to the connection.
        consumed: usize,
    },
    /// The peer connects on its own behalf (a health check) or names no TCP address: use the addresses of the socket.
    Local {
        /// Length of the header; the bytes after it belong to the connection.
        consumed: usize,
    },
}

/// Reasons why the bytes of [`parse`] are not a PROXY header.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyProtocolError {
    /// The first bytes are the signature of neither version.
    #[error("the connection does not begin with a PROXY header, which this listener requires of every peer")]
    Missing,
    /// The header is longer than [`MAX_TEXT`] or [`MAX_BINARY`].
    #[error("the PROXY header is longer than {limit} bytes")]
    TooLarge {
        /// The limit that was exceeded.
        limit: usize,
    },
    /// Malformed line of version 1.
    #[error("malformed PROXY header of version 1: {0}")]
    Text(#[from] v1::BinaryParseError),
    /// Malformed header of version 2.
    #[error("malformed PROXY header of version 2: {0}")]
    Binary(#[from] v2::ParseError),
    /// Header of version 2 for datagrams (`DGRAM`).
    #[error("the PROXY header announces datagrams on a stream connection")]
    Datagram,
}

/// Parses a PROXY header from the first bytes of a connection.
pub fn parse(bytes: &[u8]) -> Result<Progress, ProxyProtocolError> {
    if begins_alike(bytes, v2::PROTOCOL_PREFIX) {
        parse_binary(bytes)
    } else if begins_alike(bytes, TEXT_PREFIX) {
        parse_text(bytes)
    } else {
        Err(ProxyProtocolError::Missing)
    }
}

fn begins_alike(bytes: &[u8], prefix: &[u8]) -> bool {
    // A part of a signature is incomplete, not wrong.
    let length = bytes.len().min(prefix.len());
    bytes[..length] == prefix[..length]
}

fn parse_text(bytes: &[u8]) -> Result<Progress, ProxyProtocolError> {
    let window = &bytes[..bytes.len().min(MAX_TEXT)];
    let Some(end) = window.windows(2).position(|pair| pair == b"\r\n") else {
        if window.len() == MAX_TEXT {
            return Err(ProxyProtocolError::TooLarge { limit: MAX_TEXT });
        }
        return Ok(Progress::Incomplete);
    };
    let consumed = end + 2;
    let header = v1::Header::try_from(&bytes[..consumed])?;
    Ok(match header.addresses {
        // Specification, section 2.1: with `UNKNOWN`, the rest of the line is ignored.
        v1::Addresses::Unknown => Progress::Local { consumed },
        v1::Addresses::Tcp4(v4) => named(
            (v4.source_address, v4.source_port),
            (v4.destination_address, v4.destination_port),
            consumed,
        ),
        v1::Addresses::Tcp6(v6) => named(
            (v6.source_address, v6.source_port),
            (v6.destination_address, v6.destination_port),
            consumed,
        ),
    })
}

fn parse_binary(bytes: &[u8]) -> Result<Progress, ProxyProtocolError> {
    let Some(head) = bytes.get(..BINARY_HEAD) else {
        return Ok(Progress::Incomplete);
    };
    let consumed = BINARY_HEAD + usize::from(u16::from_be_bytes([head[14], head[15]]));
    // Checked before the header is complete, so that no more than the limit is buffered.
    if consumed > MAX_BINARY {
        return Err(ProxyProtocolError::TooLarge { limit: MAX_BINARY });
    }
    let Some(header) = bytes.get(..consumed) else {
        return Ok(Progress::Incomplete);
    };
    let header = v2::Header::try_from(header)?;
    // Specification, section 2.2: a receiver must accept LOCAL and ignore the addresses.
    if header.command == v2::Command::Local {
        return Ok(Progress::Local { consumed });
    }
    if header.protocol == v2::Protocol::Datagram {
        return Err(ProxyProtocolError::Datagram);
    }
    Ok(match header.addresses {
        // Specification, section 2.2: with `AF_UNSPEC`, the receiver may use the addresses of the connection.
        v2::Addresses::Unspecified | v2::Addresses::Unix(_) => Progress::Local { consumed },
        v2::Addresses::IPv4(v4) => named(
            (v4.source_address, v4.source_port),
            (v4.destination_address, v4.destination_port),
            consumed,
        ),
        v2::Addresses::IPv6(v6) => named(
            (v6.source_address, v6.source_port),
            (v6.destination_address, v6.destination_port),
            consumed,
        ),
    })
}

fn named<A: Into<IpAddr>>(source: (A, u16), destination: (A, u16), consumed: usize) -> Progress {
    Progress::Header {
        source: SocketAddr::from(source),
        destination: SocketAddr::from(destination),
        consumed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"PROXY TCP4 192.0.2.1 198.51.100.7 40000 443\r\n";

    fn binary(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = v2::PROTOCOL_PREFIX.to_vec();
        bytes.extend([command, family]);
        bytes.extend(u16::try_from(payload.len()).expect("short").to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    fn header(source: &str, destination: &str, consumed: usize) -> Progress {
        Progress::Header {
            source: source.parse().expect("source"),
            destination: destination.parse().expect("destination"),
            consumed,
        }
    }

    /// Every prefix must be incomplete, and subsequent bytes must not matter.
    fn assert_parses(bytes: &[u8], expected: Progress) {
        for length in 0..bytes.len() {
            let progress = parse(&bytes[..length]).expect("a beginning is no error");
            assert_eq!(progress, Progress::Incomplete, "first {length} bytes");
        }
        let followed = [bytes, b"\x16\x03\x01\r\n".as_slice()].concat();
        assert_eq!(parse(&followed).expect("parses"), expected);
    }

    #[test]
    fn version_1_names_the_client() {
        assert_parses(TEXT, header("192.0.2.1:40000", "198.51.100.7:443", TEXT.len()));
        let v6 = b"PROXY TCP6 2001:db8::1 2001:db8::2 40000 443\r\n";
        assert_parses(v6, header("[2001:db8::1]:40000", "[2001:db8::2]:443", v6.len()));
    }

    #[test]
    fn version_1_unknown_keeps_the_sockets_addresses() {
        assert_parses(b"PROXY UNKNOWN\r\n", Progress::Local { consumed: 15 });
        assert_parses(b"PROXY UNKNOWN a b 1 2\r\n", Progress::Local { consumed: 23 });
    }

    #[test]
    fn version_2_names_the_client_and_extensions_are_skipped() {
        let addresses = [192, 0, 2, 1, 198, 51, 100, 7, 0x9c, 0x40, 0x01, 0xbb];
        let plain = binary(0x21, 0x11, &addresses);
        assert_parses(&plain, header("192.0.2.1:40000", "198.51.100.7:443", 28));
        let extended = binary(0x21, 0x11, &[&addresses[..], &[0x04, 0, 2, 9, 9]].concat());
        assert_parses(&extended, header("192.0.2.1:40000", "198.51.100.7:443", 33));
    }

    #[test]
    fn version_2_local_keeps_the_sockets_addresses() {
        assert_parses(&binary(0x20, 0x00, &[]), Progress::Local { consumed: 16 });
        assert_parses(&binary(0x21, 0x31, &[0; 216]), Progress::Local { consumed: 232 });
    }

    #[test]
    fn what_is_no_header_is_refused_at_its_first_wrong_byte() {
        assert!(matches!(parse(b"G"), Err(ProxyProtocolError::Missing)));
        assert!(matches!(parse(b"PROXX"), Err(ProxyProtocolError::Missing)));
        assert!(matches!(parse(&[0x16, 3, 1]), Err(ProxyProtocolError::Missing)));
        assert!(matches!(parse(b"PROXY TCP4 a b c d\r\n"), Err(ProxyProtocolError::Text(_))));
        let short = binary(0x21, 0x11, &[0; 4]);
        assert!(matches!(parse(&short), Err(ProxyProtocolError::Binary(_))));
        let datagram = binary(0x21, 0x12, &[0; 12]);
        assert!(matches!(parse(&datagram), Err(ProxyProtocolError::Datagram)));
    }

    #[test]
    fn a_long_header_is_refused_before_it_is_all_there() {
        let line = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 100]].concat();
        assert!(matches!(parse(&line), Err(ProxyProtocolError::TooLarge { limit: MAX_TEXT })));
        let head = &binary(0x21, 0x11, &[0; MAX_BINARY])[..16];
        assert!(matches!(parse(head), Err(ProxyProtocolError::TooLarge { limit: MAX_BINARY })));
    }
}
