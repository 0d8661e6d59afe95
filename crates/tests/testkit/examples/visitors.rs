//! Visitors for `make visit-cost`: COUNT concurrent visits, each on a connection of its own: a page, its resources,
//! and its beacon if the response contains an ID. Prints the number of pages with an ID.
//!
//! Resources are requested sequentially (`http1`), pipelined (`pipelined`, as no browser does), or concurrently
//! (`http2`). With `three-pages`, a visit over HTTP/2 has three pages; browsers leave a page when the next one has begun, so
//! that the beacon of a page comes with the requests for the resources of the next.
//!
//! usage: visitors PORT ROOT NAME COUNT RESOURCES resumed|full http1|pipelined|http2|three-pages

use std::io::{BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use brisk_testkit::client::{TlsClient, TlsStream};
use brisk_testkit::http1::Message;
use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, Version};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Concurrent visits: enough to keep a server busy.
const AT_ONCE: usize = 24;

const BROWSER: &str =
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36";

/// Times of a page on a busy machine, longer than those of any measured server.
const FORM: &str = "nav=navigate&connect=1.1&tls=2.2&wait=2003.1&ttfb=2004.2&load=2050.3&fcp=2040.1&lcp=2045.9&cls=0.0012\
                    &connections=1&bytes=81920&h1=60&h2=0&h3=0&other=0&end=1";

const PAGE: (&str, [(&str, &str); 4]) = (
    "/page.html",
    [
        ("accept", "text/html"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
        ("sec-fetch-site", "none"),
    ],
);
const RESOURCE: (&str, [(&str, &str); 4]) = (
    "/assets/a.css",
    [
        ("accept", "text/css"),
        ("sec-fetch-mode", "no-cors"),
        ("sec-fetch-dest", "style"),
        ("sec-fetch-site", "same-origin"),
    ],
);
const BEACON: &str = "/.brisk/beacon";
const BEACON_TYPE: &str = "application/x-www-form-urlencoded;charset=UTF-8";

#[derive(Clone, Copy)]
enum Protocol {
    Http1,
    Pipelined,
    Http2,
    ThreePages,
}

impl Protocol {
    fn pages(self) -> usize {
        if matches!(self, Self::ThreePages) { 3 } else { 1 }
    }
}

struct Visitor<'a> {
    address: SocketAddr,
    root: &'a Path,
    name: &'a str,
    resources: usize,
    is_resumed: bool,
    protocol: Protocol,
}

impl Visitor<'_> {
    fn client(&self) -> TlsClient {
        let client = TlsClient::new(self.root, self.name);
        if matches!(self.protocol, Protocol::Http2 | Protocol::ThreePages) {
            client.alpn(&["h2"])
        } else {
            client
        }
    }

    /// Performs one visit. Returns whether the page was measured.
    fn visit(&self, sessions: &TlsClient) -> bool {
        let new;
        let client = if self.is_resumed {
            sessions
        } else {
            new = self.client();
            &new
        };
        match self.protocol {
            Protocol::Http1 => self.over_http1(client, 1),
            Protocol::Pipelined => self.over_http1(client, self.resources),
            Protocol::Http2 | Protocol::ThreePages => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
                runtime.expect("a runtime").block_on(self.over_http2(client))
            }
        }
    }

    fn over_http1(&self, client: &TlsClient, at_once: usize) -> bool {
        let mut stream = BufReader::new(client.connect(self.address).expect("a connection"));
        let host = self.name;
        let get = |(path, fields): &(&str, [(&str, &str); 4])| {
            let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let fields = fields.concat();
            format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nuser-agent: {BROWSER}\r\n{fields}\r\n")
        };
        let page = answers(&mut stream, &get(&PAGE), 1);
        let resources = get(&RESOURCE).repeat(at_once);
        for _ in 0..self.resources.checked_div(at_once).unwrap_or(0) {
            answers(&mut stream, &resources, at_once);
        }
        let Some(id) =
            page.head.all("server-timing").iter().find_map(|value| visit_id(value).map(str::to_owned))
        else {
            return false;
        };
        let form = format!("id={id}&{FORM}");
        let beacon = format!(
            "POST {BEACON} HTTP/1.1\r\nhost: {host}\r\nuser-agent: {BROWSER}\r\norigin: https://{host}\r\n\
             sec-fetch-site: same-origin\r\ncontent-type: {BEACON_TYPE}\r\ncontent-length: {}\r\n\r\n{form}",
            form.len()
        );
        answers(&mut stream, &beacon, 1);
        true
    }

    async fn over_http2(&self, client: &TlsClient) -> bool {
        let tcp = TcpStream::connect(self.address).await.expect("a connection");
        tcp.set_nodelay(true).expect("a socket");
        let name = self.name.to_owned().try_into().expect("a host name");
        let tls = TlsConnector::from(client.config()).connect(name, tcp).await.expect("a handshake");
        let (mut requests, connection) = h2::client::handshake(tls).await.expect("HTTP/2");
        let visits = async {
            let mut id: Option<String> = None;
            for _ in 0..self.protocol.pages() {
                let page = self.get(&mut requests, &PAGE).await;
                let resources: Vec<_> =
                    (0..self.resources).map(|_| self.get(&mut requests.clone(), &RESOURCE)).collect();
                let left = id.as_deref().map(|id| self.leave(&mut requests, id));
                for resource in resources {
                    resource.await;
                }
                if let Some(left) = left {
                    left.await;
                }
                let ids = page.get_all("server-timing").iter();
                id = ids.into_iter().find_map(|value| visit_id(value.to_str().ok()?).map(str::to_owned));
            }
            let Some(id) = id else { return false };
            self.leave(&mut requests, &id).await;
            true
        };
        tokio::select! {
            is_measured = visits => is_measured,
            ended = connection => panic!("the connection ended: {ended:?}"),
        }
    }

    /// Sends the beacon of a page at once; returns when its response has come.
    fn leave(&self, requests: &mut SendRequest<Bytes>, id: &str) -> impl Future<Output = ()> + use<> {
        let beacon = self
            .request("POST", BEACON)
            .header("origin", format!("https://{}", self.name))
            .header("sec-fetch-site", "same-origin")
            .header("content-type", BEACON_TYPE);
        let (answer, mut body) =
            requests.send_request(beacon.body(()).expect("a request"), false).expect("a stream");
        body.send_data(format!("id={id}&{FORM}").into(), true).expect("a stream that is open");
        async { assert_eq!(answer.await.expect("an answer").status(), 204) }
    }

    fn request(&self, method: &str, path: &str) -> http::request::Builder {
        let uri = format!("https://{}{path}", self.name);
        Request::builder().version(Version::HTTP_2).method(method).uri(uri).header("user-agent", BROWSER)
    }

    /// Sends a request at once; returns the head of the response once it is complete.
    fn get(
        &self,
        requests: &mut SendRequest<Bytes>,
        (path, fields): &(&str, [(&str, &str); 4]),
    ) -> impl Future<Output = HeaderMap> + use<> {
        let request = fields
            .iter()
            .fold(self.request("GET", path), |request, (name, value)| request.header(*name, *value));
        let (answer, _) =
            requests.send_request(request.body(()).expect("a request"), true).expect("a stream");
        async {
            let (head, mut body) = answer.await.expect("an answer").into_parts();
            assert_eq!(head.status, 200);
            while let Some(piece) = body.data().await {
                let length = piece.expect("a body").len();
                body.flow_control().release_capacity(length).expect("a window");
            }
            head.headers
        }
    }
}

fn visit_id(timing: &str) -> Option<&str> {
    timing.strip_prefix("visit;desc=")
}

/// Sends the requests and returns the last response.
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
    let [_, port, root, name, count, resources, session, protocol] = &arguments[..] else {
        panic!("usage: PORT ROOT NAME COUNT RESOURCES resumed|full http1|pipelined|http2|three-pages")
    };
    let number = |text: &String| text.parse::<usize>().expect("a number");
    let (count, port) = (number(count), port.parse::<u16>().expect("a port"));
    let visitor = Visitor {
        address: ([127, 0, 0, 1], port).into(),
        root: Path::new(root),
        name,
        resources: number(resources),
        is_resumed: session == "resumed",
        protocol: match &protocol[..] {
            "http1" => Protocol::Http1,
            "pipelined" => Protocol::Pipelined,
            "http2" => Protocol::Http2,
            "three-pages" => Protocol::ThreePages,
            other => panic!("{other} is no protocol"),
        },
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
