//! Fields of HTTP/2 messages, with the rules of RFC 9113 section 8 that apply to requests and responses.

use brisk_wire::h2::hpack::{Name, constant};
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, StatusCode};

/// Field of a message, parsed once: the HPACK decoder's table stores it in this form.
#[derive(Clone, Debug)]
pub enum Field {
    /// `:method`.
    Method(Method),
    /// `:scheme`.
    Scheme(Scheme),
    /// `:authority`.
    Authority(Authority),
    /// `:path`.
    Path(PathAndQuery),
    /// `:status`.
    Status(StatusCode),
    /// `:protocol` (RFC 8441).
    Protocol(HeaderValue),
    /// Header.
    Header(HeaderName, HeaderValue),
    /// Field that is invalid in any message, with its name if that is valid.
    Malformed(Option<HeaderName>),
}

/// Names of the static table (RFC 7541 appendix A) after its pseudo-headers.
static NAMES: [HeaderName; 47] = [
    header::ACCEPT_CHARSET,
    header::ACCEPT_ENCODING,
    header::ACCEPT_LANGUAGE,
    header::ACCEPT_RANGES,
    header::ACCEPT,
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
    header::AGE,
    header::ALLOW,
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::CONTENT_DISPOSITION,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LENGTH,
    header::CONTENT_LOCATION,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::DATE,
    header::ETAG,
    header::EXPECT,
    header::EXPIRES,
    header::FROM,
    header::HOST,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::LAST_MODIFIED,
    header::LINK,
    header::LOCATION,
    header::MAX_FORWARDS,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::RANGE,
    header::REFERER,
    header::REFRESH,
    header::RETRY_AFTER,
    header::SERVER,
    header::SET_COOKIE,
    header::STRICT_TRANSPORT_SECURITY,
    header::TRANSFER_ENCODING,
    header::USER_AGENT,
    header::VARY,
    header::VIA,
    header::WWW_AUTHENTICATE,
];

/// Index in the static table of the first name in [`NAMES`].
const FIRST_NAME: usize = 15;

impl Field {
    /// Field at `index` of the static table.
    pub fn constant(index: usize) -> Self {
        match index {
            2 => Self::Method(Method::GET),
            3 => Self::Method(Method::POST),
            4 => Self::Path(PathAndQuery::from_static("/")),
            6 => Self::Scheme(Scheme::HTTP),
            7 => Self::Scheme(Scheme::HTTPS),
            8 => Self::Status(StatusCode::OK),
            _ => {
                let (name, value) = constant(index).unwrap_or_default();
                match index.checked_sub(FIRST_NAME) {
                    Some(place) => match HeaderValue::from_str(value) {
                        Ok(_) => Self::header(NAMES[place].clone(), value.as_bytes()),
                        Err(_) => Self::Malformed(None),
                    },
                    None => Self::pseudo(name.as_bytes(), value.as_bytes()),
                }
            }
        }
    }

    /// Field with a literal name or value.
    pub fn literal(name: &Name<'_, Self>, value: &[u8]) -> Self {
        match name {
            Name::Constant(index) => match index.checked_sub(FIRST_NAME) {
                Some(place) => Self::header(NAMES[place].clone(), value),
                None => Self::pseudo(constant(*index).unwrap_or_default().0.as_bytes(), value),
            },
            Name::Of(Self::Method(_)) => Self::pseudo(b":method", value),
            Name::Of(Self::Scheme(_)) => Self::pseudo(b":scheme", value),
            Name::Of(Self::Authority(_)) => Self::pseudo(b":authority", value),
            Name::Of(Self::Path(_)) => Self::pseudo(b":path", value),
            Name::Of(Self::Status(_)) => Self::pseudo(b":status", value),
            Name::Of(Self::Protocol(_)) => Self::pseudo(b":protocol", value),
            Name::Of(Self::Header(name, _) | Self::Malformed(Some(name))) => {
                Self::header(name.clone(), value)
            }
            Name::Of(Self::Malformed(None)) => Self::Malformed(None),
            Name::New(name) if name.first() == Some(&b':') => Self::pseudo(name, value),
            // RFC 9113 section 8.2: no upper case in names.
            Name::New(name) => HeaderName::from_lowercase(name)
                .map_or(Self::Malformed(None), |name| Self::header(name, value)),
        }
    }

    fn pseudo(name: &[u8], value: &[u8]) -> Self {
        let bytes = || Bytes::copy_from_slice(value);
        let read = match name {
            b":method" => Method::from_bytes(value).ok().map(Self::Method),
            b":scheme" => Scheme::try_from(value).ok().map(Self::Scheme),
            b":authority" => Authority::from_maybe_shared(bytes()).ok().map(Self::Authority),
            b":path" if !value.is_empty() => PathAndQuery::from_maybe_shared(bytes()).ok().map(Self::Path),
            b":protocol" if !value.is_empty() => HeaderValue::from_bytes(value).ok().map(Self::Protocol),
            b":status" => StatusCode::from_bytes(value).ok().map(Self::Status),
            _ => None,
        };
        read.unwrap_or(Self::Malformed(None))
    }

    fn header(name: HeaderName, value: &[u8]) -> Self {
        match HeaderValue::from_bytes(value) {
            // RFC 9113 section 8.2.1: no white space at the ends of a value.
            Ok(read) if value.trim_ascii() == value && may_come(&name, value) => Self::Header(name, read),
            _ => Self::Malformed(Some(name)),
        }
    }
}

/// Whether the header may occur in HTTP/2: not if it concerns a single connection (RFC 9113 section 8.2.2).
fn may_come(name: &HeaderName, value: &[u8]) -> bool {
    if *name == header::TE {
        // RFC 9113 section 8.2.2: the only permitted value.
        return value == b"trailers";
    }
    !is_connection_specific(name)
}

/// Whether a header concerns a single connection, and so is invalid in HTTP/2 (RFC 9113 section 8.2.2).
pub fn is_connection_specific(name: &HeaderName) -> bool {
    *name == header::CONNECTION
        || *name == header::TRANSFER_ENCODING
        || *name == header::UPGRADE
        || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

/// Parses the value of `Content-Length`; `None` if it is not a number of digits.
pub fn length(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_read_as_literals_are() {
        for index in 1..=61 {
            let (name, value) = constant(index).expect("a constant");
            let (constant, literal) =
                (Field::constant(index), Field::literal(&Name::New(name.as_bytes()), value.as_bytes()));
            assert_eq!(format!("{constant:?}"), format!("{literal:?}"), "{name}");
        }
    }

    #[test]
    fn values_have_no_space_at_their_ends() {
        let is_header = |value: &[u8]| matches!(Field::literal(&Name::New(b"x"), value), Field::Header(..));
        for right in [b"a b".as_slice(), b"a", b""] {
            assert!(is_header(right), "{}", right.escape_ascii());
        }
        for wrong in [b" a".as_slice(), b"a ", b"\ta", b"a\t", b" "] {
            assert!(!is_header(wrong), "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn a_length_is_digits() {
        let read = |text: &'static str| length(&HeaderValue::from_static(text));
        assert_eq!((read("0"), read("12")), (Some(0), Some(12)));
        for wrong in ["", "+1", "1 2", "-1", "0x1", "99999999999999999999"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
