//! The static table of RFC 9204 appendix A.

use crate::fields::names::Names;

/// The fields of the static table; its first index is 0.
pub const CONSTANTS: [(&str, &str); 99] = [
    (":authority", ""),
    (":path", "/"),
    ("age", "0"),
    ("content-disposition", ""),
    ("content-length", "0"),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("referer", ""),
    ("set-cookie", ""),
    (":method", "CONNECT"),
    (":method", "DELETE"),
    (":method", "GET"),
    (":method", "HEAD"),
    (":method", "OPTIONS"),
    (":method", "POST"),
    (":method", "PUT"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "103"),
    (":status", "200"),
    (":status", "304"),
    (":status", "404"),
    (":status", "503"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-store"),
    ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"),
    ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"),
    ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"),
    ("content-type", "image/jpeg"),
    ("content-type", "image/png"),
    ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"),
    ("vary", "origin"),
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    (":status", "100"),
    (":status", "204"),
    (":status", "206"),
    (":status", "302"),
    (":status", "400"),
    (":status", "403"),
    (":status", "421"),
    (":status", "425"),
    (":status", "500"),
    ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"),
    ("access-control-request-method", "post"),
    ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"),
    ("expect-ct", ""),
    ("forwarded", ""),
    ("if-range", ""),
    ("origin", ""),
    ("purpose", "prefetch"),
    ("server", ""),
    ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", ""),
    ("x-forwarded-for", ""),
    ("x-frame-options", "deny"),
    ("x-frame-options", "sameorigin"),
];

static NAMES: Names = Names::new(&CONSTANTS);

/// For each field the next one with the same name; 0 at the last one, since the first field has a name of its own.
static NEXT: [u8; CONSTANTS.len()] = chains();

const fn chains() -> [u8; CONSTANTS.len()] {
    let mut next = [0; CONSTANTS.len()];
    let mut at = 0;
    while at < CONSTANTS.len() {
        let mut other = at + 1;
        while other < CONSTANTS.len() && next[at] == 0 {
            if is_same(CONSTANTS[at].0.as_bytes(), CONSTANTS[other].0.as_bytes()) {
                next[at] = other as u8;
            }
            other += 1;
        }
        at += 1;
    }
    next
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Position of a field in the static table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// Name and value are at this index.
    Field(usize),
    /// The name is at this index, with other values only.
    Name(usize),
    /// The name is not in the table.
    None,
}

/// Position of the field with this name and value.
pub(super) fn position(name: &[u8], value: &[u8]) -> Position {
    let Some(first) = NAMES.find(&CONSTANTS, name) else { return Position::None };
    let mut at = first;
    loop {
        if CONSTANTS[at].1.as_bytes() == value {
            return Position::Field(at);
        }
        match NEXT[at] {
            0 => return Position::Name(first),
            next => at = next.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_the_table_is_found() {
        for (index, (name, value)) in CONSTANTS.into_iter().enumerate() {
            assert_eq!(position(name.as_bytes(), value.as_bytes()), Position::Field(index), "{name}");
            let first = CONSTANTS.iter().position(|(other, _)| *other == name).expect("an entry");
            assert_eq!(position(name.as_bytes(), b"other"), Position::Name(first), "{name}");
        }
        for unknown in ["", "x", ":protocol", "Date"] {
            assert_eq!(position(unknown.as_bytes(), b""), Position::None, "{unknown}");
        }
    }
}
