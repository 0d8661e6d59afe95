//! Bytes that begin no handshake record: plain HTTP, another record, or no TLS at all.

use super::HelloError;

/// Longer than every registered method (`UPDATEREDIRECTREF`).
const LONGEST_METHOD: usize = 20;

/// `Ok` while the bytes may still become an HTTP request; otherwise their kind. Reads at most 22 bytes.
pub(super) fn classify(bytes: &[u8]) -> Result<(), HelloError> {
    // The types of TLS records: RFC 8446 section 5.1, and 24 of RFC 6520.
    if let 20..=24 = bytes[0] {
        return classify_record(bytes);
    }
    let token = bytes.iter().take(LONGEST_METHOD + 1).take_while(|byte| is_method_byte(**byte)).count();
    if token == 0 || token > LONGEST_METHOD {
        return Err(HelloError::NotTls);
    }
    match (bytes.get(token), bytes.get(token + 1)) {
        (None, _) | (Some(b' '), None) => Ok(()),
        // Origin form, asterisk form (the HTTP/2 preface too), absolute form.
        (Some(b' '), Some(b'/' | b'*' | b'h' | b'H')) => Err(HelloError::PlainHttp),
        (Some(b' '), Some(_)) if &bytes[..token] == b"CONNECT" => Err(HelloError::PlainHttp),
        _ => Err(HelloError::NotTls),
    }
}

/// An alert or another record where a handshake should start.
fn classify_record(bytes: &[u8]) -> Result<(), HelloError> {
    match bytes.get(1) {
        None => Ok(()),
        Some(3) => Err(HelloError::Malformed("the first record is not a handshake record")),
        Some(_) => Err(HelloError::NotTls),
    }
}

/// Registered methods are upper case, some with a hyphen (RFC 9110 section 16.1).
fn is_method_byte(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte == b'-'
}
