//! One request of a trial, on a connection of its own.

use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::time::Duration;

use brisk_import::TrialRequest;
use brisk_tls::connector::Connector;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Bytes of a response that are read at most.
const LARGEST: u64 = 4 << 20;

/// Timeout for a response.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A response.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// Names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Reply {
    /// The value of a header.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// Result of a request. `None` if the server closes the connection, or refuses the TLS handshake, without a response; an error has
/// its reason, such as a timeout.
pub(super) type Exchanged = Result<Option<Reply>, String>;

/// Sends a request to a port of 127.0.0.1.
pub(super) async fn send(request: &TrialRequest, port: u16, tls: Option<&Connector>) -> Exchanged {
    let bytes = match timeout(TIMEOUT, exchange(request, port, tls)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) if is_close(&error) => return Ok(None),
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(format!("no response after {} seconds", TIMEOUT.as_secs())),
    };
    match parse(&bytes, &request.method) {
        Some(reply) => Ok(Some(reply)),
        None if bytes.is_empty() => Ok(None),
        None => Err(format!("an incomplete response of {} bytes", bytes.len())),
    }
}

/// Whether the server has closed the connection, or refused the TLS handshake with an alert.
fn is_close(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof)
        || error.to_string().contains("received fatal alert")
}

async fn exchange(request: &TrialRequest, port: u16, tls: Option<&Connector>) -> io::Result<Vec<u8>> {
    // A connection of its own: after an error, each server decides by itself whether it closes the connection.
    let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    match tls {
        Some(connector) => bytes(connector.connect(tcp, &request.host).await?, request).await,
        None => bytes(tcp, request).await,
    }
}

async fn bytes<T: AsyncRead + AsyncWrite + Unpin>(
    mut stream: T,
    request: &TrialRequest,
) -> io::Result<Vec<u8>> {
    let TrialRequest { host, method, target, header, .. } = request;
    let header = header.as_ref().map(|(name, value)| format!("{name}: {value}\r\n")).unwrap_or_default();
    let length =
        if matches!(method.as_str(), "POST" | "PUT" | "PATCH") { "Content-Length: 0\r\n" } else { "" };
    let head =
        format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{header}{length}Connection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut response = Vec::new();
    match stream.take(LARGEST).read_to_end(&mut response).await {
        // The bytes before the end of a connection are a part of a response.
        Err(error) if response.is_empty() || !is_close(&error) => Err(error),
        _ => Ok(response),
    }
}

/// Reads a response that ends with its connection.
fn parse(bytes: &[u8], method: &str) -> Option<Reply> {
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines.filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    });
    let mut reply = Reply { status, headers: headers.collect(), body: Vec::new() };
    let rest = &bytes[end + 4..];
    // An interim response precedes the final one.
    if (100..200).contains(&status) && status != 101 {
        return parse(rest, method);
    }
    let is_chunked =
        reply.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
    reply.body = if method == "HEAD" {
        Vec::new()
    } else if is_chunked {
        chunks(rest)?
    } else {
        rest.to_vec()
    };
    Some(reply)
}

/// The content of a chunked body; `None` if it is incomplete.
fn chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    loop {
        let end = rest.windows(2).position(|part| part == b"\r\n")?;
        let size = str::from_utf8(&rest[..end]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        rest = &rest[end + 2..];
        if size == 0 {
            return Some(content);
        }
        content.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size.checked_add(2)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// The result of a request to a server that sends `response` and closes the connection.
    async fn sent(response: &'static str) -> Exchanged {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("a request");
                head.extend(byte);
            }
            stream.write_all(response.as_bytes()).expect("a client");
        });
        let exchanged = send(&request(), port, None).await;
        server.join().expect("a server");
        exchanged
    }

    fn request() -> TrialRequest {
        let [host, method, target] = ["a.example", "GET", "/x"].map(str::to_owned);
        TrialRequest { listener: 0, host, method, target, header: None }
    }

    #[tokio::test]
    async fn only_a_close_without_bytes_is_no_response() {
        let reply = sent("HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(reply.map(|reply| reply.map(|reply| reply.status)), Ok(Some(204)));
        assert_eq!(sent("").await, Ok(None));
        assert!(sent("HTTP/1.1 200").await.is_err_and(|error| error.contains("12 bytes")));
        assert!(send(&request(), 0, None).await.is_err(), "nothing listens at the port");
    }

    #[test]
    fn responses_are_read_to_their_ends() {
        let reply = parse(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\n\r\ntext", "GET")
            .expect("a response");
        assert_eq!((reply.status, reply.header("a"), &*reply.body), (200, Some("b"), &b"text"[..]));
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunked = |body: &str| parse(format!("{head}{body}").as_bytes(), "GET").map(|reply| reply.body);
        assert_eq!(chunked("2;x=y\r\nab\r\n1\r\nc\r\n0\r\n\r\n").as_deref(), Some(&b"abc"[..]));
        assert_eq!((chunked("5\r\nab"), chunked("x\r\n"), parse(b"HTTP/1.1 200", "GET")), (None, None, None));
        assert_eq!(
            parse(format!("{head}5\r\n").as_bytes(), "HEAD").map(|reply| reply.body),
            Some(Vec::new())
        );
    }
}
