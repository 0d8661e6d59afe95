//! Properties of the parsers, for tests and libFuzzer.

use crate::PrivateKeyDocument;

/// PEM is read or refused. The DER of a key is shorter than its text, and a key that is written is read as it was.
pub fn secret_pem(bytes: &[u8]) {
    let Ok(key) = PrivateKeyDocument::from_pem(bytes) else {
        return;
    };
    let der = key.der();
    assert!(!der.secret_der().is_empty() && der.secret_der().len() < bytes.len());
    let written = key.to_pem();
    let again = PrivateKeyDocument::from_pem(written.as_bytes()).expect("written PEM is valid");
    assert_eq!(again.der(), der);
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_secret_pem() {
        let words: &[&[u8]] = &[
            b"-----BEGIN ",
            b"-----END ",
            b"PRIVATE KEY",
            b"RSA PRIVATE KEY",
            b"EC PRIVATE KEY",
            b"-----\n",
            b"-----\r\n",
            b"\r",
            b"==",
            b"a2V5",
            b"\xef\xbb\xbf",
        ];
        brisk_testkit::fuzz::drive("secret_pem", words, super::secret_pem);
    }
}
