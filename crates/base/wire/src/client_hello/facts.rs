//! Fields in the body of a complete `ClientHello`.

use super::parts::Parts;
use super::{ClientHello, HelloError, server_name};
use crate::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};
use crate::vectors::FieldReader;

const SERVER_NAME: u16 = 0;
const SUPPORTED_GROUPS: u16 = 10;
const SIGNATURE_ALGORITHMS: u16 = 13;
const ALPN: u16 = 16;
const SESSION_TICKET: u16 = 35;
const PRE_SHARED_KEY: u16 = 41;
const EARLY_DATA: u16 = 42;
const SUPPORTED_VERSIONS: u16 = 43;
const KEY_SHARE: u16 = 51;

/// Reads `body`, the handshake message without its header.
pub(super) fn read(body: &[u8]) -> Result<ClientHello, HelloError> {
    let parts = Parts::of(body).ok_or(HelloError::Malformed("fields run past the end"))?;
    if !parts.rest.is_empty() {
        return Err(HelloError::Malformed("bytes after the extensions"));
    }
    let mut hello = ClientHello {
        suites: pairs(parts.suites, CipherSuite).ok_or(HelloError::Malformed("no cipher suite"))?,
        session_id_len: parts.session_id.len(),
        ..ClientHello::default()
    };
    read_extensions(&mut hello, parts.extensions)?;
    // RFC 8446 section 4.2.1: without the extension, the field of the hello counts.
    if hello.versions.is_empty() {
        hello.versions.push(ProtocolVersion(parts.version));
    }
    Ok(hello)
}

fn read_extensions(hello: &mut ClientHello, extensions: &[u8]) -> Result<(), HelloError> {
    let mut extensions = FieldReader(extensions);
    let mut seen = 0_u64;
    while !extensions.0.is_empty() {
        let extension = extensions.extension();
        let (kind, data) = extension.ok_or(HelloError::Malformed("extensions run past the end"))?;
        // RFC 8446 section 4.2: "There MUST NOT be more than one extension of the same type". Only the ones that are
        // read here matter here; all of them have small numbers.
        let bit = 1_u64.checked_shl(u32::from(kind)).unwrap_or(0);
        if seen & bit != 0 {
            return Err(HelloError::Malformed("an extension stands twice"));
        }
        seen |= bit;
        read_extension(hello, kind, data)?;
    }
    Ok(())
}

fn read_extension(hello: &mut ClientHello, kind: u16, data: &[u8]) -> Result<(), HelloError> {
    match kind {
        SERVER_NAME => hello.server_name = server_name::read(data)?,
        ALPN => hello.alpn = protocol_names(data)?,
        SUPPORTED_VERSIONS => hello.versions = versions(data)?,
        SUPPORTED_GROUPS => hello.groups = code_points(data, NamedGroup)?,
        SIGNATURE_ALGORITHMS => hello.signature_schemes = code_points(data, SignatureScheme)?,
        KEY_SHARE => hello.key_shares = Some(key_shares(data)?),
        // RFC 5077 section 3.2: an empty extension requests a ticket and offers none.
        SESSION_TICKET => hello.has_ticket = !data.is_empty(),
        PRE_SHARED_KEY => hello.has_psk = true,
        EARLY_DATA => hello.early_data = true,
        _ => {}
    }
    Ok(())
}

fn protocol_names(data: &[u8]) -> Result<Vec<Vec<u8>>, HelloError> {
    let malformed = HelloError::Malformed("application_layer_protocol_negotiation extension");
    let mut list = FieldReader::filling(data).ok_or(malformed)?;
    let mut names = Vec::new();
    while !list.0.is_empty() {
        names.push(list.short().ok_or(malformed)?.to_vec());
    }
    // RFC 7301 section 3.1: the list contains at least one name.
    if names.is_empty() { Err(malformed) } else { Ok(names) }
}

/// One byte of length, then versions.
fn versions(data: &[u8]) -> Result<Vec<ProtocolVersion>, HelloError> {
    match data.split_first() {
        Some((&length, list)) if usize::from(length) == list.len() => pairs(list, ProtocolVersion),
        _ => None,
    }
    .ok_or(HelloError::Malformed("supported_versions extension"))
}

/// Two bytes of length, then code points.
fn code_points<T>(data: &[u8], from: fn(u16) -> T) -> Result<Vec<T>, HelloError> {
    FieldReader::filling(data)
        .and_then(|list| pairs(list.0, from))
        .ok_or(HelloError::Malformed("list of groups or signature schemes"))
}

/// Two bytes of length, then a group and its share each (RFC 8446 section 4.2.8). The list may be empty.
fn key_shares(data: &[u8]) -> Result<Vec<NamedGroup>, HelloError> {
    let malformed = HelloError::Malformed("key_share extension");
    let mut list = FieldReader::filling(data).ok_or(malformed)?;
    let mut groups = Vec::new();
    while !list.0.is_empty() {
        let (group, _share) = list.extension().ok_or(malformed)?;
        groups.push(NamedGroup(group));
    }
    Ok(groups)
}

/// At least one code point: every list of them in the RFCs has one.
fn pairs<T>(list: &[u8], from: fn(u16) -> T) -> Option<Vec<T>> {
    let (pairs @ [_, ..], []) = list.as_chunks() else {
        return None;
    };
    Some(pairs.iter().map(|pair| from(u16::from_be_bytes(*pair))).collect())
}
