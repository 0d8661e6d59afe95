//! How clients are served: time limits and sizes of HTTP connections.

use std::time::Duration;

/// Time limits and sizes of HTTP connections.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// How long a client may take.
    pub timeouts: HttpTimeouts,
    /// Bytes of a request head: request line and headers together. Default: 64 KiB.
    pub head_size: usize,
    /// Headers of a request. Default: 100.
    pub headers: usize,
    /// Requests at a time on one HTTP/2 connection. Default: 128.
    pub h2_streams: u32,
    /// HTTP/2 streams that a client may reset, or make the server reset, before the connection is closed
    /// (CVE-2023-44487). Two answers earn one back, as does each second. A control frame without use counts a tenth.
    /// Default: 200.
    pub h2_resets: usize,
    /// Bytes of answers that a connection may hold while its client does not take them. Default: 1 MiB.
    pub buffered: usize,
    /// The same for all connections together, to some 64 KiB for each worker. Beyond it every connection keeps 64 KiB,
    /// those whose clients take nothing are closed, and new requests get 503. Default: 1 GiB.
    pub buffered_total: usize,
    /// Bytes of request bodies that are gathered before their upstream gets them, of all connections together, in memory
    /// and in files. Requests beyond it get 503. Default: 1 GiB.
    pub gathered_total: u64,
    /// Bytes that the encoders of answers under way may take, of all connections together. Further answers are sent as
    /// they are. Default: 256 MiB.
    pub compression_memory: usize,
    /// Bytes that compressed copies of files may take in memory, those of all workers together. Default: 32 MiB.
    pub compressed_files: usize,
    /// Bytes that answers may take that are kept as dictionaries for later ones. Default: 32 MiB.
    pub dictionaries: usize,
    /// Bytes per second that a request body has to come with, until its answer begins; 0 for none. The time of one
    /// pause (`timeouts.body`) is free. Default: 240.
    pub body_rate: u64,
    /// Requests on one connection: then it is closed as soon as those in flight are answered. Default: none.
    pub requests: Option<u32>,
    /// A client that closes its side while it waits for an answer over HTTP/1.1 is gone, and its request is given up.
    /// Otherwise it still gets the answer. One that resets the connection is gone in any case. Default: false.
    pub abort_on_close: bool,
}

/// How long a client may take. Granularity: 100 ms.
#[derive(Clone, Debug)]
pub struct HttpTimeouts {
    /// To send a request head, from its first byte. Default: 10 s.
    pub head: Duration,
    /// To go on with a request body. Default: 30 s.
    pub body: Duration,
    /// To begin the next request. Default: 60 s.
    pub idle: Duration,
    /// To go on reading an answer. Default: 30 s.
    pub write: Duration,
    /// For a whole request and its answer, from the end of the request's head. Default: none.
    pub request: Option<Duration>,
    /// For a connection: then it is closed as soon as its requests in flight are answered. Default: none.
    pub connection: Option<Duration>,
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
            requests: None,
            abort_on_close: false,
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
