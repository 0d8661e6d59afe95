//! Parsers for names of code points.

use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion};

/// An unknown name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not {what}: {known}")]
pub struct NameError {
    name: String,
    what: &'static str,
    known: String,
}

/// Parses `1.2` or `1.3`.
pub fn version(text: &str) -> Result<ProtocolVersion, NameError> {
    match text {
        "1.2" => Ok(ProtocolVersion::TLS1_2),
        "1.3" => Ok(ProtocolVersion::TLS1_3),
        _ => {
            Err(NameError { name: text.to_owned(), what: "a version of TLS", known: "1.2 or 1.3".to_owned() })
        }
    }
}

/// Parses the IANA name of a suite, ignoring case.
pub fn suite(text: &str) -> Result<CipherSuite, NameError> {
    // A server cannot select a signalling value.
    let real = CipherSuite::ALL.iter().filter(|suite| !suite.to_string().ends_with("_SCSV"));
    find(text, "a suite", real.map(|suite| (suite.to_string(), *suite)))
}

/// Parses the IANA name of a group, ignoring case, or the name of its curve: `P-256`.
pub fn group(text: &str) -> Result<NamedGroup, NameError> {
    let usual = [
        NamedGroup::X25519MLKEM768,
        NamedGroup::X25519,
        NamedGroup::SECP256R1,
        NamedGroup::SECP384R1,
        NamedGroup::SECP521R1,
        NamedGroup::SECP256R1MLKEM768,
        NamedGroup::MLKEM768,
    ];
    match text.to_ascii_lowercase().as_str() {
        "p-256" | "p256" | "prime256v1" => Ok(NamedGroup::SECP256R1),
        "p-384" | "p384" => Ok(NamedGroup::SECP384R1),
        "p-521" | "p521" => Ok(NamedGroup::SECP521R1),
        _ => find(text, "a group", usual.iter().map(|group| (group.to_string(), *group))),
    }
}

/// Parses protocols separated by commas. `none` and the empty text give an empty list.
pub fn alpn(text: &str) -> Result<Vec<String>, NameError> {
    if matches!(text, "" | "none") {
        return Ok(Vec::new());
    }
    let names: Vec<_> = text.split(',').map(|name| name.trim().to_owned()).collect();
    // RFC 7301 section 3.1.
    match names.iter().find(|name| name.is_empty() || name.len() > 255) {
        Some(wrong) => Err(NameError {
            name: wrong.clone(),
            what: "the name of a protocol",
            known: "write h2 or http/1.1".to_owned(),
        }),
        None => Ok(names),
    }
}

fn find<T: Copy>(
    text: &str,
    what: &'static str,
    known: impl Iterator<Item = (String, T)> + Clone,
) -> Result<T, NameError> {
    let found = known.clone().find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, value)| value).ok_or_else(|| NameError {
        name: text.to_owned(),
        what,
        known: known.map(|(name, _)| name).collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case() {
        assert_eq!(suite("tls_aes_128_gcm_sha256"), Ok(CipherSuite::TLS_AES_128_GCM_SHA256));
        assert_eq!(group("x25519mlkem768"), Ok(NamedGroup::X25519MLKEM768));
        assert_eq!(group("P-256"), Ok(NamedGroup::SECP256R1));
        assert_eq!(version("1.3"), Ok(ProtocolVersion::TLS1_3));
        assert_eq!(alpn("h2, http/1.1"), Ok(vec!["h2".to_owned(), "http/1.1".to_owned()]));
        assert_eq!(alpn("none"), Ok(Vec::new()));
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = suite("AES").expect_err("no suite").to_string();
        assert!(error.contains("TLS_AES_128_GCM_SHA256, ") && !error.contains("SCSV"), "{error}");
        assert!(group("curve").expect_err("no group").to_string().contains("x25519"));
        assert!(version("1.1").expect_err("no version").to_string().contains("1.2 or 1.3"));
        assert!(alpn("h2,").is_err());
    }
}
