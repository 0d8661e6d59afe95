//! The client: one connection for each request, and a complete response.

use std::error::Error;
use std::future::pending;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use brisk_net::dial::{DialLimits, connect_resolved, resolve, shares};
use brisk_tls::TlsError;
use brisk_tls::connector::{ClientStream, Connector, ConnectorSettings};
use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_TYPE, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::destination::{Destinations, Refused};
use crate::error::{FetchError, Reason};
use crate::target::{RequestTarget, redirected};

/// Product name and version in `User-Agent`.
const AGENT: &str = concat!("brisk/", env!("CARGO_PKG_VERSION"));

/// Maximum size of a response header section, in bytes.
const HEAD: usize = 64 * 1024;

/// Settings of a [`Client`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientSettings {
    /// PEM file with trust anchors. Default: those of the system.
    pub authorities: Option<PathBuf>,
    /// Limits of each request.
    pub limits: Limits,
    /// Permitted addresses, which are compared after the resolution of names, also at each redirect. Default: public
    /// addresses.
    pub destinations: Destinations,
}

/// Limits of one request, redirects included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time until the end of the response. Default: 30 s.
    pub time: Duration,
    /// Maximum length of the response body, in bytes. Default: 1 MiB.
    pub body: usize,
    /// Maximum number of redirects, which are followed for `GET` and `HEAD` only. Default: 3.
    pub redirects: u8,
}

impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(30), body: 1024 * 1024, redirects: 3 }
    }
}

/// A client for HTTP/1.1 over TCP or TLS. Cloning is cheap. Each request opens a connection; TLS sessions are resumed
/// if the server permits it.
///
/// The futures are `Send` and run on any tokio runtime with I/O and time enabled.
#[derive(Clone, Debug)]
pub struct Client {
    connector: Connector,
    limits: Limits,
    destinations: Destinations,
}

/// A complete response.
#[derive(Clone, Debug)]
pub struct FetchResponse {
    /// The status. No status is an error by itself, because its meaning depends on the caller.
    pub status: StatusCode,
    /// The header fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Client {
    /// Creates a client and reads the trust anchors. Blocks on file I/O, so workers must not call it.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if the trust anchors cannot be read.
    pub fn new(settings: &ClientSettings) -> Result<Self, TlsError> {
        let connector = Connector::new(&ConnectorSettings {
            authorities: settings.authorities.clone(),
            protocols: vec!["http/1.1"],
            ..ConnectorSettings::default()
        })?;
        Ok(Self { connector, limits: settings.limits, destinations: settings.destinations.clone() })
    }

    /// A client with the same trust anchors and sessions, but other limits.
    #[must_use]
    pub fn with_limits(&self, limits: Limits) -> Self {
        Self { limits, ..self.clone() }
    }

    /// A client with the same trust anchors and sessions, but other permitted destinations.
    #[must_use]
    pub fn with_destinations(&self, destinations: Destinations) -> Self {
        Self { destinations, ..self.clone() }
    }

    /// Sends a `GET` request for `url`. Any status is a success.
    pub async fn get(&self, url: &str) -> Result<FetchResponse, FetchError> {
        self.send(request(Method::GET, url, Bytes::new())?).await
    }

    /// Sends a `GET` request and returns the body.
    ///
    /// # Errors
    ///
    /// [`Reason::Status`] for any status except 200, and those of [`send`](Self::send).
    pub async fn get_ok(&self, url: &str) -> Result<Bytes, FetchError> {
        ok(self.get(url).await?, url)
    }

    /// Sends a `POST` request with `body`. Any status is a success.
    pub async fn post(
        &self,
        url: &str,
        content_type: &'static str,
        body: Bytes,
    ) -> Result<FetchResponse, FetchError> {
        let mut request = request(Method::POST, url, body)?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        self.send(request).await
    }

    /// Sends a request with an absolute URI. The client sets `Host`, `Connection` and `Accept-Encoding`, and extends
    /// `User-Agent`. After a redirect to another origin, `Accept` and `User-Agent` are the only fields of the caller.
    ///
    /// # Errors
    ///
    /// [`FetchError`] with the [`Reason`]: invalid URL, failed connection, or an exceeded limit.
    pub async fn send(&self, request: Request<Bytes>) -> Result<FetchResponse, FetchError> {
        let (mut url, method) = (request.uri().clone(), request.method().clone());
        let mut status = None;
        // One deadline for all redirects and addresses: each of them could otherwise take the whole time.
        let deadline = Instant::now() + self.limits.time;
        let answered = timeout_at(deadline, self.follow(request, &mut url, &mut status, deadline)).await;
        let result = answered.unwrap_or(Err(Reason::TimedOut(self.limits.time)));
        result.map_err(|reason| FetchError { method, url: url.to_string(), status, reason })
    }

    /// Sends the request and follows redirects; `url` becomes the last URL, `status` that of a response without its body.
    async fn follow(
        &self,
        request: Request<Bytes>,
        url: &mut Uri,
        status: &mut Option<StatusCode>,
        deadline: Instant,
    ) -> Result<FetchResponse, Reason> {
        let (mut head, body) = request.into_parts();
        let mut former: Option<RequestTarget> = None;
        // RFC 9110 section 15.4: other methods must not be repeated at another URL without consent.
        let follows = matches!(head.method, Method::GET | Method::HEAD);
        for _ in 0..=self.limits.redirects {
            let target = RequestTarget::of(url)?;
            // RFC 9110 section 15.4: the fields may be credentials, which are for the first origin only.
            if former.is_some_and(|former| !former.has_origin_of(&target)) {
                head.headers = without_credentials(&head.headers);
            }
            let mut request = Request::new(Full::new(body.clone()));
            *request.method_mut() = head.method.clone();
            *request.uri_mut() = target.path.clone();
            *request.headers_mut() = headers(&head.headers, &target);
            let response = match self.open(&target, deadline).await? {
                Stream::Plain(stream) => response(stream, request, self.limits.body, status).await?,
                Stream::Tls(stream) => response(stream, request, self.limits.body, status).await?,
            };
            *status = None;
            let Some(location) = location(&response).filter(|_| follows) else { return Ok(response) };
            *url = redirected(url, location).ok_or_else(|| Reason::Redirect(location.to_owned()))?;
            former = Some(target);
        }
        Err(Reason::TooManyRedirects(self.limits.redirects))
    }

    /// Connects to a permitted address. The address that was compared is the one that is used, so that a name cannot have
    /// another address for a second look-up.
    async fn open(&self, target: &RequestTarget, deadline: Instant) -> Result<Stream, Reason> {
        let resolved = resolve(&target.dial, Instant::now() + self.limits.time).await;
        let mut addresses = resolved.map_err(Reason::Connect)?;
        let first = addresses.first().map(SocketAddr::ip);
        addresses.retain(|address| self.destinations.permit(target, address.ip()));
        match first {
            Some(address) if addresses.is_empty() => {
                Err(Reason::Private(Refused { host: target.host.clone(), address }))
            }
            _ => self.open_first(target, &addresses, deadline).await,
        }
    }

    /// Opens a connection to the first of `addresses` that accepts it and completes the TLS handshake. The error is that of
    /// the last attempt, or of the last handshake if there was one: it says more than an address that cannot be reached.
    async fn open_first(
        &self,
        target: &RequestTarget,
        addresses: &[SocketAddr],
        deadline: Instant,
    ) -> Result<Stream, Reason> {
        let (mut handshake, mut last) = (None, None);
        // A share of the time for each address, so that one that drops packets leaves time for the next.
        for (address, share) in shares(addresses, deadline) {
            let opened = timeout(share, self.open_at(target, address)).await;
            match opened.unwrap_or(Err(Reason::TimedOut(self.limits.time))) {
                Ok(stream) => return Ok(stream),
                Err(error @ Reason::Tls(_)) => (handshake, last) = (Some(error), None),
                Err(error) => last = Some(error),
            }
        }
        Err(match (handshake, last) {
            (Some(handshake), None | Some(Reason::Connect(_))) => handshake,
            (_, Some(last)) => last,
            (None, None) => Reason::Connect(target.dial.without_address()),
        })
    }

    async fn open_at(&self, target: &RequestTarget, address: SocketAddr) -> Result<Stream, Reason> {
        let limits = DialLimits { connect: self.limits.time, unacknowledged: self.limits.time };
        let deadline = Instant::now() + limits.connect;
        let tcp = connect_resolved(&target.dial, &[address], deadline, limits).await;
        let tcp = tcp.map_err(Reason::Connect)?;
        if !target.tls {
            return Ok(Stream::Plain(tcp));
        }
        let stream = self.connector.connect(tcp, &target.host).await.map_err(Reason::Tls)?;
        Ok(Stream::Tls(Box::new(stream)))
    }
}

/// A connection to a server.
enum Stream {
    Plain(TcpStream),
    Tls(Box<ClientStream>),
}

fn ok(response: FetchResponse, url: &str) -> Result<Bytes, FetchError> {
    if response.status == StatusCode::OK {
        return Ok(response.body);
    }
    let reason = Reason::Status(response.status);
    Err(FetchError { method: Method::GET, url: url.to_owned(), status: None, reason })
}

fn request(method: Method, url: &str, body: Bytes) -> Result<Request<Bytes>, FetchError> {
    let parsed = url.parse::<Uri>().map_err(|error| FetchError {
        method: method.clone(),
        url: url.to_owned(),
        status: None,
        reason: Reason::Url(error.to_string()),
    })?;
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = parsed;
    Ok(request)
}

/// The fields of the caller that no server takes for credentials.
fn without_credentials(given: &HeaderMap) -> HeaderMap {
    let fields = [ACCEPT, USER_AGENT].into_iter();
    fields.filter_map(|name| Some((name.clone(), given.get(name)?.clone()))).collect()
}

/// The caller's header fields, with those that the client sets.
fn headers(given: &HeaderMap, target: &RequestTarget) -> HeaderMap {
    let mut headers = given.clone();
    headers.insert(HOST, target.header.clone());
    // Each request has a connection of its own, so the server need not keep it open.
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    // There is no decoder here, and without codings the limit of the body bounds all of its memory.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let agent = match given.get(USER_AGENT).and_then(|library| library.to_str().ok()) {
        Some(library) => HeaderValue::from_str(&format!("{AGENT} {library}")).ok(),
        None => None,
    };
    headers.insert(USER_AGENT, agent.unwrap_or(HeaderValue::from_static(AGENT)));
    headers
}

fn location(response: &FetchResponse) -> Option<&str> {
    let leads_on = matches!(response.status.as_u16(), 301 | 302 | 303 | 307 | 308);
    response.headers.get(LOCATION).filter(|_| leads_on)?.to_str().ok()
}

/// Sends the request and reads the response. `status` is set as soon as it is known.
async fn response<Io>(
    io: Io,
    request: Request<Full<Bytes>>,
    most: usize,
    status: &mut Option<StatusCode>,
) -> Result<FetchResponse, Reason>
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(HEAD).handshake(TokioIo::new(io)).await.map_err(Reason::Http)?;
    // The response may still be buffered when the connection ends, so the end must not cancel `exchange`.
    let driven = async {
        let _ = connection.await;
        pending::<()>().await;
    };
    let exchange = async {
        let (head, body) = sender.send_request(request).await.map_err(Reason::Http)?.into_parts();
        *status = Some(head.status);
        let body = Limited::new(body, most).collect().await.map_err(|error| cut(error, most))?;
        Ok(FetchResponse { status: head.status, headers: head.headers, body: body.to_bytes() })
    };
    tokio::select! {
        response = exchange => response,
        () = driven => unreachable!("it stays pending"),
    }
}

fn cut(error: Box<dyn Error + Send + Sync>, most: usize) -> Reason {
    if error.is::<LengthLimitError>() {
        return Reason::TooLarge(most);
    }
    match error.downcast::<hyper::Error>() {
        Ok(error) => Reason::Http(*error),
        Err(error) => Reason::Connect(std::io::Error::other(error)),
    }
}

#[cfg(test)]
mod tests {
    use brisk_testkit::ca::TestCa;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Limits with more time than any pause of the machine takes.
    const SLOW: Limits = Limits { time: Duration::from_mins(10), body: 1024 * 1024, redirects: 3 };

    fn client(limits: Limits) -> Client {
        let ca = TestCa::new();
        let authorities = Some(ca.root_file());
        let local = ["127.0.0.1"].map(|host| host.parse().expect("an address"));
        let destinations = Destinations::new(local.into());
        Client::new(&ClientSettings { authorities, limits, destinations }).expect("a client")
    }

    /// A server that accepts one connection for each of `answers` and closes it after the response. Returns the
    /// received heads.
    async fn server(answers: Vec<String>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let url = format!("http://{}", listener.local_addr().expect("address"));
        let served = tokio::spawn(async move {
            let mut heads = Vec::new();
            for response in answers {
                let (mut tcp, _) = listener.accept().await.expect("accept");
                let mut head = Vec::new();
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    assert!(tcp.read_buf(&mut head).await.expect("read") > 0);
                }
                heads.push(String::from_utf8(head).expect("text"));
                // The client may have closed the connection; some tests depend on it.
                let _ = tcp.write_all(response.as_bytes()).await;
            }
            heads
        });
        (url, served)
    }

    fn moved(to: &str) -> String {
        format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
    }

    fn full(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    #[tokio::test]
    async fn a_redirect_is_followed_to_its_answer() {
        let (url, served) = server(vec![moved("/there?x=1"), full("found")]).await;
        let body = client(SLOW).get_ok(&format!("{url}/here")).await.expect("an answer");
        assert_eq!(body, "found");
        let heads = served.await.expect("served");
        assert!(heads[0].starts_with("GET /here HTTP/1.1\r\n"), "{}", heads[0]);
        assert!(heads[1].starts_with("GET /there?x=1 HTTP/1.1\r\n"), "{}", heads[1]);
        assert!(heads[1].contains("user-agent: brisk/"), "{}", heads[1]);
    }

    #[tokio::test]
    async fn another_origin_gets_no_credentials() {
        let (other, served) = server(vec![moved("/c"), full("found")]).await;
        let (url, first) = server(vec![moved("/b"), moved(&other)]).await;
        let mut request = request(Method::GET, &format!("{url}/a"), Bytes::new()).expect("a URL");
        for name in ["authorization", "cookie", "x-api-key", "accept"] {
            request.headers_mut().insert(name, HeaderValue::from_static("text/plain"));
        }
        let response = client(SLOW).send(request).await.expect("an answer");
        assert_eq!(response.body, "found");
        for head in first.await.expect("served") {
            assert_eq!(head.matches("text/plain").count(), 4, "{head}");
        }
        for head in served.await.expect("served") {
            assert_eq!(head.matches("text/plain").count(), 1, "{head}");
            assert!(head.contains("accept: text/plain\r\n"), "{head}");
        }
    }

    #[tokio::test]
    async fn redirects_end_at_the_limit_and_bodies_are_not_sent_twice() {
        let (url, _served) = server(vec![moved("/"); 3]).await;
        let limits = Limits { redirects: 2, ..SLOW };
        let error = client(limits).get(&url).await.expect_err("refused");
        assert!(matches!(error.reason, Reason::TooManyRedirects(2)), "{error}");
        let (url, _served) = server(vec![moved("/")]).await;
        let response =
            client(limits).post(&url, "text/plain", Bytes::from_static(b"x")).await.expect("an answer");
        assert_eq!(response.status, StatusCode::FOUND);
    }

    #[tokio::test]
    async fn a_long_answer_is_an_error_whether_it_says_its_length_or_not() {
        let limits = Limits { body: 10, ..SLOW };
        let unsaid = "HTTP/1.1 200 OK\r\n\r\n01234567890".to_owned();
        for response in [full("01234567890"), unsaid] {
            let (url, _served) = server(vec![response]).await;
            let error = client(limits).get(&url).await.expect_err("refused");
            assert!(matches!(error.reason, Reason::TooLarge(10)), "{error}");
        }
        let (url, _served) = server(vec![full("0123456789")]).await;
        assert_eq!(client(limits).get_ok(&url).await.expect("ten bytes"), "0123456789");
    }

    #[tokio::test]
    async fn an_error_of_the_body_has_the_status() {
        let limits = Limits { body: 10, ..SLOW };
        let too_long = "HTTP/1.1 413 X\r\nContent-Length: 11\r\n\r\n01234567890".to_owned();
        let cut_off = "HTTP/1.1 413 X\r\nContent-Length: 9\r\n\r\n0".to_owned();
        for response in [too_long, cut_off] {
            let (url, _served) = server(vec![response]).await;
            let error = client(limits).get(&url).await.expect_err("refused");
            assert_eq!(error.status, Some(StatusCode::PAYLOAD_TOO_LARGE), "{error}");
        }
        let (url, _served) = server(vec![moved("http://127.0.0.1:1/")]).await;
        let error = client(limits).get(&url).await.expect_err("no server");
        assert_eq!(error.status, None, "{error}");
    }

    #[tokio::test]
    async fn errors_name_the_address_and_the_reason() {
        let (url, _served) = server(vec!["SSH-2.0-x\r\n\r\n".to_owned()]).await;
        let error = client(SLOW).get(&url).await.expect_err("refused").to_string();
        assert!(error.contains(&url) && error.contains("HTTP: "), "{error}");
        let (url, _served) = server(vec!["HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_owned()]).await;
        let error = client(SLOW).get_ok(&url).await.expect_err("refused").to_string();
        assert!(error.contains("the server responded with 503"), "{error}");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let secure = format!("https://{}/", listener.local_addr().expect("address"));
        let plain = async {
            let (mut tcp, _) = listener.accept().await.expect("accept");
            tcp.write_all(b"220 mail.test\r\n").await.expect("write");
            pending::<()>().await;
        };
        let client = client(SLOW);
        let error = tokio::select! {
            response = client.get(&secure) => response.expect_err("no TLS").to_string(),
            () = plain => unreachable!(),
        };
        assert!(error.contains("TLS: "), "{error}");
    }

    #[tokio::test]
    async fn a_silent_server_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let url = format!("http://{}/", listener.local_addr().expect("address"));
        let limits = Limits { time: Duration::from_millis(50), ..SLOW };
        let error = client(limits).get(&url).await.expect_err("given up");
        assert!(matches!(error.reason, Reason::TimedOut(_)), "{error}");
    }

    /// An address that accepts connections, but completes no handshake, used to be the only one that was tried.
    #[tokio::test]
    async fn an_address_that_fails_in_the_handshake_is_followed_by_the_next() {
        let client = client(SLOW);
        let target = RequestTarget::of(&"https://a.test/".parse().expect("a URL")).expect("a target");
        // The first address closes its connection, or is silent for its share of the time.
        for (closes, time) in [(true, 600_000), (false, 2_000)] {
            let first = TcpListener::bind("127.0.0.1:0").await.expect("bind");
            let next = TcpListener::bind("127.0.0.1:0").await.expect("bind");
            let addresses = [&first, &next].map(|listener| listener.local_addr().expect("address"));
            let deadline = Instant::now() + Duration::from_millis(time);
            let served = async {
                if closes {
                    drop(first.accept().await.expect("accept"));
                }
                let (mut tcp, _) = next.accept().await.expect("accept");
                tcp.read_u8().await.expect("a byte")
            };
            let byte = tokio::select! {
                stream = client.open_first(&target, &addresses, deadline) => panic!("{:?}", stream.err()),
                byte = served => byte,
            };
            // The type of a handshake record (RFC 8446 section 5.1).
            assert_eq!(byte, 22);
        }
    }

    #[tokio::test]
    async fn private_addresses_are_refused_after_resolution_and_after_redirects() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = listener.local_addr().expect("address").port();
        let public = Client::new(&ClientSettings::default()).expect("a client");
        for host in ["127.0.0.1", "localhost", "127.1", "0x7f000001", "[::ffff:127.0.0.1]", "0.0.0.0"] {
            let error = public.get(&format!("http://{host}:{port}/")).await.expect_err("refused");
            assert!(matches!(error.reason, Reason::Private(_)), "{error}");
        }
        let (url, _served) = server(vec![moved(&format!("http://localhost:{port}/secret"))]).await;
        let configured = public.with_destinations(Destinations::default().with_url(&url));
        let error = configured.get(&url).await.expect_err("refused");
        assert!(matches!(error.reason, Reason::Private(_)), "{error}");
        let text = error.to_string();
        let parts =
            ["/secret: localhost has the address ", "add \"localhost\" to certificates.allow_private"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}
