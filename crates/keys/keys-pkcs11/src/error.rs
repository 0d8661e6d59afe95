//! Errors of tokens, keys and URIs, with the correction that an operator can make.

use std::{io, path::PathBuf, time::Duration};

use cryptoki::error::Error as ModuleError;

/// Reasons for which a key in a token cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The module cannot be loaded.
    #[error("cannot load the PKCS #11 module {}: {reason}", path.display())]
    Module {
        /// The shared library.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The module was loaded, but its initialization failed.
    #[error("the PKCS #11 module {} does not start: {reason}", path.display())]
    NotStarted {
        /// The shared library.
        path: PathBuf,
        /// The error of the module.
        reason: String,
    },
    /// A call of the module failed.
    #[error("the PKCS #11 module failed: {0}")]
    Call(String),
    /// A call of the module has not returned in time.
    #[error("the PKCS #11 module {} has not answered for {limit:?}", path.display())]
    Silent {
        /// The shared library.
        path: PathBuf,
        /// The timeout.
        limit: Duration,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread for the token: {0}")]
    Threads(io::Error),
    /// No token matches the URI.
    #[error("no token fits `{uri}`; {found}")]
    NoToken {
        /// The URI.
        uri: String,
        /// The available tokens, as part of a sentence.
        found: String,
    },
    /// Several tokens match the URI.
    #[error("several tokens fit `{uri}`: {found}; add `serial` or `slot-id` to mean one of them")]
    SeveralTokens {
        /// The URI.
        uri: String,
        /// The matching tokens.
        found: String,
    },
    /// The PIN file cannot be read.
    #[error("cannot read the PIN in {}: {source}", path.display())]
    PinFile {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The PIN file has another format.
    #[error("{}: wanted a PIN in one line of text", path.display())]
    PinForm {
        /// The file.
        path: PathBuf,
    },
    /// The token requires a PIN, and the URI names none.
    #[error(
        "the token \"{token}\" wants a PIN: append ?pin-source=file:/PATH to the URI, with a file that holds it"
    )]
    PinMissing {
        /// Label of the token.
        token: String,
    },
    /// The token refused the PIN.
    #[error(
        "the token \"{token}\" refuses the PIN in {}: {reason}; it is not tried again before the file changes or brisk starts \
         anew, since tokens lock themselves after some wrong ones",
        path.display()
    )]
    PinRefused {
        /// Label of the token.
        token: String,
        /// The PIN file.
        path: PathBuf,
        /// The error of the token.
        reason: String,
    },
    /// No private key in the token matches the URI.
    #[error("the token \"{token}\" has no private key for `{uri}`; {found}")]
    NoKey {
        /// Label of the token.
        token: String,
        /// The URI.
        uri: String,
        /// The available private keys, as part of a sentence.
        found: String,
    },
    /// Several private keys match the URI.
    #[error(
        "the token \"{token}\" has {number} private keys for `{uri}`: {found}; name one of them by both `object` and `id`"
    )]
    SeveralKeys {
        /// Label of the token.
        token: String,
        /// The URI.
        uri: String,
        /// Number of matching keys.
        number: usize,
        /// The first matching keys.
        found: String,
    },
    /// The key belongs to another certificate.
    #[error("the key `{uri}` does not belong to the certificate, which is for \"{subject}\": {reason}")]
    Mismatch {
        /// The URI.
        uri: String,
        /// Subject of the certificate.
        subject: String,
        /// The difference.
        reason: String,
    },
    /// Key or token lack a capability that TLS needs.
    #[error("the key `{uri}` cannot be used for TLS: {reason}")]
    Unfit {
        /// The URI.
        uri: String,
        /// The missing capability.
        reason: String,
    },
}

impl From<ModuleError> for TokenError {
    fn from(error: ModuleError) -> Self {
        Self::Call(call(&error))
    }
}

/// Formats a failed call with the names of the standard: `C_Login: CKR_PIN_INCORRECT`.
pub(crate) fn call(error: &ModuleError) -> String {
    match error {
        ModuleError::Pkcs11(code, function) => {
            format!("C_{function:?}: {}", standard_name(&format!("{code:?}")))
        }
        other => other.to_string(),
    }
}

/// Converts `PinIncorrect` to `CKR_PIN_INCORRECT`.
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

/// Reasons for which a text does not name a private key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriError {
    /// Another URI scheme.
    #[error("the URI of a key in a token begins with pkcs11:")]
    Scheme,
    /// The URI names only a token.
    #[error("which key of the token? write object=LABEL or id=%01, as pkcs11:token=web;object=site")]
    NoObject,
    /// An attribute that is not supported.
    #[error("`{name}` is not known here; known: {known}")]
    Unknown {
        /// The attribute.
        name: String,
        /// All supported attributes.
        known: String,
    },
    /// A repeated attribute.
    #[error("`{0}` is written twice")]
    Repeated(String),
    /// An attribute without a value.
    #[error("`{0}` has no value; attributes are written name=value")]
    NoValue(String),
    /// Invalid percent-encoding, or invalid UTF-8.
    #[error(
        "`{0}` is not encoded as a URI is: %20 stands for a space, %25 for a percent sign, and text is UTF-8"
    )]
    Encoding(String),
    /// A slot that is not a number.
    #[error("`slot-id` is a number in digits")]
    SlotId,
    /// An object type other than private key.
    #[error("only type=private can sign; leave `type` away, or write that")]
    Type,
    /// A PIN source other than a file.
    #[error("a PIN is read from a file alone: write pin-source=file:/PATH")]
    PinSource,
    /// A PIN within the configuration.
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
