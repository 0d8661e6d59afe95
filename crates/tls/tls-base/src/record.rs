//! Sizes of TLS records, and the encoding of handshake records.

use rustls::unbuffered::{EncodeError, EncodeTlsData, InsufficientSizeError};

/// Length of a record header: type, version, length (RFC 8446 section 5.1).
pub const HEADER: usize = 5;

/// Maximum plaintext of a record (RFC 8446 section 5.1).
pub const PLAINTEXT: usize = 16 * 1024;

/// Maximum length after the header of an encrypted TLS 1.3 record (RFC 8446 section 5.2).
pub const CIPHERTEXT: usize = PLAINTEXT + 256;

/// Maximum overhead of a record: header, explicit nonce (TLS 1.2) or content type (TLS 1.3), tag.
pub const OVERHEAD: usize = HEADER + 8 + 1 + 16;

/// Room for a `KeyUpdate`, which precedes the next record if the peer requested one (RFC 8446 section 4.6.3).
pub const KEY_UPDATE: usize = HEADER + OVERHEAD;

/// Appends the record that [`rustls`] wants to send to `outgoing`.
pub fn encode<Data>(mut data: EncodeTlsData<'_, Data>, outgoing: &mut Vec<u8>) {
    // Encoding into an empty buffer yields the required size.
    let Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) = data.encode(&mut [])
    else {
        return;
    };
    let begin = outgoing.len();
    outgoing.resize(begin + required_size, 0);
    data.encode(&mut outgoing[begin..]).expect("rustls asked for this size");
}
