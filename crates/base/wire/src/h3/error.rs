//! Error codes of HTTP/3 (RFC 9114 section 8.1) and QPACK (RFC 9204 section 6).

use std::fmt;

/// Error code of a connection or a stream. Unknown codes mean no specific error (RFC 9114 section 9).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u64);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        impl Code {
            $($(#[$doc])* pub const $name: Self = Self($code);)*

            /// Name without prefix; `None` for a code of no RFC.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// `H3_NO_ERROR`: no error.
    NO_ERROR = 0x100,
    /// `H3_GENERAL_PROTOCOL_ERROR`: the peer violated the protocol in a way without a code of its own.
    GENERAL_PROTOCOL_ERROR = 0x101,
    /// `H3_INTERNAL_ERROR`: this side failed.
    INTERNAL_ERROR = 0x102,
    /// `H3_STREAM_CREATION_ERROR`: the peer opened a stream that this side does not accept.
    STREAM_CREATION_ERROR = 0x103,
    /// `H3_CLOSED_CRITICAL_STREAM`: a stream ended on which the connection depends.
    CLOSED_CRITICAL_STREAM = 0x104,
    /// `H3_FRAME_UNEXPECTED`: the frame is not permitted in this state or on this stream.
    FRAME_UNEXPECTED = 0x105,
    /// `H3_FRAME_ERROR`: the layout or size of a frame is invalid.
    FRAME_ERROR = 0x106,
    /// `H3_EXCESSIVE_LOAD`: the peer causes too much work.
    EXCESSIVE_LOAD = 0x107,
    /// `H3_ID_ERROR`: a stream ID or push ID is used incorrectly.
    ID_ERROR = 0x108,
    /// `H3_SETTINGS_ERROR`: the payload of `SETTINGS` is invalid.
    SETTINGS_ERROR = 0x109,
    /// `H3_MISSING_SETTINGS`: the control stream did not begin with `SETTINGS`.
    MISSING_SETTINGS = 0x10a,
    /// `H3_REQUEST_REJECTED`: the request was not processed.
    REQUEST_REJECTED = 0x10b,
    /// `H3_REQUEST_CANCELLED`: the request or its response is abandoned.
    REQUEST_CANCELLED = 0x10c,
    /// `H3_REQUEST_INCOMPLETE`: the stream of the client ended before its request was complete.
    REQUEST_INCOMPLETE = 0x10d,
    /// `H3_MESSAGE_ERROR`: the message is malformed.
    MESSAGE_ERROR = 0x10e,
    /// `H3_CONNECT_ERROR`: the connection of a `CONNECT` request failed.
    CONNECT_ERROR = 0x10f,
    /// `H3_VERSION_FALLBACK`: the request must be repeated over HTTP/1.1.
    VERSION_FALLBACK = 0x110,
    /// `QPACK_DECOMPRESSION_FAILED`: a field section cannot be decoded.
    QPACK_DECOMPRESSION_FAILED = 0x200,
    /// `QPACK_ENCODER_STREAM_ERROR`: an instruction on the encoder stream is invalid.
    QPACK_ENCODER_STREAM_ERROR = 0x201,
    /// `QPACK_DECODER_STREAM_ERROR`: an instruction on the decoder stream is invalid.
    QPACK_DECODER_STREAM_ERROR = 0x202,
}

impl fmt::Debug for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => formatter.write_str(name),
            None => write!(formatter, "Code({:#x})", self.0),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_names() {
        assert_eq!(Code::FRAME_UNEXPECTED.to_string(), "FRAME_UNEXPECTED");
        assert_eq!(Code(0x21).to_string(), "Code(0x21)");
        assert!((0x100..=0x110).chain(0x200..=0x202).all(|code| Code(code).name().is_some()));
    }
}
