//! Violations of RFC 9114 and RFC 9204 by a client, and the error codes of the gateway, over QUIC.
//!
//! The tests of the layer without QUIC (`http-server/src/h3/tests/rules.rs`) have a case for each rule.

use std::io::Write;

use brisk_behaviour::h3_client::{self as h3, DATA, HEADERS, frame, head, response, section};
use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_testkit::origin::Origin;
use brisk_testkit::quic::QuicConnection;
use quinn_proto::{ConnectionError, Dir, Side, StreamId};

const FIXED: &str = "\n[[host.route]]\npath = \"/\"\nrespond = { body = \"here\" }\n";

/// Error codes of RFC 9114 section 8.1 and RFC 9204 section 6.
const STREAM_CREATION_ERROR: u64 = 0x103;
const CLOSED_CRITICAL_STREAM: u64 = 0x104;
const FRAME_UNEXPECTED: u64 = 0x105;
const FRAME_ERROR: u64 = 0x106;
const ID_ERROR: u64 = 0x108;
const SETTINGS_ERROR: u64 = 0x109;
const MISSING_SETTINGS: u64 = 0x10a;
const REQUEST_INCOMPLETE: u64 = 0x10d;
const MESSAGE_ERROR: u64 = 0x10e;
const DECOMPRESSION_FAILED: u64 = 0x200;
const ENCODER_STREAM_ERROR: u64 = 0x201;
const DECODER_STREAM_ERROR: u64 = 0x202;

fn site() -> Site {
    h3::h3_site("", FIXED)
}

fn bare(site: &Site) -> QuicConnection {
    let mut connection = h3::client(site).connect(site.brisk.https());
    connection.handshake().expect("a handshake");
    connection
}

/// Error code with which the gateway closes the connection.
#[track_caller]
fn closed(mut connection: QuicConnection) -> u64 {
    match connection.wait(|_| false).expect_err("an end") {
        ConnectionError::ApplicationClosed(close) => close.error_code.into(),
        other => panic!("{other}"),
    }
}

/// Error code after these bytes on the first request stream, which stays open.
fn on_request(site: &Site, bytes: &[u8]) -> u64 {
    let mut connection = h3::connect(&h3::client(site), site.brisk.https());
    let stream = connection.connection.streams().open(Dir::Bi).expect("a stream");
    connection.connection.send_stream(stream).write(bytes).expect("an open stream");
    closed(connection)
}

/// Error code after these unidirectional streams.
fn on_streams(site: &Site, streams: &[&[u8]]) -> u64 {
    let mut connection = bare(site);
    for bytes in streams {
        connection.send_uni(bytes);
    }
    closed(connection)
}

/// Error code after these bytes on the control stream, after its settings.
fn on_control(site: &Site, bytes: &[u8]) -> u64 {
    on_streams(site, &[&[&[0, 4, 0], bytes].concat()])
}

/// Error code with which the gateway resets the response to this request, or the status of the response.
fn on_message(connection: &mut QuicConnection, bytes: &[u8]) -> Result<String, u64> {
    let stream = connection.request(bytes);
    let received = connection.response_or_reset(stream).expect("a connection that stays open")?;
    Ok(h3::Received::read(&received).status().to_owned())
}

#[test]
fn frames_in_the_wrong_order_or_place_close_the_connection() {
    let site = site();
    // RFC 9114 section 4.1: DATA before HEADERS. Section 7.2: frames of the control stream, and of servers.
    for kind in [DATA, 0x3, 0x4, 0x5, 0x7, 0xd, 0x2, 0x6, 0x8, 0x9] {
        assert_eq!(on_request(&site, &frame(kind, b"\0")), FRAME_UNEXPECTED, "{kind:#x}");
    }
    for kind in [DATA, HEADERS, 0x5, 0x2, 0x6, 0x8, 0x9] {
        assert_eq!(on_control(&site, &frame(kind, b"\0")), FRAME_UNEXPECTED, "{kind:#x}");
    }
    // Section 4.1: DATA and HEADERS after trailers.
    let whole =
        [head("POST", "/", &[]), frame(DATA, b"x"), frame(HEADERS, &section(&[("x-a", "1")]))].concat();
    for kind in [DATA, HEADERS] {
        assert_eq!(
            on_request(&site, &[&whole[..], &frame(kind, b"x")].concat()),
            FRAME_UNEXPECTED,
            "{kind:#x}"
        );
    }
    // Section 7.2.4: settings are sent once.
    assert_eq!(on_control(&site, &[4, 0]), FRAME_UNEXPECTED);
}

#[test]
fn frames_of_the_wrong_length_close_the_connection() {
    let site = site();
    // RFC 9114 section 7.1: GOAWAY, MAX_PUSH_ID and CANCEL_PUSH have one number.
    for kind in [0x3, 0x7, 0xd] {
        assert_eq!(on_control(&site, &frame(kind, b"")), FRAME_ERROR, "{kind:#x}");
        assert_eq!(on_control(&site, &frame(kind, b"\x01\x02")), FRAME_ERROR, "{kind:#x}");
    }
    let mut connection = h3::connect(&h3::client(&site), site.brisk.https());
    let whole = head("GET", "/", &[]);
    connection.request(&whole[..whole.len() - 1]);
    assert_eq!(closed(connection), FRAME_ERROR);
}

#[test]
fn ids_that_are_not_permitted_close_the_connection() {
    let site = site();
    // RFC 9114 section 5.2: an ID of GOAWAY that increases. Sections 7.2.3 and 7.2.7: pushes that were not promised, and a
    // limit that decreases.
    assert_eq!(on_control(&site, &[7, 1, 0, 7, 1, 4]), ID_ERROR);
    assert_eq!(on_control(&site, &[3, 1, 0]), ID_ERROR);
    assert_eq!(on_control(&site, &[0xd, 1, 5, 0xd, 1, 4]), ID_ERROR);
}

#[test]
fn unidirectional_streams_of_the_wrong_kind_or_number_close_the_connection() {
    let site = site();
    // RFC 9114 section 6.2.2: clients do not push. Section 6.2.1, RFC 9204 section 4.2: one stream of each kind.
    assert_eq!(on_streams(&site, &[&[1]]), STREAM_CREATION_ERROR);
    for kind in [0, 2, 3] {
        assert_eq!(on_streams(&site, &[&[kind], &[kind]]), STREAM_CREATION_ERROR, "{kind}");
    }
    // Section 6.2.1: settings are the first frame.
    assert_eq!(on_streams(&site, &[&[0, 0xd, 1, 0]]), MISSING_SETTINGS);
    // Section 7.2.4.1: settings of HTTP/2; section 7.2.4: a setting twice.
    for settings in
        [&[0, 4, 2, 2, 1][..], &[0, 4, 2, 3, 1], &[0, 4, 2, 4, 1], &[0, 4, 2, 5, 1], &[0, 4, 4, 6, 1, 6, 1]]
    {
        assert_eq!(on_streams(&site, &[settings]), SETTINGS_ERROR);
    }
}

#[test]
fn critical_streams_that_end_close_the_connection() {
    let site = site();
    for kind in [&[0, 4, 0][..], &[2], &[3]] {
        for resets in [false, true] {
            let mut connection = bare(&site);
            let stream = connection.connection.streams().open(Dir::Uni).expect("a stream");
            let mut sending = connection.connection.send_stream(stream);
            sending.write(kind).expect("an open stream");
            // The response shows that the kind of the stream was read before its reset arrives, which discards unread bytes.
            assert_eq!(on_message(&mut connection, &head("GET", "/", &[])), Ok("200".to_owned()), "{kind:?}");
            let mut sending = connection.connection.send_stream(stream);
            if resets {
                sending.reset(0_u32.into()).expect("an open stream");
            } else {
                sending.finish().expect("an open stream");
            }
            assert_eq!(closed(connection), CLOSED_CRITICAL_STREAM, "{kind:?} {resets}");
        }
    }
}

#[test]
fn the_control_stream_of_the_gateway_is_not_to_be_stopped() {
    let site = site();
    let mut connection = bare(&site);
    let stream = StreamId::new(Side::Server, Dir::Uni, 0);
    let mut received = Vec::new();
    connection
        .wait(|this| {
            this.read(stream, &mut received);
            !received.is_empty()
        })
        .expect("settings");
    connection.connection.recv_stream(stream).stop(0_u32.into()).expect("an open stream");
    assert_eq!(closed(connection), CLOSED_CRITICAL_STREAM);
}

#[test]
fn requests_may_be_reset_within_a_frame_and_instructions_cancel_them() {
    let site = site();
    let mut connection = bare(&site);
    connection.send_uni(&[0, 4, 0]);
    // RFC 9204 section 4.4.2: Stream Cancellation, also of streams without references.
    connection.send_uni(&[3, 0x40, 0x44]);
    // RFC 9114 section 7.1: a stream that ends abruptly may be reset at any point of a frame.
    let whole = head("GET", "/", &[]);
    for length in [1, 3, whole.len() - 1] {
        let stream = connection.connection.streams().open(Dir::Bi).expect("a stream");
        let mut sending = connection.connection.send_stream(stream);
        sending.write(&whole[..length]).expect("an open stream");
        sending.reset(0x10c_u32.into()).expect("an open stream");
        assert_eq!(on_message(&mut connection, &whole), Ok("200".to_owned()), "{length}");
    }
}

#[test]
fn messages_that_are_malformed_reset_their_stream_and_no_other() {
    let site = site();
    let mut connection = h3::connect(&h3::client(&site), site.brisk.https());
    let open = connection.connection.streams().open(Dir::Bi).expect("a stream");
    let valid = [(":method", "GET"), (":scheme", "https"), (":authority", NAME), (":path", "/")];
    let with = |more: &[(&str, &str)]| frame(HEADERS, &section(&[&valid[..], more].concat()));
    let without = |index: usize| {
        let mut fields = valid.to_vec();
        fields.remove(index);
        frame(HEADERS, &section(&fields))
    };
    let malformed = [
        // RFC 9114 section 4.2
        with(&[("X-Upper", "1")]),
        with(&[("connection", "close")]),
        with(&[("transfer-encoding", "chunked")]),
        with(&[("te", "gzip")]),
        with(&[("x-a", "a\nb")]),
        with(&[("x a", "b")]),
        // Section 4.3
        with(&[(":unknown", "1")]),
        with(&[(":status", "200")]),
        with(&[(":path", "/")]),
        frame(HEADERS, &section(&[&[("x-a", "1")][..], &valid].concat())),
        // Section 4.3.1
        without(0),
        without(1),
        without(3),
        frame(HEADERS, &section(&[valid[0], valid[1], valid[2], (":path", "")])),
        // Section 4.1.2
        with(&[("content-length", "1")]),
        [head("POST", "/", &[("content-length", "3")]), frame(DATA, b"four")].concat(),
        // Section 4.4
        frame(HEADERS, &section(&[(":method", "CONNECT")])),
    ];
    for bytes in malformed {
        let outcome = on_message(&mut connection, &bytes);
        assert_eq!(outcome, Err(MESSAGE_ERROR), "{}", bytes.escape_ascii());
    }
    // Section 4.1: a request that ends before its head.
    assert_eq!(on_message(&mut connection, b""), Err(REQUEST_INCOMPLETE));
    // The stream that was opened before is still answered.
    let mut sending = connection.connection.send_stream(open);
    sending.write(&head("GET", "/", &[])).expect("an open stream");
    sending.finish().expect("an open stream");
    assert_eq!(response(&mut connection, open).expect("a response").body, b"here");
}

#[test]
fn crumbs_of_cookies_are_joined_for_the_upstream() {
    let origin = Origin::fixed("here");
    let site = h3::h3_site("", &proxy_to(&[&origin.url()]));
    let mut connection = h3::connect(&h3::client(&site), site.brisk.https());
    let request = head("GET", "/", &[("cookie", "a=1"), ("cookie", "b=2")]);
    assert_eq!(on_message(&mut connection, &request), Ok("200".to_owned()));
    assert_eq!(origin.last_request().head.all("cookie"), ["a=1; b=2"]);
}

#[test]
fn messages_between_http3_and_http1_are_converted() {
    let answer = b"HTTP/1.1 200 OK\r\nX-Upper: Kept\r\nConnection: keep-alive, X-Named\r\nX-Named: 1\r\nKeep-Alive: timeout=5\r\n\
                   Proxy-Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhere\r\n0\r\n\r\n";
    let origin = Origin::answering(move |_, stream| stream.write_all(answer));
    let site = h3::h3_site("", &proxy_to(&[&origin.url()]));
    let mut connection = h3::connect(&h3::client(&site), site.brisk.https());
    let received = h3::get(&mut connection, "/");
    assert_eq!((received.status(), &received.body[..]), ("200", &b"here"[..]));
    // RFC 9114 section 4.2: names in lower case, without fields of the connection. Section 4.3: pseudo-headers first.
    let fields = &received.sections[0];
    assert_eq!(received.field("x-upper"), Some("Kept"));
    assert_eq!(fields.iter().filter(|(name, _)| name.starts_with(':')).count(), 1);
    assert_eq!(fields[0], (":status".to_owned(), "200".to_owned()));
    for (name, _) in fields {
        assert_eq!(*name, name.to_lowercase());
        let is_of_connection =
            ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "x-named"]
                .contains(&name.as_str());
        assert!(!is_of_connection, "{name}");
    }
    // Section 4.3.1: `Host` is made of `:authority`.
    assert_eq!(origin.last_request().head.all("host"), [NAME]);
}

#[test]
fn a_server_that_switches_protocols_is_a_bad_gateway() {
    // RFC 9114 section 4.5: HTTP/3 has no 101.
    let switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n";
    let origin = Origin::answering(move |_, stream| stream.write_all(switch));
    let site = h3::h3_site("", &proxy_to(&[&origin.url()]));
    let mut connection = h3::connect(&h3::client(&site), site.brisk.https());
    assert_eq!(on_message(&mut connection, &head("GET", "/", &[])), Ok("502".to_owned()));
}

#[test]
fn unknown_frames_settings_and_streams_are_ignored() {
    let site = site();
    let mut connection = bare(&site);
    // RFC 9114 sections 6.2.3, 7.2.4.1, 7.2.8 and 9.
    connection.send_uni(&[&[0, 4, 3, 0x21, 0x40, 0xff][..], &frame(0x21, b"unknown")].concat());
    connection.send_uni(&[0x40, 0x5f, 1, 2, 3]);
    connection.send_uni(&[]);
    let request = [frame(0x21, b"unknown"), head("GET", "/", &[]), frame(0x2a, b"")].concat();
    assert_eq!(on_message(&mut connection, &request), Ok("200".to_owned()));
}

#[test]
fn sections_and_instructions_for_a_dynamic_table_close_the_connection() {
    let site = site();
    // RFC 9204 section 2.2.3, section 4.5.1: a count of entries; section 3.1: an index beyond the static table; section 4.5.3
    // and 4.5.5: indices after the base.
    for section in [&b"\x02\0\xd1"[..], b"\0\0\x80", b"\0\0\xff\x7f", b"\0\0\x10", b"\0\0\0\x01a", b""] {
        let code = on_request(&site, &frame(HEADERS, section));
        assert_eq!(code, DECOMPRESSION_FAILED, "{}", section.escape_ascii());
    }
    // Section 4.3: a capacity above the setting, insertions, and a duplicate.
    for instruction in [&[0x3f, 0xe1, 0x1f][..], &[0xc0, 0], &[0x41, b'a', 0], &[0]] {
        let code = on_streams(&site, &[&[&[2], instruction].concat()]);
        assert_eq!(code, ENCODER_STREAM_ERROR, "{instruction:x?}");
    }
    // Section 4.4: acknowledgements of sections without references, and increments of 0 and above the insertions.
    for instruction in [0x80, 0, 1] {
        assert_eq!(on_streams(&site, &[&[3, instruction]]), DECODER_STREAM_ERROR, "{instruction:#x}");
    }
}
