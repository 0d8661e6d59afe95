//! Settings of HTTP connections: timeouts and sizes.

use std::time::Duration;

use brisk_budget::Limits;

/// Timeouts and sizes of HTTP connections.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Timeouts for clients.
    pub timeouts: HttpTimeouts,
    /// Maximum size of a request head in bytes: request line and headers together. Default: 64 KiB.
    pub head_size: usize,
    /// Maximum number of headers of a request; beyond it `431`. Default: 100.
    pub headers: usize,
    /// Maximum number of concurrent requests on one HTTP/2 connection: `SETTINGS_MAX_CONCURRENT_STREAMS`. Default: 128.
    pub h2_streams: u32,
    /// Number of HTTP/2 streams that a client may reset, or cause the gateway to reset, before the connection is closed
    /// (CVE-2023-44487). Two responses earn one back, as does each second. A useless control frame counts a tenth.
    /// Default: 200.
    pub h2_resets: usize,
    /// Maximum number of response bytes held per connection while its client does not read. Default: 1 MiB.
    pub buffered: usize,
    /// Limit on [`buffered`](HttpSettings::buffered) bytes of all connections, within 64 KiB per worker. Above it, each
    /// connection may hold 64 KiB, connections of clients that read nothing are closed, and new requests get `503`.
    /// Default: 1 GiB.
    pub buffered_total: usize,
    /// Maximum number of bytes of request bodies gathered before they are forwarded, of all connections, in memory and
    /// in files. Requests above it get `503`. Default: 1 GiB.
    pub gathered_total: u64,
    /// Maximum memory of active encoders in bytes, of all connections. Further responses are sent uncompressed.
    /// Default: 256 MiB.
    pub compression_memory: usize,
    /// Maximum memory of compressed copies of files in bytes, of all workers. A quarter is reserved for copies that are
    /// being gathered. Default: 32 MiB.
    pub compressed_files: usize,
    /// Maximum memory of responses stored as dictionaries in bytes. A quarter is reserved for dictionaries that are being
    /// gathered. Default: 32 MiB.
    pub dictionaries: usize,
    /// Minimum rate of a request body in bytes per second, until its response begins; 0 for none. A pause of
    /// `timeouts.body` in total is free. Default: 240.
    pub body_rate: u64,
    /// Minimum rate at which a client reads a response, in bytes per second of the time in which data waits for it; 0 for
    /// none. The client may fall behind by `timeouts.write`. Default: 240.
    pub read_rate: u64,
    /// Number of requests after which a connection is closed, once those in flight are complete. Default: no limit.
    pub requests: Option<u32>,
    /// Whether a client that closes its side while it waits for an HTTP/1.1 response counts as gone, so that its
    /// request is cancelled. Otherwise it gets the response. A reset cancels the request in any case.
    pub abort_on_close: AbortOnClose,
}

/// Treatment of clients that close their side while they wait for a response: `server.abort_on_close`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AbortOnClose {
    /// The client gets the response: `false`.
    Never,
    /// The client is gone if the server of its request is at its limit: other clients need the permit more.
    #[default]
    AtLimit,
    /// The client is gone: `true`.
    Always,
}

/// Timeouts for clients. Granularity: 100 ms.
#[derive(Clone, Debug)]
pub struct HttpTimeouts {
    /// For the head of a request, from its first byte. Default: 10 s.
    pub head: Duration,
    /// For the next bytes of a request body. Default: 30 s.
    pub body: Duration,
    /// For the next request on an idle connection. Default: 60 s.
    pub idle: Duration,
    /// For reading the next bytes of a response. Default: 30 s.
    pub write: Duration,
    /// For a whole request and its response, from the end of the request's head. Default: none.
    pub request: Option<Duration>,
    /// Lifetime of a connection, after which it is closed once its requests in flight are complete. Default: none.
    pub connection: Option<Duration>,
}

impl HttpSettings {
    /// The limits of the memory [`Budgets`](brisk_budget::Budgets).
    pub fn limits(&self) -> Limits {
        Limits {
            responses: self.buffered_total as u64,
            encoders: self.compression_memory as u64,
            // Copies of files and dictionaries in progress share one budget, since a response is gathered for
            // one of both.
            copies: (self.compressed_files as u64).saturating_add(self.dictionaries as u64),
            requests: self.gathered_total,
        }
    }
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            timeouts: HttpTimeouts::default(),
            head_size: 64 * 1024,
            headers: 100,
            h2_streams: 128,
            h2_resets: 200,
            buffered: 1 << 20,
            buffered_total: 1 << 30,
            gathered_total: 1 << 30,
            compression_memory: 256 << 20,
            compressed_files: 32 << 20,
            dictionaries: 32 << 20,
            body_rate: 240,
            read_rate: 240,
            requests: None,
            abort_on_close: AbortOnClose::default(),
        }
    }
}

impl Default for HttpTimeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            idle: Duration::from_mins(1),
            write: Duration::from_secs(30),
            request: None,
            connection: None,
        }
    }
}
