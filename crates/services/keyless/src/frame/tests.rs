//! Encoded frames are decoded unchanged, and invalid ones are refused.

use brisk_keys::KeyAlgorithm;

use super::*;
use crate::code::ErrorCode;

fn requests() -> Vec<Request> {
    vec![
        Request::Hello(Hello { version: 1, operations: 256, keys: 16 }),
        Request::Key { number: 3, key: KeyId([7; 32]) },
        Request::Sign {
            operation: 9,
            key: 3,
            scheme: SignatureScheme::ED25519,
            remaining: Duration::from_millis(250),
            message: Bytes::from_static(b"message"),
        },
        Request::Decrypt {
            operation: 10,
            key: 3,
            remaining: Duration::from_millis(900),
            ciphertext: Bytes::from_static(&[8; 256]),
        },
        Request::Cancel { operation: 9 },
        Request::Ping { number: 1, bytes: Bytes::from_static(b"ping") },
    ]
}

fn answers() -> Vec<Response> {
    let error = |code, text: &str| Response::Error { operation: 4, code, text: text.to_owned() };
    vec![
        Response::Hello(Hello { version: 1, operations: 256, keys: 16 }),
        Response::Key { number: 3, state: Ok(KeyAlgorithm::Rsa { bits: 2048 }) },
        Response::Key { number: 3, state: Ok(KeyAlgorithm::EcdsaP256) },
        Response::Key { number: 3, state: Ok(KeyAlgorithm::EcdsaP384) },
        Response::Key { number: 3, state: Ok(KeyAlgorithm::Ed25519) },
        Response::Key { number: 4, state: Err(ErrorCode::UnknownKey) },
        Response::Result { operation: 9, result: Bytes::from_static(b"signature") },
        Response::Pong { number: 1, bytes: Bytes::from_static(b"ping") },
        Response::Drain,
        error(ErrorCode::Overloaded, "later"),
        error(ErrorCode::Other(200), ""),
    ]
}

#[test]
fn requests_are_read_as_they_were_written() {
    let mut bytes = BytesMut::new();
    for request in requests() {
        request.write(&mut bytes);
    }
    let mut read = Vec::new();
    while let Some(request) = Request::read(&mut bytes).expect("frames") {
        read.push(request);
    }
    assert_eq!((read, bytes.len()), (requests(), 0));
}

#[test]
fn answers_are_read_as_they_were_written_byte_by_byte() {
    let mut bytes = BytesMut::new();
    for answer in answers() {
        answer.write(&mut bytes);
    }
    let (mut read, mut come) = (Vec::new(), BytesMut::new());
    for byte in bytes {
        come.put_u8(byte);
        read.extend(Response::read(&mut come).expect("frames"));
    }
    assert_eq!((read, come.len()), (answers(), 0));
}

fn refusal(bytes: &[u8]) -> FrameError {
    Request::read(&mut BytesMut::from(bytes)).expect_err("no frame")
}

#[test]
fn what_is_no_frame_is_refused_before_its_body_has_come() {
    assert_eq!(refusal(&[3, 0, 8, 1, 0, 0, 0, 0]), FrameError::TooLong(2049));
    assert_eq!(refusal(&[3, 1, 0, 0, 0, 0, 0, 0]), FrameError::Flags);
}

#[test]
fn bodies_have_the_form_of_their_type() {
    for frame in [
        &[1, 0, 0, 5, 0, 0, 0, 0, 0, 1, 0, 1, 0][..],
        &[2, 0, 0, 0, 0, 0, 0, 0],
        &[3, 0, 0, 0, 0, 0, 0, 0],
        &[5, 0, 0, 1, 0, 0, 0, 0, 0],
    ] {
        assert_eq!(refusal(frame), FrameError::Malformed(frame[0]));
    }
    for kind in [0, 7, 0x3f, 0x80, 0x83, 0xff] {
        assert_eq!(refusal(&[kind, 0, 0, 0, 0, 0, 0, 0]), FrameError::UnknownType(kind));
    }
}

#[test]
fn optional_frames_of_later_versions_are_passed_over() {
    let mut bytes = BytesMut::from(&[0x41, 0, 0, 1, 0, 0, 0, 0, 9][..]);
    Request::Cancel { operation: 1 }.write(&mut bytes);
    assert_eq!(Request::read(&mut bytes), Ok(Some(Request::Cancel { operation: 1 })));
    let mut bytes = BytesMut::from(&[0xc1, 0, 0, 1, 0, 0, 0, 0, 9][..]);
    Response::Drain.write(&mut bytes);
    assert_eq!(Response::read(&mut bytes), Ok(Some(Response::Drain)));
}

#[test]
fn a_hello_of_a_later_version_may_be_longer() {
    let frame = [1, 0, 0, 8, 0, 0, 0, 0, 0, 2, 0, 1, 0, 1, 9, 9];
    let hello = Hello { version: 2, operations: 1, keys: 1 };
    assert_eq!(Request::read(&mut BytesMut::from(&frame[..])), Ok(Some(Request::Hello(hello))));
}

#[test]
fn what_is_too_long_is_cut() {
    let mut bytes = BytesMut::new();
    let text = "ä".repeat(200);
    Response::Error { operation: 0, code: ErrorCode::Failed, text }.write(&mut bytes);
    let Ok(Some(Response::Error { text, .. })) = Response::read(&mut bytes) else { panic!("an error") };
    assert_eq!(text, "ä".repeat(127));
    let message = Bytes::from(vec![1; 5000]);
    let scheme = SignatureScheme::ED25519;
    Request::Sign { operation: 0, key: 0, scheme, remaining: Duration::MAX, message }.write(&mut bytes);
    let Ok(Some(Request::Sign { message, remaining, .. })) = Request::read(&mut bytes) else { panic!() };
    assert_eq!((message.len(), remaining), (LONGEST_MESSAGE, Duration::from_micros(u32::MAX.into())));
}
