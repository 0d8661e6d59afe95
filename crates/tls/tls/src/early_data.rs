//! Detects whether rustls accepted announced early data. Its unbuffered connections do not report it before some
//! arrives, and many clients that announce early data send none.

use brisk_tls_base::record::HEADER;
use rustls::server::UnbufferedServerConnection;
use rustls::{HandshakeKind, SupportedCipherSuite};

const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

/// Whether `flight`, the server's first flight, accepts early data.
///
/// In a resumed handshake its encrypted part contains `EncryptedExtensions` and `Finished` only, so its length reveals
/// whether the extension `early_data` is present (RFC 8446 section 4.2.10). For statistics only: a flight with
/// unexpected extensions counts as a refusal.
pub(crate) fn accepted(tls: &UnbufferedServerConnection, flight: &[u8]) -> bool {
    let Some(SupportedCipherSuite::Tls13(suite)) = tls.negotiated_cipher_suite() else { return false };
    // Only the first flight begins with a record in clear, the `ServerHello`.
    if tls.handshake_kind() != Some(HandshakeKind::Resumed) || flight.first() != Some(&HANDSHAKE) {
        return false;
    }
    let message = |body: usize| 4 + body;
    let extension = |body: usize| 4 + body;
    let alpn = tls.alpn_protocol().map_or(0, |protocol| extension(2 + 1 + protocol.len()));
    let finished = message(suite.common.hash_provider.output_len());
    // Content type and tag follow the two messages.
    let expected = message(2 + alpn + extension(0)) + finished + 1 + 16;
    encrypted_record(flight) == Some(expected)
}

/// Length of the first encrypted record.
fn encrypted_record(mut flight: &[u8]) -> Option<usize> {
    loop {
        let [kind, _, _, high, low] = *flight.first_chunk::<HEADER>()?;
        let length = usize::from(u16::from_be_bytes([high, low]));
        if kind == APPLICATION_DATA {
            return Some(length);
        }
        flight = flight.get(HEADER + length..)?;
    }
}
