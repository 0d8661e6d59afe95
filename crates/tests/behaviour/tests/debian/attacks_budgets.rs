//! Attacks on memory that clients share: one client holds all that it gets, another one is served.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use brisk_behaviour::h2::{DATA, END_STREAM, HEADERS, frame, get, get_with};
use brisk_behaviour::h2_client::Client;
use brisk_behaviour::h2_origin::{h2_origin, h2c};
use brisk_behaviour::site::{LIMIT, NAME, Site, proxy_to, upstream};
use brisk_coding::{Coding, Encoder};
use brisk_testkit::client::TlsStream;
use brisk_testkit::http1::Message;
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::{Process, command, run, wait_until};

/// Options of curl for another client than the attacker.
const OTHER: [&str; 2] = ["--interface", "127.0.0.2"];

const STREAMS: u32 = 100;

fn held(site: &Site, budget: &str) -> f64 {
    site.brisk.metrics().sum("brisk_budget_held_bytes", &[&format!("budget=\"{budget}\"")])
}

fn refusals(site: &Site, budget: &str) -> f64 {
    site.brisk.metrics().sum("brisk_budget_refusals_total", &[&format!("budget=\"{budget}\"")])
}

/// Requests `/0.txt` to `/99.txt` on one connection, with `window` bytes for each response.
fn ask_for_all(site: &Site, window: u32, headers: &[(&str, &str)]) -> Client {
    let mut client = Client::connect(site);
    let mut frames = frame(4, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat());
    frames.extend(frame(8, 0, 0, &0x7000_0000_u32.to_be_bytes()));
    frames
        .extend((0..STREAMS).flat_map(|number| get_with(2 * number + 1, &format!("/{number}.txt"), headers)));
    client.send(&frames);
    client
}

/// Waits until all responses have begun.
fn begin(client: &mut Client) {
    for _ in 0..STREAMS {
        client.wait_for("head", |frame| frame.kind == HEADERS);
    }
}

/// Reads until nothing more arrives.
fn drain(client: &mut Client) {
    while !client.frames(Duration::from_millis(300)).is_empty() {}
}

#[test]
fn future_dictionaries_of_clients_that_stop_reading_take_little_memory() {
    const BODY: usize = 900_000;
    let origin = Origin::answering(|request, stream| {
        let path = request.head.line.split(' ').nth(1).unwrap_or_default().to_owned();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/javascript\r\nUse-As-Dictionary: match=\"/*\"\r\n";
        write!(stream, "{head}ETag: \"{path}\"\r\nContent-Length: {BODY}\r\n\r\n")?;
        stream.write_all(&vec![b'x'; BODY])
    });
    let tables =
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\ncompression = { dictionaries = true }\n";
    let keys = "server.workers = 1\nserver.limits.compressed_files = \"0B\"\n";
    let site = Site::custom(keys, &(tables.to_owned() + &upstream(&[&origin.url()])), |setup| setup);
    begin(&mut ask_for_all(&site, 1000, &[]));
    let before = site.brisk.process().resident_bytes();
    // Everything but the end of each response is read.
    let mut client = ask_for_all(&site, BODY as u32 - 1000, &[]);
    drain(&mut client);
    // A quarter of 32 MiB is for responses in progress, of which one client gets half, and less than one response more.
    assert!(held(&site, "copies") <= f64::from(5 << 20), "{}", held(&site, "copies"));
    let grown = site.brisk.process().resident_bytes().saturating_sub(before);
    assert!(grown < 40 << 20, "{} KiB", grown / 1024);
    wait_until("a refusal", || {
        drain(&mut client);
        (refusals(&site, "copies") > 0.5).then_some(())
    });
    site.brisk.log_with("a client has its share of a memory budget");
    // Where the client makes no progress, nothing is gathered any more.
    wait_until("gathered bytes that are given up", || (held(&site, "copies") < 0.5).then_some(()));
    drop(client);
}

#[test]
fn compressed_copies_of_clients_that_stop_reading_take_little_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    for number in 0..STREAMS {
        let line = |line: u32| format!("{line} {number} {}\n", line.wrapping_mul(line) % 7919 + number);
        let text: String = (0..10_000).map(line).collect();
        std::fs::write(folder.path().join(format!("{number}.txt")), text).expect("a file");
    }
    let tables = format!(
        "\n[[host.route]]\npath = \"/\"\nstatic = {:?}\ncompression = {{ gzip_level = 1 }}\n",
        folder.path()
    );
    let keys = "server.workers = 1\nserver.limits.dictionaries = \"0B\"\nserver.limits.compressed_files = \"4MiB\"\n";
    let site = Site::custom(keys, &tables, |setup| setup);
    let gzip = [("accept-encoding", "gzip")];
    // The second request of a file gathers its copy.
    begin(&mut ask_for_all(&site, 100, &gzip));
    let mut client = ask_for_all(&site, 30_000, &gzip);
    wait_until("a client with its share", || {
        client.frames(Duration::from_millis(100));
        // A quarter is for responses in progress, of which one client gets half, and less than one copy more.
        let held = held(&site, "copies");
        assert!(held <= f64::from((512 + 64) << 10), "{held}");
        (refusals(&site, "copies") > 0.0).then_some(())
    });
    drain(&mut client);
    wait_until("gathered bytes that are given up", || (held(&site, "copies") < 0.5).then_some(()));
    drop(client);
}

#[test]
fn slow_uploads_of_one_client_leave_memory_for_those_of_others() {
    let origin = Origin::answering(|request, stream| {
        write_response(stream, format!("{} bytes", request.body.len()).as_bytes())
    });
    let tables =
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\nbuffer_request = true\nbody_size = \"2MiB\"\n";
    let tables = tables.to_owned() + &upstream(&[&origin.url()]);
    let site = Site::custom("server.limits.buffered_requests = \"1MiB\"\n", &tables, |setup| setup);
    // As many bytes as the client gets, which then arrive no more.
    let slow: Vec<TlsStream> = (0..12)
        .map(|_| {
            let mut client = site.connect();
            let head = format!("POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 200000\r\n\r\n");
            client.write_all(head.as_bytes()).expect("a server that reads");
            // The last of them are refused.
            let _ = client.write_all(&vec![b'x'; 100_000]);
            client
        })
        .collect();
    wait_until("a client with its share", || (refusals(&site, "requests") > 0.5).then_some(()));
    assert!(held(&site, "requests") <= f64::from(1 << 19), "{}", held(&site, "requests"));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("upload");
    std::fs::write(&file, vec![b'y'; 200_000]).expect("a file");
    let data = format!("@{}", file.display());
    for _ in 0..8 {
        let answer = site.curl(&[&OTHER[..], &["--data-binary", &data]].concat(), "/");
        assert_eq!(answer.success(), "200000 bytes");
    }
    drop(slow);
}

#[test]
fn uploads_of_many_clients_that_pause_leave_memory_for_another() {
    let origin = Origin::answering(|request, stream| {
        write_response(stream, format!("{} bytes", request.body.len()).as_bytes())
    });
    let tables =
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\nbuffer_request = true\nbody_size = \"2MiB\"\n";
    let tables = tables.to_owned() + &upstream(&[&origin.url()]);
    // The attackers are clients behind a proxy, which together get the whole limit. No timeout ends their uploads.
    let keys = "server.limits.buffered_requests = \"1MiB\"\nserver.limits.body_rate = \"none\"\n\
                server.timeouts.body = \"10m\"\nserver.trusted_proxies = [\"127.0.0.1\"]\n";
    let site = Site::custom(keys, &tables, |setup| setup);
    let paused: Vec<TlsStream> = (0..40)
        .map(|_| {
            let mut client = site.connect();
            let head = format!("POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 200000\r\n\r\n");
            client.write_all(head.as_bytes()).expect("a server that reads");
            let _ = client.write_all(&vec![b'x'; 30_000]);
            client
        })
        .collect();
    wait_until("clients that hold the limit", || (held(&site, "requests") > 1e6).then_some(()));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("upload");
    std::fs::write(&file, vec![b'y'; 200_000]).expect("a file");
    let data = format!("@{}", file.display());
    wait_until("an upload of another client", || {
        let answer = site.curl(&[&OTHER[..], &["--data-binary", &data]].concat(), "/");
        (answer.stdout == "200000 bytes").then_some(())
    });
    drop(paused);
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut zipped = Vec::new();
    Encoder::new(Coding::Gzip, 1).write_whole(text, &mut zipped).expect("memory");
    zipped
}

/// A host with documents to rewrite, which its upstream sends in gzip if the request permits.
fn rewriting(origin: &Origin, keys: &str) -> Site {
    let tables = format!(
        "consolidate = {{ \"https://static.test\" = {{ path = \"/_s\", upstream = \"app\" }} }}\n\n\
         [[host.route]]\npath = \"/\"\nupstream = \"app\"\n{}timeouts = {{ body = \"30m\" }}\n",
        upstream(&[&origin.url()])
    );
    Site::custom(keys, &tables, |setup| setup)
}

#[test]
fn decoders_of_one_client_leave_memory_for_those_of_others() {
    const LINES: usize = 20_000;
    let page = || {
        let line =
            |line: usize| format!("<a href=\"https://static.test/{}\">{line}</a>\n", line * line % 7919);
        (0..LINES).map(line).collect::<String>()
    };
    let zipped = gzip(page().as_bytes());
    let plain = page();
    let origin = Origin::answering(move |request, stream| {
        let is_gzip = request.header("accept-encoding").is_some_and(|value| value.contains("gzip"));
        let (coding, body) = if is_gzip { ("gzip", &zipped[..]) } else { ("identity", plain.as_bytes()) };
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n";
        write!(stream, "{head}Content-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n", body.len())?;
        stream.write_all(body)
    });
    // Decoders for gzip get 32 MiB.
    let site = rewriting(&origin, "server.limits.compression_memory = \"4MiB\"\n");
    let gzip = [("accept-encoding", "gzip"), ("accept", "text/html")];
    let attackers: Vec<_> = (0..12).map(|_| ask_for_all(&site, 10, &gzip)).collect();
    wait_until("a client with its share", || {
        let held = held(&site, "decoders");
        assert!(held <= f64::from(16 << 20), "{held}");
        // With less than a mebibyte left, its documents are requested without a coding.
        (held > f64::from(31 << 19)).then_some(())
    });
    // The documents of the attacker itself come without a coding.
    let answer: Message = site.connect().request(&format!(
        "GET /page HTTP/1.1\r\nHost: {NAME}\r\nAccept: text/html\r\nAccept-Encoding: gzip\r\n\r\n"
    ));
    assert_eq!(answer.status(), 200);
    let requests = origin.requests();
    let last = requests.iter().rfind(|request| request.head.line.contains(" /page ")).expect("a request");
    assert_eq!(last.header("accept-encoding"), Some("identity"));
    for _ in 0..8 {
        let facts = ["--compressed", "--output", "/dev/null", "--write-out", "%{http_code}"];
        assert_eq!(site.curl(&[&OTHER[..], &facts].concat(), "/page").success(), "200");
    }
    drop(attackers);
}

#[test]
fn incomplete_tags_of_one_client_leave_memory_for_those_of_others() {
    const BEGIN: &[u8] = b"<img alt=\"";
    const END: &[u8] = b"\" src=https://static.test/a>";
    // Whether the ends of tags are sent: in pages, and to the attacker.
    let ends = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
    let own = Arc::clone(&ends);
    let origin = Origin::answering(move |request, stream| {
        let is_page = request.head.line.contains(" /page ");
        let long = if is_page { 6_000 } else { 60_000 };
        let length = BEGIN.len() + long + END.len();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\r\n")?;
        stream.write_all(&[BEGIN, &vec![b'x'; long]].concat())?;
        let sent = &own[usize::from(!is_page)];
        wait_until("the end of a tag", || sent.load(Ordering::SeqCst).then_some(()));
        stream.write_all(END)
    });
    let site = rewriting(&origin, "server.limits.compression_memory = \"4MiB\"\n");
    let attacker = ask_for_all(&site, 1 << 20, &[("accept", "text/html")]);
    wait_until("a client with its share", || {
        let held = held(&site, "encoders");
        assert!(held <= f64::from((2 << 20) + (64 << 10)), "{held}");
        // 31 of 64 KiB, and all others are refused.
        (held > f64::from(31 << 16) && refusals(&site, "encoders") >= 60.0).then_some(())
    });
    // The tag of the page ends when its beginning has been passed on. Otherwise it might arrive whole, and need no room.
    let mut own = Process::start(&mut site.curl_command(&["--no-buffer"], &site.url("/page")));
    wait_until("the beginning of a tag without room", || own.stdout().contains("<img").then_some(()));
    ends[0].store(true, Ordering::SeqCst);
    assert!(own.wait().success(), "{}", own.stderr());
    let unchanged = own.stdout().replace('x', "");
    assert_eq!(unchanged, "<img alt=\"\" src=https://static.test/a>", "a tag without room stays as it is");
    let page = |options: &[&str]| site.curl(options, "/page").success().replace('x', "");
    assert_eq!(page(&OTHER), "<img alt=\"\" src=/_s/a>");
    drop(attacker);
    ends[1].store(true, Ordering::SeqCst);
    wait_until("no tag", || (held(&site, "encoders") == 0.0).then_some(()));
    assert_eq!(page(&[]), "<img alt=\"\" src=/_s/a>");
}

#[test]
fn unread_responses_of_an_upstream_over_http2_leave_memory_for_those_of_others() {
    const BODY: usize = 200_000;
    // As many responses as the window of one connection to the upstream has room for.
    const RESPONSES: u32 = 18;
    let sent = Arc::new(AtomicU32::new(0));
    let origin = {
        let sent = Arc::clone(&sent);
        h2_origin(move |peer, _| {
            while let Some(stream) = peer.request()? {
                peer.answer(stream, b"", false)?;
                for (index, piece) in vec![b'x'; BODY].chunks(16_000).enumerate() {
                    let flags = if (index + 1) * 16_000 >= BODY { END_STREAM } else { 0 };
                    peer.send(&frame(DATA, flags, stream, piece))?;
                }
                sent.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        })
    };
    // A client has half of 16 MiB, apart from 256 KiB and 64 KiB for each connection.
    let keys = "server.workers = 1\nserver.limits.buffered_total = \"16MiB\"\n";
    let site = Site::custom(keys, &proxy_to(&[&h2c(&origin)]), |setup| setup);
    let before = site.brisk.process().resident_bytes();
    let attackers: Vec<_> = (1..=12)
        .map(|client| {
            let mut attacker = Client::connect(&site);
            // No window for any response.
            attacker.send(&frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]));
            attacker.send(&(0..RESPONSES).flat_map(|number| get(2 * number + 1, "/")).collect::<Vec<_>>());
            wait_until("responses that arrive", || {
                attacker.frames(Duration::from_millis(5));
                (sent.load(Ordering::SeqCst) >= client * RESPONSES).then_some(())
            });
            attacker
        })
        .collect();
    wait_until("a client with its share", || (refusals(&site, "responses") > 0.5).then_some(()));
    assert!(held(&site, "responses") <= f64::from(8 << 20), "{}", held(&site, "responses"));
    let grown = site.brisk.process().resident_bytes().saturating_sub(before);
    assert!(grown < 24 << 20, "{} KiB", grown / 1024);
    let facts = ["--http2", "--output", "/dev/null", "--write-out", "%{http_code} %{size_download}"];
    for _ in 0..4 {
        assert_eq!(site.curl(&[&OTHER[..], &facts].concat(), "/").success(), format!("200 {BODY}"));
    }
    drop(attackers);
}

#[test]
fn uploads_that_an_upstream_does_not_take_leave_memory_for_those_of_others() {
    const BODY: usize = 16 << 20;
    // Reads nothing: kernel and gateway hold the bytes of clients.
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let silent = Origin::raw(move |stream| {
        Origin::receive_little(&stream);
        while !over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(stream);
        Ok(())
    });
    let origin = Origin::answering(|request, stream| {
        write_response(stream, format!("{} bytes", request.body.len()).as_bytes())
    });
    let tables = format!(
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n\n[[host.route]]\npath = \"/silent\"\nupstream = \"silent\"\n\
         \n[upstream.silent]\nservers = [\"{}\"]\n{}",
        silent.url(),
        upstream(&[&origin.url()])
    );
    // A client has half of 16 MiB, apart from two times 64 KiB for each connection.
    let keys = "server.workers = 1\nserver.limits.buffered_total = \"16MiB\"\n";
    let site = Site::custom(keys, &tables, |setup| setup);
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, length: usize| {
        let file = folder.path().join(name);
        std::fs::write(&file, vec![b'y'; length]).expect("a file");
        format!("@{}", file.display())
    };
    let (large, small) = (file("large", BODY), file("small", 200_000));
    let before = site.brisk.process().resident_bytes();
    std::thread::scope(|scope| {
        for _ in 0..24 {
            let options = ["--http2", "--data-binary", &large];
            let site = &site;
            scope.spawn(move || site.curl(&options, "/silent"));
        }
        wait_until("a client with its share", || (refusals(&site, "bodies") > 0.5).then_some(()));
        assert!(held(&site, "bodies") <= f64::from(9 << 20), "{}", held(&site, "bodies"));
        let grown = site.brisk.process().resident_bytes().saturating_sub(before);
        // The clients send eight times as much. The allocator keeps some pages of released memory, several MiB in all.
        assert!(grown < 3 * BODY as u64, "{} KiB", grown / 1024);
        for _ in 0..4 {
            let options = [&OTHER[..], &["--http2", "--data-binary", &small]].concat();
            assert_eq!(site.curl(&options, "/").success(), "200000 bytes");
        }
        is_over.store(true, Ordering::SeqCst);
    });
    wait_until("bodies that are dropped", || (held(&site, "bodies") < 0.5).then_some(()));
}

/// An upstream whose response to alice is hers alone.
fn of_alice(control: &'static str) -> Origin {
    Origin::answering(move |request, stream| {
        let user = request.header("cookie").unwrap_or("nobody").to_owned();
        let body = format!("token of {user}: {}\n", "0123456789abcdef".repeat(200));
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/javascript\r\nUse-As-Dictionary: match=\"/*\"\r\n";
        write!(stream, "{head}Cache-Control: {control}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    })
}

#[test]
fn a_guess_reveals_nothing_that_another_user_received() {
    let tables =
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\ncompression = { dictionaries = true }\n";
    let secret = format!("token of alice: {}\n", "0123456789abcdef".repeat(200));
    let digest = "openssl dgst -sha256 -binary | openssl base64";
    let hash = run(command("sh").args(["-c", digest]), secret.as_bytes(), LIMIT);
    let guess = format!("Available-Dictionary: :{}:", hash.success().trim());
    for (control, is_shared) in
        [("max-age=60", false), ("private", false), ("public, no-store", false), ("public, max-age=60", true)]
    {
        let origin = of_alice(control);
        let site = Site::with(&(tables.to_owned() + &upstream(&[&origin.url()])));
        let alice = site.curl(&["--header", "Cookie: alice"], "/mine.js");
        assert_eq!(alice.success(), secret);
        let accept = ["--header", "Accept-Encoding: gzip, br, zstd, dcb, dcz", "--header", &guess];
        let facts = ["--output", "/dev/null", "--write-out", "%header{content-encoding}"];
        let coding = || site.curl(&[&OTHER[..], &accept, &facts].concat(), "/other.js").success();
        if is_shared {
            // A response is kept a moment after its end.
            wait_until("a response as a dictionary", || (coding() == "dcz").then_some(()));
        } else {
            assert_ne!(coding(), "dcz", "{control}");
        }
    }
}
