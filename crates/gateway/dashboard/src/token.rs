//! The token that authorizes clients, and the cookies that it is exchanged for.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::{hmac, rand};
use thiserror::Error;
use zeroize::Zeroizing;

/// Minimum length of a [`Token`], in bytes. Guessing a random token of this length is infeasible at any rate.
const LEAST: usize = 20;

/// Maximum length of a [`Token`], in bytes.
const MOST: usize = 1024;

/// Validity of a cookie.
pub(crate) const LIFETIME: Duration = Duration::from_hours(12);

/// A secret that clients must present.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<Zeroizing<Vec<u8>>>);

/// Reasons for which a file contains no valid token.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read {path}: {1}", path = .0.display())]
    Unreadable(PathBuf, #[source] io::Error),
    /// Users other than the owner may read or change the file.
    #[error("{path}: others than its owner may read or change it (its mode is {1:04o}): `chmod 600 {path}`", path = .0.display())]
    Open(PathBuf, u32),
    /// The content is not a valid token.
    #[error("{path}: {1}: make one with `openssl rand -hex 32`", path = .0.display())]
    Wrong(PathBuf, &'static str),
}

impl Token {
    /// Reads a token from a file with a single line, which only its owner may access.
    ///
    /// # Errors
    ///
    /// [`TokenError`] with the correction: [`TokenError::Open`] if the mode has any bit of `0077`. Blocks on file I/O.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let unreadable = |error| TokenError::Unreadable(path.to_owned(), error);
        // Checked before opening: opening a pipe would block until its other end is opened.
        if !path.metadata().map_err(unreadable)?.is_file() {
            return Err(TokenError::Wrong(path.to_owned(), "is no file"));
        }
        let mut file = File::open(path).map_err(unreadable)?;
        // Of the open file and not of its path, which could name another file by now.
        let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(TokenError::Open(path.to_owned(), mode));
        }
        // Twice the maximum, because white space around the token is permitted.
        let bytes = brisk_secrets::read_open(&mut file, 2 * MOST).map_err(unreadable)?;
        Self::of(&bytes).map_err(|reason| TokenError::Wrong(path.to_owned(), reason))
    }

    /// Parses a [`Token`]; surrounding white space is ignored.
    fn of(text: &[u8]) -> Result<Self, &'static str> {
        let token = text.trim_ascii();
        if token.len() < LEAST {
            return Err("has fewer than 20 characters, which can be guessed");
        }
        if token.len() > MOST {
            return Err("has more than 1024 characters");
        }
        if !token.iter().all(u8::is_ascii_graphic) {
            return Err("has other characters than visible ones of ASCII, or several lines");
        }
        Ok(Self(Arc::new(Zeroizing::new(token.to_vec()))))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

/// Verifies tokens in constant time, and issues and verifies cookies. Created once per process, so cookies end with the
/// process.
pub(crate) struct TokenVerifier {
    key: hmac::Key,
    started: Instant,
}

impl TokenVerifier {
    pub(crate) fn new() -> Result<Self, &'static str> {
        let random = rand::SystemRandom::new();
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &random).map_err(|_| "no random numbers")?;
        Ok(Self { key, started: Instant::now() })
    }

    /// Returns whether `presented` is the [`Token`].
    pub(crate) fn is_token(&self, token: &Token, presented: &[u8]) -> bool {
        let expected = self.tag(b"token", 0, &token.0);
        let given = message(b"token", 0, presented);
        // Constant-time comparison of two MACs of equal length; comparing the tokens themselves would reveal their
        // length.
        hmac::verify(&self.key, &given, expected.as_ref()).is_ok()
    }

    /// Issues a cookie to a client that has presented the [`Token`].
    pub(crate) fn cookie(&self, token: &Token) -> String {
        self.cookie_at(token, self.now())
    }

    fn cookie_at(&self, token: &Token, now: u64) -> String {
        let until = now + LIFETIME.as_secs();
        let tag = self.tag(b"cookie", until, &token.0);
        let digits = tag.as_ref().iter().map(|byte| format!("{byte:02x}"));
        format!("{until:x}-{}", digits.collect::<String>())
    }

    /// End of validity, if `value` is a valid cookie for this [`Token`]; `None` otherwise.
    pub(crate) fn valid_until(&self, token: &Token, value: &str) -> Option<Instant> {
        let until = self.valid_until_second(token, value, self.now())?;
        Some(self.started + Duration::from_secs(until))
    }

    fn valid_until_second(&self, token: &Token, value: &str, now: u64) -> Option<u64> {
        let (until, digits) = value.split_once('-')?;
        let until = u64::from_str_radix(until, 16).ok()?;
        let tag = bytes_of(digits)?;
        // The MAC first: an invented `until` could overflow the addition in `valid_until`.
        hmac::verify(&self.key, &message(b"cookie", until, &token.0), &tag).ok()?;
        Some(until).filter(|until| now < *until)
    }

    fn tag(&self, kind: &[u8], until: u64, token: &[u8]) -> hmac::Tag {
        hmac::sign(&self.key, &message(kind, until, token))
    }

    /// Seconds by the monotonic clock, which cannot be set back.
    fn now(&self) -> u64 {
        self.started.elapsed().as_secs()
    }
}

fn message(kind: &[u8], until: u64, token: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut message = Zeroizing::new(Vec::with_capacity(kind.len() + 8 + token.len()));
    // The kind separates the two uses of one key: no cookie is a proof of the token, and none of the token a
    // cookie.
    message.extend_from_slice(kind);
    message.extend_from_slice(&until.to_be_bytes());
    message.extend_from_slice(token);
    message
}

/// Decodes 64 hexadecimal digits.
fn bytes_of(digits: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const TEXT: &str = "0123456789abcdef0123";

    fn written(text: &str, mode: u32) -> Result<Token, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        fs::write(&file, text).expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("its owner's");
        Token::read(&file)
            .map_err(|error| error.to_string().replace(&folder.path().display().to_string(), ""))
    }

    #[test]
    fn a_token_is_read_from_a_file_that_is_for_its_owner_alone() {
        assert_eq!(written(&format!("{TEXT}\n"), 0o600), Token::of(TEXT.as_bytes()).map_err(str::to_owned));
        for (text, mode, message) in [
            (
                TEXT,
                0o640,
                "/token: others than its owner may read or change it (its mode is 0640): `chmod 600 /token`",
            ),
            (
                "short",
                0o600,
                "/token: has fewer than 20 characters, which can be guessed: make one with `openssl rand -hex 32`",
            ),
            (
                "",
                0o600,
                "/token: has fewer than 20 characters, which can be guessed: make one with `openssl rand -hex 32`",
            ),
        ] {
            assert_eq!(written(text, mode).expect_err(text), message);
        }
        assert!(written(&"x".repeat(5000), 0o600).expect_err("long").contains("more than 1024"));
        assert!(written(&format!("{TEXT}\n{TEXT}"), 0o600).expect_err("lines").contains("several lines"));
        assert!(Token::read(Path::new("/")).expect_err("a folder").to_string().contains("is no file"));
    }

    #[test]
    fn the_token_and_nothing_else_is_recognized() {
        let (verifier, token) =
            (TokenVerifier::new().expect("a key"), Token::of(TEXT.as_bytes()).expect("a token"));
        assert!(verifier.is_token(&token, TEXT.as_bytes()));
        for other in ["", "0123456789abcdef012", "0123456789abcdef01234", "0123456789abcdef0124"] {
            assert!(!verifier.is_token(&token, other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_cookie_opens_until_it_is_too_old_and_only_for_its_token() {
        let (verifier, token) =
            (TokenVerifier::new().expect("a key"), Token::of(TEXT.as_bytes()).expect("a token"));
        let cookie = verifier.cookie_at(&token, 100);
        let last = 100 + LIFETIME.as_secs();
        assert_eq!(verifier.valid_until_second(&token, &cookie, last - 1), Some(last));
        assert!(verifier.valid_until_second(&token, &cookie, last).is_none());
        let other = Token::of(b"ffffffffffffffffffff").expect("a token");
        assert!(verifier.valid_until_second(&other, &cookie, 100).is_none());
        let (until, tag) = cookie.split_once('-').expect("two parts");
        let later = format!("{:x}-{tag}", last + 1);
        for forged in [later.as_str(), until, tag, "", "-", &cookie[..cookie.len() - 1], "1-\u{e9}\u{e9}"] {
            assert!(verifier.valid_until_second(&token, forged, 100).is_none(), "{forged}");
        }
        assert!(
            TokenVerifier::new().expect("a key").valid_until_second(&token, &cookie, 100).is_none(),
            "of another process"
        );
    }
}
