//! The fields of a request into its head, by the rules of RFC 9113 section 8.

use brisk_wire::h2::hpack::{Fields, Name, constant};
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Uri, Version, uri};

/// A field, read once: the table of the decoder keeps it like this.
#[derive(Clone, Debug)]
pub(super) enum Field {
    Method(Method),
    Scheme(Scheme),
    Authority(Authority),
    Path(PathAndQuery),
    Header(HeaderName, HeaderValue),
    /// One that no request may have; with its name, where it has one.
    Malformed(Option<HeaderName>),
}

/// The head of a request, or its trailers, as far as it was decoded.
#[derive(Debug, Default)]
pub(super) struct Head {
    method: Option<Method>,
    scheme: Option<Scheme>,
    authority: Option<Authority>,
    path: Option<PathAndQuery>,
    headers: HeaderMap,
    length: Option<u64>,
    is_malformed: bool,
}

/// The names of the static table from the first that is no pseudo-header on.
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

/// The index in the static table of the first name in [`NAMES`].
const FIRST_NAME: usize = 15;

impl Field {
    fn pseudo(name: &[u8], value: &[u8]) -> Self {
        let bytes = || Bytes::copy_from_slice(value);
        let read = match name {
            b":method" => Method::from_bytes(value).ok().map(Self::Method),
            b":scheme" => Scheme::try_from(value).ok().map(Self::Scheme),
            b":authority" => Authority::from_maybe_shared(bytes()).ok().map(Self::Authority),
            b":path" if !value.is_empty() => PathAndQuery::from_maybe_shared(bytes()).ok().map(Self::Path),
            _ => None,
        };
        read.unwrap_or(Self::Malformed(None))
    }

    fn header(name: HeaderName, value: &[u8]) -> Self {
        match HeaderValue::from_bytes(value) {
            Ok(read) if may_come(&name, value) => Self::Header(name, read),
            _ => Self::Malformed(Some(name)),
        }
    }
}

/// RFC 9113 section 8.2.2: no connection headers.
fn may_come(name: &HeaderName, value: &[u8]) -> bool {
    if *name == header::TE {
        return value == b"trailers";
    }
    !is_connection_specific(name)
}

/// Whether a header speaks of one connection only, which messages of HTTP/2 do not do.
pub(super) fn is_connection_specific(name: &HeaderName) -> bool {
    *name == header::CONNECTION
        || *name == header::TRANSFER_ENCODING
        || *name == header::UPGRADE
        || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

impl Head {
    /// A head with room for the fields of a block of this length.
    pub(super) fn with_room(block: usize) -> Self {
        // Those of a block that is mostly indices, or of a browser.
        let headers = if block < 16 { 3 } else { 12 };
        Self { headers: HeaderMap::with_capacity(headers), ..Self::default() }
    }

    /// The length of the body that the head states.
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// The request; `None` if it is malformed (RFC 9113 section 8.3.1).
    pub(super) fn into_request(self) -> Option<Request<()>> {
        let method = self.method.filter(|_| !self.is_malformed)?;
        let is_connect = method == Method::CONNECT;
        if is_connect != self.scheme.is_none() || is_connect != self.path.is_none() {
            return None;
        }
        let mut parts = uri::Parts::default();
        // A URI has no scheme without an authority.
        parts.scheme = self.scheme.filter(|_| self.authority.is_some());
        parts.authority = self.authority;
        parts.path_and_query = self.path;
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from_parts(parts).ok()?;
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = self.headers;
        Some(request)
    }

    /// The trailers; `None` if they are malformed, as with any pseudo-header.
    pub(super) fn into_trailers(self) -> Option<HeaderMap> {
        let has_pseudo =
            self.method.is_some() || self.scheme.is_some() || self.authority.is_some() || self.path.is_some();
        (!has_pseudo && !self.is_malformed).then_some(self.headers)
    }

    fn put<T>(place: &mut Option<T>, value: T, is_late: bool) -> bool {
        place.replace(value).is_some() || is_late
    }

    fn add(&mut self, name: HeaderName, value: HeaderValue) {
        if name == header::CONTENT_LENGTH && !value.is_empty() {
            let length = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let length = length.and_then(|digits| digits.parse().ok());
            self.is_malformed |= length.is_none();
            self.length = self.length.or(length);
        }
        // There are fewer than a map may have: the decoder counts them.
        self.headers.append(name, value);
    }
}

impl Fields for Head {
    type Field = Field;

    fn constant(&mut self, index: usize) -> Field {
        match index {
            2 => Field::Method(Method::GET),
            3 => Field::Method(Method::POST),
            4 => Field::Path(PathAndQuery::from_static("/")),
            6 => Field::Scheme(Scheme::HTTP),
            7 => Field::Scheme(Scheme::HTTPS),
            _ => {
                let (name, value) = constant(index).unwrap_or_default();
                match index.checked_sub(FIRST_NAME) {
                    Some(place) => match HeaderValue::from_str(value) {
                        Ok(_) => Field::header(NAMES[place].clone(), value.as_bytes()),
                        Err(_) => Field::Malformed(None),
                    },
                    None => Field::pseudo(name.as_bytes(), value.as_bytes()),
                }
            }
        }
    }

    fn literal(&mut self, name: Name<'_, Field>, value: &[u8]) -> Field {
        match name {
            Name::Constant(index) => match index.checked_sub(FIRST_NAME) {
                Some(place) => Field::header(NAMES[place].clone(), value),
                None => Field::pseudo(constant(index).unwrap_or_default().0.as_bytes(), value),
            },
            Name::Of(Field::Method(_)) => Field::pseudo(b":method", value),
            Name::Of(Field::Scheme(_)) => Field::pseudo(b":scheme", value),
            Name::Of(Field::Authority(_)) => Field::pseudo(b":authority", value),
            Name::Of(Field::Path(_)) => Field::pseudo(b":path", value),
            Name::Of(Field::Header(name, _) | Field::Malformed(Some(name))) => {
                Field::header(name.clone(), value)
            }
            Name::Of(Field::Malformed(None)) => Field::Malformed(None),
            Name::New(name) if name.first() == Some(&b':') => Field::pseudo(name, value),
            // No upper case (RFC 9113 section 8.2).
            Name::New(name) => HeaderName::from_lowercase(name)
                .map_or(Field::Malformed(None), |name| Field::header(name, value)),
        }
    }

    fn take(&mut self, field: Field) {
        // RFC 9113 section 8.3: pseudo-headers come first, and once.
        let is_late = !self.headers.is_empty();
        let is_wrong = match field {
            Field::Method(method) => Self::put(&mut self.method, method, is_late),
            Field::Scheme(scheme) => Self::put(&mut self.scheme, scheme, is_late),
            Field::Authority(authority) => Self::put(&mut self.authority, authority, is_late),
            Field::Path(path) => Self::put(&mut self.path, path, is_late),
            Field::Header(name, value) => {
                self.add(name, value);
                false
            }
            Field::Malformed(_) => true,
        };
        self.is_malformed |= is_wrong;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &[(&str, &str)]) -> Head {
        let mut head = Head::default();
        for (name, value) in fields {
            let field = head.literal(Name::New(name.as_bytes()), value.as_bytes());
            head.take(field);
        }
        head
    }

    const GET: [(&str, &str); 3] = [(":method", "GET"), (":scheme", "https"), (":path", "/a?b")];

    fn with(more: &[(&str, &str)]) -> Option<Request<()>> {
        head(&[&GET, more].concat()).into_request()
    }

    #[test]
    fn a_head_becomes_a_request() {
        let mut fields = GET.to_vec();
        fields.extend([
            (":authority", "a.example:8443"),
            ("x-a", "1"),
            ("x-a", "2"),
            ("content-length", "7"),
        ]);
        let head = head(&fields);
        assert_eq!(head.length(), Some(7));
        let request = head.into_request().expect("a request");
        assert_eq!(request.uri(), "https://a.example:8443/a?b");
        assert_eq!(request.headers().get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(with(&[("host", "a.example")]).expect("a request").uri(), "/a?b");
    }

    #[test]
    fn malformed_heads_are_none() {
        for more in [
            (":path", "/again"),
            (":status", "200"),
            (":protocol", "websocket"),
            (":unknown", "x"),
            ("X-Upper", "x"),
            ("connection", "close"),
            ("keep-alive", "1"),
            ("proxy-connection", "x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("te", "gzip"),
            ("x-a", "a\nb"),
            ("", "x"),
            ("content-length", "+1"),
        ] {
            assert!(with(&[more]).is_none(), "{more:?}");
        }
        assert!(with(&[("te", "trailers")]).is_some());
        assert!(head(&[&[("x-a", "1")][..], &GET].concat()).into_request().is_none(), "late pseudo-headers");
        for missing in 0..3 {
            let mut fields = GET.to_vec();
            fields.remove(missing);
            assert!(head(&fields).into_request().is_none(), "{missing}");
        }
        assert!(head(&[(":method", "GET"), (":scheme", "https"), (":path", "")]).into_request().is_none());
        assert!(head(&[(":method", "CONNECT"), (":authority", "a:443")]).into_request().is_some());
        assert!(head(&[&[(":method", "CONNECT")][..], &GET[1..]].concat()).into_request().is_none());
    }

    #[test]
    fn trailers_have_no_pseudo_headers() {
        assert!(head(&[("x-a", "1")]).into_trailers().is_some());
        assert!(head(&[(":path", "/")]).into_trailers().is_none());
    }

    #[test]
    fn constants_are_read_as_literals_are() {
        for index in 1..=61 {
            let (name, value) = constant(index).expect("a constant");
            let mut head = Head::default();
            let (constant, literal) =
                (head.constant(index), head.literal(Name::New(name.as_bytes()), value.as_bytes()));
            assert_eq!(format!("{constant:?}"), format!("{literal:?}"), "{name}");
        }
    }
}
