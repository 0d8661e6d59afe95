//! Profiles of the running gateway: their contents, and no disturbance of clients.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use brisk_behaviour::site::{LIMIT, NAME, Site};
use brisk_testkit::client::TlsClient;
use brisk_testkit::http1::Message;
use brisk_testkit::process::{command, run, wait_until};

use crate::chromium::Chromium;
use crate::devtools::Page;

/// Requests that go on until it is dropped. What fails of them fails the test at [`Load::end`].
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<usize>>,
}

impl Load {
    fn start(site: &Site) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (root, address) = (site.ca.root_file(), site.brisk.https());
        let url = format!("https://{address}/");
        let handshakes = |client: fn(&Path) -> TlsClient| {
            let root = root.clone();
            Self::repeat(&stop, move || {
                // A new client has no session to resume.
                let mut connection = client(&root).connect(address).expect("a handshake");
                assert_eq!(connection.get(NAME, "/").status(), 200);
            })
        };
        let many = Self::repeat(&stop, move || {
            let output = run(command("h2load").args(["-n500", "-c4", "-m10", &url]), b"", LIMIT).success();
            assert!(output.contains("500 succeeded, 0 failed, 0 errored, 0 timeout"), "{output}");
        });
        let threads = vec![
            handshakes(|root| TlsClient::new(root, NAME)),
            handshakes(|root| TlsClient::new(root, NAME).tls12()),
            many,
        ];
        Self { stop, threads }
    }

    fn repeat(stop: &Arc<AtomicBool>, mut act: impl FnMut() + Send + 'static) -> JoinHandle<usize> {
        let stop = Arc::clone(stop);
        thread::spawn(move || {
            let mut times = 0;
            while !stop.load(Ordering::Relaxed) {
                act();
                times += 1;
            }
            times
        })
    }

    /// Ends it. Every kind of load went on, and nothing of it failed.
    fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            assert!(thread.join().expect("requests that succeed") > 0);
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Takes profiles until one is as it should be, which the first may not be on a machine that is busy with other things.
fn take<T>(site: &Site, query: &str, kind: &str, read: impl Fn(&Message) -> Option<T>) -> T {
    let found = (0..30).find_map(|_| {
        let answer = site.brisk.ask_admin(&format!("/profile?seconds=1&frequency=1000&{query}"));
        assert_eq!((answer.status(), answer.header("content-type")), (200, Some(kind)), "{}", answer.text());
        read(&answer)
    });
    found.unwrap_or_else(|| panic!("no profile as it should be: {query}"))
}

/// Asks for a profile of a minute, which has begun when this returns.
fn begin(site: &Site) -> TcpStream {
    let mut client = TcpStream::connect(site.brisk.admin()).expect("an admin listener");
    let request = "GET /profile?seconds=60 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    client.write_all(request.as_bytes()).expect("a listener that reads");
    site.brisk.log_with("a profile is being taken seconds=60");
    client
}

#[test]
fn profiles_show_what_is_busy_and_no_request_fails_meanwhile() {
    let site = Site::with_both_certificates("");
    let load = Load::start(&site);
    // Handshakes are on stacks of their own, the rest of HTTP on that of the worker.
    let folded = take(&site, "format=folded", "text/plain; charset=utf-8", |answer| {
        let text = answer.text();
        let has = |part: &str| text.lines().any(|line| line.starts_with("worker-") && line.contains(part));
        (has("brisk_tls::") && has("brisk_server::worker::")).then_some(text)
    });
    for line in folded.lines() {
        let (stack, samples) = line.rsplit_once(' ').expect("a stack and a number");
        assert!(!stack.is_empty() && samples.parse::<u64>().is_ok_and(|samples| samples > 0), "{line}");
    }
    let svg = take(&site, "format=svg", "image/svg+xml", |answer| {
        Some(answer.text())
            .filter(|text| text.contains("<title>worker-0 (") && text.contains("<title>brisk_"))
    });
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"), "{svg}");
    assert!(svg.contains(">worker-0: busy ") && svg.contains("event loop late by"), "{svg}");
    let parse = "import sys, xml.etree.ElementTree as tree; tree.parse(sys.stdin.buffer)";
    run(command("python3").args(["-c", parse]), svg.as_bytes(), LIMIT).success();
    // Another program reads it.
    let file = site.brisk.folder().join("brisk.pb.gz");
    take(&site, "format=pprof", "application/octet-stream", |answer| {
        site.brisk.write("brisk.pb.gz", &answer.body);
        let mut pprof = command("pprof");
        pprof.args(["-top", "-cum", "-sample_index=cpu", "-nodecount=1000"]).arg(&file);
        let text = run(&mut pprof, b"", LIMIT).success();
        assert!(text.contains("Type: cpu") && text.contains("Duration: "), "{text}");
        text.contains("brisk_tls::").then_some(())
    });
    load.end();
    site.assert_alive();
}

#[test]
fn a_flame_graph_can_be_enlarged_and_searched() {
    let site = Site::new();
    let load = Load::start(&site);
    let browser = Chromium::new(site.brisk.folder(), &site.brisk).start(&[], "about:blank");
    let mut page = Page::of(browser, &site.brisk.folder().join("profile"));
    // Under the policy of the admin listener, which permits this script alone.
    let boxes = "[...document.querySelectorAll('g.f')]";
    let width =
        |index: usize| format!("Number({boxes}[{index}].querySelector('rect').getAttribute('width'))");
    let narrow = format!(
        "{boxes}.findIndex(one => {{ const w = one.querySelector('rect').getAttribute('width'); return w > 20 && w < 600; }})"
    );
    // On a busy machine, a profile may have few samples.
    let index = (0..30).find_map(|_| {
        page.open(&format!("http://{}/profile?seconds=2&frequency=500", site.brisk.admin()));
        let is_large =
            page.script(&format!("{boxes}.length > 10 && document.querySelector('input') !== null"));
        page.script(&narrow).as_u64().filter(|_| is_large == true)
    });
    let index = index.expect("a narrow box") as usize;
    load.end();
    page.script(&format!("{boxes}[{index}].dispatchEvent(new MouseEvent('click', {{ bubbles: true }})), 0"));
    page.wait_for(&format!("{} === 1184", width(index)));
    page.script("dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' })), 0");
    page.wait_for(&format!("{} < 600", width(index)));
    page.script("{ const field = document.querySelector('input'); field.value = 'brisk'; field.dispatchEvent(new Event('input')); } 0");
    page.wait_for("/^[1-9][0-9]* boxes, [0-9.]+ % of the time$/.test(document.querySelector('text[aria-live]').textContent)");
    page.wait_for("document.querySelectorAll('rect[fill=\"#d63384\"]').length > 0");
}

#[test]
fn a_second_profile_is_refused_and_one_whose_client_goes_away_ends() {
    let site = Site::new();
    let client = begin(&site);
    let refused = site.brisk.ask_admin("/profile?seconds=1");
    assert_eq!(refused.status(), 409);
    assert!(refused.text().contains("being taken already"), "{}", refused.text());
    // A reload does not wait for it.
    assert!(site.brisk.reload().contains("reloaded: the new configuration is in force"));
    let log = site.brisk.process().stderr();
    assert!(!log.contains("profile was taken"), "{log}");
    drop(client);
    site.brisk.log_with("no profile was taken error=the profile was cancelled");
    wait_until("a turn", || (site.brisk.ask_admin("/profile?seconds=1").status() == 200).then_some(()));
}

#[test]
fn a_process_that_is_to_end_does_not_wait_for_a_profile() {
    let mut site = Site::new();
    let _client = begin(&site);
    site.brisk.terminate();
    assert!(site.brisk.wait().success());
    let log = site.brisk.process().stderr();
    assert!(!log.contains("the profile was taken"), "{log}");
}

#[test]
fn what_is_wrong_with_a_request_for_a_profile_is_said() {
    let site = Site::new();
    for (query, message) in [
        ("seconds=0", "seconds=\"0\": write a whole number from 1 to 60\n"),
        ("seconds=61", "seconds=\"61\": write a whole number from 1 to 60\n"),
        ("seconds=", "seconds=\"\": write a whole number from 1 to 60\n"),
        ("frequency=5000", "frequency=\"5000\": write a whole number from 1 to 1000\n"),
        ("format=html", "format=\"html\": there are svg, pprof and folded\n"),
        ("second=1", "\"second\" is unknown: there are seconds, frequency and format\n"),
    ] {
        let answer = site.brisk.ask_admin(&format!("/profile?{query}"));
        assert_eq!((answer.status(), answer.text().as_str()), (400, message), "{query}");
    }
    assert_eq!(site.brisk.post_admin("/profile").status(), 405);
    for (head, status) in [("Host: evil.test", 421), ("Host: localhost\r\nSec-Fetch-Site: cross-site", 403)] {
        let request = format!("GET /profile?seconds=1 HTTP/1.1\r\n{head}\r\nConnection: close\r\n\r\n");
        assert_eq!(site.brisk.send_admin(&request).status(), status, "{head}");
    }
}
