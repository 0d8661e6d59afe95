//! Compressed responses, as curl decodes them.

use std::io::{Read, Write};
use std::sync::mpsc;

use brisk_behaviour::site::{NAME, Site, upstream};
use brisk_testkit::http1::Head;
use brisk_testkit::origin::Origin;

const CODINGS: [&str; 3] = ["zstd", "br", "gzip"];

/// A text of some length, of which no two lines are alike.
fn text(lines: usize) -> String {
    let line = |line| format!("line {line} of a text with {} lines\n", line * line % 977);
    (0..lines).map(line).collect::<Vec<_>>().concat()
}

fn compressing(servers: &[&str]) -> String {
    format!("\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\ncompression = true\n{}", upstream(servers))
}

/// An upstream that answers with this head and body, whatever its length.
fn origin(head: &str, body: String) -> Origin {
    let head = head.to_owned();
    Origin::answering(move |request, stream| {
        let is_head = request.head.line.starts_with("HEAD ");
        write!(stream, "HTTP/1.1 200 OK\r\n{head}Content-Length: {}\r\n\r\n", body.len())?;
        if is_head { Ok(()) } else { stream.write_all(body.as_bytes()) }
    })
}

#[test]
fn every_coding_is_decoded_by_curl_over_both_versions() {
    for lines in [100, 20_000] {
        let body = text(lines);
        let origin = origin("Content-Type: text/html\r\nETag: \"x\"\r\n", body.clone());
        let site = Site::with(&compressing(&[&origin.url()]));
        for version in ["--http1.1", "--http2"] {
            for coding in CODINGS {
                let accept = format!("Accept-Encoding: {coding}");
                let sizes = "\n%{size_download} %header{content-encoding} %header{etag} %header{vary}";
                let answer = site
                    .curl(&[version, "--compressed", "--header", &accept, "--write-out", sizes], "/")
                    .success();
                let (plain, facts) = answer.rsplit_once('\n').expect("facts");
                assert!(plain == body, "{version} {coding} {lines}: another text");
                let facts: Vec<_> = facts.split(' ').collect();
                assert!(facts[0].parse::<usize>().expect("a size") < body.len() / 3, "{facts:?}");
                assert_eq!(facts[1..], [coding, "W/\"x\"", "accept-encoding"], "{version} {lines}");
            }
            let plain = site.curl(&[version], "/").success();
            assert!(plain == body, "{version}: without Accept-Encoding");
        }
        let head = site.curl(&["--head", "--header", "Accept-Encoding: br"], "/").success().to_lowercase();
        assert!(head.contains("content-encoding: br\r\n") && !head.contains("content-length"), "{head}");
    }
}

#[test]
fn files_and_fixed_answers_are_compressed_and_ranges_are_not() {
    let body = text(3000);
    let tables = "\ncompression = { codings = [\"br\", \"gzip\"] }\n\
                  \n[[host.route]]\npath = \"/files/\"\nstatic = \"www\"\n\
                  \n[[host.route]]\npath = \"/plain/\"\nstatic = \"www\"\ncompression = false\n";
    let site = Site::custom("", tables, |setup| setup.file("www/page.html", &body).file("www/x.png", &body));
    let asked = ["--compressed", "--write-out", "\n%header{content-encoding}"];
    assert!(site.curl(&asked, "/files/page.html").success() == format!("{body}\nbr"));
    assert!(site.curl(&asked, "/files/x.png").success() == format!("{body}\n"));
    assert!(site.curl(&asked, "/plain/page.html").success() == format!("{body}\n"));
    let part = site.curl(&["--compressed", "--range", "0-3", "--include"], "/files/page.html").success();
    assert!(part.contains(" 206") && part.ends_with("\r\n\r\nline"), "{part}");
    let tag = site.curl(
        &[&asked[..1], &["--output", "/dev/null", "--write-out", "%header{etag}"]].concat(),
        "/files/page.html",
    );
    let tag = tag.success();
    assert!(tag.starts_with("W/\""), "{tag}");
    let known = format!("If-None-Match: {tag}");
    let again = site.curl(&["--compressed", "--include", "--header", &known], "/files/page.html").success();
    assert!(
        again.contains(" 304") && again.to_lowercase().contains(&format!("etag: {}", tag.to_lowercase())),
        "{again}"
    );
}

/// Events over a connection that stays open: each is there before the next is sent.
#[test]
fn events_arrive_while_the_upstream_waits() {
    let (sender, receiver) = mpsc::channel::<String>();
    let receiver = std::sync::Mutex::new(receiver);
    let origin = Origin::answering(move |_, stream| {
        stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        )?;
        for event in receiver.lock().expect("one request").iter() {
            write!(stream, "{:x}\r\n{event}\r\n", event.len())?;
        }
        stream.write_all(b"0\r\n\r\n")
    });
    let site = Site::with(&compressing(&[&origin.url()]));
    let mut connection = site.connect();
    let head = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nAccept-Encoding: br\r\n\r\n");
    connection.write_all(head.as_bytes()).expect("a server that reads");
    sender.send("data: 0\n\n".to_owned()).expect("an origin");
    let head = Head::read(&mut connection).expect("a head").expect("an answer");
    assert_eq!(head.header("content-encoding"), Some("br"));
    let mut chunks = 0;
    for number in 1..4 {
        // Without a flush nothing comes, and reading fails after its timeout.
        let mut size = String::new();
        let mut byte = [0];
        while !size.ends_with("\r\n") {
            connection.read_exact(&mut byte).expect("an event before the next is sent");
            size.push(char::from(byte[0]));
        }
        let size = usize::from_str_radix(size.trim(), 16).expect("a size");
        connection.read_exact(&mut vec![0; size + 2]).expect("a chunk");
        chunks += usize::from(size > 0);
        sender.send(format!("data: {number}\n\n")).expect("an origin");
    }
    drop(sender);
    assert_eq!(chunks, 3);
}

#[test]
fn trailers_follow_a_compressed_body() {
    let origin = Origin::answering(|_, stream| {
        let body = "x".repeat(2000);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n";
        write!(stream, "{head}7d0\r\n{body}\r\n0\r\nX-Sum: 532\r\n\r\n")
    });
    let site = Site::with(&compressing(&[&origin.url()]));
    for version in ["--http1.1", "--http2"] {
        let options = [version, "--compressed", "--header", "TE: trailers", "--dump-header", "-"];
        let answer = site.curl(&options, "/").success().to_lowercase();
        assert!(
            answer.contains("x-sum: 532") && answer.contains("content-encoding: zstd"),
            "{version}: {answer}"
        );
        assert!(answer.contains(&"x".repeat(2000)), "{version}");
    }
}

#[test]
fn a_body_shorter_than_its_length_breaks_for_the_client_too() {
    let origin = Origin::raw(|mut stream| {
        Head::read(&mut stream)?;
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 90000\r\n\r\n{}",
            "x".repeat(80_000)
        )
    });
    let fine = "\n[[host.route]]\npath = \"/fine\"\nrespond = { body = \"fine\" }\n";
    let site = Site::with(&(fine.to_owned() + &compressing(&[&origin.url()])));
    for version in ["--http1.1", "--http2"] {
        let answer = site.curl(&[version, "--compressed", "--output", "/dev/null"], "/");
        assert!(!answer.status.success(), "{version}: a whole answer");
    }
    assert!(site.brisk.logged("response-body").contains("upstream"));
    assert_eq!(site.get("/fine").text(), "fine");
}

#[test]
fn clients_that_read_nothing_leave_the_others_their_encoders_and_their_time() {
    let origin = Origin::answering(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes())?;
        let piece = text(2000);
        // More than all buffers on the way hold.
        for _ in 0..4000 {
            write!(stream, "{:x}\r\n{piece}\r\n", piece.len())?;
        }
        stream.write_all(b"0\r\n\r\n")
    });
    let keys = "server.limits.compression_memory = \"8MiB\"\nserver.timeouts.write = \"10m\"\n";
    let site = Site::custom(keys, &compressing(&[&origin.url()]), |setup| setup);
    let ask = |accept: &str| format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nAccept-Encoding: {accept}\r\n\r\n");
    let stalled: Vec<_> = (0..6)
        .map(|_| {
            let mut connection = site.connect();
            connection.write_all(ask("zstd").as_bytes()).expect("a server that reads");
            connection
        })
        .collect();
    // Two encoders of zstd are half of the memory; later answers for the client stay as they are.
    let mut codings = Vec::new();
    let mut unread = Vec::new();
    for mut connection in stalled {
        let head = Head::read(&mut connection).expect("a head").expect("an answer");
        codings.push(head.header("content-encoding").map(str::to_owned));
        unread.push(connection);
    }
    assert_eq!(codings.iter().filter(|coding| coding.is_some()).count(), 2, "{codings:?}");
    let metrics = site.brisk.metrics();
    assert!(metrics.sum("brisk_compression_refusals_total", &[]) >= 4.0, "{}", metrics.0);
    assert!(metrics.sum("brisk_compression_memory_bytes", &[]) <= f64::from(4 << 20));
    drop(unread);
}

#[test]
fn pages_with_cookies_are_not_compressed_for_other_sites() {
    let origin = origin("Content-Type: text/html\r\n", text(100));
    let site = Site::with(&compressing(&[&origin.url()]));
    let coding = |options: &[&str]| {
        let asked = ["--compressed", "--output", "/dev/null", "--write-out", "%header{content-encoding}"];
        site.curl(&[&asked[..], options].concat(), "/").success()
    };
    let cookie = ["--cookie", "session=1", "--header"];
    assert_eq!(coding(&[&cookie[..], &["Sec-Fetch-Site: cross-site"]].concat()), "");
    assert_eq!(coding(&[&cookie[..], &["Sec-Fetch-Site: same-origin"]].concat()), "zstd");
    assert_eq!(coding(&["--header", "Sec-Fetch-Site: cross-site"]), "zstd");
}

#[test]
fn visitors_from_other_sites_get_padded_pages() {
    let body = text(2000);
    let origin = origin("Content-Type: text/html\r\n", body.clone());
    let site = Site::with(&compressing(&[&origin.url()]));
    let arrival = ["--header", "Sec-Fetch-Site: cross-site", "--header", "Sec-Fetch-Mode: navigate"];
    let visit = |version: &str, destination: &str| {
        let destination = format!("Sec-Fetch-Dest: {destination}");
        let facts = "\n%{size_download} %header{content-encoding}";
        let options = [
            "--compressed",
            "--cookie",
            "session=1",
            "--write-out",
            facts,
            version,
            "--header",
            &destination,
        ];
        let answer = site.curl(&[&options[..], &arrival].concat(), "/").success();
        let (page, facts) = answer.rsplit_once('\n').expect("facts");
        assert!(page == body, "another text");
        let (size, coding) = facts.split_once(' ').expect("two facts");
        (size.parse::<usize>().expect("a size"), coding.to_owned())
    };
    assert_eq!(visit("--http2", "image"), (body.len(), String::new()));
    let mut sizes = std::collections::HashSet::new();
    for number in 0..16 {
        let (size, coding) = visit(["--http1.1", "--http2"][number % 2], "document");
        assert_eq!(coding, "gzip");
        assert!(size < body.len() / 3, "{size}");
        sizes.insert(size);
    }
    assert!(sizes.len() > 8, "{sizes:?}");
    assert_eq!(visit("--http2", "document"), (body.len(), String::new()), "more than sixteen in an hour");
    let metrics = site.brisk.metrics();
    for (result, count) in [("padded", 16), ("limit", 1), ("stored", 0)] {
        let label = format!("result=\"{result}\"");
        let counted = metrics.sum("brisk_compression_arrivals_total", &[&label]);
        assert_eq!(counted.round() as u32, count, "{result}");
    }
}
