//! Normalized host names: lower case, without a trailing dot.

use std::net::IpAddr;

/// Parses a host name, a wildcard or an address. The error contains the correct form.
pub(super) fn host_name(text: &str) -> Result<String, String> {
    // RFC 6066 section 3: a server name in a ClientHello has no dot at its end.
    let name = text.trim_end_matches('.').to_ascii_lowercase();
    // Before the test for a port, since IPv6 has colons. In one form, because IPv6 has several spellings.
    if let Ok(address) = name.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    let wrong = |right: &str| Err(format!("{text:?} is not a host name: {right}"));
    if name.is_empty() {
        return wrong("write one as \"example.com\"");
    }
    if name == "*" {
        return wrong("write `default = true` for the host that answers all other names");
    }
    if name.contains("://") || name.contains('/') {
        return wrong("write the name alone, without scheme and path");
    }
    if name.contains(':') {
        return wrong("write it without a port");
    }
    if !name.is_ascii() {
        return wrong("write its ASCII form, which begins with \"xn--\"");
    }
    let plain = name.strip_prefix("*.").unwrap_or(&name);
    if plain.contains('*') {
        return wrong("a wildcard is the whole first label, as in \"*.example.com\"");
    }
    // RFC 1035 section 3.1: 255 bytes in the message, which are 253 characters without the first length and
    // the root.
    if name.len() > 253 || !plain.split('.').all(is_label) {
        return wrong("labels are letters, digits and hyphens, 63 at most, with dots between them");
    }
    Ok(name)
}

/// RFC 1123 section 2.1, and the underscore that is seen in practice.
fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_in_one_form() {
        for (text, name) in [
            ("Example.COM", "example.com"),
            ("example.com.", "example.com"),
            ("*.Example.com", "*.example.com"),
            ("localhost", "localhost"),
            ("127.0.0.1", "127.0.0.1"),
            ("[::1]", "::1"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ] {
            assert_eq!(host_name(text).as_deref(), Ok(name));
        }
    }

    #[test]
    fn what_cannot_be_a_name_is_refused_with_what_would_be_right() {
        for (text, right) in [
            ("", "write one as"),
            ("*", "default = true"),
            ("https://example.com", "without scheme"),
            ("example.com:443", "without a port"),
            ("bücher.example", "xn--"),
            ("a.*.example", "the whole first label"),
            ("*a.example", "the whole first label"),
            ("a..example", "labels are"),
            ("-a.example", "labels are"),
            ("a b", "labels are"),
        ] {
            let message = host_name(text).expect_err(text);
            assert!(message.contains(right), "{text}: {message}");
        }
    }
}
