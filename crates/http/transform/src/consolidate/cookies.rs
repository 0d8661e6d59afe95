//! Cookies of an origin, which the browser stores as cookies of the host.

use brisk_http::message::HeaderList;
use brisk_rewrite::MappedOrigin;
use http::{HeaderValue, header};

use super::Cookies;

/// Prefix of an origin's cookie names in the browser, such as `s~`.
fn start(place: &MappedOrigin) -> String {
    format!("{}~", place.prefix.as_str().trim_start_matches('/').replace('/', "."))
}

/// Keeps only the origin's own cookies, with their original names.
pub(super) fn keep_own(headers: &mut HeaderList, place: &MappedOrigin) {
    let start = start(place);
    let mut kept: Vec<&[u8]> = Vec::new();
    for line in headers.get_all(header::COOKIE) {
        let pairs = line.as_bytes().split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        kept.extend(pairs.filter_map(|pair| pair.strip_prefix(start.as_bytes())));
    }
    let joined = HeaderValue::from_bytes(&kept.join(&b"; "[..]));
    // Also if the rest is no valid value: the cookies of the host must not reach the origin.
    headers.remove(header::COOKIE);
    if let Ok(cookies) = joined
        && !cookies.is_empty()
    {
        headers.insert(header::COOKIE, cookies);
    }
}

/// Confines the cookies that an origin sets to its path by `Path`, and with [`Cookies::Own`] to its name prefix. With
/// [`Cookies::None`], all `Set-Cookie` are removed.
pub(super) fn confine(headers: &mut HeaderList, place: &MappedOrigin, policy: Cookies) {
    let lines = headers.take_all(header::SET_COOKIE);
    if policy == Cookies::None {
        return;
    }
    let start = if policy == Cookies::Own { start(place) } else { String::new() };
    for line in lines {
        if let Some(line) = confined(line.as_bytes(), place.prefix.as_str(), &start) {
            headers.append(header::SET_COOKIE, line);
        }
    }
}

/// Maximum length of a path in browsers (RFC 6265bis section 5.6). For longer ones they use a default path.
const LONGEST_PATH: usize = 1024;

/// RFC 6265 section 5.2. A cookie without a name is dropped: browsers send only its value, which could imitate any
/// name.
fn confined(line: &[u8], prefix: &str, start: &str) -> Option<HeaderValue> {
    let mut parts = line.split(|byte| *byte == b';');
    let pair = parts.next()?.trim_ascii();
    if !pair.contains(&b'=') || pair.starts_with(b"=") {
        return None;
    }
    let mut cookie = [start.as_bytes(), pair].concat();
    let mut path = b"/".to_vec();
    for part in parts {
        let (name, value) = match part.iter().position(|byte| *byte == b'=') {
            Some(equals) => (part[..equals].trim_ascii(), part[equals + 1..].trim_ascii()),
            None => (part.trim_ascii(), &b""[..]),
        };
        // `Path` is written below. `Domain` would name the origin, and the browser would refuse the cookie.
        if name.eq_ignore_ascii_case(b"path") {
            // RFC 6265 section 5.2.4: a value without a slash at its beginning means the default.
            path = if value.starts_with(b"/") { value.to_vec() } else { b"/".to_vec() };
        } else if !name.eq_ignore_ascii_case(b"domain") {
            cookie.push(b';');
            cookie.extend_from_slice(part);
        }
    }
    if prefix.len() + path.len() > LONGEST_PATH {
        path = b"/".to_vec();
    }
    cookie.extend_from_slice(b"; Path=");
    cookie.extend_from_slice(prefix.as_bytes());
    cookie.extend_from_slice(&path);
    HeaderValue::from_bytes(&cookie).ok()
}
