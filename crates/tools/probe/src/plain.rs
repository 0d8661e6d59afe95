//! Ports without TLS: the protocol that they serve instead.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::error::ProbeError;
use crate::prober::Prober;
use crate::trace::Trace;

/// Longest wait for the response to a request without TLS.
const WAIT: Duration = Duration::from_secs(2);

/// Bytes read of a response without TLS; its first line is enough.
const FIRST: usize = 512;

/// Content types of TLS records (RFC 8446 section 5.1).
const RECORDS: std::ops::RangeInclusive<u8> = 20..=24;

/// The failure of a handshake with a server that does not speak TLS, with the protocol that it speaks; otherwise `error`.
/// Sends a request without TLS on another connection if the server closed the first one without a word.
pub(crate) async fn explained(error: ProbeError, prober: &Prober<'_>, trace: &Trace) -> ProbeError {
    let (ProbeError::Handshake(reason), Some(address)) = (&error, trace.address) else { return error };
    let recorded = trace.recorder.copy().recording;
    let first = &recorded.server.bytes;
    if first.first().is_some_and(|kind| RECORDS.contains(kind)) {
        return error;
    }
    let served = match protocol(first) {
        Some(served) => Some(served),
        None => timeout(WAIT, asked(prober, trace)).await.ok().flatten(),
    };
    let Some(served) = served else { return error };
    let port = address.port();
    let remedy = if served == "plain HTTP" {
        "probe the port of HTTPS, usually 443, or serve TLS on this one"
    } else {
        "probe the port of HTTPS, usually 443"
    };
    ProbeError::Handshake(format!("port {port} serves {served}, not TLS: {remedy} ({reason})"))
}

/// The protocol of a response to a request without TLS.
async fn asked(prober: &Prober<'_>, trace: &Trace) -> Option<&'static str> {
    let mut stream = prober.dial(trace.address).await.ok()?;
    let url = &prober.settings.url;
    let request =
        format!("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", url.path, url.authority());
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut first = [0; FIRST];
    let length = stream.read(&mut first).await.ok()?;
    protocol(&first[..length])
}

/// The protocol whose server begins with these bytes.
fn protocol(first: &[u8]) -> Option<&'static str> {
    let begins = |start: &str| {
        first.get(..start.len()).is_some_and(|bytes| bytes.eq_ignore_ascii_case(start.as_bytes()))
    };
    match first {
        _ if begins("HTTP/") => Some("plain HTTP"),
        _ if begins("SSH-") => Some("SSH"),
        _ if begins("220 ") || begins("220-") => Some("mail (SMTP) or FTP"),
        _ if begins("* OK") => Some("mail (IMAP)"),
        _ if begins("+OK") => Some("mail (POP3)"),
        // Redis is silent until a command arrives, and responds to the arguments of this GET with an error.
        _ if begins("-ERR") => Some("Redis"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_recognized_by_their_first_bytes() {
        assert_eq!(protocol(b"HTTP/1.1 400 Bad Request\r\n"), Some("plain HTTP"));
        assert_eq!(protocol(b"SSH-2.0-x\r\n"), Some("SSH"));
        assert_eq!(protocol(b"220 mail.test ESMTP\r\n"), Some("mail (SMTP) or FTP"));
        assert_eq!(protocol(b"HTT"), None);
        assert_eq!(protocol(b"\x15\x03\x03"), None);
    }
}
