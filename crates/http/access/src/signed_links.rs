//! [`LinkKeys`]: signatures in links.

use aws_lc_rs::hmac;
use md5::{Digest, Md5};
use subtle::ConstantTimeEq;

/// Keys of the signatures of links.
#[derive(Debug)]
pub enum LinkKeys {
    /// HMAC-SHA-256 with one of several keys, so that a key can be replaced while links with the former one are valid.
    Hmac(Box<[hmac::Key]>),
    /// MD5 of the text, which contains a secret, as in `secure_link_md5` of nginx.
    Md5,
}

impl LinkKeys {
    /// Keys of HMAC-SHA-256.
    pub fn hmac<'a>(secrets: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self::Hmac(secrets.into_iter().map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret)).collect())
    }

    /// Whether `signature`, in base64url or hexadecimal, is the signature of `text`. The time depends on the lengths and on the
    /// number of keys only.
    pub fn verify(&self, text: &[u8], signature: &[u8]) -> bool {
        match self {
            // Without an early end, so that the time does not show which key is right.
            Self::Hmac(keys) => decoded::<32>(signature).is_some_and(|signature| {
                keys.iter()
                    .fold(false, |is_right, key| hmac::verify(key, text, &signature).is_ok() | is_right)
            }),
            Self::Md5 => {
                // Compared in constant time, so that the time does not show how many bytes of a guess are right.
                let digest = Md5::digest(text);
                decoded::<16>(signature).is_some_and(|signature| digest.ct_eq(&signature).into())
            }
        }
    }
}

/// A signature of `LENGTH` bytes from its text.
fn decoded<const LENGTH: usize>(text: &[u8]) -> Option<[u8; LENGTH]> {
    // The length is unambiguous: base64url of 32 bytes has 43 digits, of 16 bytes 22.
    if text.len() != 2 * LENGTH {
        return brisk_secrets::decode_url(text)?.as_slice().try_into().ok();
    }
    let mut bytes = [0; LENGTH];
    for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        // `from_str_radix` accepts a sign.
        let digits = str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_of_one_of_the_keys_is_right() {
        let keys = LinkKeys::hmac([&b"key"[..], b"former"]);
        // RFC 2104, computed with `openssl dgst -sha256 -hmac`.
        let text = b"The quick brown fox jumps over the lazy dog";
        let hex = "f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8";
        let base64 = "97yD9DBThCSxMpjmqm-xQ-9NWaFJRhdZl0edvC0aPNg";
        for right in [hex, &hex.to_uppercase(), base64, &format!("{base64}=")] {
            assert!(keys.verify(text, right.as_bytes()), "{right}");
        }
        let damaged = format!("{}+8", &hex[..62]);
        for wrong in ["", "x", &hex[..62], &damaged, &hex.replace('f', "g"), &base64[..42]] {
            assert!(!keys.verify(text, wrong.as_bytes()), "{wrong}");
        }
        assert!(!keys.verify(b"other", hex.as_bytes()));
        assert!(LinkKeys::hmac([&b"new"[..], b"key"]).verify(text, hex.as_bytes()));
        assert!(!LinkKeys::hmac([&b"new"[..]]).verify(text, hex.as_bytes()));
    }

    #[test]
    fn md5_signs_a_text_with_a_secret_in_it() {
        // The example of `ngx_http_secure_link_module`.
        let text = b"2147483647/s/link127.0.0.1 secret";
        assert!(LinkKeys::Md5.verify(text, b"_e4Nc3iduzkWRm01TBBNYw"));
        assert!(!LinkKeys::Md5.verify(text, b"_e4Nc3iduzkWRm01TBBNYx"));
    }
}
