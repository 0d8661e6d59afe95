//! Values of variables, from a request and its connection.

use std::io::Write as _;
use std::time::SystemTime;

use brisk_http::message::RequestParts;
use brisk_http::path::RequestPath;
use brisk_http::validate::{authority_of, host_of};
use brisk_http::version;
use brisk_rules::{Values, Variable, first_cookie, first_parameter};
use brisk_telemetry::{ConnectionRecord, TlsFacts};

use crate::exchange::Exchange;

/// A request as it arrived.
pub(crate) struct RequestValues<'a> {
    pub(crate) exchange: &'a Exchange,
    pub(crate) head: &'a RequestParts,
}

/// The head of a request over HTTPS, without its connection.
pub(crate) struct HeadValues<'a>(pub(crate) &'a RequestParts);

impl Values for RequestValues<'_> {
    fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
        let Self { exchange, head } = self;
        match variable {
            Variable::Id => {
                // A vector takes all bytes.
                let _ = write!(out, "{}", exchange.id());
            }
            Variable::ClientAddress => {
                let _ = write!(out, "{}", exchange.client().ip());
            }
            // Empty if the proxy does not state it.
            Variable::ClientPort => match exchange.client().address.port() {
                0 => {}
                port => {
                    let _ = write!(out, "{port}");
                }
            },
            Variable::User => out.extend_from_slice(exchange.user().unwrap_or_default().as_bytes()),
            Variable::Scheme => {
                let is_secure = exchange.connection().client.secure;
                out.extend_from_slice(if is_secure { b"https" } else { b"http" });
            }
            _ => {
                // Each of the two appends nothing for the variables of the other.
                HeadValues(head).append(variable, out);
                of_connection(variable, &exchange.connection().client.record.borrow(), out);
            }
        }
    }
}

impl Values for HeadValues<'_> {
    fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
        let Self(head) = self;
        let uri = &head.uri;
        match variable {
            Variable::Scheme => out.extend_from_slice(b"https"),
            Variable::Method => out.extend_from_slice(head.method.as_str().as_bytes()),
            Variable::Path => out.extend_from_slice(uri.path().as_bytes()),
            Variable::DecodedPath => {
                if let Ok(path) = RequestPath::read(uri.path()) {
                    out.extend_from_slice(&path.decoded);
                }
            }
            Variable::Query => out.extend_from_slice(uri.query().unwrap_or_default().as_bytes()),
            Variable::QueryPart => {
                if let Some(query) = uri.query() {
                    out.push(b'?');
                    out.extend_from_slice(query.as_bytes());
                }
            }
            Variable::Target => {
                out.extend_from_slice(uri.path_and_query().map_or(b"/", |target| target.as_str().as_bytes()));
            }
            Variable::Host => append_host(out, authority_of(head)),
            Variable::Time => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                // A vector takes all bytes.
                let _ = write!(out, "{}.{:03}", now.as_secs(), now.subsec_millis());
            }
            Variable::Version => out.extend_from_slice(version::of(head.version).name().as_bytes()),
            Variable::Header(name) => {
                out.extend_from_slice(head.headers.get(name).map_or(&[], |value| value.as_bytes()));
            }
            Variable::Cookie(name) => {
                out.extend_from_slice(first_cookie(&head.headers, name).unwrap_or_default());
            }
            Variable::Parameter(name) => {
                out.extend_from_slice(&first_parameter(uri.query(), name).unwrap_or_default());
            }
            // Of the connection, or known with the response.
            _ => {}
        }
    }
}

fn of_connection(variable: &Variable, record: &ConnectionRecord, out: &mut Vec<u8>) {
    let tls = record.tls.as_deref();
    let fingerprints = tls.and_then(|tls| tls.fingerprints.as_deref());
    let text =
        |text: Option<&str>, out: &mut Vec<u8>| out.extend_from_slice(text.unwrap_or_default().as_bytes());
    let number = |value: &dyn std::fmt::Display, out: &mut Vec<u8>| {
        // A vector takes all bytes.
        let _ = write!(out, "{value}");
    };
    match variable {
        Variable::ServerAddress => number(&record.local.ip().to_canonical(), out),
        Variable::ServerPort => number(&record.local.port(), out),
        Variable::ClientSubject => text(tls.and_then(|tls| tls.client_subject.as_deref()), out),
        Variable::ClientFingerprint => text(fingerprints.and_then(|all| all.certificate.as_deref()), out),
        Variable::Ja4 => text(fingerprints.and_then(|all| all.ja4.as_deref()), out),
        Variable::TlsVersion => text(tls.and_then(|tls| tls.version.name()), out),
        Variable::TlsCipher => text(tls.and_then(|tls| tls.suite.name()), out),
        Variable::TlsServerName => text(tls.and_then(|tls: &TlsFacts| tls.server_name.as_deref()), out),
        _ => {}
    }
}

/// Appends the host of an authority, as `{request.host}` has it; nothing if the authority is malformed.
fn append_host(out: &mut Vec<u8>, authority: &str) {
    // One spelling, because keys of limits and signed links depend on it.
    let host = host_of(authority).unwrap_or_default();
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    if host.contains(':') {
        // RFC 3986 section 3.2.2: the form of URLs.
        out.extend([b"[", host.as_bytes(), b"]"].concat());
    } else {
        out.extend(host.into_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_spelling_which_fits_urls() {
        for (authority, host) in [
            ("A.example:443", "a.example"),
            ("a.example.", "a.example"),
            ("[ABCD::1]:443", "[abcd::1]"),
            ("127.0.0.1", "127.0.0.1"),
            ("a@b", ""),
        ] {
            let mut out = Vec::new();
            append_host(&mut out, authority);
            assert_eq!(String::from_utf8(out).as_deref(), Ok(host), "{authority}");
        }
    }
}
