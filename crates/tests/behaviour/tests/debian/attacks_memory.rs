//! Memory used by clients that request much and read nothing.

use std::fs;
use std::io::Write;
use std::time::Duration;

use brisk_behaviour::h2::{frame, get};
use brisk_behaviour::h2_client::Client;
use brisk_behaviour::site::{Site, proxy_to};
use brisk_testkit::client::TlsStream;
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::wait_until;

const STREAMS: u32 = 128;
const BODY: usize = 1 << 20;

fn origin() -> Origin {
    Origin::answering(|_, stream| write_response(stream, &vec![b'x'; BODY]))
}

/// Asks for `/big` on all streams, with windows as large as they may be, and reads nothing.
fn ask_for_all(site: &Site) -> TlsStream {
    let mut client = site.client().alpn(&["h2"]).connect(site.brisk.https()).expect("a handshake");
    let window = [&[0, 4][..], &0x7fff_ffff_u32.to_be_bytes()].concat();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &window));
    bytes.extend(frame(8, 0, 0, &0x7000_0000_u32.to_be_bytes()));
    bytes.extend((0..STREAMS).flat_map(|number| get(2 * number + 1, "/big")));
    client.write_all(&bytes).expect("a server that reads");
    client
}

fn held(site: &Site) -> f64 {
    site.brisk.metrics().sum("brisk_answers_held_bytes", &[])
}

/// The most memory that a client takes which asks on all streams and reads nothing.
fn memory_of_one_client(site: &Site) -> usize {
    // What the process needs once for all clients is there after a first one.
    assert_eq!(site.get("/big").status(), 200);
    let mut first = Client::connect(site);
    first.send(&get(1, "/big"));
    assert_eq!(first.status(1), 200);
    drop(first);
    let before = site.brisk.process().resident_bytes();
    let client = ask_for_all(site);
    wait_until("answers that are held", || (held(site) > 500_000.0).then_some(()));
    let mut most = 0;
    for _ in 0..20 {
        most = most.max(site.brisk.process().resident_bytes());
        assert!(held(site) < 1_400_000.0, "{} bytes held", held(site));
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(client);
    wait_until("nothing held", || (held(site) < 100_000.0).then_some(()));
    most.saturating_sub(before) as usize
}

#[test]
fn proxied_answers_that_nobody_reads_take_little_memory() {
    let origin = origin();
    let site = Site::custom("server.workers = 1\n", &proxy_to(&[&origin.url()]), |setup| setup);
    let memory = memory_of_one_client(&site);
    assert!(memory < 20 << 20, "{} KiB", memory / 1024);
}

#[test]
fn files_that_nobody_reads_take_little_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("big"), vec![b'x'; BODY]).expect("a file");
    let tables = format!("\n[[host.route]]\npath = \"/\"\nstatic = {:?}\n", folder.path());
    let site = Site::custom("server.workers = 1\n", &tables, |setup| setup);
    let memory = memory_of_one_client(&site);
    // 2 to 4 MiB where the kernel reads files without waiting; on others, as tmpfs, threads read them, with up to 1 MiB each.
    assert!(memory < 20 << 20, "{} KiB", memory / 1024);
}

#[test]
fn past_the_limit_of_the_process_those_who_read_nothing_lose_their_connections() {
    let origin = origin();
    // As clients behind a proxy: one client alone gets half of the limit.
    let keys = "server.workers = 1\nserver.limits.buffered_total = \"1MiB\"\nserver.trusted_proxies = [\"127.0.0.1\"]\n";
    let site = Site::custom(keys, &proxy_to(&[&origin.url()]), |setup| setup);
    let clients: Vec<_> = (0..4).map(|_| ask_for_all(&site)).collect();
    wait_until("a connection that is closed", || {
        (site.brisk.metrics().sum("brisk_connections_shed_total", &[]) > 0.5).then_some(())
    });
    // Others are served again, if not at once.
    wait_until("an answer for another client", || (site.get("/small").status() == 200).then_some(()));
    assert!(held(&site) < 2e6, "{} bytes held", held(&site));
    drop(clients);
}

#[test]
fn many_small_unread_responses_leave_others_served() {
    let origin = Origin::answering(|_, stream| write_response(stream, &[b'x'; 15_000]));
    // The first of the clients must not exceed its timeout before the last one has connected.
    let keys =
        "server.workers = 1\nserver.limits.buffered_total = \"1MiB\"\nserver.timeouts.write = \"10m\"\n";
    let site = Site::custom(keys, &proxy_to(&[&origin.url()]), |setup| setup);
    // Each connection holds less than its minimum of 64 KiB; all of them hold more than the limit.
    let clients: Vec<_> = (0..80)
        .map(|_| {
            let mut client = Client::connect(&site);
            let requests = [1, 3, 5, 7].map(|stream| get(stream, "/")).concat();
            client.send(&[frame(4, 0, 0, &[0, 4, 0, 0, 0, 10]), requests].concat());
            client
        })
        .collect();
    wait_until("more than the limit held", || (held(&site) > 1.5e6).then_some(()));
    for _ in 0..5 {
        assert_eq!(site.get("/").status(), 200);
    }
    assert!(held(&site) > 1.5e6, "{} bytes held", held(&site));
    drop(clients);
}

#[test]
fn many_downloads_at_once_all_come_through() {
    let origin = origin();
    let site = Site::proxying(&[&origin.url()]);
    let files = ["--parallel", "--parallel-max", "50", "--http2", "--limit-rate", "4M"];
    let ranged = format!("{}?[1-50]", site.url("/big"));
    let got = site.curl_url(
        &[&files[..], &["--output", "/dev/null", "--write-out", "%{size_download}\n"]].concat(),
        &ranged,
    );
    let sizes = got.success();
    assert_eq!(sizes.lines().filter(|size| *size == BODY.to_string()).count(), 50, "{sizes}");
}
