//! One request of a trial, on a connection of its own.

use std::io;
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

/// Sends a request to a port of 127.0.0.1. `None` if the server closes the connection without a response.
pub(super) async fn send(request: &TrialRequest, port: u16, tls: Option<&Connector>) -> Option<Reply> {
    let bytes = timeout(TIMEOUT, exchange(request, port, tls)).await;
    parse(&bytes.ok()?.ok()?, &request.method)
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
    stream.take(LARGEST).read_to_end(&mut response).await?;
    Ok(response)
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
    use super::*;

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
