//! Error codes of the protocol.

use std::fmt;

use brisk_keys::KeyError;

/// Defines the codes with their names.
macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $value:literal, $name:literal;)+) => {
        /// Code of an error frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[$doc])* $code,)+
            /// A code unknown to this version, treated like [`Failed`](Self::Failed).
            Other(u8),
        }

        impl ErrorCode {
            /// All known codes.
            pub const ALL: &'static [Self] = &[$(Self::$code),+];

            /// Encoding on the wire.
            pub const fn byte(self) -> u8 {
                match self {
                    $(Self::$code => $value,)+
                    Self::Other(byte) => byte,
                }
            }

            /// Name in lower case, a label value of metrics.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$code => $name,)+
                    Self::Other(_) => "other",
                }
            }
        }

        impl From<u8> for ErrorCode {
            fn from(byte: u8) -> Self {
                match byte {
                    $($value => Self::$code,)+
                    other => Self::Other(other),
                }
            }
        }
    };
}

codes! {
    /// A frame violates the protocol. The connection ends.
    Protocol = 1, "protocol";
    /// The server's queue is full.
    Overloaded = 2, "overloaded";
    /// The deadline of the operation has passed.
    DeadlinePassed = 3, "deadline-passed";
    /// The server does not have the key.
    UnknownKey = 4, "unknown-key";
    /// The client may not use this key.
    KeyNotAllowed = 5, "key-not-allowed";
    /// The client may not request this kind of operation.
    OperationNotAllowed = 6, "operation-not-allowed";
    /// The message does not have the form of signed content of TLS.
    Shape = 7, "shape";
    /// The key does not support the scheme, or this version of TLS does not.
    Scheme = 8, "scheme";
    /// The client exceeds its rate.
    Rate = 9, "rate";
    /// The operation failed.
    Failed = 10, "failed";
    /// The client cancelled the operation.
    Cancelled = 11, "cancelled";
    /// The client is not configured. The connection ends.
    UnknownClient = 12, "unknown-client";
    /// The server is draining and begins no operation.
    Draining = 13, "draining";
}

impl ErrorCode {
    /// Returns whether another server may succeed.
    pub const fn is_worth_another_server(self) -> bool {
        // Every server would respond alike: the cause is the request itself, or its deadline.
        !matches!(self, Self::Protocol | Self::DeadlinePassed | Self::Shape | Self::Scheme | Self::Cancelled)
    }

    /// Returns whether the server is temporarily unable to perform operations, as with [`Overloaded`](Self::Overloaded).
    pub const fn is_trouble(self) -> bool {
        matches!(self, Self::Overloaded | Self::Failed | Self::Draining | Self::Rate | Self::Other(_))
    }

    /// The error that callers of the engine receive.
    pub const fn key_error(self) -> KeyError {
        match self {
            Self::Overloaded => KeyError::Overloaded,
            Self::DeadlinePassed => KeyError::DeadlinePassed,
            Self::UnknownKey => KeyError::Failed("the key server has no such key"),
            Self::KeyNotAllowed => {
                KeyError::Failed("the key server does not permit this gateway to use the key")
            }
            // An error of its own, because a probe repeats its signature in the form of TLS 1.2 after it.
            Self::OperationNotAllowed => KeyError::KindNotPermitted,
            Self::Shape => KeyError::Failed("the key server signs only content of TLS handshakes"),
            Self::Scheme => KeyError::Failed("the key at the key server does not support the scheme"),
            Self::Rate => KeyError::Failed("this gateway exceeds its rate at the key server"),
            Self::UnknownClient => KeyError::Failed("the key server does not know this gateway"),
            Self::Draining => KeyError::Failed("the key server is draining"),
            Self::Protocol => KeyError::Failed("the key server reports a violation of the protocol"),
            Self::Failed | Self::Cancelled | Self::Other(_) => {
                KeyError::Failed("the key server could not perform the operation")
            }
        }
    }
}

impl From<&KeyError> for ErrorCode {
    fn from(error: &KeyError) -> Self {
        match error {
            KeyError::Overloaded => Self::Overloaded,
            KeyError::DeadlinePassed => Self::DeadlinePassed,
            KeyError::UnknownKey(_) => Self::UnknownKey,
            KeyError::UnsupportedScheme { .. } => Self::Scheme,
            _ => Self::Failed,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(byte) => write!(f, "code {byte}"),
            known => f.write_str(known.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_the_code_that_it_was_made_from() {
        for byte in 0..=u8::MAX {
            assert_eq!(ErrorCode::from(byte).byte(), byte);
        }
        for &code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from(code.byte()), code);
            assert!(!matches!(code, ErrorCode::Other(_)));
        }
    }

    #[test]
    fn errors_keep_their_meaning_on_the_way() {
        for error in [KeyError::Overloaded, KeyError::DeadlinePassed] {
            assert_eq!(ErrorCode::from(&error).key_error(), error);
        }
        assert!(ErrorCode::Overloaded.is_worth_another_server() && ErrorCode::Draining.is_trouble());
        assert!(!ErrorCode::Shape.is_worth_another_server());
    }
}
