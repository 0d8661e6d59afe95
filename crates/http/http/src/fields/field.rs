//! Fields of messages, with the rules that apply to requests and responses (RFC 9113 section 8.2, RFC 9114 section 4.2).

use brisk_wire::fields::Name;
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, StatusCode};

use super::table::{ConstantName, StaticTable};
use crate::target;

/// Field of a message, parsed once: the table of an HPACK decoder stores it in this form.
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
    /// `:protocol` (RFC 8441, RFC 9220).
    Protocol(HeaderValue),
    /// Header.
    Header(HeaderName, HeaderValue),
    /// Field that is invalid in any message, with its name if that is valid.
    Malformed(Option<HeaderName>),
}

impl Field {
    /// Field at `index` of the static table `T`.
    pub fn constant<T: StaticTable>(index: usize) -> Self {
        T::fields().get(index).map_or(Self::Malformed(None), |constant| constant.field.clone())
    }

    /// Field with a literal name or value.
    pub fn literal<T: StaticTable>(name: &Name<'_, Self>, value: &[u8]) -> Self {
        match name {
            Name::Constant(index) => match T::fields().get(*index).map(|constant| &constant.name) {
                Some(ConstantName::Header(name)) => Self::header(name.clone(), value),
                Some(ConstantName::Pseudo(name)) => Self::pseudo(name.as_bytes(), value),
                None => Self::Malformed(None),
            },
            Name::Of(Self::Method(_)) => Self::pseudo(b":method", value),
            Name::Of(Self::Scheme(_)) => Self::pseudo(b":scheme", value),
            Name::Of(Self::Authority(_)) => Self::pseudo(b":authority", value),
            Name::Of(Self::Path(_)) => Self::pseudo(b":path", value),
            Name::Of(Self::Status(_)) => Self::pseudo(b":status", value),
            Name::Of(Self::Protocol(_)) => Self::pseudo(b":protocol", value),
            // RFC 7541 section 6.2: a later field may use the name of a field whose value was malformed.
            Name::Of(Self::Header(name, _) | Self::Malformed(Some(name))) => {
                Self::header(name.clone(), value)
            }
            Name::Of(Self::Malformed(None)) => Self::Malformed(None),
            Name::New(name) => Self::new(name, value),
        }
    }

    /// Field with this name and value.
    pub(super) fn new(name: &[u8], value: &[u8]) -> Self {
        if name.first() == Some(&b':') {
            return Self::pseudo(name, value);
        }
        // RFC 9113 section 8.2, RFC 9114 section 4.2: no upper case in names.
        HeaderName::from_lowercase(name).map_or(Self::Malformed(None), |name| Self::header(name, value))
    }

    fn pseudo(name: &[u8], value: &[u8]) -> Self {
        let bytes = || Bytes::copy_from_slice(value);
        let read = match name {
            b":method" => Method::from_bytes(value).ok().map(Self::Method),
            b":scheme" => Scheme::try_from(value).ok().map(Self::Scheme),
            b":authority" => Authority::from_maybe_shared(bytes()).ok().map(Self::Authority),
            // `PathAndQuery` would drop a fragment silently.
            b":path" if !value.is_empty() && !value.contains(&b'#') => {
                PathAndQuery::from_maybe_shared(bytes())
                    .ok()
                    .or_else(|| PathAndQuery::from_maybe_shared(target::encoded(value)?).ok())
                    .map(Self::Path)
            }
            b":protocol" if !value.is_empty() => HeaderValue::from_bytes(value).ok().map(Self::Protocol),
            b":status" => StatusCode::from_bytes(value).ok().map(Self::Status),
            _ => None,
        };
        read.unwrap_or(Self::Malformed(None))
    }

    fn header(name: HeaderName, value: &[u8]) -> Self {
        match HeaderValue::from_bytes(value) {
            // RFC 9113 section 8.2.1, RFC 9114 section 4.2 with RFC 9110 section 5.5: no white space at the ends of a value.
            Ok(read) if value.trim_ascii() == value && may_come(&name, value) => Self::Header(name, read),
            _ => Self::Malformed(Some(name)),
        }
    }
}

/// Whether the header may occur: not if it concerns a single connection (RFC 9113 section 8.2.2, RFC 9114 section 4.2).
fn may_come(name: &HeaderName, value: &[u8]) -> bool {
    if *name == header::TE {
        // The only permitted value.
        return value == b"trailers";
    }
    !is_connection_specific(name)
}

/// Whether a header concerns a single connection, and so is invalid in HTTP/2 (RFC 9113 section 8.2.2) and
/// HTTP/3 (RFC 9114 section 4.2).
pub fn is_connection_specific(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection" | "transfer-encoding" | "upgrade" | "keep-alive" | "proxy-connection"
    )
}

#[cfg(test)]
mod tests {
    use super::super::table::Qpack;
    use super::*;

    #[test]
    fn values_have_no_space_at_their_ends() {
        let is_header =
            |value: &[u8]| matches!(Field::literal::<Qpack>(&Name::New(b"x"), value), Field::Header(..));
        for right in [b"a b".as_slice(), b"a", b""] {
            assert!(is_header(right), "{}", right.escape_ascii());
        }
        for wrong in [b" a".as_slice(), b"a ", b"\ta", b"a\t", b" "] {
            assert!(!is_header(wrong), "{}", wrong.escape_ascii());
        }
    }
}
