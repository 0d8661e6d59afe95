//! Values of headers that are lists of tokens.

use brisk_http::hop_by_hop;
use brisk_http::message::HeaderList;
use brisk_wire::cache_control::Directive;
use http::HeaderValue;
use http::header::{self, HeaderName};

/// Whether `Cache-Control` contains `no-transform` (RFC 9111 sections 5.2.1.6 and 5.2.2.6).
pub fn forbids_transforming(headers: &HeaderList) -> bool {
    has_directive(headers, "no-transform")
}

/// Whether `Cache-Control` contains `directive` without an argument.
pub fn has_directive(headers: &HeaderList, directive: &str) -> bool {
    let values = headers.get_all(header::CACHE_CONTROL).map(HeaderValue::as_bytes);
    values.flat_map(Directive::all).any(|found| found.is(directive))
}

/// The elements of all headers `name`, which are lists separated by commas.
pub fn tokens<'h>(headers: &'h HeaderList, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    headers.get_all(name).flat_map(hop_by_hop::tokens)
}

/// Whether `Content-Encoding` names no coding but `identity` (RFC 9110 section 8.4.1).
pub fn is_identity(headers: &HeaderList) -> bool {
    // A coding that is no text is not `identity`.
    let values = headers.get_all(header::CONTENT_ENCODING).map(HeaderValue::as_bytes);
    let mut codings = values.flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    codings.all(|coding| coding.eq_ignore_ascii_case(b"identity"))
}

/// Adds `Vary: accept-encoding`.
pub fn add_vary(headers: &mut HeaderList) {
    add_to_vary(headers, &header::ACCEPT_ENCODING);
}

/// Adds `name` to `Vary`, unless `Vary` contains it or `*`.
pub fn add_to_vary(headers: &mut HeaderList, name: &HeaderName) {
    let has_it =
        tokens(headers, &header::VARY).any(|found| found == "*" || found.eq_ignore_ascii_case(name.as_str()));
    if !has_it {
        headers.append(header::VARY, name.clone().into());
    }
}
