//! Why a key server does not perform an operation, as one byte.

use std::fmt;

use brisk_keys::KeyError;

/// Defines the codes with their names.
macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $value:literal, $name:literal;)+) => {
        /// The code of an error frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[$doc])* $code,)+
            /// A code that this version does not know. It counts as [`Failed`](Self::Failed).
            Other(u8),
        }

        impl ErrorCode {
            /// Every code that is known.
            pub const ALL: &'static [Self] = &[$(Self::$code),+];

            /// The byte on the wire.
            pub const fn byte(self) -> u8 {
                match self {
                    $(Self::$code => $value,)+
                    Self::Other(byte) => byte,
                }
            }

            /// The name, in lower case: a label for metrics.
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
    /// A frame that breaks the protocol. The connection ends.
    Protocol = 1, "protocol";
    /// The server has as many operations waiting as it accepts.
    Overloaded = 2, "overloaded";
    /// The time that was left for the operation has passed.
    DeadlinePassed = 3, "deadline-passed";
    /// The server has no such key.
    UnknownKey = 4, "unknown-key";
    /// The client may not use this key.
    KeyNotAllowed = 5, "key-not-allowed";
    /// The client may not have this kind of operation performed.
    OperationNotAllowed = 6, "operation-not-allowed";
    /// What is to be signed is no content of a TLS signature.
    Shape = 7, "shape";
    /// The key makes no signatures of this scheme, or none for this version of TLS.
    Scheme = 8, "scheme";
    /// The client asks more often than it may.
    Rate = 9, "rate";
    /// The operation was begun and failed.
    Failed = 10, "failed";
    /// The client cancelled the operation.
    Cancelled = 11, "cancelled";
    /// The client has no permissions here at all. The connection ends.
    UnknownClient = 12, "unknown-client";
    /// The server stops, and begins nothing more.
    Draining = 13, "draining";
}

impl ErrorCode {
    /// Whether another server may perform the operation all the same.
    pub const fn is_worth_another_server(self) -> bool {
        !matches!(self, Self::Protocol | Self::DeadlinePassed | Self::Shape | Self::Scheme | Self::Cancelled)
    }

    /// Whether it says that the server cannot do its work now.
    pub const fn is_trouble(self) -> bool {
        matches!(self, Self::Overloaded | Self::Failed | Self::Draining | Self::Rate | Self::Other(_))
    }

    /// What the caller of an engine gets.
    pub const fn key_error(self) -> KeyError {
        match self {
            Self::Overloaded => KeyError::Overloaded,
            Self::DeadlinePassed => KeyError::DeadlinePassed,
            Self::UnknownKey => KeyError::Failed("the key server has no such key"),
            Self::KeyNotAllowed => KeyError::Failed("the key server does not allow this gateway the key"),
            Self::OperationNotAllowed => KeyError::Failed("the key server does not allow such operations"),
            Self::Shape => KeyError::Failed("the key server refuses to sign what is not of TLS"),
            Self::Scheme => KeyError::Failed("the key server's key makes no such signatures"),
            Self::Rate => KeyError::Failed("the key server allows no more operations now"),
            Self::UnknownClient => KeyError::Failed("the key server does not know this gateway"),
            Self::Draining => KeyError::Failed("the key server stops"),
            Self::Protocol => KeyError::Failed("the key server does not understand this gateway"),
            Self::Failed | Self::Cancelled | Self::Other(_) => {
                KeyError::Failed("the key server could not perform it")
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
