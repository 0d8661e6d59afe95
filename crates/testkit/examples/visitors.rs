//! Visitors for `bench/visit-cost`: COUNT visits, many at a time, each on a connection of its own: a page, then its resources in one
//! go, and its beacon if the page's answer has an id for one. Prints how many had.
//!
//! usage: visitors PORT ROOT NAME COUNT RESOURCES resumed|full

use std::io::{BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use brisk_testkit::client::{TlsClient, TlsStream};
use brisk_testkit::http1::Message;

/// Visits at a time: enough to keep a server busy.
const AT_ONCE: usize = 24;

const BROWSER: &str = "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36";

/// Times as a page on a busy machine has them: no server takes longer for its answer.
const FORM: &str = "nav=navigate&connect=1.1&tls=2.2&wait=2003.1&ttfb=2004.2&load=2050.3&fcp=2040.1&lcp=2045.9&cls=0.0012\
                    &connections=1&bytes=81920&h1=60&h2=0&h3=0&other=0";

struct Visitor<'a> {
    address: SocketAddr,
    root: &'a Path,
    name: &'a str,
    resources: usize,
    is_resumed: bool,
}

impl Visitor<'_> {
    fn client(&self) -> TlsClient {
        TlsClient::new(self.root, self.name)
    }

    /// One visit. Whether the page was measured.
    fn visit(&self, sessions: &TlsClient) -> bool {
        let new;
        let client = if self.is_resumed {
            sessions
        } else {
            new = self.client();
            &new
        };
        let mut stream = BufReader::new(client.connect(self.address).expect("a connection"));
        let (host, browser) = (self.name, BROWSER);
        let page = format!(
            "GET /page.html HTTP/1.1\r\nHost: {host}\r\n{browser}\r\nAccept: text/html\r\nSec-Fetch-Mode: navigate\r\n\
             Sec-Fetch-Dest: document\r\nSec-Fetch-Site: none\r\n\r\n"
        );
        let page = answers(&mut stream, &page, 1);
        let resource = format!(
            "GET /assets/a.css HTTP/1.1\r\nHost: {host}\r\n{browser}\r\nAccept: text/css\r\nSec-Fetch-Mode: no-cors\r\n\
             Sec-Fetch-Dest: style\r\nSec-Fetch-Site: same-origin\r\n\r\n"
        );
        if self.resources > 0 {
            answers(&mut stream, &resource.repeat(self.resources), self.resources);
        }
        let timings = page.head.all("server-timing");
        let Some(id) = timings.iter().find_map(|value| value.strip_prefix("visit;desc=")) else {
            return false;
        };
        let form = format!("id={id}&{FORM}");
        let beacon = format!(
            "POST /.brisk/beacon HTTP/1.1\r\nHost: {host}\r\n{browser}\r\nOrigin: https://{host}\r\nSec-Fetch-Site: same-origin\r\n\
             Content-Type: application/x-www-form-urlencoded;charset=UTF-8\r\nContent-Length: {}\r\n\r\n{form}",
            form.len()
        );
        answers(&mut stream, &beacon, 1);
        true
    }
}

/// Sends the requests; the last of their answers.
fn answers(stream: &mut BufReader<TlsStream>, requests: &str, count: usize) -> Message {
    stream.get_mut().write_all(requests.as_bytes()).expect("a server that reads");
    let mut last = Message::read_response(stream).expect("an answer");
    for _ in 1..count {
        last = Message::read_response(stream).expect("an answer");
    }
    assert!(matches!(last.status(), 200 | 204), "{:?}", last.head);
    last
}

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    let [_, port, root, name, count, resources, session] = &arguments[..] else {
        panic!("usage: PORT ROOT NAME COUNT RESOURCES resumed|full")
    };
    let number = |text: &String| text.parse::<usize>().expect("a number");
    let (count, port) = (number(count), port.parse::<u16>().expect("a port"));
    let visitor = Visitor {
        address: ([127, 0, 0, 1], port).into(),
        root: Path::new(root),
        name,
        resources: number(resources),
        is_resumed: session == "resumed",
    };
    let (begun, measured) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                let sessions = visitor.client();
                while begun.fetch_add(1, Ordering::Relaxed) < count {
                    measured.fetch_add(visitor.visit(&sessions).into(), Ordering::Relaxed);
                }
            });
        }
    });
    println!("{}", measured.into_inner());
}
