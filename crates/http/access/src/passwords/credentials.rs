//! Credentials in a request: `Authorization: Basic` (RFC 7617).

use std::fmt;

use zeroize::Zeroizing;

/// Maximum length of name and password, with the colon between them. The cost of SHA-crypt grows with the length of the
/// password.
const LONGEST: usize = 512;

/// Name and password of a user, as sent by a client. Wiped when dropped; `Debug` prints neither.
#[derive(Clone)]
pub struct Credentials {
    text: Zeroizing<Vec<u8>>,
    colon: usize,
}

impl Credentials {
    /// Reads the value of `Authorization`. `None` for other schemes, for malformed credentials, and for more than 512 bytes.
    pub fn read(value: &[u8]) -> Option<Self> {
        let (scheme, encoded) = value.split_at_checked(6)?;
        // RFC 9110 section 11.1: schemes have no case.
        // Before the decoder, whose time and memory grow with the header.
        if !scheme.eq_ignore_ascii_case(b"Basic ") || encoded.len() > LONGEST.div_ceil(3) * 4 {
            return None;
        }
        let text = brisk_secrets::decode(encoded).filter(|text| text.len() <= LONGEST)?;
        // RFC 7617 section 2: the first colon ends the name, and a password may contain further ones.
        let colon = text.iter().position(|byte| *byte == b':')?;
        Some(Self { text, colon })
    }

    /// Credentials of these parts.
    #[cfg(test)]
    pub(super) fn of(name: &str, password: &str) -> Self {
        Self { text: Zeroizing::new(format!("{name}:{password}").into_bytes()), colon: name.len() }
    }

    /// The user name, in any encoding.
    pub(super) fn name(&self) -> &[u8] {
        &self.text[..self.colon]
    }

    /// The password; may be empty.
    pub(super) fn password(&self) -> &[u8] {
        &self.text[self.colon + 1..]
    }

    /// Name, colon and password. A name contains no colon, so the text is unambiguous.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_may_contain_colons_and_be_empty() {
        for (value, name, password) in [
            // RFC 7617 section 2.
            ("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "Aladdin", "open sesame"),
            // RFC 7617 section 2.1.
            ("basic dGVzdDoxMjPCow==", "test", "123\u{a3}"),
            ("Basic YTpiOmM=", "a", "b:c"),
            ("Basic YTo=", "a", ""),
            ("Basic Og==", "", ""),
        ] {
            let credentials = Credentials::read(value.as_bytes()).expect(value);
            assert_eq!(
                (credentials.name(), credentials.password()),
                (name.as_bytes(), password.as_bytes()),
                "{value}"
            );
            assert_eq!(format!("{credentials:?}"), "Credentials");
        }
    }

    #[test]
    fn other_and_long_credentials_are_none() {
        let long = format!("Basic {}", "YTph".repeat(171));
        for value in ["", "Basic", "Basic ", "Basic YQ==", "Basic Y:", "Bearer YTpi", "BasicYTpi", &long] {
            assert!(Credentials::read(value.as_bytes()).is_none(), "{value}");
        }
        assert!(Credentials::read(format!("Basic {}", "YTph".repeat(170)).as_bytes()).is_some());
    }
}
