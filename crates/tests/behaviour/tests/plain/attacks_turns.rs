//! Attacks on the processor time of a worker: input that costs more than its bytes.

use std::fs;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brisk_behaviour::h2::{END_STREAM, HEADERS, get};
use brisk_behaviour::h2_client::Client;
use brisk_behaviour::site::{NAME, Site};
use brisk_testkit::http1::Message;
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::wait_until;

/// A server whose responses have `length` chunks of one byte each.
fn short_chunks(length: usize) -> Origin {
    let body = b"1\r\nx\r\n".repeat(length);
    Origin::answering(move |_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        stream.write_all(&body)?;
        stream.write_all(b"0\r\n\r\n")
    })
}

/// Processor time of all threads of brisk, in milliseconds.
fn processor_time(site: &Site) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", site.brisk.process().id())).expect("a process");
    let times = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
    times.filter_map(|text| text.split(' ').next()?.parse::<f64>().ok()).sum::<f64>() / 1e6
}

/// Processor time of eight requests for `path` that arrive together on one connection, while brisk serves nothing else.
fn time_of_eight(site: &Site, path: &str) -> f64 {
    let before = processor_time(site);
    let mut client = Client::connect(site);
    client.send(&(0..8).flat_map(|number| get(2 * number + 1, path)).collect::<Vec<_>>());
    let mut ended = 0;
    wait_until("eight responses", || {
        let frames = client.frames(std::time::Duration::from_millis(20));
        for frame in &frames {
            assert!(frame.kind != HEADERS || frame.payload.first() == Some(&0x88), "{frame:?}");
            client.send(&window_update(0, frame.payload.len()));
            client.send(&window_update(frame.stream, frame.payload.len()));
        }
        ended += frames.iter().filter(|frame| frame.kind < 2 && frame.flags & END_STREAM != 0).count();
        (ended == 8).then_some(())
    });
    processor_time(site) - before
}

fn window_update(stream: u32, length: usize) -> Vec<u8> {
    if length == 0 {
        return Vec::new();
    }
    brisk_behaviour::h2::frame(8, 0, stream, &u32::try_from(length).expect("a frame").to_be_bytes())
}

#[test]
fn pipelined_responses_in_short_chunks_cost_no_more_than_others() {
    let origin = short_chunks(60_000);
    let site = Site::with(&format!(
        "\n[[host.route]]\npath = \"/one\"\nupstream = \"one\"\n[[host.route]]\npath = \"/many\"\nupstream = \"many\"\n\
         [upstream.one]\nservers = [{url:?}]\n[upstream.many]\nservers = [{url:?}]\npipeline = 8\n",
        url = origin.url()
    ));
    let (alone, pipelined) = (time_of_eight(&site, "/one"), time_of_eight(&site, "/many"));
    // Before it had a counter, a pipeline took seventy times as long.
    assert!(pipelined < 10.0 * alone + 200.0, "{pipelined} ms in a pipeline, {alone} ms without");
}

#[test]
fn a_mirror_whose_response_never_ends_is_left_after_64_kib() {
    let app = Origin::fixed("app");
    let written = Arc::new(AtomicUsize::new(0));
    let own = Arc::clone(&written);
    let mirror = Origin::answering(move |_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        loop {
            own.fetch_add(1, Ordering::Relaxed);
            stream.write_all(b"1\r\nx\r\n")?;
        }
    });
    let site = Site::with(&format!(
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\nmirror = {{ upstream = \"copy\", timeout = \"10m\" }}\n\
         [upstream.app]\nservers = [{:?}]\n[upstream.copy]\nservers = [{:?}]\n",
        app.url(),
        mirror.url()
    ));
    assert_eq!(site.get("/").text(), "app");
    let label = "result=\"answered\"";
    wait_until("the end of the copy", || {
        (site.brisk.metrics().sum("brisk_mirrored_requests_total", &[label]) > 0.5).then_some(())
    });
    assert!(written.load(Ordering::Relaxed) > 60_000);
    assert_eq!(site.get("/").text(), "app");
}

#[test]
fn an_upload_in_short_chunks_reaches_the_upstream_in_few() {
    const CHUNKS: usize = 20_000;
    let chunks = Arc::new(AtomicUsize::new(0));
    let own = Arc::clone(&chunks);
    let origin = Origin::raw(move |mut stream| {
        let (mut input, mut piece) = (Vec::new(), [0; 16 << 10]);
        while !input.ends_with(b"\r\n0\r\n\r\n") {
            let length = stream.read(&mut piece)?;
            if length == 0 {
                return Ok(());
            }
            input.extend_from_slice(&piece[..length]);
        }
        let lines = input.windows(2).filter(|end| *end == b"\r\n").count();
        own.store(lines / 2, Ordering::SeqCst);
        #[expect(clippy::naive_bytecount, reason = "the crate for it is no dependency")]
        let bytes = input.iter().filter(|byte| **byte == b'z').count();
        write_response(&mut stream, bytes.to_string().as_bytes())
    });
    let site = Site::proxying(&[&origin.url()]);
    let mut client = site.connect();
    write!(client, "POST / HTTP/1.1\r\nHost: {NAME}\r\nTransfer-Encoding: chunked\r\n\r\n")
        .expect("a server");
    client.write_all(&[b"1\r\nz\r\n".repeat(CHUNKS), b"0\r\n\r\n".to_vec()].concat()).expect("a server");
    let response = Message::read_response(&mut client).expect("a response");
    assert_eq!(response.text(), CHUNKS.to_string());
    let chunks = chunks.load(Ordering::SeqCst);
    assert!(chunks < CHUNKS / 10, "{chunks} chunks");
}

#[test]
fn a_query_with_too_many_parameters_is_refused_where_conditions_examine_it() {
    #[expect(clippy::format_collect, reason = "twenty short texts")]
    let routes: String = (0..20)
        .map(|number| {
            format!(
                "\n[[host.route]]\npath = \"/a\"\nwhen = {{ query = {{ n{number} = true }} }}\nrespond = {{ body = \"{number}\" }}\n"
            )
        })
        .collect();
    let site = Site::with(&(routes + "\n[[host.route]]\npath = \"/\"\nrespond = { body = \"default\" }\n"));
    assert_eq!(site.get(&format!("/a?{}n7", "a&".repeat(999))).text(), "7");
    assert_eq!(site.get(&format!("/a?{}b", "a&".repeat(999))).text(), "default");
    assert_eq!(site.get(&format!("/a?{}n7", "a&".repeat(30_000))).status(), 414);
    assert_eq!(site.get(&format!("/b?{}", "a&".repeat(30_000))).text(), "default");
}

#[test]
fn values_that_are_too_long_for_an_expression_are_refused() {
    let site = Site::with(
        "\n[[host.route]]\npath = \"/\"\nwhen = { headers = { X-A = { regex = \"^a+$\" } } }\nrespond = { body = \"a\" }\n\
         \n[[host.route]]\npath = \"/p\"\nwhen = { path_regex = \"^/p/a+$\" }\nrespond = { body = \"p\" }\n\
         \n[[host.route]]\npath = \"/\"\nrespond = { body = \"default\" }\n",
    );
    let status = |target: &str, value: &str| {
        let mut client = site.connect();
        write!(client, "GET {target} HTTP/1.1\r\nHost: {NAME}\r\nX-A: {value}\r\n\r\n").expect("a server");
        Message::read_response(&mut client).expect("a response").status()
    };
    assert_eq!((status("/", &"a".repeat(4096)), status("/", &"a".repeat(4097))), (200, 431));
    assert_eq!(status(&format!("/p/{}", "a".repeat(4093)), "b"), 200);
    assert_eq!(status(&format!("/p/{}", "a".repeat(4094)), "b"), 414);
}

#[test]
fn lists_of_folders_that_nobody_reads_count_with_their_real_size() {
    // Responses that end by this timeout would no longer be held.
    let limits = "server.limits.buffered_total = \"16MiB\"\nserver.timeouts.write = \"10m\"\n";
    let routes = "\n[[host.route]]\npath = \"/\"\nstatic = \"www\"\nlisting = true\n";
    let site = Site::custom(limits, routes, |setup| setup.file("www/small/x", "x"));
    let folder = site.brisk.folder().join("www/large");
    fs::create_dir(&folder).expect("a folder");
    for number in 0..5_000 {
        fs::write(folder.join(format!("{number:0100}")), "").expect("a file");
    }
    // The window of a connection is 64 KiB, of which nothing is opened. More requests would wait for readers of folders.
    let mut clients: Vec<_> = (0..12).map(|_| Client::connect(&site)).collect();
    for client in &mut clients {
        client.send(&(0..2).flat_map(|number| get(2 * number + 1, "/large/")).collect::<Vec<_>>());
    }
    let sum = |metric: &str| site.brisk.metrics().sum(metric, &["budget=\"responses\""]);
    wait_until("a client that has its share", || (sum("brisk_budget_refusals_total") > 0.5).then_some(()));
    let held = sum("brisk_budget_held_bytes");
    assert!((4e6..9e6).contains(&held), "{held} bytes");
    let mut other = Client::connect_from(&site, std::net::Ipv4Addr::new(127, 0, 0, 9));
    other.send(&get(1, "/small/"));
    assert_eq!(other.status(1), 200);
}

#[test]
fn empty_lines_without_end_leave_the_worker_to_others() {
    let site = Site::with("\n[[host.route]]\npath = \"/\"\nrespond = { body = \"others\" }\n");
    let mut client = site.connect();
    let sending = std::thread::spawn(move || {
        let lines = b"\r\n".repeat(8 << 10);
        // Ends with the timeout for a head, or with brisk.
        while client.write_all(&lines).is_ok() {}
    });
    for _ in 0..10 {
        assert_eq!(site.get("/").text(), "others");
    }
    drop(site);
    sending.join().expect("no panic");
}
