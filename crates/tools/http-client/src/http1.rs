//! HTTP/1.1, one request at a time. Bodies are counted and neither kept nor decompressed.

mod body;
mod head;

use std::time::Instant;

use brisk_report::text::{printable, printable_value};
use tokio::io::{AsyncRead, AsyncReadExt};

pub use body::{Body, Taken};
pub use head::{Head, parse_head};

use crate::error::HttpError;
use crate::request::{CODINGS, Request};
use crate::response::Response;

/// Longest head of a response in bytes.
const HEAD: usize = 64 * 1024;

/// Most header fields of a response.
const FIELDS: usize = 200;

/// Maximum number of `1xx` responses before the final one; a further one is [`HttpError::Protocol`].
const INTERIM: u32 = 32;

/// The bytes of `request`, with `Accept-Encoding`.
pub fn request(request: &Request<'_>) -> Vec<u8> {
    let Request { authority, path, agent } = request;
    format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: {agent}\r\nAccept: */*\r\nAccept-Encoding: {CODINGS}\r\n\r\n")
        .into_bytes()
}

/// Reads a response into `response` as it arrives. Interim responses are counted in [`Response::interim`] and skipped.
pub async fn read_response(
    stream: &mut (impl AsyncRead + Unpin),
    response: &mut Response,
) -> Result<(), HttpError> {
    let mut buffer = Vec::new();
    let body = read_head(stream, &mut buffer, response).await?;
    // Before the check of the length: after an error, the caller shows the head that has arrived.
    response.head_at = Some(Instant::now());
    let Some(mut body) = body else {
        return Err(HttpError::protocol("the answer has a content-length that is no number"));
    };
    loop {
        response.body_bytes += body.take(&buffer)?.content;
        if body.is_complete() {
            break;
        }
        buffer.clear();
        if read(stream, &mut buffer).await? == 0 {
            if body.ends_with_connection() {
                break;
            }
            let bytes = response.body_bytes;
            return Err(HttpError::connection(format!("the body ends after {bytes} bytes")));
        }
    }
    response.done_at = Some(Instant::now());
    Ok(())
}

/// Reads the first final head, even if its `Content-Length` is invalid.
pub async fn final_head(stream: &mut (impl AsyncRead + Unpin)) -> Result<Response, HttpError> {
    let mut response = Response::default();
    read_head(stream, &mut Vec::new(), &mut response).await.map(|_| response)
}

async fn read(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> Result<usize, HttpError> {
    buffer.reserve(16 * 1024);
    stream.read_buf(buffer).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            HttpError::connection("the server closed the connection without close_notify")
        }
        _ => HttpError::connection(format!("the connection broke: {error}")),
    })
}

/// Reads heads up to the first final one. The beginning of its body stays in `buffer`.
async fn read_head(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    response: &mut Response,
) -> Result<Option<Body>, HttpError> {
    for interim in 0..=INTERIM {
        let (head, headers) = read_any_head(stream, buffer, response).await?;
        // After 101 another protocol follows and no other head (RFC 9110 section 15.2.2).
        if !(100..200).contains(&head.status) || head.status == 101 {
            "http/1.1".clone_into(&mut response.protocol);
            (response.status, response.headers) = (head.status, headers);
            (response.head_bytes, response.interim, response.is_last) = (head.len, interim, head.is_last);
            return Ok(head.body);
        }
    }
    Err(HttpError::protocol("the server sends interim answers without an end"))
}

async fn read_any_head(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    response: &mut Response,
) -> Result<(Head, Vec<(String, String)>), HttpError> {
    loop {
        if !buffer.is_empty() {
            response.first_byte_at.get_or_insert_with(Instant::now);
            let mut fields = [httparse::EMPTY_HEADER; FIELDS];
            // `request` sends `GET` alone.
            let head = parse_head(buffer, &mut fields, false);
            let head =
                head.map_err(|error| HttpError::protocol(format!("the answer is not HTTP/1.1: {error}")))?;
            if let Some(head) = head {
                let text = |header: &httparse::Header<'_>| {
                    // Terminals obey control characters, so those of a server must not reach the output.
                    let value = String::from_utf8_lossy(header.value);
                    (printable(&header.name.to_ascii_lowercase()), printable_value(&value))
                };
                let headers = fields[..head.fields].iter().map(text).collect();
                buffer.drain(..head.len);
                return Ok((head, headers));
            }
        }
        // Before each read: a head without an end would fill the memory.
        if buffer.len() > HEAD {
            let message = format!("the head of the answer is longer than {HEAD} bytes");
            return Err(HttpError::protocol(message));
        }
        if read(stream, buffer).await? == 0 {
            return Err(HttpError::connection("the server closed the connection without an answer"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(bytes: &[u8]) -> Result<Response, HttpError> {
        let mut found = Response::default();
        read_response(&mut &bytes[..], &mut found).await.map(|()| found)
    }

    #[tokio::test]
    async fn the_head_of_an_answer_stays_if_its_body_breaks() {
        let (mut found, bytes) = (Response::default(), b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello");
        let ended = read_response(&mut &bytes[..], &mut found).await;
        assert!(ended.is_err());
        assert_eq!((found.status, found.body_bytes, found.done_at), (200, 5, None));
        assert_eq!(found.headers, [("content-length".to_owned(), "9".to_owned())]);
    }

    #[tokio::test]
    async fn a_head_is_readable_whatever_the_length_of_its_body() {
        for length in ["2, 2", "-1", "x", "99999999999999999999", ""] {
            let text = format!("HTTP/1.1 301 Moved\r\nContent-Length: {length}\r\nLocation: /a\r\n\r\n");
            let head = final_head(&mut text.as_bytes()).await.expect(length);
            assert_eq!((head.status, head.header("location")), (301, Some("/a")), "{length}");
            let mut found = Response::default();
            let ended = read_response(&mut text.as_bytes(), &mut found).await;
            assert!(ended.is_err_and(|error| error.to_string().contains("content-length")), "{length}");
            assert_eq!(found.status, 301);
        }
        let text = b"HTTP/1.1 101 Switching\r\n\r\nHTTP/1.1 200 OK\r\n\r\n";
        assert_eq!(final_head(&mut &text[..]).await.expect("a head").status, 101);
    }

    #[tokio::test]
    async fn bodies_of_all_kinds_are_counted() {
        for (text, body, is_last) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 5, false),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n1\r\n.\r\n0\r\nx: y\r\n\r\n",
                6,
                false,
            ),
            ("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello you", 9, true),
            ("HTTP/1.1 103 Early\r\nLink: a\r\n\r\nHTTP/1.1 204 None\r\n\r\n", 0, false),
            ("HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n\0\0\0", 0, true),
        ] {
            let answer = read_all(text.as_bytes()).await.expect(text);
            assert_eq!((answer.body_bytes, answer.is_last), (body, is_last), "{text}");
        }
    }

    #[tokio::test]
    async fn interim_responses_are_limited() {
        for (number, is_read) in [(INTERIM, true), (INTERIM + 1, false)] {
            let interim = "HTTP/1.1 103 Early\r\n\r\n".repeat(number as usize);
            let found = read_all(format!("{interim}HTTP/1.1 204 None\r\n\r\n").as_bytes()).await;
            assert_eq!(found.is_ok_and(|response| response.interim == INTERIM), is_read, "{number}");
        }
    }

    #[tokio::test]
    async fn other_protocols_and_early_ends_are_errors() {
        for text in [
            "SSH-2.0-x\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
        ] {
            assert!(matches!(read_all(text.as_bytes()).await, Err(HttpError::Protocol(_))), "{text}");
        }
        for text in ["", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"] {
            assert!(matches!(read_all(text.as_bytes()).await, Err(HttpError::Connection(_))), "{text}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(2 * HEAD));
        let error = read_all(endless.as_bytes()).await.expect_err("too long").to_string();
        assert!(error.contains("longer than"), "{error}");
    }
}
