//! Headers that end at the next recipient (RFC 9110 section 7.6.1).

use std::collections::HashSet;

use http::{HeaderName, HeaderValue, header};

use crate::message::HeaderList;

const EARLY_DATA: HeaderName = HeaderName::from_static("early-data");

/// The names of headers in `Connection`, except `Keep-Alive`, `Host`, `Content-Length` and `Early-Data`: the message must
/// have neither headers nor trailers with them when it is forwarded.
pub fn named(headers: &HeaderList) -> Vec<HeaderName> {
    headers.get_all(header::CONNECTION).flat_map(named_headers).collect()
}

/// Removes hop-by-hop headers: those named by `Connection`, and the known ones, such as `Keep-Alive`. Returns the former names.
pub fn remove(headers: &mut HeaderList) -> Vec<HeaderName> {
    let named = named(headers);
    // Most messages name nothing in `Connection`, and need no tables.
    if named.is_empty() {
        headers.retain(|name, _| !is_hop_by_hop(name));
        return named;
    }
    // `Connection` may have thousands of names, the message has few.
    let names: HashSet<_> = headers.names().collect();
    let unwanted: HashSet<_> = named.iter().filter(|name| names.contains(name)).cloned().collect();
    headers.retain(|name, _| !is_hop_by_hop(name) && !unwanted.contains(name));
    named
}

// Texts: an array of `HeaderName` would be built and dropped for each comparison.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "te",
    "transfer-encoding",
    "upgrade",
    "proxy-authenticate",
    "proxy-authorization",
    "keep-alive",
    "proxy-connection",
    "http2-settings",
];

fn is_hop_by_hop(name: &HeaderName) -> bool {
    let name = name.as_str();
    // Most headers of a message have another length.
    matches!(name.len(), 2 | 7 | 10 | 14 | 16..=19) && HOP_BY_HOP.contains(&name)
}

/// The headers named by a `Connection` header, except `Host`, `Content-Length` and `Early-Data`. A client must not be
/// able to remove the mark of a possible replay (RFC 8470 section 5.1).
fn named_headers(connection: &HeaderValue) -> impl Iterator<Item = HeaderName> {
    tokens(connection)
        .filter(|token| !token.eq_ignore_ascii_case("close") && !token.eq_ignore_ascii_case("keep-alive"))
        .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
        // Without `Host` or `Content-Length`, the upstream would see another message than the gateway has
        // checked.
        .filter(|name| ![header::HOST, header::CONTENT_LENGTH, EARLY_DATA].contains(name))
}

/// The members of a header that is a list of tokens. A member that is no text is left out, and hides no other one.
pub fn tokens(value: &HeaderValue) -> impl Iterator<Item = &str> {
    let members = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    members.filter_map(|member| str::from_utf8(member).ok()).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_is_removed_and_so_are_those_that_connection_names() {
        let line = |name| (HeaderName::from_static(name), HeaderValue::from_static("1"));
        let mut headers: HeaderList = HOP_BY_HOP.into_iter().map(line).collect();
        headers.append("x-own", HeaderValue::from_static("1"));
        assert!(remove(&mut headers).contains(&HeaderName::from_static("1")));
        assert_eq!(headers.names().collect::<Vec<_>>(), ["x-own"]);
        headers.append(header::CONNECTION, HeaderValue::from_static("X-Own, x-absent, close"));
        headers.append("x-own", HeaderValue::from_static("2"));
        headers.append(header::ACCEPT, HeaderValue::from_static("*/*"));
        assert_eq!(remove(&mut headers), ["x-own", "x-absent"]);
        assert_eq!(headers.names().collect::<Vec<_>>(), ["accept"]);
    }
}
