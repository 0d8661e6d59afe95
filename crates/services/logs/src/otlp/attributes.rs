//! Attributes of log records and spans, after the semantic conventions of OpenTelemetry.

use std::fmt::Display;
use std::io::Write;
use std::net::SocketAddr;

use brisk_telemetry::{ConnectionRecord, RequestRecord, Resumption, Side, StreamRecord, TlsFacts};
use brisk_wire::HttpVersion;
use brisk_wire::registry::NamedGroup;

use super::protobuf::{bytes, message, number};

/// Maximum length of a value in bytes.
const LONGEST: usize = 4 << 10;

/// Appends attributes as fields of a message.
pub(super) struct Attributes<'a> {
    buffer: &'a mut Vec<u8>,
    /// Number of the field of the message.
    field: u64,
}

impl<'a> Attributes<'a> {
    pub(super) fn new(buffer: &'a mut Vec<u8>, field: u64) -> Self {
        Self { buffer, field }
    }

    fn value(&mut self, key: &str, value: impl FnOnce(&mut Vec<u8>)) {
        message(self.buffer, self.field, |pair| {
            bytes(pair, 1, key.as_bytes());
            message(pair, 2, value);
        });
    }

    pub(super) fn text(&mut self, key: &str, text: &str) {
        self.value(key, |value| string(value, text));
    }

    /// A value of a client. Bytes that are no UTF-8 become `U+FFFD`.
    fn raw(&mut self, key: &str, value: &[u8]) {
        self.text(key, &String::from_utf8_lossy(value));
    }

    fn shown(&mut self, key: &str, shown: impl Display) {
        // Writing to a vector cannot fail.
        self.value(key, |value| message(value, 1, |text| drop(write!(text, "{shown}"))));
    }

    pub(super) fn number(&mut self, key: &str, integer: u64) {
        self.value(key, |value| number(value, 3, integer));
    }

    fn flag(&mut self, key: &str, flag: bool) {
        self.value(key, |value| number(value, 2, flag.into()));
    }

    fn optional(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(key, text);
        }
    }

    /// A request and its response.
    pub(super) fn request(&mut self, request: &RequestRecord<'_>) {
        let (path, query) = request.path.split_once('?').unzip();
        self.text("http.request.method", request.method);
        self.text("url.scheme", if request.connection.tls.is_some() { "https" } else { "http" });
        self.text("url.path", path.unwrap_or(request.path));
        self.optional("url.query", query);
        self.server(request.host);
        if request.status > 0 {
            self.number("http.response.status_code", request.status.into());
        }
        self.number("http.request.body.size", request.bytes_received);
        self.number("http.response.body.size", request.bytes_sent);
        self.text("network.protocol.name", "http");
        self.text("network.protocol.version", version(request.version));
        if let Some(agent) = request.user_agent {
            self.raw("user_agent.original", agent);
        }
        if let Some(referer) = request.referer {
            self.raw("http.request.header.referer", referer);
        }
        self.optional("user.name", request.user);
        self.error(request);
        self.optional("brisk.upstream", request.upstream);
        self.text("brisk.request.id", str::from_utf8(&request.id.digits()).unwrap_or_default());
        self.connection_of(request.client, request.connection);
    }

    /// The part of the request that the upstream has to do with.
    pub(super) fn upstream(&mut self, request: &RequestRecord<'_>, server: &str) {
        self.text("http.request.method", request.method);
        // `http://127.0.0.1:8080` or `unix:/run/app.sock`.
        match server.split_once("://") {
            Some((scheme, address)) => {
                self.text("url.scheme", scheme);
                self.server(address);
            }
            None => self.server(server),
        }
        if request.error_side == Some(Side::Upstream) {
            self.optional("error.type", request.error);
        } else if request.status > 0 {
            self.number("http.response.status_code", request.status.into());
        }
    }

    /// `error.type`: the name of the error, or the status of a response without one.
    fn error(&mut self, request: &RequestRecord<'_>) {
        match request.error {
            Some(error) => self.text("error.type", error),
            None if request.status >= 500 => self.shown("error.type", request.status),
            None => {}
        }
    }

    fn server(&mut self, authority: &str) {
        let (host, port) = match authority.rsplit_once(':') {
            // The last part of an IPv6 address without a port, such as `1]`, is no number, so the address
            // stays whole.
            Some((host, port)) if !host.is_empty() => (host, port.parse::<u16>().ok()),
            _ => (authority, None),
        };
        self.text("server.address", if port.is_some() { host } else { authority });
        if let Some(port) = port {
            self.number("server.port", port.into());
        }
    }

    /// A TCP connection whose bytes were forwarded.
    pub(super) fn stream(&mut self, stream: &StreamRecord<'_>) {
        if stream.end.side().is_some() {
            self.text("error.type", stream.end.name());
        }
        self.text("brisk.tcp", stream.service);
        self.text("brisk.connection.end", stream.end.name());
        self.optional("brisk.upstream", stream.upstream);
        self.number("network.io.received", stream.bytes_received);
        self.number("network.io.sent", stream.bytes_sent);
        self.optional("tls.client.server_name", stream.server_name);
        self.connection(stream.connection);
    }

    /// A connection.
    pub(super) fn connection(&mut self, connection: &ConnectionRecord) {
        self.connection_of(connection.client, connection);
    }

    /// A connection with a request of `client`.
    fn connection_of(&mut self, client: SocketAddr, connection: &ConnectionRecord) {
        self.shown("client.address", client.ip());
        if client.port() != 0 {
            self.number("client.port", client.port().into());
        }
        self.shown("network.peer.address", connection.peer.ip());
        self.number("network.peer.port", connection.peer.port().into());
        self.shown("network.local.address", connection.local.ip());
        self.number("network.local.port", connection.local.port().into());
        let is_quic = connection.tls.as_ref().is_some_and(|facts| facts.alpn == Some(HttpVersion::Http3));
        self.text("network.transport", if is_quic { "quic" } else { "tcp" });
        self.number("brisk.connection", connection.id);
        if let Some(facts) = &connection.tls {
            self.tls(facts);
        }
    }

    /// The [`TlsFacts`] of a handshake, as `tls.*`.
    pub(super) fn tls(&mut self, facts: &TlsFacts) {
        self.text("tls.protocol.name", "tls");
        self.optional(
            "tls.protocol.version",
            facts.version.name().and_then(|name| name.strip_prefix("TLS ")),
        );
        self.optional("tls.cipher", facts.suite.name());
        self.optional("tls.curve", facts.group.and_then(NamedGroup::name));
        self.flag("tls.resumed", facts.resumption != Resumption::Full);
        self.flag("tls.established", true);
        self.optional("tls.client.server_name", facts.server_name.as_deref());
        self.optional("tls.client.subject", facts.client_subject.as_deref());
        self.optional("tls.next_protocol", facts.alpn.map(HttpVersion::alpn));
    }
}

/// `AnyValue` with a string, cut at [`LONGEST`].
pub(super) fn string(value: &mut Vec<u8>, text: &str) {
    // A string of Protocol Buffers is UTF-8, so the cut is between characters.
    bytes(value, 1, &text.as_bytes()[..text.floor_char_boundary(LONGEST)]);
}

fn version(version: HttpVersion) -> &'static str {
    match version {
        HttpVersion::Http10 => "1.0",
        HttpVersion::Http11 => "1.1",
        HttpVersion::Http2 => "2",
        HttpVersion::Http3 => "3",
    }
}
