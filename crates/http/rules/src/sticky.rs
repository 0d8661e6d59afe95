//! Sticky cookies: a client returns to the server that answered its first request.
//!
//! The cookie contains a keyed hash of the server's name, so that it discloses no address, and gateways with the same key
//! understand each other's cookies.

use std::fmt;
use std::sync::LazyLock;

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brisk_http::message::HeaderList;
use http::HeaderValue;
use zeroize::Zeroizing;

use crate::pairs::cookies;

// A multiple of three, so that base64 has no padding; `is_assigned` relies on the number of digits.
/// Length of a hash in bytes.
const HASH: usize = 12;

/// The cookie of a group, and the key of its values.
#[derive(Clone, PartialEq, Eq)]
pub struct StickySettings {
    /// Name of the cookie, a token (RFC 6265 section 4.1.1).
    pub cookie: String,
    /// Key of the hashes. The same on all gateways that share clients.
    pub key: Zeroizing<Vec<u8>>,
    /// Attributes after the value, such as `; Path=/; Secure`.
    pub attributes: String,
}

/// The key of groups without a secret. Random, because with a known key the address in a cookie could be guessed. One for
/// the process, so that cookies survive a reload.
static RANDOM: LazyLock<Zeroizing<Vec<u8>>> = LazyLock::new(|| {
    let mut key = Zeroizing::new(vec![0; 32]);
    rand::fill(&mut key).expect("the system has random numbers");
    key
});

impl StickySettings {
    /// The key of this process for groups without a secret.
    pub fn random_key() -> Zeroizing<Vec<u8>> {
        RANDOM.clone()
    }

    /// The value of `Set-Cookie` that assigns a client to `server` of `group`.
    pub fn assignment(&self, group: &str, server: &str) -> HeaderValue {
        let key = Key::new(HMAC_SHA256, &self.key);
        // Names contain no zero bytes.
        let hash = sign(&key, format!("{group}\0{server}").as_bytes());
        let value = URL_SAFE_NO_PAD.encode(&hash.as_ref()[..HASH]);
        let text = format!("{}={value}{}", self.cookie, self.attributes);
        HeaderValue::from_str(&text).expect("a token, letters and attributes")
    }

    /// Whether the request has the cookie of `assignment`, a result of [`Self::assignment`].
    pub fn is_assigned(&self, headers: &HeaderList, assignment: &HeaderValue) -> bool {
        let value =
            assignment.as_bytes().get(self.cookie.len() + 1..).and_then(|rest| rest.get(..HASH * 4 / 3));
        // Not in constant time: a guessed value selects a server of the group and discloses nothing else.
        value.is_some_and(|value| cookies(headers, &self.cookie).any(|sent| *sent == *value))
    }
}

impl fmt::Debug for StickySettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the key, with which a reader of a log could guess the addresses in cookies.
        formatter.debug_struct("StickySettings").field("cookie", &self.cookie).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use brisk_http::message::Request;
    use http::header;

    use super::*;

    fn settings(key: &[u8]) -> StickySettings {
        StickySettings {
            cookie: "srv".to_owned(),
            key: Zeroizing::new(key.to_vec()),
            attributes: "; Path=/".to_owned(),
        }
    }

    #[test]
    fn a_value_depends_on_key_group_and_server_and_shows_neither() {
        let value = |key: &[u8], group: &str, server: &str| settings(key).assignment(group, server);
        let one = value(b"key", "app", "10.0.0.1:80");
        let text = one.to_str().expect("text");
        assert_eq!(text.len(), "srv=".len() + 16 + "; Path=/".len(), "{text}");
        assert!(!text.contains("10.0.0.1"));
        assert_eq!(one, value(b"key", "app", "10.0.0.1:80"));
        for other in [
            value(b"other", "app", "10.0.0.1:80"),
            value(b"key", "api", "10.0.0.1:80"),
            value(b"key", "app", "10.0.0.2:80"),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn the_cookie_of_a_request_is_that_of_one_server() {
        let settings = settings(b"key");
        let (one, two) = (settings.assignment("app", "one"), settings.assignment("app", "two"));
        let sent = one.to_str().expect("text").split(';').next().expect("a cookie");
        let head = |cookies: &str| {
            Request::get("/")
                .header(header::COOKIE, cookies)
                .body(())
                .expect("a request")
                .into_parts()
                .0
                .headers
        };
        let with = head(&format!("a=b; {sent}; c=d"));
        assert!(settings.is_assigned(&with, &one) && !settings.is_assigned(&with, &two));
        for other in ["", "srv=", "srv", &sent[..sent.len() - 1], &format!("{sent}x")] {
            assert!(!settings.is_assigned(&head(other), &one), "{other:?}");
        }
    }
}
