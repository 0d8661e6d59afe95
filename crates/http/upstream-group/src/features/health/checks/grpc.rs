//! Health of gRPC servers: the method `Check` of the service `grpc.health.v1.Health`.
//!
//! Its messages have one field each, so they are written and read here, without a library for Protocol Buffers.

use std::pin::pin;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::{Either, select};
use http::uri::{Scheme, Uri};
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http2;
use hyper_util::rt::TokioExecutor;

use super::CheckError;
use crate::io::HyperIo;

const PATH: &str = "/grpc.health.v1.Health/Check";

/// Maximum size of a response in bytes.
const RESPONSE: usize = 4096;

/// `HealthCheckResponse.ServingStatus.SERVING`.
const SERVING: u64 = 1;

/// Asks for the health of `service`, or of the whole server if `service` is empty. `Err` contains the reason why the server is
/// not healthy: a status other than [`SERVING`], or no valid response.
pub(super) async fn check(
    io: HyperIo,
    scheme: Scheme,
    authority: &str,
    service: &str,
) -> Result<(), CheckError> {
    let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(PATH).build()?;
    let request = Request::post(uri)
        .header(header::CONTENT_TYPE, "application/grpc")
        // The gRPC protocol requires it, to detect proxies that drop trailers.
        .header(header::TE, "trailers")
        .header(header::USER_AGENT, "brisk-health-check")
        .body(Full::new(message(service)))?;
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
    let call = async move {
        let (head, body) = sender.send_request(request).await?.into_parts();
        if head.status != StatusCode::OK {
            return Err(format!("status {}", head.status.as_u16()).into());
        }
        let body = Limited::new(body, RESPONSE).collect().await?;
        // A response without a message has its status in the head.
        let trailers = body.trailers().cloned().unwrap_or_default();
        grpc_status(&head.headers, &trailers)?;
        match serving_status(&body.to_bytes()) {
            Some(SERVING) => Ok(()),
            Some(status) => Err(format!("gRPC health status {status}, not SERVING (1)").into()),
            None => Err("a malformed response to the gRPC health check".into()),
        }
    };
    match select(pin!(call), pin!(connection)).await {
        Either::Left((outcome, _)) => outcome,
        // The connection may end together with the response.
        Either::Right((_, call)) => call.await,
    }
}

fn grpc_status(head: &HeaderMap, trailers: &HeaderMap) -> Result<(), CheckError> {
    match trailers.get("grpc-status").or_else(|| head.get("grpc-status")) {
        Some(status) if status.as_bytes() == b"0" => Ok(()),
        Some(status) => Err(format!("grpc-status {}", status.to_str().unwrap_or("unreadable")).into()),
        None => Err("no grpc-status".into()),
    }
}

/// The request with its length-prefix: field 1 is the name of the service.
fn message(service: &str) -> Bytes {
    let mut field = BytesMut::new();
    if !service.is_empty() {
        field.put_u8(0x0a);
        put_varint(&mut field, service.len() as u64);
        field.put_slice(service.as_bytes());
    }
    let mut message = BytesMut::new();
    message.put_u8(0);
    message.put_u32(field.len() as u32);
    message.put_slice(&field);
    message.freeze()
}

fn put_varint(to: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        to.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    to.put_u8(value as u8);
}

/// Field 1 of a response, 0 if it is absent; `None` for a malformed or compressed response.
fn serving_status(response: &[u8]) -> Option<u64> {
    let (prefix, mut rest) = response.split_at_checked(5)?;
    // The first byte is 0 without compression, which the request did not offer.
    let [0, length @ ..] = prefix else { return None };
    if u32::from_be_bytes(length.try_into().ok()?) as usize != rest.len() {
        return None;
    }
    // Protocol Buffers omit a field with its default value: 0 is `UNKNOWN`.
    let mut status = 0;
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        let skipped = match tag & 7 {
            0 => {
                let value = varint(&mut rest)?;
                if tag >> 3 == 1 {
                    status = value;
                }
                0
            }
            // Unknown fields are skipped by their wire type, since a later version of
            // the service may add some.
            1 => 8,
            2 => usize::try_from(varint(&mut rest)?).ok()?,
            5 => 4,
            _ => return None,
        };
        rest = rest.get(skipped..)?;
    }
    Some(status)
}

fn varint(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    // At most ten bytes: a longer varint is malformed, and a shift by 64 or more would overflow.
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_names_the_service() {
        assert_eq!(&message("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&message("a.b")[..], b"\0\0\0\0\x05\x0a\x03a.b");
        assert_eq!(&message(&"x".repeat(200))[..8], b"\0\0\0\0\xcb\x0a\xc8\x01");
    }

    #[test]
    fn a_response_has_one_status() {
        for (response, status) in [
            (&b"\0\0\0\0\x02\x08\x01"[..], Some(1)),
            (b"\0\0\0\0\x02\x08\x02", Some(2)),
            (b"\0\0\0\0\0", Some(0)),
            // Unknown fields of every type.
            (b"\0\0\0\0\x0c\x12\x01x\x1d1234\x20\x05\x08\x01", Some(1)),
            (b"\0\0\0\0\x0b\x1112345678\x08\x01", Some(1)),
            // Compressed, cut short, longer than stated, an endless number, an unknown type, a length beyond the end.
            (b"\x01\0\0\0\x02\x08\x01", None),
            (b"\0\0\0\0\x02\x08", None),
            (b"\0\0\0\0\x02\x08\x01\x08", None),
            (b"\0\0\0\0\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
            (b"\0\0\0\0\x01\x0b", None),
            (b"\0\0\0\0\x02\x12\x7f", None),
            (b"", None),
        ] {
            assert_eq!(serving_status(response), status, "{response:?}");
        }
    }
}
