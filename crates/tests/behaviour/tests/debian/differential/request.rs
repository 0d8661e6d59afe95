//! Requests of the comparison, written as HTTP/1.1 or as the fields of HTTP/2 and HTTP/3.

use brisk_behaviour::site::NAME;

/// Protocols that can express a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expressible {
    Everywhere,
    /// Lines that exist in HTTP/1.1 only.
    Http1,
    /// Lengths that would leave an HTTP/1.1 server waiting.
    Multiplexed,
}

/// Content of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Empty,
    /// Content with its length.
    Whole(String),
    /// Content without its length, and its trailers.
    Chunks(&'static [&'static str], &'static [(&'static str, &'static str)]),
    /// Bytes after the head of HTTP/1.1; the headers state their framing.
    Raw(&'static str),
}

/// A request, composed of named features.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) number: usize,
    pub(super) features: Vec<&'static str>,
    pub(super) method: &'static str,
    pub(super) target: String,
    pub(super) version: &'static str,
    pub(super) hosts: &'static [&'static str],
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) content: Content,
    pub(super) expressible: Expressible,
}

impl Request {
    /// A GET request without features.
    pub(super) fn plain(number: usize, target: &str) -> Self {
        Self {
            number,
            features: Vec::new(),
            method: "GET",
            target: target.to_owned(),
            version: "HTTP/1.1",
            hosts: &[NAME],
            headers: Vec::new(),
            content: Content::Empty,
            expressible: Expressible::Everywhere,
        }
    }

    pub(super) fn has(&self, feature: &str) -> bool {
        self.features.contains(&feature)
    }

    /// Head in HTTP/1.1, and the bytes after it. `case` identifies the exchange at the upstream.
    pub(super) fn http1(&self, case: &str) -> (Vec<u8>, Vec<u8>) {
        let mut head = vec![format!("{} {} {}", self.method, self.target, self.version)];
        head.extend(self.hosts.iter().map(|host| format!("Host: {host}")));
        head.extend([format!("X-Case: {case}"), "User-Agent: test".to_owned()]);
        head.extend(self.headers.iter().map(|(name, value)| format!("{name}: {value}")));
        let body = match &self.content {
            Content::Empty => String::new(),
            Content::Whole(text) => {
                head.push(format!("Content-Length: {}", text.len()));
                text.clone()
            }
            Content::Chunks(chunks, trailers) => {
                head.push("Transfer-Encoding: chunked".to_owned());
                chunked(chunks, trailers)
            }
            Content::Raw(text) => (*text).to_owned(),
        };
        ((head.join("\r\n") + "\r\n\r\n").into_bytes(), body.into_bytes())
    }

    /// Whether the client waits for 100 (Continue) before it sends the content (RFC 9110 section 10.1.1).
    pub(super) fn waits(&self) -> bool {
        let is_expected =
            |(name, value): &(&str, String)| *name == "Expect" && value.eq_ignore_ascii_case("100-continue");
        let has_content =
            !matches!(&self.content, Content::Empty) && self.content != Content::Whole(String::new());
        self.version == "HTTP/1.1" && has_content && self.headers.iter().any(is_expected)
    }

    /// Fields of HTTP/2 and HTTP/3, pseudo-headers first.
    pub(super) fn fields(&self, case: &str) -> Vec<(String, String)> {
        let mut fields = vec![(":method".to_owned(), self.method.to_owned())];
        fields.push((":scheme".to_owned(), "https".to_owned()));
        if let Some(host) = self.hosts.first() {
            fields.push((":authority".to_owned(), (*host).to_owned()));
        }
        fields.push((":path".to_owned(), self.target.clone()));
        fields.extend(self.hosts.iter().skip(1).map(|host| ("host".to_owned(), (*host).to_owned())));
        fields.push(("x-case".to_owned(), case.to_owned()));
        fields.push(("user-agent".to_owned(), "test".to_owned()));
        fields.extend(self.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())));
        if let Content::Whole(text) = &self.content {
            fields.push(("content-length".to_owned(), text.len().to_string()));
        }
        fields
    }

    /// Content and trailers for HTTP/2 and HTTP/3.
    pub(super) fn data(&self) -> (Vec<u8>, Vec<(String, String)>) {
        match &self.content {
            Content::Empty => (Vec::new(), Vec::new()),
            Content::Whole(text) => (text.clone().into_bytes(), Vec::new()),
            Content::Raw(text) => (text.as_bytes().to_vec(), Vec::new()),
            Content::Chunks(chunks, trailers) => {
                let lower = |(name, value): &(&str, &str)| (name.to_ascii_lowercase(), (*value).to_owned());
                (chunks.concat().into_bytes(), trailers.iter().map(lower).collect())
            }
        }
    }
}

fn chunked(chunks: &[&str], trailers: &[(&str, &str)]) -> String {
    let chunk = |text: &&str| format!("{:x}\r\n{text}\r\n", text.len());
    let trailer = |(name, value): &(&str, &str)| format!("{name}: {value}\r\n");
    let (chunks, trailers): (String, String) =
        (chunks.iter().map(chunk).collect(), trailers.iter().map(trailer).collect());
    format!("{chunks}0\r\n{trailers}\r\n")
}
