//! Rules of RFC 9114, RFC 9204 and RFC 9218 that bind a server, with the error code of each.

use brisk_wire::h3::frame::FrameHead;

use super::*;

/// Error of a connection on which the client has sent these streams.
fn failure(streams: &[(u64, &[u8])]) -> Option<Code> {
    let mut bench = Bench::new();
    for (stream, bytes) in streams {
        bench.send(*stream, bytes);
    }
    bench.turn();
    bench.failure()
}

/// Control stream with these frames after the settings.
fn control(frames: &[u8]) -> Vec<u8> {
    [&[0, 4, 0][..], frames].concat()
}

fn on_control(frames: &[u8]) -> Option<Code> {
    failure(&[(2, &control(frames))])
}

/// Error of the only stream, after its request has ended.
fn reset(bytes: &[u8]) -> (Option<Code>, Vec<u16>) {
    let mut bench = Bench::new();
    bench.send_all(0, bytes);
    bench.turn();
    assert_eq!(bench.closing, None, "an error of the stream only");
    (bench.client.received.get(&0).and_then(|received| received.reset), response(&bench, 0).0)
}

/// The same for a request whose response has not begun.
fn reset_of(bytes: &[u8]) -> Option<Code> {
    let mut bench = Bench::new();
    bench.client.window = Some(0);
    bench.send_all(0, bytes);
    bench.turn();
    bench.client.received.get(&0).and_then(|received| received.reset)
}

#[test]
fn rfc_9114_section_4_1_frames_out_of_order() {
    for wrong in [frame(kind::DATA, b"x"), [get("/", &[]), headers(&[]), frame(kind::DATA, b"x")].concat()] {
        assert_eq!(failure(&[(0, &wrong)]), Some(Code::FRAME_UNEXPECTED));
    }
    let trailers = [post(&[]), frame(kind::DATA, b"x"), headers(&[("x-a", "1")])].concat();
    assert_eq!(reset(&trailers), (None, vec![200]));
}

#[test]
fn rfc_9114_section_4_1_requests_that_end_early() {
    for incomplete in [Vec::new(), frame(0x21, b"x")] {
        assert_eq!(reset(&incomplete), (Some(Code::REQUEST_INCOMPLETE), Vec::new()));
    }
}

#[test]
fn rfc_9114_section_4_1_2_malformed_requests() {
    let malformed = |bytes: &[u8]| {
        assert_eq!(reset(bytes), (Some(Code::MESSAGE_ERROR), Vec::new()), "{}", bytes.escape_ascii());
    };
    // Section 4.2: names in upper case, fields of a connection, `TE` with another value.
    for field in [("X-A", "1"), ("connection", "close"), ("transfer-encoding", "chunked"), ("te", "gzip")] {
        malformed(&get("/", &[field]));
    }
    // Section 4.3: unknown pseudo-headers, those of responses, after headers, and in trailers.
    for field in [(":unknown", "x"), (":status", "200"), (":path", "/")] {
        malformed(&get("/", &[field]));
    }
    malformed(&headers(&[&[("x-a", "1")][..], &GET].concat()));
    let trailers = reset_of(&[post(&[]), headers(&[(":path", "/")])].concat());
    assert_eq!(trailers, Some(Code::MESSAGE_ERROR));
    // Section 4.3.1: missing pseudo-headers, an empty path.
    for missing in [0, 1, 3] {
        let mut fields = GET.to_vec();
        fields.remove(missing);
        malformed(&headers(&fields));
    }
    malformed(&get("", &[]));
    // A length unlike the content.
    malformed(&get("/", &[("content-length", "1")]));
    // Section 4.4: CONNECT without authority, or with a path and no protocol.
    malformed(&headers(&[(":method", "CONNECT")]));
    malformed(&headers(&[(":method", "CONNECT"), (":authority", "a:443"), (":path", "/")]));
}

#[test]
fn rfc_9114_section_4_1_2_bodies_of_another_length() {
    let with = |data: &[u8]| reset_of(&[post(&[("content-length", "3")]), frame(kind::DATA, data)].concat());
    assert_eq!([with(b"ab"), with(b"abcd")], [Some(Code::MESSAGE_ERROR); 2]);
    assert_eq!(with(b"abc"), None);
}

#[test]
fn rfc_9114_section_4_2_fields_that_are_permitted() {
    for field in [("te", "trailers"), ("cookie", "a=1"), ("x-a", ""), ("priority", "u=9")] {
        assert_eq!(reset(&get("/", &[field])), (None, vec![200]), "{field:?}");
    }
}

#[test]
fn rfc_9114_section_4_3_1_hosts_that_differ() {
    for (more, expected) in [(&[("host", "a")][..], 200), (&[("host", "b")], 400), (&[("host", "")], 400)] {
        assert_eq!(reset(&get("/", more)), (None, vec![expected]));
    }
    let without = [(":method", "GET"), (":scheme", "https"), (":path", "/")];
    assert_eq!(reset(&headers(&without)), (None, vec![400]));
    // No user information.
    let with_user = [&without[..], &[(":authority", "u@a")]].concat();
    assert_eq!(reset(&headers(&with_user)), (None, vec![400]));
}

#[test]
fn rfc_9114_section_4_4_frames_in_a_tunnel() {
    let connect = headers(&[
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":authority", "a"),
        (":path", "/"),
    ]);
    let failure = |next: &[u8]| failure(&[(0, &[&connect, next].concat())]);
    assert_eq!(failure(&headers(&[("x-a", "1")])), Some(Code::FRAME_UNEXPECTED));
    assert_eq!(failure(&frame(kind::DATA, b"x")), None);
}

#[test]
fn rfc_9114_section_5_2_goaway_must_not_increase() {
    let goaway = |id: u8| frame(kind::GOAWAY, &[id]);
    assert_eq!(on_control(&[goaway(8), goaway(8), goaway(0)].concat()), None);
    assert_eq!(on_control(&[goaway(0), goaway(1)].concat()), Some(Code::ID_ERROR));
}

#[test]
fn rfc_9114_section_6_2_unidirectional_streams() {
    // Section 6.2.2: clients do not push.
    assert_eq!(failure(&[(2, &[1])]), Some(Code::STREAM_CREATION_ERROR));
    // Section 6.2.1, RFC 9204 section 4.2: one stream of each type.
    for kind in [0, 2, 3] {
        assert_eq!(failure(&[(2, &[kind]), (6, &[kind])]), Some(Code::STREAM_CREATION_ERROR), "{kind}");
    }
    // Section 6.2: unknown types are no error, and are not read.
    let mut bench = Bench::new();
    bench.settings(&[]);
    bench.send(6, &[0x21, 1, 2, 3]);
    bench.turn();
    assert_eq!(bench.closing, None);
    assert_eq!(bench.client.received[&6].stop, Some(Code::STREAM_CREATION_ERROR));
    // Section 6.2: a stream may end before its type.
    for end in [Read::End, Read::Reset] {
        let mut bench = Bench::new();
        bench.send(2, &[0x40]);
        bench.end(2, end);
        bench.turn();
        assert_eq!(bench.closing, None);
    }
}

#[test]
fn rfc_9114_section_6_2_1_critical_streams_do_not_end() {
    for kind in [&[0, 4, 0][..], &[2], &[3]] {
        for end in [Read::End, Read::Reset] {
            let mut bench = Bench::new();
            bench.send(2, kind);
            bench.turn();
            assert_eq!(bench.closing, None);
            bench.end(2, end);
            bench.turn();
            assert_eq!(bench.failure(), Some(Code::CLOSED_CRITICAL_STREAM), "{kind:?} {end:?}");
        }
    }
    // Our control stream, before and after its settings were accepted.
    for window in [Some(0), None] {
        let mut bench = Bench::new();
        bench.client.window = window;
        bench.turn();
        bench.client.window = None;
        bench.stop(3);
        bench.turn();
        assert_eq!(bench.failure(), Some(Code::CLOSED_CRITICAL_STREAM), "{window:?}");
    }
}

#[test]
fn rfc_9114_section_6_2_1_settings_come_first() {
    assert_eq!(failure(&[(2, &[0, 0xd, 1, 0])]), Some(Code::MISSING_SETTINGS));
    assert_eq!(on_control(&frame(kind::SETTINGS, b"")), Some(Code::FRAME_UNEXPECTED));
    // Section 7.2.4.1
    assert_eq!(failure(&[(2, &[0, 4, 2, 4, 1])]), Some(Code::SETTINGS_ERROR));
}

#[test]
fn rfc_9114_section_7_1_frames_of_another_length() {
    for kind in [kind::GOAWAY, kind::MAX_PUSH_ID, kind::CANCEL_PUSH] {
        for payload in [&[][..], &[0x40], &[1, 2]] {
            assert_eq!(on_control(&frame(kind, payload)), Some(Code::FRAME_ERROR), "{kind:#x}");
        }
    }
    assert_eq!(on_control(&frame(kind::PRIORITY_UPDATE, &[])), Some(Code::FRAME_ERROR));
    let mut bench = Bench::new();
    let whole = get("/", &[]);
    bench.send_all(0, &whole[..whole.len() - 1]);
    bench.turn();
    assert_eq!(bench.failure(), Some(Code::FRAME_ERROR), "a stream that ends within a frame");
}

#[test]
fn rfc_9114_section_7_2_frames_on_the_wrong_stream() {
    for kind in
        [kind::CANCEL_PUSH, kind::SETTINGS, kind::PUSH_PROMISE, kind::GOAWAY, kind::MAX_PUSH_ID, 2, 6, 8, 9]
    {
        assert_eq!(failure(&[(0, &frame(kind, b""))]), Some(Code::FRAME_UNEXPECTED), "{kind:#x}");
    }
    for kind in [kind::DATA, kind::HEADERS, kind::PUSH_PROMISE, 2, 6, 8, 9] {
        assert_eq!(on_control(&frame(kind, b"")), Some(Code::FRAME_UNEXPECTED), "{kind:#x}");
    }
}

#[test]
fn rfc_9114_sections_7_2_3_and_7_2_7_pushes() {
    assert_eq!(on_control(&frame(kind::CANCEL_PUSH, &[0])), Some(Code::ID_ERROR));
    let limit = |id: u8| frame(kind::MAX_PUSH_ID, &[id]);
    assert_eq!(on_control(&[limit(1), limit(5)].concat()), None);
    assert_eq!(on_control(&[limit(5), limit(1)].concat()), Some(Code::ID_ERROR));
}

#[test]
fn rfc_9204_section_2_2_sections_that_cannot_be_decoded() {
    for section in [&b""[..], b"\x01\0", b"\0\0\x80", b"\0\0\xff\x7f"] {
        let failure = failure(&[(0, &frame(kind::HEADERS, section))]);
        assert_eq!(failure, Some(Code::QPACK_DECOMPRESSION_FAILED), "{}", section.escape_ascii());
    }
}

#[test]
fn rfc_9204_section_4_instructions_for_a_dynamic_table() {
    // Sections 4.3.1 to 4.3.4: with a capacity of 0, nothing can be inserted.
    for instruction in [&[0x3f, 0xe1, 0x1f][..], &[0xc0, 0], &[0x41, b'a', 0], &[0]] {
        let stream = [&[2], instruction].concat();
        assert_eq!(failure(&[(2, &stream)]), Some(Code::QPACK_ENCODER_STREAM_ERROR), "{instruction:x?}");
    }
    assert_eq!(failure(&[(2, &[2, 0x20])]), None);
    // Sections 4.4.1 and 4.4.3: no section waits for an acknowledgement, and nothing was inserted.
    for instruction in [0x80, 0, 1] {
        assert_eq!(failure(&[(2, &[3, instruction])]), Some(Code::QPACK_DECODER_STREAM_ERROR));
    }
    assert_eq!(failure(&[(2, &[3, 0x44])]), None);
}

#[test]
fn rfc_9218_section_7_2_priorities_of_streams_that_are_no_requests() {
    let update = |id: &[u8]| on_control(&frame(kind::PRIORITY_UPDATE, &[id, b"u=1"].concat()));
    assert_eq!(update(&[4]), None);
    // A stream of the server, a unidirectional stream, and a stream beyond the limit.
    for id in [&[1][..], &[2], &[0x80, 1, 0, 0]] {
        assert_eq!(update(id), Some(Code::ID_ERROR), "{id:x?}");
    }
    let push = frame(kind::PRIORITY_UPDATE_PUSH, b"\0u=1");
    assert_eq!(on_control(&push), Some(Code::ID_ERROR));
    let on_request = frame(kind::PRIORITY_UPDATE, b"\0u=1");
    assert_eq!(failure(&[(0, &on_request)]), Some(Code::FRAME_UNEXPECTED));
}

#[test]
fn rfc_9114_section_9_unknown_frames_are_ignored() {
    let mut bytes = frame(0x21, b"abc");
    bytes.extend(get("/", &[]));
    FrameHead { kind: 0x1f * 9 + 0x21, length: 2 }.write(&mut bytes);
    bytes.extend(b"xy");
    assert_eq!(reset(&bytes), (None, vec![200]));
    assert_eq!(on_control(&frame(0x21, b"abc")), None);
}
