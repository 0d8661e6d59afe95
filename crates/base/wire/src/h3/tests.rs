//! Rules of RFC 9114 for the frames of a client, with the error code of each, and limits of the reader.

use std::borrow::Cow;

use super::error::Code;
use super::frame::{FrameHead, kind, stream};
use super::order::{ControlOrder, Order, RequestOrder};
use super::reader::{FrameReader, Item};

const LIMIT: u64 = 100;

fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    FrameHead { kind, length: payload.len() as u64 }.write(&mut out);
    out.extend_from_slice(payload);
    out
}

fn frames(kinds: &[u64]) -> Vec<u8> {
    kinds.iter().flat_map(|kind| frame(*kind, b"x")).collect()
}

/// Types of the complete frames that are passed on, or the error.
fn read<O: Order>(order: O, bytes: &[u8]) -> Result<Vec<u64>, Code> {
    let mut reader = FrameReader::new(order);
    let mut rest = bytes;
    let mut kinds = Vec::new();
    while let Some(item) = reader.next(&mut rest)? {
        match item {
            Item::Head(_) => {}
            Item::Data(_) => kinds.push(kind::DATA),
            Item::Frame(kind, _) => kinds.push(kind),
            Item::TooLong => kinds.push(u64::MAX),
        }
    }
    reader.end()?;
    Ok(kinds)
}

fn request(kinds: &[u64]) -> Result<Vec<u64>, Code> {
    read(RequestOrder::new(LIMIT), &frames(kinds))
}

fn control(kinds: &[u64]) -> Result<Vec<u64>, Code> {
    read(ControlOrder::default(), &frames(kinds))
}

/// Types that no RFC defines, among them reserved ones (RFC 9114 section 7.2.8).
const UNKNOWN: [u64; 4] = [0x21, 0x1f * 1000 + 0x21, 0xa, (1 << 62) - 1];

#[test]
fn section_4_1_a_request_is_a_head_a_body_and_trailers() {
    use kind::{DATA, HEADERS};
    for valid in [&[HEADERS][..], &[HEADERS, DATA, DATA], &[HEADERS, DATA, HEADERS], &[HEADERS, HEADERS]] {
        assert_eq!(request(valid).as_deref(), Ok(valid));
    }
    // "Receipt of an invalid sequence of frames MUST be treated as a connection error of type H3_FRAME_UNEXPECTED."
    for invalid in [&[DATA][..], &[HEADERS, HEADERS, DATA], &[HEADERS, DATA, HEADERS, HEADERS]] {
        assert_eq!(request(invalid), Err(Code::FRAME_UNEXPECTED), "{invalid:?}");
    }
    // "unknown types MAY be sent before, after, or interleaved"
    let [a, b, c, d] = UNKNOWN;
    assert_eq!(request(&[a, HEADERS, b, DATA, c, HEADERS, d]), Ok(vec![HEADERS, DATA, HEADERS]));
}

#[test]
fn section_4_4_a_tunnel_has_only_data() {
    for (kind, expected) in [
        (kind::DATA, Ok(vec![kind::HEADERS, kind::DATA])),
        (0x21, Ok(vec![kind::HEADERS])),
        (kind::HEADERS, Err(Code::FRAME_UNEXPECTED)),
        (kind::SETTINGS, Err(Code::FRAME_UNEXPECTED)),
    ] {
        let mut reader = FrameReader::new(RequestOrder::new(LIMIT));
        let bytes = frames(&[kind::HEADERS, kind]);
        let mut rest = &bytes[..];
        let mut kinds = Vec::new();
        let failed = loop {
            match reader.next(&mut rest) {
                Ok(Some(Item::Frame(kind, _))) => {
                    kinds.push(kind);
                    reader.order.tunnel();
                }
                Ok(Some(Item::Data(_))) => kinds.push(kind::DATA),
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(code) => break Some(code),
            }
        };
        assert_eq!(failed.map_or(Ok(kinds), Err), expected, "{kind:#x}");
    }
}

#[test]
fn section_6_2_1_a_control_stream_begins_with_settings() {
    assert_eq!(control(&[kind::SETTINGS]), Ok(vec![kind::SETTINGS]));
    for first in [kind::GOAWAY, kind::MAX_PUSH_ID, kind::DATA, kind::PRIORITY_UPDATE, 6, 0x21] {
        assert_eq!(control(&[first]), Err(Code::MISSING_SETTINGS), "{first:#x}");
    }
}

#[test]
fn section_7_1_a_frame_is_not_cut_off_by_the_end_of_its_stream() {
    let whole = [frame(kind::HEADERS, b"abc"), frame(kind::DATA, b"defg"), frame(0x4321, b"hi")].concat();
    for length in 0..=whole.len() {
        let is_between = [0, 5, 11, whole.len()].contains(&length);
        let result = read(RequestOrder::new(LIMIT), &whole[..length]);
        assert_eq!(result.err(), (!is_between).then_some(Code::FRAME_ERROR), "{length}");
    }
}

#[test]
fn section_7_2_frames_belong_to_one_kind_of_stream() {
    // Sections 7.2.3 to 7.2.7: CANCEL_PUSH, SETTINGS, GOAWAY and MAX_PUSH_ID on a request stream, PUSH_PROMISE from a client.
    // RFC 9218 section 7.2: PRIORITY_UPDATE.
    let only_control = [
        kind::CANCEL_PUSH,
        kind::SETTINGS,
        kind::PUSH_PROMISE,
        kind::GOAWAY,
        kind::MAX_PUSH_ID,
        kind::PRIORITY_UPDATE,
        kind::PRIORITY_UPDATE_PUSH,
    ];
    for other in only_control {
        assert_eq!(request(&[other]), Err(Code::FRAME_UNEXPECTED), "{other:#x}");
        assert_eq!(request(&[kind::HEADERS, other]), Err(Code::FRAME_UNEXPECTED), "{other:#x}");
    }
    // Sections 7.2.1, 7.2.2 and 7.2.5.
    for other in [kind::DATA, kind::HEADERS, kind::PUSH_PROMISE] {
        assert_eq!(control(&[kind::SETTINGS, other]), Err(Code::FRAME_UNEXPECTED), "{other:#x}");
    }
    for other in [kind::CANCEL_PUSH, kind::GOAWAY, kind::MAX_PUSH_ID, kind::PRIORITY_UPDATE] {
        assert_eq!(control(&[kind::SETTINGS, other]), Ok(vec![kind::SETTINGS, other]));
    }
}

#[test]
fn section_7_2_4_settings_are_sent_once() {
    assert_eq!(control(&[kind::SETTINGS, kind::SETTINGS]), Err(Code::FRAME_UNEXPECTED));
}

#[test]
fn section_7_2_8_types_of_http_2_are_refused() {
    for other in [2, 6, 8, 9] {
        assert_eq!(request(&[other]), Err(Code::FRAME_UNEXPECTED), "{other}");
        assert_eq!(control(&[kind::SETTINGS, other]), Err(Code::FRAME_UNEXPECTED), "{other}");
    }
}

#[test]
fn section_9_unknown_frames_are_ignored_and_not_held() {
    let mut bytes = frame(kind::SETTINGS, b"");
    for kind in UNKNOWN {
        FrameHead { kind, length: 0x10_0000 }.write(&mut bytes);
        bytes.resize(bytes.len() + 0x10_0000, 0);
    }
    let mut reader = FrameReader::new(ControlOrder::default());
    for piece in bytes.chunks(1000) {
        let mut rest = piece;
        while reader.next(&mut rest).expect("valid frames").is_some() {}
        assert_eq!(reader.held(), 0);
    }
    assert_eq!(reader.end(), Ok(()));
}

#[test]
fn section_10_5_payloads_have_a_limit() {
    let long = [&[kind::HEADERS as u8, 0x40, 101][..], &[0; 101], &frame(kind::DATA, b"x")].concat();
    assert_eq!(read(RequestOrder::new(LIMIT), &long), Ok(vec![u64::MAX, kind::DATA]));
    for kind in [kind::SETTINGS, kind::PRIORITY_UPDATE] {
        let mut bytes = if kind == kind::SETTINGS { Vec::new() } else { frame(kind::SETTINGS, b"") };
        FrameHead { kind, length: 5000 }.write(&mut bytes);
        assert_eq!(read(ControlOrder::default(), &bytes), Err(Code::EXCESSIVE_LOAD));
    }
}

#[test]
fn payloads_in_one_piece_are_not_copied() {
    let bytes = frame(kind::HEADERS, b"abc");
    let mut reader = FrameReader::new(RequestOrder::new(LIMIT));
    let mut rest = &bytes[..];
    assert_eq!(reader.next(&mut rest), Ok(Some(Item::Head(FrameHead { kind: 1, length: 3 }))));
    let item = reader.next(&mut rest);
    assert!(matches!(item, Ok(Some(Item::Frame(1, Cow::Borrowed(b"abc"))))), "{item:?}");
    let (mut first, mut second) = bytes.split_at(4);
    assert_eq!(reader.next(&mut first).map(|item| item.is_some()), Ok(true));
    assert_eq!((reader.next(&mut first), reader.held() > 0), (Ok(None), true));
    let item = reader.next(&mut second);
    assert!(matches!(&item, Ok(Some(Item::Frame(1, Cow::Owned(payload)))) if payload == b"abc"), "{item:?}");
    assert_eq!(reader.held(), 0);
}

#[test]
fn types_of_streams_are_those_of_the_rfc() {
    assert_eq!((stream::CONTROL, stream::PUSH, stream::ENCODER, stream::DECODER), (0, 1, 2, 3));
}
