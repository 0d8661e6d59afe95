//! WebSocket over HTTP/2 through brisk (RFC 8441): from a tungstenite client on a stream, and from Chromium, to a tungstenite
//! server over HTTP/1.1.

use std::io::{self, Read, Write};

use brisk_behaviour::h2::{
    self, ACK, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame,
};
use brisk_behaviour::h2_origin::{h2_origin_with, h2c};
use brisk_behaviour::site::{NAME, Site, proxy_to, upstream};
use brisk_behaviour::websocket::echo;
use brisk_testkit::client::TlsStream;
use brisk_testkit::process::wait_until;
use serde_json::Value;
use tungstenite::protocol::Role;
use tungstenite::{Message, WebSocket};

use crate::chromium::Chromium;

/// The largest payload of a frame that may be sent unasked.
const LARGEST: usize = 16_384;

/// `:method CONNECT` with these further fields, all spelled out.
fn connect(stream: u32, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let usual = [(":method", "CONNECT"), (":scheme", "https"), (":path", path), (":authority", NAME)];
    let all = usual.iter().chain(fields);
    let block: Vec<u8> = all.flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect();
    frame(HEADERS, END_HEADERS, stream, &block)
}

const WEBSOCKET: [(&str, &str); 2] = [(":protocol", "websocket"), ("sec-websocket-version", "13")];

/// The bytes of one stream, which takes the whole window of its connection.
struct Stream {
    connection: TlsStream,
    received: Vec<u8>,
    has_ended: bool,
    /// The first byte of the answer's header block: `:status` where that is in the static table.
    status: Option<u8>,
}

impl Stream {
    /// Asks for `path` on stream 1, with further fields.
    fn open(site: &Site, path: &str, fields: &[(&str, &str)]) -> Self {
        let mut connection = site.client().alpn(&["h2"]).connect(site.brisk.https()).expect("a handshake");
        let asked = [h2::preface(), connect(1, path, fields)].concat();
        connection.write_all(&asked).expect("a server that reads");
        let mut stream = Self { connection, received: Vec::new(), has_ended: false, status: None };
        while stream.status.is_none() && !stream.has_ended {
            stream.read_frame().expect("a frame");
        }
        stream
    }

    fn read_frame(&mut self) -> io::Result<()> {
        let mut header = [0; 9];
        self.connection.read_exact(&mut header)?;
        let [a, b, c, kind, flags, ..] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.connection.read_exact(&mut payload)?;
        match kind {
            SETTINGS if flags & ACK == 0 => {
                assert!(payload.chunks(6).any(|setting| setting == [0, 8, 0, 0, 0, 1]), "{payload:?}");
                self.connection.write_all(&frame(SETTINGS, ACK, 0, &[]))?;
            }
            HEADERS => self.status = payload.first().copied(),
            DATA if !payload.is_empty() => {
                self.received.extend_from_slice(&payload);
                let length = (payload.len() as u32).to_be_bytes();
                let more = [frame(WINDOW_UPDATE, 0, 0, &length), frame(WINDOW_UPDATE, 0, 1, &length)];
                self.connection.write_all(&more.concat())?;
            }
            RST_STREAM => self.has_ended = true,
            _ => {}
        }
        self.has_ended |= matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.received.is_empty() && !self.has_ended {
            self.read_frame()?;
        }
        let length = buffer.len().min(self.received.len());
        buffer[..length].copy_from_slice(&self.received[..length]);
        self.received.drain(..length);
        Ok(length)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len().min(LARGEST);
        self.connection.write_all(&frame(DATA, 0, 1, &bytes[..length]))?;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.connection.flush()
    }
}

/// Index 8 of the static table: `:status 200`.
const OK: u8 = 0x88;

#[test]
fn messages_go_both_ways_on_a_stream() {
    let origin = echo();
    let site = Site::proxying(&[&origin.url()]);
    let stream = Stream::open(&site, "/chat", &WEBSOCKET);
    assert_eq!(stream.status, Some(OK));
    let mut socket = WebSocket::from_raw_socket(stream, Role::Client, None);
    for size in [1, 125, 126, 20_000, 60_000] {
        let message = Message::binary(vec![7; size]);
        socket.send(message.clone()).expect("a server that reads");
        assert_eq!(socket.read().expect("an echo"), message, "{size}");
    }
    socket.close(None).expect("a close frame");
    while socket.read().is_ok() {}
    drop(socket);
    let line: Value = serde_json::from_str(&site.brisk.logged("/chat")).expect("a line of JSON");
    assert_eq!((&line["method"], &line["status"]), (&"CONNECT".into(), &200.into()), "{line}");
    // The server of tungstenite closes first. The messages of the client have a mask of 4 bytes each.
    assert_eq!(line["upgraded_end"], "upstream-closed", "{line}");
    let (received, sent) = (line["bytes_received"].as_u64(), line["bytes_sent"].as_u64());
    assert_eq!(received.zip(sent).map(|(received, sent)| received - sent), Some(6 * 4), "{line}");
    wait_until("the end of the upstream's connection", || {
        let open = site.brisk.metrics().sum("brisk_upstream_connections_open", &[]);
        (open < 0.5).then_some(())
    });
}

#[test]
fn a_socket_without_traffic_ends_after_its_own_time() {
    let origin = echo();
    let tables = format!("{}timeouts.upgraded = \"1s\"\n", proxy_to(&[&origin.url()]));
    let site = Site::custom("server.timeouts.idle = \"30s\"\n", &tables, |setup| setup);
    // A pause of the machine may exceed the timeout before the first message.
    let mut socket = wait_until("an echo", || {
        let stream = Stream::open(&site, "/chat", &WEBSOCKET);
        let mut socket = WebSocket::from_raw_socket(stream, Role::Client, None);
        socket.send(Message::text("here")).ok()?;
        socket.read().ok().map(|_| socket)
    });
    assert!(socket.read().is_err());
}

#[test]
fn a_client_that_vanishes_leaves_no_connection_to_the_upstream() {
    let origin = echo();
    let site = Site::proxying(&[&origin.url()]);
    drop(Stream::open(&site, "/chat", &WEBSOCKET));
    let line: Value = serde_json::from_str(&site.brisk.logged("/chat")).expect("a line of JSON");
    assert_eq!(line["upgraded_end"], "client-closed", "{line}");
    wait_until("the end of the upstream's connection", || {
        let open = site.brisk.metrics().sum("brisk_upstream_connections_open", &[]);
        (open < 0.5).then_some(())
    });
}

#[test]
fn who_does_not_switch_answers_with_an_error() {
    let origin = brisk_testkit::origin::Origin::fixed("no socket here");
    let fixed = "\n[[host.route]]\npath = \"/fixed\"\nrespond = { body = \"fixed\" }\n";
    let site = Site::with(&format!("{fixed}{}", proxy_to(&[&origin.url()])));
    let protocol = |name| [(":protocol", name), ("sec-websocket-version", "13")];
    for (path, fields, status) in [
        ("/chat", protocol("websocket"), 502),
        ("/fixed", protocol("websocket"), 405),
        ("/other", protocol("connect-udp"), 501),
    ] {
        let stream = Stream::open(&site, path, &fields);
        assert_ne!(stream.status, Some(OK), "{path}");
        let line: Value = serde_json::from_str(&site.brisk.logged(path)).expect("a line of JSON");
        assert_eq!(line["status"], status, "{line}");
    }
}

#[test]
fn a_server_over_http2_gets_a_stream_if_it_offers_that() {
    // SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 8441, section 3). It counts in the first frame.
    const CONNECT_PROTOCOL: &[u8] = &[0, 8, 0, 0, 0, 1];
    for settings in [CONNECT_PROTOCOL, &[]] {
        let origin = h2_origin_with(settings, |peer, _| {
            while let Some(stream) = peer.request()? {
                peer.answer(stream, b"welcome", false)?;
                peer.wait_for_body(stream)?;
                peer.send(&frame(DATA, END_STREAM, stream, b" and goodbye"))?;
            }
            Ok(())
        });
        let site = Site::proxying(&[&h2c(&origin)]);
        let mut stream = Stream::open(&site, "/chat", &WEBSOCKET);
        if settings.is_empty() {
            let line: Value = serde_json::from_str(&site.brisk.logged("/chat")).expect("a line of JSON");
            assert_eq!((&line["status"], &line["error"]), (&502.into(), &"not-switched".into()), "{line}");
            continue;
        }
        assert_eq!(stream.status, Some(OK));
        let mut welcome = [0; 7];
        stream.read_exact(&mut welcome).expect("what the server says first");
        assert_eq!(&welcome, b"welcome");
        stream.connection.write_all(&frame(DATA, END_STREAM, 1, b"bye")).expect("a server that reads");
        let mut rest = String::new();
        stream.read_to_string(&mut rest).expect("the end of the stream");
        assert_eq!(rest, " and goodbye");
        let line: Value = serde_json::from_str(&site.brisk.logged("/chat")).expect("a line of JSON");
        let bytes = (&line["bytes_received"], &line["bytes_sent"]);
        assert_eq!(
            (bytes, &line["upgraded_end"]),
            ((&3.into(), &19.into()), &"client-closed".into()),
            "{line}"
        );
    }
}

/// Opens a socket on the connection that the page came on, and asks for what it said.
const PAGE: &str = r"<script>
const socket = new WebSocket('wss://' + location.host + '/chat');
socket.onopen = () => socket.send('hello');
socket.onmessage = event => fetch('/said-' + event.data);
</script>";

#[test]
fn chromium_opens_a_socket_on_the_connection_of_its_page() {
    let origin = echo();
    let page = format!(
        "\n[[host.route]]\npath = \"/page\"\nrespond = {{ body = {PAGE:?}, content_type = \"text/html\" }}\n\
         \n[[host.route]]\npath = \"/chat\"\nupstream = \"app\"\n{}",
        upstream(&[&origin.url()])
    );
    let site = Site::with(&page);
    let url = format!("https://localhost:{}/page", site.brisk.https().port());
    let chromium = Chromium::new(site.brisk.folder(), &site.brisk).start(&[], &url);
    site.brisk.logged("/said-hello");
    drop(chromium);
    let line: Value = serde_json::from_str(&site.brisk.logged("/chat")).expect("a line of JSON");
    assert_eq!((&line["method"], &line["status"]), (&"CONNECT".into(), &200.into()), "{line}");
}
