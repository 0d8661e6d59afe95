//! What can be wrong with a token, a key in it, or the URI that names both: said so that an operator can put it right.

use std::{io, path::PathBuf, time::Duration};

use cryptoki::error::Error as ModuleError;

/// Why a key in a token cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The module could not be loaded.
    #[error("cannot load the PKCS #11 module {}: {reason}", path.display())]
    Module {
        /// The shared library.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The module is loaded and does not start.
    #[error("the PKCS #11 module {} does not start: {reason}", path.display())]
    NotStarted {
        /// The shared library.
        path: PathBuf,
        /// What it said.
        reason: String,
    },
    /// A call of the module failed.
    #[error("the PKCS #11 module failed: {0}")]
    Call(String),
    /// The module did not come back from a call.
    #[error("the PKCS #11 module {} has not answered for {limit:?}", path.display())]
    Silent {
        /// The shared library.
        path: PathBuf,
        /// How long it was waited for.
        limit: Duration,
    },
    /// A thread of the token's engine could not be started.
    #[error("cannot start a thread for the token: {0}")]
    Threads(io::Error),
    /// No token fits the URI.
    #[error("no token fits `{uri}`; {found}")]
    NoToken {
        /// What was looked for.
        uri: String,
        /// The tokens that there are, as a part of a sentence.
        found: String,
    },
    /// More than one token fits.
    #[error("several tokens fit `{uri}`: {found}; add `serial` or `slot-id` to mean one of them")]
    SeveralTokens {
        /// What was looked for.
        uri: String,
        /// Those that fit.
        found: String,
    },
    /// The file with the PIN cannot be read.
    #[error("cannot read the PIN in {}: {source}", path.display())]
    PinFile {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file with the PIN holds something else.
    #[error("{}: wanted a PIN in one line of text", path.display())]
    PinForm {
        /// The file.
        path: PathBuf,
    },
    /// The token wants a PIN and the URI names none.
    #[error(
        "the token \"{token}\" wants a PIN: append ?pin-source=file:/PATH to the URI, with a file that holds it"
    )]
    PinMissing {
        /// Its label.
        token: String,
    },
    /// The token refused the PIN.
    #[error(
        "the token \"{token}\" refuses the PIN in {}: {reason}; it is not tried again before the file changes or brisk starts \
         anew, since tokens lock themselves after some wrong ones",
        path.display()
    )]
    PinRefused {
        /// Its label.
        token: String,
        /// The file with the PIN.
        path: PathBuf,
        /// How the token said so.
        reason: String,
    },
    /// The token has no such private key.
    #[error("the token \"{token}\" has no private key for `{uri}`; {found}")]
    NoKey {
        /// Its label.
        token: String,
        /// What was looked for.
        uri: String,
        /// The private keys that there are, as a part of a sentence.
        found: String,
    },
    /// More than one private key fits.
    #[error(
        "the token \"{token}\" has {number} private keys for `{uri}`: {found}; name one of them by both `object` and `id`"
    )]
    SeveralKeys {
        /// Its label.
        token: String,
        /// What was looked for.
        uri: String,
        /// How many fit.
        number: usize,
        /// The first of them.
        found: String,
    },
    /// The key belongs to another certificate.
    #[error("the key `{uri}` does not belong to the certificate, which is for \"{subject}\": {reason}")]
    Mismatch {
        /// The key.
        uri: String,
        /// The certificate.
        subject: String,
        /// How that was seen.
        reason: String,
    },
    /// The key, or the token, cannot do what TLS needs.
    #[error("the key `{uri}` cannot be used for TLS: {reason}")]
    Unfit {
        /// The key.
        uri: String,
        /// What is missing.
        reason: String,
    },
}

impl From<ModuleError> for TokenError {
    fn from(error: ModuleError) -> Self {
        Self::Call(call(&error))
    }
}

/// `C_Login: CKR_PIN_INCORRECT`, the names of the standard.
pub(crate) fn call(error: &ModuleError) -> String {
    match error {
        ModuleError::Pkcs11(code, function) => {
            format!("C_{function:?}: {}", standard_name(&format!("{code:?}")))
        }
        other => other.to_string(),
    }
}

/// `CKR_PIN_INCORRECT` for `PinIncorrect`.
fn standard_name(name: &str) -> String {
    let mut standard = "CKR".to_owned();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            standard.push('_');
        }
        standard.push(letter.to_ascii_uppercase());
    }
    standard
}

/// Why a text does not name a private key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriError {
    /// It is another kind of URI.
    #[error("the URI of a key in a token begins with pkcs11:")]
    Scheme,
    /// It names a token at most.
    #[error("which key of the token? write object=LABEL or id=%01, as pkcs11:token=web;object=site")]
    NoObject,
    /// An attribute that means nothing here.
    #[error("`{name}` is not known here; known: {known}")]
    Unknown {
        /// As written.
        name: String,
        /// All that are known.
        known: String,
    },
    /// An attribute for the second time.
    #[error("`{0}` is written twice")]
    Repeated(String),
    /// A name alone.
    #[error("`{0}` has no value; attributes are written name=value")]
    NoValue(String),
    /// Percent signs that stand for no bytes, or bytes that are no text.
    #[error(
        "`{0}` is not encoded as a URI is: %20 stands for a space, %25 for a percent sign, and text is UTF-8"
    )]
    Encoding(String),
    /// A slot that is no number.
    #[error("`slot-id` is a number in digits")]
    SlotId,
    /// Not a private key.
    #[error("only type=private can sign; leave `type` away, or write that")]
    Type,
    /// A PIN from anywhere but a file.
    #[error("a PIN is read from a file alone: write pin-source=file:/PATH")]
    PinSource,
    /// A PIN in the configuration.
    #[error("a PIN has no place in a configuration: write it into a file, and pin-source=file:/PATH here")]
    PinValue,
}

impl UriError {
    pub(crate) fn unknown(name: &str, known: &[&str]) -> Self {
        let known: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
        Self::Unknown { name: name.to_owned(), known: known.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use cryptoki::{context::Function, error::RvError};

    use super::*;

    #[test]
    fn calls_and_codes_have_the_names_of_the_standard() {
        let error = ModuleError::Pkcs11(RvError::TokenNotPresent, Function::OpenSession);
        assert_eq!(call(&error), "C_OpenSession: CKR_TOKEN_NOT_PRESENT");
    }
}
