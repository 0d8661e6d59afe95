//! Splits: a share of the visitors uses another upstream, and a cookie keeps each visitor there.
//!
//! The cookie contains the visitor's bucket, not an upstream: a change of the share moves as few visitors as possible. Its
//! keyed hash prevents visitors from inventing a bucket.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brisk_http::message::HeaderList;
use http::HeaderValue;

use crate::pairs::cookies;
use crate::share::{Bucket, Share};
use crate::sticky::StickySettings;

// With the two bytes of the bucket, the value has 20 digits of base64 without padding.
/// Length of a hash in bytes.
const HASH: usize = 13;

/// Length of a value: bucket and hash in base64.
const VALUE: usize = (2 + HASH) * 4 / 3;

/// Maximum number of cookies with the name that [`SplitCookie::read`] verifies, each in about 1 µs.
const MOST: usize = 4;

/// A division of visitors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitSettings {
    /// Name of the upstream group for the share.
    pub group: String,
    /// Share of the visitors.
    pub share: Share,
    /// The cookie. Splits with the same name and key put a visitor into the same bucket.
    pub cookie: StickySettings,
}

/// Writes and reads the cookies of a split.
#[derive(Debug)]
pub struct SplitCookie {
    name: String,
    key: Key,
    attributes: String,
}

impl SplitCookie {
    /// Prepares the key of `settings`.
    pub fn new(settings: &StickySettings) -> Self {
        Self {
            name: settings.cookie.clone(),
            key: Key::new(HMAC_SHA256, &settings.key),
            attributes: settings.attributes.clone(),
        }
    }

    /// The bucket in the first valid cookie of a request, of the first four with a right length; `None` if none is valid.
    pub fn read(&self, headers: &HeaderList) -> Option<Bucket> {
        // Filtered before the limit, which cookies of an application with this name must not use up.
        let values = cookies(headers, &self.name).filter(|value| value.len() == VALUE).take(MOST);
        values.filter_map(|value| URL_SAFE_NO_PAD.decode(value).ok()).find_map(|bytes| {
            let (number, hash) = bytes.split_first_chunk::<2>()?;
            // Before the comparison: a number without a bucket costs no hash.
            let bucket = Bucket::new(u16::from_be_bytes(*number))?;
            verify_slices_are_equal(hash, &self.hash(bucket)).ok().map(|()| bucket)
        })
    }

    /// The value of `Set-Cookie` that keeps a visitor in `bucket`.
    pub fn assignment(&self, bucket: Bucket) -> HeaderValue {
        let mut value = bucket.number().to_be_bytes().to_vec();
        value.extend_from_slice(&self.hash(bucket));
        let text = format!("{}={}{}", self.name, URL_SAFE_NO_PAD.encode(value), self.attributes);
        HeaderValue::from_str(&text).expect("a token, letters and attributes")
    }

    /// The first byte separates the hash from those of sticky cookies with the same key, which begin with the name of a group.
    fn hash(&self, bucket: Bucket) -> [u8; HASH] {
        let text = format!("\0{}\0{}", self.name, bucket.number());
        let hash = sign(&self.key, text.as_bytes());
        *hash.as_ref().first_chunk().expect("SHA-256 has 32 bytes")
    }
}

#[cfg(test)]
mod tests {
    use brisk_http::message::Request;
    use http::header;
    use zeroize::Zeroizing;

    use super::*;

    fn cookie(name: &str, key: &[u8]) -> SplitCookie {
        SplitCookie::new(&StickySettings {
            cookie: name.to_owned(),
            key: Zeroizing::new(key.to_vec()),
            attributes: "; Path=/".to_owned(),
        })
    }

    fn head(cookies: &str) -> HeaderList {
        let request = Request::get("/").header(header::COOKIE, cookies).body(());
        request.expect("a request").into_parts().0.headers
    }

    #[test]
    fn a_cookie_contains_a_bucket_that_only_the_key_can_write() {
        let own = cookie("split", b"key");
        let bucket = Bucket::new(1234).expect("a bucket");
        let set = own.assignment(bucket);
        let text = set.to_str().expect("text");
        let sent = text.strip_suffix("; Path=/").expect("attributes");
        assert_eq!(sent.len(), "split=".len() + VALUE, "{text}");
        assert_eq!(own.read(&head(&format!("a=b; {sent}; c=d"))), Some(bucket));
        assert_eq!(own.read(&head(&format!("split=AAAA; {sent}"))), Some(bucket), "after an invalid one");
        assert_eq!(cookie("split", b"other").read(&head(sent)), None);
        let renamed = sent.replacen("split", "other", 1);
        assert_eq!(cookie("other", b"key").read(&head(&renamed)), None, "the name is part of the hash");
    }

    #[test]
    fn altered_and_invented_values_are_ignored() {
        let own = cookie("split", b"key");
        let set = own.assignment(Bucket::new(0).expect("a bucket"));
        let sent = set.to_str().expect("text").split(';').next().expect("a cookie");
        let other = sent.replacen("split=A", "split=B", 1);
        let long = format!("{sent}AAAA");
        let hidden = format!("{} {sent}", format!("{other};").repeat(MOST));
        for value in
            ["", "split=", "split", "split=!", "split=AAA", &sent[..sent.len() - 4], &long, &other, &hidden]
        {
            assert_eq!(own.read(&head(value)), None, "{value:?}");
        }
    }
}
