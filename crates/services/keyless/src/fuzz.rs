//! Fuzz targets for frames and message shapes, for tests and libFuzzer.

use brisk_wire::registry::SignatureScheme;
use bytes::BytesMut;

use crate::frame::{FrameError, HEAD, LONGEST_BODY, Request, Response};
use crate::{Shape, shape};

/// Requires that the division of input into reads does not matter, that decoding inverts encoding, and that no frame is
/// lost.
pub fn key_frames(bytes: &[u8]) {
    each_split(bytes, Request::read, Request::write);
    each_split(bytes, Response::read, Response::write);
}

fn each_split<F: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    read: impl Fn(&mut BytesMut) -> Result<Option<F>, FrameError>,
    write: impl Fn(&F, &mut BytesMut),
) {
    let whole = all(&[bytes], &read);
    let at = bytes.first().map_or(0, |&first| usize::from(first) * bytes.len() / 256);
    assert_eq!(all(&[&bytes[..at], &bytes[at..]], &read), whole);
    for frame in &whole.0 {
        let again = rewritten(frame, &read, &write);
        // Invalid UTF-8 in a text is replaced and may be truncated in the first round; from then on nothing changes.
        assert_eq!(rewritten(&again, &read, &write), again);
    }
}

/// Encodes and decodes a frame.
fn rewritten<F>(
    frame: &F,
    read: impl Fn(&mut BytesMut) -> Result<Option<F>, FrameError>,
    write: impl Fn(&F, &mut BytesMut),
) -> F {
    let mut written = BytesMut::new();
    write(frame, &mut written);
    assert!(written.len() <= HEAD + LONGEST_BODY);
    let again = read(&mut written).expect("a frame that was written").expect("a whole frame");
    assert!(written.is_empty(), "it was written as more than itself");
    again
}

/// All frames, and the error that ended decoding.
fn all<F>(
    pieces: &[&[u8]],
    read: impl Fn(&mut BytesMut) -> Result<Option<F>, FrameError>,
) -> (Vec<F>, Option<FrameError>) {
    let (mut come, mut frames) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        come.extend_from_slice(piece);
        loop {
            match read(&mut come) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    assert!(come.len() < HEAD + LONGEST_BODY, "a whole frame was not read");
    (frames, None)
}

/// Requires that a recognised message has exactly the length and context string of TLS: one byte more or less is not
/// recognised.
pub fn signed_shape(bytes: &[u8]) {
    let Some(found) = shape(bytes) else { return };
    match found {
        Shape::Tls13Server | Shape::Tls13Client => {
            assert!(bytes.len() == 130 || bytes.len() == 146, "{}", bytes.len());
            assert!(bytes.starts_with(&[b' '; 64]) && bytes[97] == 0);
            assert!(!found.is_signed_with(SignatureScheme::RSA_PKCS1_SHA256));
        }
        Shape::Tls12Server => assert_eq!(bytes.len(), 68 + usize::from(bytes[67])),
    }
    assert_eq!(shape(&[bytes, &[0]].concat()), None, "a byte more");
    assert_eq!(shape(&bytes[..bytes.len() - 1]), None, "a byte less");
}

#[cfg(test)]
mod tests {
    use brisk_testkit::fuzz::drive;

    #[test]
    fn fuzz_key_frames() {
        drive("key_frames", &[b"\x03\0\0\x0a", b"\xff\0\0\x01", b"\x08\0"], super::key_frames);
    }

    #[test]
    fn fuzz_signed_shape() {
        let words: &[&[u8]] =
            &[b"TLS 1.3, server CertificateVerify\0", b"\x03\0\x1d\x20", b"\x03\0\x17\x41\x04"];
        drive("signed_shape", words, super::signed_shape);
    }
}
