//! Limits of rate and concurrency as nginx has them: the same requests are refused.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use brisk_behaviour::site::{NAME, Site, upstream};
use brisk_testkit::http1::Message;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::wait_until;

fn send(stream: &mut impl Write, request: &str) {
    write!(stream, "GET {request}\r\nHost: {NAME}\r\nConnection: close\r\n\r\n").expect("a server");
}

fn status(mut stream: impl Read + Write, request: &str) -> u16 {
    send(&mut stream, request);
    Message::read_response(&mut stream).expect("a response").status()
}

#[test]
fn the_requests_that_nginx_refuses_exceed_the_rate() {
    let statuses = (0..5).find_map(|_| within_a_minute()).expect("26 requests within a minute");
    assert!(statuses.iter().all(|(ours, theirs)| ours == theirs), "brisk and nginx: {statuses:?}");
    let refused = statuses.iter().filter(|(ours, _)| *ours == 429).count();
    assert!((5..20).contains(&refused), "{statuses:?}");
}

/// Statuses of brisk and nginx. `None` if the requests took so much time that limits permit a further one meanwhile.
fn within_a_minute() -> Option<Vec<(u16, u16)>> {
    let zones =
        "limit_req_zone $http_x_key zone=a:1m rate=1r/m; limit_req_zone $request_method zone=b:1m rate=1r/m;";
    let nginx = Nginx::http_with_zones(
        zones,
        "limit_req_status 429; location /a { limit_req zone=a burst=2 nodelay; alias FOLDER/1k; } \
         location /ab { limit_req zone=a burst=2 nodelay; limit_req zone=b burst=7 nodelay; alias FOLDER/1k; }",
    );
    let route = |path: &str, limits: &str| {
        format!("\n[[host.route]]\npath = \"{path}\"\nrespond = {{}}\nlimits = {limits}\n")
    };
    let tables = [
        route("/a", "[\"a\"]"),
        route("/ab", "[\"a\", \"b\"]"),
        "[limit.a]\nrate = \"1/m burst 3\"\nby = \"{request.header.x-key}\"\n".to_owned(),
        "[limit.b]\nrate = \"1/m burst 8\"\nby = \"{request.method}\"\n".to_owned(),
    ];
    let keys = "server.timeouts.head = \"10m\"\nserver.timeouts.idle = \"10m\"";
    let site = Site::custom(keys, &tables.concat(), |setup| setup);
    let requests = [
        ("/a", "1"),
        ("/a", "1"),
        ("/a", "2"),
        ("/a", "1"),
        ("/a", "1"),
        ("/a", "1"),
        ("/a", "2"),
        ("/a", ""),
        ("/ab", "1"),
        ("/ab", "1"),
        ("/ab", "1"),
        ("/ab", "2"),
        ("/ab", "2"),
        ("/ab", ""),
        ("/ab", "3"),
        ("/ab", "4"),
        ("/ab", "4"),
        ("/ab", "4"),
        ("/ab", "4"),
        ("/ab", "5"),
        ("/ab", "5"),
        ("/ab", "6"),
        ("/ab", "6"),
        ("/a", "6"),
        ("/a", "6"),
        ("/a", "6"),
    ];
    // Handshakes take seconds on a busy machine.
    let connections: Vec<_> = requests.iter().map(|_| site.connect()).collect();
    let started = Instant::now();
    let statuses = requests.into_iter().zip(connections).map(|((path, key), connection)| {
        let request = format!("{path} HTTP/1.1\r\nX-Key: {key}");
        let theirs = status(TcpStream::connect(nginx.address()).expect("nginx"), &request);
        (status(connection, &request), theirs)
    });
    let statuses = statuses.collect();
    (started.elapsed() < Duration::from_secs(50)).then_some(statuses)
}

#[test]
fn the_requests_that_nginx_refuses_exceed_the_concurrency() {
    let (release, held) = channel::<()>();
    let held = Mutex::new(held);
    let origin = Origin::answering(move |_, stream| {
        // The test's end releases it too.
        let _ = held.lock().expect("no handler panics").recv();
        write_response(stream, b"done")
    });
    let nginx = Nginx::http_with_zones(
        "limit_conn_zone $http_x_key zone=c:1m;",
        &format!(
            "location /c {{ limit_conn c 2; limit_conn_status 503; proxy_read_timeout 10m; proxy_pass {}; }}",
            origin.url()
        ),
    );
    let tables = [
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\nlimits = [\"c\"]\n".to_owned(),
        upstream(&[&origin.url()]) + "timeouts = { head = \"10m\" }\n",
        "[limit.c]\nconcurrency = 2\nby = \"{request.header.x-key}\"\nstatus = 503\n".to_owned(),
    ];
    let site = Site::with(&tables.concat());
    let keys = ["1", "1", "2", "1", "", "1", "2", "2", "", ""];
    let mut outcomes = Vec::new();
    let mut open: Vec<Box<dyn Read>> = Vec::new();
    for key in keys {
        let request = format!("/c HTTP/1.1\r\nX-Key: {key}");
        let mut theirs = TcpStream::connect(nginx.address()).expect("nginx");
        let mut ours = site.connect();
        let mut outcome = Vec::new();
        for stream in [&mut theirs as &mut dyn Stream, &mut ours] {
            let before = origin.requests().len();
            stream.begin(&request);
            outcome.push(wait_until("a decision", || {
                if origin.requests().len() > before {
                    return Some(200);
                }
                stream.status_now()
            }));
        }
        outcomes.push(outcome);
        open.push(Box::new(theirs));
        open.push(Box::new(ours));
    }
    drop(release);
    assert!(outcomes.iter().all(|outcome| outcome[0] == outcome[1]), "nginx and brisk: {outcomes:?}");
    assert_eq!(outcomes.iter().filter(|outcome| outcome[1] == 503).count(), 3, "{outcomes:?}");
}

/// A connection whose response may not come.
trait Stream {
    fn begin(&mut self, request: &str);
    /// Status of the response, if it has arrived.
    fn status_now(&mut self) -> Option<u16>;
}

impl Stream for TcpStream {
    fn begin(&mut self, request: &str) {
        send(self, request);
        self.set_nonblocking(true).expect("a socket");
    }

    fn status_now(&mut self) -> Option<u16> {
        let mut line = [0; 12];
        let read = self.peek(&mut line).ok()?;
        (read == line.len()).then(|| std::str::from_utf8(&line[9..]).ok()?.parse().ok())?
    }
}

impl Stream for brisk_testkit::client::TlsStream {
    fn begin(&mut self, request: &str) {
        send(self, request);
        self.tcp().set_nonblocking(true).expect("a socket");
    }

    fn status_now(&mut self) -> Option<u16> {
        let mut line = [0; 12];
        let read = self.read(&mut line).ok()?;
        (read == line.len()).then(|| std::str::from_utf8(&line[9..]).ok()?.parse().ok())?
    }
}
