use brisk_wire::h2::block;
use brisk_wire::h2::frame::{PREFACE, WriteFrames};
use brisk_wire::h2::hpack::Encoder;

use super::*;

fn place(millis: u64) -> Place {
    Place { packet: millis, time: Nanos(millis * 1_000_000), offset: millis }
}

/// Requests as `stream method path status begin response end sent`, in milliseconds.
fn text(http: &Http) -> Vec<String> {
    let ms = |us: Option<u64>| us.map_or("-".to_owned(), |us| (us / 1000).to_string());
    let line = |report: RequestReport| {
        let RequestReport { stream, method, host, path, status, .. } = &report;
        let status = status.map_or("-".to_owned(), |status| status.to_string());
        let times = [Some(report.begin_us), report.response_us, report.end_us].map(ms).join(" ");
        format!("{stream} {method} {host}{path} {status} {times} {}", report.bytes_sent)
    };
    http.reports(Nanos(0)).into_iter().map(line).collect()
}

#[test]
fn pipelined_requests_of_http1_have_their_responses_in_pieces_of_any_size() {
    let requests = "GET /a HTTP/1.1\r\nHost: one\r\n\r\nPOST /b HTTP/1.1\r\nHost: two\r\nContent-Length: 5\r\n\r\nhello\
                    HEAD /c HTTP/1.1\r\nHost: three\r\n\r\n";
    let responses = "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc\
                     HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n\
                     HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
    for size in [1, 7, 1000] {
        let mut http = Http::default();
        for piece in requests.as_bytes().chunks(size) {
            http.add(Party::Client, place(1), piece);
        }
        for (index, byte) in responses.bytes().enumerate() {
            http.add(Party::Server, place(100 + index as u64), &[byte]);
        }
        let lines = text(&http);
        assert_eq!(lines[0], "1 GET one/a 200 1 128 168 3", "{size}");
        assert!(lines[1].starts_with("2 POST two/b 404 1 169") && lines[1].ends_with(" 2"), "{lines:?}");
        assert!(lines[2].starts_with("3 HEAD three/c 200 1") && lines[2].ends_with(" 0"), "{lines:?}");
        assert_eq!(http.reports(Nanos(0))[1].bytes_received, 5);
    }
}

#[test]
fn any_method_begins_a_request() {
    for method in ["PROPFIND", "REPORT", "MKCOL", "PURGE", "M-SEARCH"] {
        let mut http = Http::default();
        let request = format!("{method} /a HTTP/1.1\r\nHost: one\r\n\r\n");
        http.add(Party::Client, place(1), request.as_bytes());
        assert_eq!(text(&http), [format!("1 {method} one/a - 1 - - 0")]);
    }
    assert!(Http::is_begin(b"G") && Http::is_begin(b"PRI * "), "more may follow");
    for other in [&b"SSH-2.0-x y\r\n"[..], b"\x16\x03\x01", b" / HTTP/1.1", b"get / HTTP/1.1"] {
        assert!(!Http::is_begin(other), "{other:?}");
    }
}

#[test]
fn a_response_without_length_ends_with_the_connection() {
    let mut http = Http::default();
    http.add(Party::Client, place(0), b"GET / HTTP/1.0\r\n\r\n");
    http.add(Party::Server, place(5), b"HTTP/1.0 200 OK\r\n\r\nhello");
    http.closed(Party::Server, place(9));
    assert_eq!(text(&http), ["1 GET / 200 0 5 9 5"]);
    let names: Vec<_> = http.names(Party::Server).collect();
    assert_eq!(names, [(5, "200 for /".to_owned())]);
}

fn headers(encoder: &mut Encoder, out: &mut Vec<u8>, stream: u32, fields: &[(&str, &str)], is_last: bool) {
    let at = block::begin(out);
    for (name, value) in fields {
        encoder.field(name.as_bytes(), value.as_bytes(), out);
    }
    block::end(out, at, stream, is_last);
}

#[test]
fn streams_of_http2_have_their_own_times() {
    let (mut client, mut server) = (Encoder::default(), Encoder::default());
    let mut sent = PREFACE.to_vec();
    sent.frame(kind_settings(), 0, 0, &[]);
    for (stream, path) in [(1, "/a"), (3, "/b"), (5, "/c")] {
        let fields = [(":method", "GET"), (":path", path), (":authority", "site")];
        headers(&mut client, &mut sent, stream, &fields, true);
    }
    let mut http = Http::default();
    // Settings of the server may come first.
    let mut early = Vec::new();
    early.frame(kind_settings(), 0, 0, &[]);
    http.add(Party::Server, place(1), &early);
    for byte in &sent {
        http.add(Party::Client, place(3), &[*byte]);
    }
    let mut answer = |millis, write: &mut dyn FnMut(&mut Encoder, &mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&mut server, &mut out);
        for byte in out {
            http.add(Party::Server, place(millis), &[byte]);
        }
    };
    answer(10, &mut |server, out| headers(server, out, 3, &[(":status", "200")], false));
    answer(20, &mut |server, out| headers(server, out, 1, &[(":status", "304")], true));
    answer(30, &mut |_, out| out.frame(0, 0, 3, b"12345"));
    answer(40, &mut |_, out| out.frame(0, 1 | 8, 3, b"\x02678\0\0"));
    answer(50, &mut |_, out| out.frame(3, 0, 5, &[0, 0, 0, 8]));
    let wanted = ["1 GET site/a 304 3 20 20 0", "3 GET site/b 200 3 10 40 8", "5 GET site/c - 3 - 50 0"];
    assert_eq!(text(&http), wanted);
    assert!(http.reports(Nanos(0))[2].is_reset);
}

const fn kind_settings() -> u8 {
    brisk_wire::h2::frame::kind::SETTINGS
}

#[test]
fn requests_and_memory_are_bounded() {
    let mut http = Http::default();
    for number in 0..5000_u64 {
        http.add(Party::Client, place(number), b"GET /some/path HTTP/1.1\r\nHost: site\r\n\r\n");
        http.add(Party::Server, place(number), b"HTTP/1.1 204 No Content\r\n\r\n");
        assert!(http.memory() < 1 << 20);
    }
    assert_eq!((http.count(), http.reports(Nanos(0)).len()), (5000, REQUESTS));
    let mut other = Http::default();
    other.add(Party::Client, place(0), b"SSH-2.0-OpenSSH\r\n");
    other.add(Party::Server, place(0), b"SSH-2.0-OpenSSH\r\n");
    assert_eq!(other.count(), 0);
}
