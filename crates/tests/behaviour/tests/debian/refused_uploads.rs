//! Uploads refused before their end: the client gets the response, not an error.

use std::io::Write as _;
use std::time::{Duration, Instant};

use brisk_behaviour::h2::{RST_STREAM, frame, get, post_head};
use brisk_behaviour::h2_client::Client;
use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_testkit::nginx::Nginx;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::wait_until;

/// More than any buffer on the way holds.
const LENGTH: usize = 20 << 20;

/// After it a refused upload is reset.
const DISCARDED: usize = 32 << 20;

/// Each is a race between the answer and the upload.
const TIMES: usize = 6;

/// Time without bytes after which a refused upload is reset, and number of attempts on a machine that pauses for that time.
const PAUSE: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 10;

/// With and without a length, over HTTP/2 and HTTP/1.1. Otherwise curl would ask first whether it may.
const WAYS: [[&str; 5]; 4] = [
    ["--http2", "--header", "Expect:", "--header", "X-A: b"],
    ["--http2", "--header", "Expect:", "--header", "Content-Length:"],
    ["--http1.1", "--header", "Expect:", "--header", "X-A: b"],
    ["--http1.1", "--header", "Expect:", "--header", "Transfer-Encoding: chunked"],
];

fn site(keys: &str, tables: &str) -> Site {
    Site::custom(keys, tables, |setup| setup.file("body", vec![b'x'; LENGTH]))
}

/// Result of the first attempt that is right, or that took less than [`PAUSE`]; otherwise of the last one.
fn in_time<T>(attempt: impl Fn() -> (T, bool)) -> T {
    let mut left = ATTEMPTS;
    loop {
        let started = Instant::now();
        let (result, is_right) = attempt();
        left -= 1;
        if is_right || started.elapsed() < PAUSE || left == 0 {
            return result;
        }
    }
}

/// What curl says of uploads to `path` of `site`.
#[track_caller]
fn assert_refused(site: &Site, path: &str, statuses: &[&str]) {
    let file = format!("@{}", site.brisk.folder().join("body").display());
    for way in WAYS {
        for time in 0..TIMES {
            let options = ["--output", "/dev/null", "--write-out", "%{http_code}", "--data-binary", &file];
            let answer = in_time(|| {
                let answer = site.curl(&[&way[..], &options].concat(), path);
                let is_right = answer.status.success();
                (answer, is_right)
            });
            let status = answer.success();
            assert!(statuses.contains(&&*status), "{status}: {way:?}, upload {time}");
        }
    }
}

#[test]
fn curl_learns_that_its_upload_is_too_large() {
    let origin = Origin::fixed("taken");
    let site = site("server.limits.body_size = \"1MiB\"\n", &proxy_to(&[&origin.url()]));
    assert_refused(&site, "/", &["413"]);
}

#[test]
fn curl_learns_that_an_upstream_refuses_its_upload() {
    // It takes 1 MiB unless its configuration says otherwise; and what has no length is not for a file.
    let nginx = Nginx::http();
    let site = site("", &proxy_to(&[&nginx.url()]));
    assert_refused(&site, "/1k", &["413", "405"]);
}

#[test]
fn curl_gets_answers_that_need_no_upload() {
    let tables = "\n[[host.route]]\npath = \"/\"\nrespond = { status = 403, body = \"no\" }\n";
    assert_refused(&site("", tables), "/", &["403"]);
}

fn refusing() -> Site {
    site(
        "server.limits.body_size = \"1MiB\"\n",
        "\n[[host.route]]\npath = \"/\"\nrespond = { status = 404 }\n",
    )
}

#[test]
fn a_client_over_http_1_that_goes_on_with_a_refused_upload_is_closed_in_the_end() {
    let site = refusing();
    let mut client = site.connect();
    let head = format!("POST / HTTP/1.1\r\nHost: {NAME}\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.write_all(head.as_bytes()).expect("a server that reads");
    assert_eq!(client.response().status(), 404);
    // 256 MiB, of which 32 MiB are read.
    let piece = [b"100000\r\n".to_vec(), vec![b'x'; 1 << 20], b"\r\n".to_vec()].concat();
    assert!((0..256).any(|_| client.write_all(&piece).is_err()));
}

#[test]
fn a_client_that_goes_on_with_a_refused_upload_is_reset_in_the_end() {
    let site = refusing();
    let taken = DISCARDED / 2..=DISCARDED + (4 << 20);
    let sent = in_time(|| {
        let sent = sent_until_reset(&site);
        (sent, taken.contains(&sent))
    });
    assert!(taken.contains(&sent), "{sent} bytes were taken");
}

/// Bytes of a refused upload until it is reset.
fn sent_until_reset(site: &Site) -> usize {
    let mut client = Client::connect(site);
    client.send(&post_head(1, "/"));
    assert_eq!(client.status(1), 404);
    let piece = [frame(0, 0, 1, &[b'x'; 16384]), frame(0, 0, 1, &[b'x'; 16384])].concat();
    let (mut sent, mut window) = (0, 65_535_usize);
    let reset = loop {
        let frames = client.frames(Duration::from_millis(1));
        if let Some(reset) = frames.iter().find(|frame| frame.kind == RST_STREAM) {
            break reset.clone();
        }
        let updates = frames.iter().filter(|frame| frame.kind == 8 && frame.stream == 1);
        window += updates.map(|frame| increment(&frame.payload)).sum::<usize>();
        while window >= 32768 && sent <= 2 * DISCARDED {
            client.send(&piece);
            (sent, window) = (sent + 32768, window - 32768);
        }
    };
    assert_eq!((reset.stream, &reset.payload[..]), (1, &[0; 4][..]), "NO_ERROR");
    // The connection goes on.
    client.send(&get(3, "/"));
    assert_eq!(client.status(3), 404);
    sent
}

fn increment(payload: &[u8]) -> usize {
    u32::from_be_bytes(payload[..4].try_into().expect("four bytes")) as usize
}

#[test]
fn a_refused_upload_that_pauses_is_reset() {
    let site = refusing();
    let mut client = Client::connect(&site);
    client.send(&post_head(1, "/"));
    assert_eq!(client.status(1), 404);
    let reset = client.wait_for("reset", |frame| frame.kind == RST_STREAM && frame.stream == 1);
    assert_eq!(reset.payload, [0; 4], "NO_ERROR");
    client.send(&get(3, "/"));
    assert_eq!(client.status(3), 404);
}

#[test]
fn a_refused_upload_that_trickles_is_reset() {
    let site = refusing();
    let mut client = Client::connect(&site);
    client.send(&post_head(1, "/"));
    assert_eq!(client.status(1), 404);
    wait_until("a reset", || {
        client.send(&frame(0, 0, 1, b"x"));
        let frames = client.frames(Duration::from_millis(200));
        frames.iter().any(|frame| frame.kind == RST_STREAM && frame.stream == 1).then_some(())
    });
    client.send(&get(3, "/"));
    assert_eq!(client.status(3), 404);
}
