//! Parser for `Alt-Svc` (RFC 7838 section 3).

use brisk_wire::cache_control::unquoted_end;

/// An alternative service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AlternativeService {
    /// ALPN of the protocol, percent-encoded.
    pub(crate) protocol: String,
    /// Host, empty for the host of the response.
    pub(crate) host: String,
    /// Port.
    pub(crate) port: u16,
}

/// The services in the values of all `Alt-Svc` lines of a response, in their order. Malformed ones are skipped, and
/// parameters are not read. There are none in `clear`.
pub(crate) fn services<'v>(values: impl IntoIterator<Item = &'v str>) -> Vec<AlternativeService> {
    values.into_iter().flat_map(|value| parts(value, b',')).filter_map(service).collect()
}

/// The port at which one of `services` serves `h3` for `host`.
pub(super) fn h3_port(services: &[AlternativeService], host: &str) -> Option<u16> {
    let is_same = |service: &&AlternativeService| {
        // An IPv6 address has brackets here (RFC 3986 section 3.2.2), but none in `Url::host`.
        let own = service.host.trim_start_matches('[').trim_end_matches(']');
        service.protocol == "h3" && (own.is_empty() || own.eq_ignore_ascii_case(host))
    };
    services.iter().find(is_same).map(|service| service.port)
}

/// Splits `text` at each `separator` outside of quoted strings.
fn parts(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let end = unquoted_end(text.as_bytes(), separator);
        rest = text.get(end + 1..);
        Some(&text[..end])
    })
}

/// Parses `protocol-id="host:port"`, with parameters behind it.
fn service(element: &str) -> Option<AlternativeService> {
    let (protocol, authority) = parts(element, b';').next()?.trim().split_once('=')?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if protocol.is_empty() || !protocol.bytes().all(is_token) {
        return None;
    }
    let authority = unquoted(authority)?;
    let (host, port) = authority.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    Some(AlternativeService { protocol: protocol.to_owned(), host: host.to_owned(), port })
}

/// The contents of a quoted string.
fn unquoted(text: &str) -> Option<String> {
    let mut letters = text.strip_prefix('"')?.strip_suffix('"')?.chars();
    let mut contents = String::new();
    while let Some(letter) = letters.next() {
        match letter {
            // RFC 9110 section 5.6.4: inside of a quoted string a quote needs a backslash.
            '"' => return None,
            '\\' => contents.push(letters.next()?),
            _ => contents.push(letter),
        }
    }
    Some(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(values: &[&str]) -> Option<u16> {
        h3_port(&services(values.iter().copied()), "a.test")
    }

    #[test]
    fn the_port_of_h3_is_taken_from_alt_svc() {
        for (value, expected) in [
            ("h3=\":443\"; ma=86400", Some(443)),
            ("h2=\":1\", h3-29=\":2\", h3=\":8443\"; ma=5, h3=\":9\"", Some(8443)),
            ("h3=\"other.test:443\"", None),
            ("h3=\"A.test:444\"", Some(444)),
            ("h3=\"[::1]:443\"", None),
            ("clear", None),
            ("h3=\":", None),
            ("h3=\":70000\"", None),
            ("h3=\":0\"", None),
            ("h3=:443", None),
            (" , h2=\":1\";x=\"a, h3=\\\":2\\\"; b\" ,\th3=\":3\" ; persist=1", Some(3)),
            ("h2=\"h3=:1\", x=\"", None),
        ] {
            assert_eq!(port(&[value]), expected, "{value}");
        }
    }

    /// Only the first line was read.
    #[test]
    fn every_line_is_read() {
        assert_eq!(port(&["h2=\":1\"", "h3=\":2\"; ma=5"]), Some(2));
        assert_eq!(port(&["h2=\"", "h3=\":2\""]), Some(2), "a quoted string ends with its line");
        assert_eq!(port(&[]), None);
    }
}
