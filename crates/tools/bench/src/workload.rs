//! The requests on a connection: their choice, number, and version of HTTP.

mod list;

use std::fs;
use std::num::NonZeroU32;
use std::path::Path;

use brisk_http_client::http3::{EncodedRequest, RequestHead};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, USER_AGENT};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};

use crate::choice::Weighted;
use crate::error::BenchError;
pub use list::read as read_list;

/// The requests of a load.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Requests per connection.
    pub requests: PerConnection,
    /// The version of HTTP.
    pub http: HttpVersion,
    /// The requests to choose from, with their weights.
    pub choice: Weighted<Request>,
}

/// Requests on a connection before it is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerConnection {
    /// No request: the connection is closed after the handshake.
    HandshakeOnly,
    /// This number. With HTTP/1.1 the last request has `Connection: close`.
    Requests(NonZeroU32),
    /// As many as the server allows.
    Unlimited,
}

impl PerConnection {
    /// Maximum number of requests on a connection.
    pub fn most(self) -> u64 {
        match self {
            Self::HandshakeOnly => 0,
            Self::Requests(number) => u64::from(number.get()),
            Self::Unlimited => u64::MAX,
        }
    }
}

/// The version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1, one request at a time.
    One,
    /// HTTP/2 with several concurrent requests on each connection.
    Two {
        /// Concurrent requests on each connection.
        streams: NonZeroU32,
    },
    /// HTTP/3 with several concurrent requests on each connection.
    Three {
        /// Concurrent requests on each connection.
        streams: NonZeroU32,
    },
}

impl HttpVersion {
    /// Concurrent requests on one connection.
    pub fn streams(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two { streams } | Self::Three { streams } => streams.get() as usize,
        }
    }

    /// Protocol name in ALPN.
    pub const fn alpn(self) -> &'static str {
        match self {
            Self::One => "http/1.1",
            Self::Two { .. } => "h2",
            Self::Three { .. } => "h3",
        }
    }
}

/// A request, encoded before the run.
#[derive(Clone, Debug)]
pub struct Request {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
    /// For HTTP/1.1: head and body.
    kept: Bytes,
    /// As `kept`, with `Connection: close`.
    last: Bytes,
    /// For HTTP/3: head and body in frames.
    framed: EncodedRequest,
}

/// The parts that all requests of a run share.
#[derive(Clone, Debug)]
pub struct Common {
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host and port as in the URL.
    pub authority: Authority,
    /// Headers in addition to `Host`, `Content-Length` and `User-Agent`. `Host` and `User-Agent` replace the defaults.
    pub headers: HeaderMap,
}

impl Request {
    /// A request for `path`.
    pub fn new(
        method: Method,
        path: &PathAndQuery,
        body: Bytes,
        common: &Common,
    ) -> Result<Self, BenchError> {
        let mut headers = common.headers.clone();
        // HTTP/2 and HTTP/3 have `:authority` in place of `Host`, so the header has to set both.
        let authority = match headers.remove(HOST) {
            Some(host) => host.to_str().ok().and_then(|host| host.parse().ok()).ok_or_else(|| {
                BenchError::settings(format!("header Host: {host:?} is not a host, as example.com"))
            })?,
            None => common.authority.clone(),
        };
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static("brisk-bench"));
        // RFC 9110 section 8.6: a method with a meaning for content has a length, even of 0.
        if !body.is_empty() || method == Method::POST || method == Method::PUT {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        let write = |ending| http1(&method, path, &authority, &headers, ending, &body);
        // Both forms are encoded before the run, so that a thread only writes bytes.
        let (kept, last) = (write(""), write("Connection: close\r\n"));
        let uri =
            Uri::builder().scheme(common.scheme.clone()).authority(authority).path_and_query(path.clone());
        let uri: Uri = uri.build().map_err(|error| BenchError::settings(format!("{path}: {error}")))?;
        let head = RequestHead {
            method: method.as_str(),
            scheme: common.scheme.as_str(),
            authority: uri.authority().map_or("", Authority::as_str),
            path: path.as_str(),
        };
        // RFC 9114 section 4.2: names must be in lower case, and `HeaderName` has no others.
        let fields = headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
        let framed = head.encode(fields, &body);
        Ok(Self { method, uri, headers, body, kept, last, framed })
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The URI.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Head and body for HTTP/1.1.
    pub(crate) fn http1(&self, place: Position) -> &Bytes {
        match place {
            Position::Last => &self.last,
            Position::Earlier => &self.kept,
        }
    }

    /// Head and body for HTTP/3.
    pub(crate) fn http3(&self) -> &EncodedRequest {
        &self.framed
    }

    /// The request for HTTP/2.
    pub(crate) fn http2(&self) -> http::Request<()> {
        let mut request = http::Request::new(());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = self.headers.clone();
        request
    }
}

/// Position of a request on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// Other requests may follow.
    Earlier,
    /// The connection is closed after this request.
    Last,
}

fn http1(
    method: &Method,
    path: &PathAndQuery,
    authority: &Authority,
    headers: &HeaderMap,
    ending: &str,
    body: &[u8],
) -> Bytes {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {authority}\r\n{ending}").into_bytes();
    for (name, value) in headers {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(body);
    text.into()
}

/// Parses a header: `Name: value`. An invalid one is [`BenchError::Settings`].
pub fn header(text: &str) -> Result<(HeaderName, HeaderValue), BenchError> {
    let wrong = || BenchError::settings(format!("{text:?} is not a header, as \"Accept: text/html\""));
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let name = name.trim().parse().map_err(|_| wrong())?;
    let value = value.trim().parse().map_err(|_| wrong())?;
    Ok((name, value))
}

/// Parses a method, ignoring case.
pub fn method(text: &str) -> Result<Method, BenchError> {
    // RFC 9110 section 9.1: methods are case-sensitive, and the registered ones are in upper case.
    let parsed = text.to_ascii_uppercase().parse();
    parsed.map_err(|_| BenchError::settings(format!("{text:?} is not a method, as GET or POST")))
}

/// Reads the body of a request from the file at `path`; [`BenchError::File`] if it cannot be read.
pub fn body(path: &Path) -> Result<Bytes, BenchError> {
    fs::read(path).map(Bytes::from).map_err(|error| BenchError::file(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(headers: &[&str]) -> Common {
        let headers = headers.iter().map(|text| header(text).expect("a header")).collect();
        let authority = "site.test:8443".parse().expect("an authority");
        Common { scheme: Scheme::HTTPS, authority, headers }
    }

    fn request(method: Method, body: &'static str, headers: &[&str]) -> Request {
        let path = PathAndQuery::from_static("/a?b=c");
        Request::new(method, &path, Bytes::from_static(body.as_bytes()), &common(headers)).expect("a request")
    }

    fn text(request: &Request, place: Position) -> String {
        String::from_utf8(request.http1(place).to_vec()).expect("text")
    }

    #[test]
    fn a_get_is_as_short_as_it_can_be() {
        let get = request(Method::GET, "", &[]);
        let wanted = "GET /a?b=c HTTP/1.1\r\nHost: site.test:8443\r\nuser-agent: brisk-bench\r\n\r\n";
        assert_eq!(text(&get, Position::Earlier), wanted);
        assert!(text(&get, Position::Last).contains("\r\nConnection: close\r\n"));
    }

    #[test]
    fn a_post_has_a_length_even_when_it_is_empty() {
        for body in ["", "hello"] {
            let post = request(Method::POST, body, &[]);
            assert!(text(&post, Position::Last).contains(&format!("content-length: {}\r\n", body.len())));
            assert!(text(&post, Position::Last).ends_with(&format!("\r\n\r\n{body}")));
            assert_eq!(post.http2().headers()[CONTENT_LENGTH], body.len().to_string());
        }
    }

    #[test]
    fn own_headers_take_the_place_of_usual_ones() {
        let get = request(Method::GET, "", &["Host: other.test", "User-Agent: me", "X-A:1", "X-A:2"]);
        let text = text(&get, Position::Earlier);
        assert!(text.contains("Host: other.test\r\n") && !text.contains("site.test"), "{text}");
        assert!(text.contains("user-agent: me\r\n") && !text.contains("brisk-bench"), "{text}");
        assert!(text.contains("x-a: 1\r\nx-a: 2\r\n"), "{text}");
        assert_eq!(get.http2().uri(), "https://other.test/a?b=c");
        assert!(!get.http2().headers().contains_key(HOST));
    }

    #[test]
    fn what_is_no_header_or_method_is_refused() {
        for wrong in ["", "Accept", "a b: c", "a: b\nc"] {
            assert!(header(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(method("post").expect("a method"), Method::POST);
        assert!(method("G T").is_err());
    }
}
