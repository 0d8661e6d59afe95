//! Assembly of a request's head from its fields (RFC 9113 section 8.3, RFC 9114 section 4.3).

use std::marker::PhantomData;

use brisk_wire::fields::{Fields, Name};
use http::header::{self, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Uri, uri};

use super::Protocol;
use super::field::Field;
use super::length::length;
use super::table::StaticTable;
use crate::message::{ADDED, HeaderList, Request};

/// Head or trailers of a request, decoded so far from blocks that are compressed with the static table `T`.
#[derive(Debug)]
pub struct RequestHead<T> {
    method: Option<Method>,
    scheme: Option<Scheme>,
    authority: Option<Authority>,
    path: Option<PathAndQuery>,
    protocol: Option<HeaderValue>,
    headers: HeaderList,
    length: Option<u64>,
    is_malformed: bool,
    table: PhantomData<T>,
}

impl<T: StaticTable> RequestHead<T> {
    /// Creates a head with capacity for the fields of a block of `block` bytes.
    pub fn with_room(block: usize) -> Self {
        // Estimates: a short block consists of indices; otherwise the number of a browser's headers.
        let headers = ADDED + if block < 16 { 3 } else { 12 };
        Self {
            method: None,
            scheme: None,
            authority: None,
            path: None,
            protocol: None,
            headers: HeaderList::with_capacity(headers),
            length: None,
            is_malformed: false,
            table: PhantomData,
        }
    }

    /// Length of the body, from `Content-Length`.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Method and path as far as they are known, for logs: `GET /`.
    pub fn line(&self) -> String {
        let method = self.method.as_ref().map_or("-", Method::as_str);
        format!("{method} {}", self.path.as_ref().map_or("-", PathAndQuery::as_str))
    }

    /// Converts to a request.
    ///
    /// # Errors
    ///
    /// Returns [`Self::line`] if it is malformed (RFC 9113 section 8.3.1, RFC 9114 section 4.3.1).
    pub fn into_request(self) -> Result<Request<()>, String> {
        if !self.is_request() {
            return Err(self.line());
        }
        self.build().ok_or_else(String::new)
    }

    fn is_request(&self) -> bool {
        let Some(method) = self.method.as_ref().filter(|_| !self.is_malformed) else { return false };
        let is_connect = *method == Method::CONNECT;
        if is_connect && self.authority.is_none() || self.protocol.is_some() && !is_connect {
            return false;
        }
        // RFC 8441 section 4, RFC 9114 section 4.4: an extended CONNECT has a scheme and a path.
        let is_connect = is_connect && self.protocol.is_none();
        is_connect == self.scheme.is_none() && is_connect == self.path.is_none()
    }

    fn build(self) -> Option<Request<()>> {
        let mut parts = uri::Parts::default();
        // `http::Uri` accepts no scheme without an authority.
        parts.scheme = self.scheme.filter(|_| self.authority.is_some());
        parts.authority = self.authority;
        parts.path_and_query = self.path;
        let mut request = Request::new(());
        *request.method_mut() = self.method?;
        *request.uri_mut() = Uri::from_parts(parts).ok()?;
        *request.version_mut() = T::VERSION;
        *request.headers_mut() = self.headers;
        if let Some(protocol) = self.protocol {
            request.extensions_mut().insert(Protocol(protocol));
        }
        Some(request)
    }

    /// Converts to trailers; `None` if they are malformed or have a pseudo-header (RFC 9113 section 8.1, RFC 9114 section 4.3).
    /// The decoder has limited their number to less than the maximum of [`HeaderMap`].
    pub fn into_trailers(self) -> Option<HeaderMap> {
        let has_pseudo = self.method.is_some()
            || self.scheme.is_some()
            || self.authority.is_some()
            || self.path.is_some()
            || self.protocol.is_some();
        (!has_pseudo && !self.is_malformed).then(|| self.headers.into())
    }

    fn put<V>(place: &mut Option<V>, value: V, is_late: bool) -> bool {
        place.replace(value).is_some() || is_late
    }

    fn add(&mut self, name: HeaderName, value: HeaderValue) {
        // `validate` refuses empty and repeated lengths, with their reason in the log.
        if name == header::CONTENT_LENGTH && !value.is_empty() {
            let length = length(&value);
            self.is_malformed |= length.is_none();
            self.length = self.length.or(length);
        }
        self.headers.append(name, value);
    }
}

impl<T: StaticTable> Fields for RequestHead<T> {
    type Field = Field;

    fn constant(&mut self, index: usize) -> Field {
        Field::constant::<T>(index)
    }

    fn literal(&mut self, name: Name<'_, Field>, value: &[u8]) -> Field {
        Field::literal::<T>(&name, value)
    }

    fn take(&mut self, field: Field) {
        // RFC 9113 section 8.3, RFC 9114 section 4.3: pseudo-headers come before headers, once each.
        let is_late = !self.headers.is_empty();
        let is_wrong = match field {
            Field::Method(method) => Self::put(&mut self.method, method, is_late),
            Field::Scheme(scheme) => Self::put(&mut self.scheme, scheme, is_late),
            Field::Authority(authority) => Self::put(&mut self.authority, authority, is_late),
            Field::Path(path) => Self::put(&mut self.path, path, is_late),
            Field::Protocol(protocol) => Self::put(&mut self.protocol, protocol, is_late),
            Field::Header(name, value) => {
                self.add(name, value);
                false
            }
            Field::Status(_) | Field::Malformed(_) => true,
        };
        self.is_malformed |= is_wrong;
    }
}

#[cfg(test)]
mod tests {
    use http::Version;

    use super::super::table::{Hpack, Qpack};
    use super::*;

    type Head = RequestHead<Qpack>;

    fn head(fields: &[(&str, &str)]) -> Head {
        let mut head = Head::with_room(0);
        for (name, value) in fields {
            let field = head.literal(Name::New(name.as_bytes()), value.as_bytes());
            head.take(field);
        }
        head
    }

    #[test]
    fn a_target_has_the_limit_of_http_1() {
        let target = |length: usize| {
            let path = "/".repeat(length);
            head(&[(":method", "GET"), (":scheme", "https"), (":path", &path)]).into_request().is_ok()
        };
        assert!(target(65_534));
        assert!(!target(65_535));
    }

    const GET: [(&str, &str); 3] = [(":method", "GET"), (":scheme", "https"), (":path", "/a?b")];

    fn with(more: &[(&str, &str)]) -> Option<Request<()>> {
        head(&[&GET, more].concat()).into_request().ok()
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
        assert_eq!(request.headers().get_all("x-a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(with(&[("host", "a.example")]).expect("a request").uri(), "/a?b");
    }

    #[test]
    fn a_request_has_the_version_of_its_table() {
        fn version<T: StaticTable>(mut head: RequestHead<T>) -> Option<Version> {
            for (name, value) in GET {
                let field = head.literal(Name::New(name.as_bytes()), value.as_bytes());
                head.take(field);
            }
            head.into_request().ok().map(|request| request.version())
        }
        assert_eq!(version(RequestHead::<Hpack>::with_room(0)), Some(Version::HTTP_2));
        assert_eq!(version(RequestHead::<Qpack>::with_room(0)), Some(Version::HTTP_3));
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
        assert!(head(&[&[("x-a", "1")][..], &GET].concat()).into_request().is_err(), "late pseudo-headers");
        for missing in 0..3 {
            let mut fields = GET.to_vec();
            fields.remove(missing);
            assert!(head(&fields).into_request().is_err(), "{missing}");
        }
        assert!(head(&[(":method", "GET"), (":scheme", "https"), (":path", "")]).into_request().is_err());
        assert!(head(&[(":method", "CONNECT"), (":authority", "a:443")]).into_request().is_ok());
        assert!(head(&[(":method", "CONNECT")]).into_request().is_err());
        assert!(head(&[&[(":method", "CONNECT")][..], &GET[1..]].concat()).into_request().is_err());
    }

    #[test]
    fn a_malformed_head_is_named_by_its_line() {
        let refused = |fields: &[(&str, &str)]| head(fields).into_request().expect_err("malformed");
        assert_eq!(refused(&[&GET[..], &[("connection", "close")]].concat()), "GET /a?b");
        assert_eq!(refused(&[(":path", "/a")]), "- /a");
        assert_eq!(refused(&[]), "- -");
    }

    #[test]
    fn a_protocol_is_asked_for_by_connect_with_a_whole_target() {
        let asked = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":path", "/chat"),
            (":authority", "a"),
        ];
        let request = head(&asked).into_request().expect("a request");
        let protocol = request.extensions().get::<Protocol>().expect("a protocol");
        assert_eq!((request.uri().path(), protocol.0.as_bytes()), ("/chat", &b"websocket"[..]));
        for missing in [0, 2, 3, 4] {
            let mut fields = asked.to_vec();
            fields.remove(missing);
            assert!(head(&fields).into_request().is_err(), "{missing}");
        }
        assert!(head(&[(":protocol", "websocket")]).into_trailers().is_none());
    }

    #[test]
    fn trailers_have_no_pseudo_headers() {
        assert!(head(&[("x-a", "1")]).into_trailers().is_some());
        assert!(head(&[(":path", "/")]).into_trailers().is_none());
    }
}
