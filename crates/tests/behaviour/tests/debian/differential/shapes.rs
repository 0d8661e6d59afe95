//! Shapes of the upstream's responses.

/// A response of the upstream.
pub(super) struct Shape {
    pub(super) name: &'static str,
    /// Lines separated by `|`, and heads by `||`. A head that begins with `=` has a whole status line.
    pub(super) head: &'static str,
    /// Bytes after the head, except for HEAD.
    pub(super) body: &'static str,
    /// The upstream closes the connection afterwards.
    pub(super) closes: bool,
}

impl Shape {
    pub(super) fn bytes(&self, is_head: bool) -> Vec<u8> {
        let mut text = String::new();
        for head in self.head.split("||") {
            let head = head.strip_prefix('=').map_or_else(|| format!("HTTP/1.1 {head}"), str::to_owned);
            text += &head.replace('|', "\r\n");
            text += "\r\n\r\n";
        }
        if !is_head {
            text += self.body;
        }
        super::generator::expand(&text).into_bytes()
    }
}

const fn shape(name: &'static str, head: &'static str, body: &'static str) -> Shape {
    Shape { name, head, body, closes: false }
}

const fn last(name: &'static str, head: &'static str, body: &'static str) -> Shape {
    Shape { name, head, body, closes: true }
}

/// All shapes; each is a feature of a request.
pub(super) const SHAPES: &[Shape] = &[
    shape("response_status_201", "201 Created|Location: /new|Content-Length: 2", "ok"),
    shape("response_status_204", "204 No Content|ETag: \"a\"", ""),
    shape("response_status_204_length", "204 No Content|Content-Length: 0", ""),
    shape("response_status_204_chunked", "204 No Content|Transfer-Encoding: chunked", ""),
    shape("response_status_205", "205 Reset Content|Content-Length: 0", ""),
    shape("response_status_206", "206 Partial Content|Content-Range: bytes 0-1/9|Content-Length: 2", "ab"),
    shape("response_status_299", "299 Odd|Content-Length: 2", "ok"),
    shape("response_status_302", "302 Found|Location: /other?x=1#part|Content-Length: 0", ""),
    shape("response_status_304", "304 Not Modified|ETag: \"a\"|Vary: Accept", ""),
    shape("response_status_304_length", "304 Not Modified|ETag: \"a\"|Content-Length: 5", ""),
    shape(
        "response_status_401",
        "401 Unauthorized|WWW-Authenticate: Basic realm=\"a\"|Content-Length: 2",
        "no",
    ),
    shape("response_status_404", "404 Not Found|Content-Type: text/html|Content-Length: 4", "none"),
    shape("response_status_418", "418 Teapot|Content-Length: 3", "tea"),
    shape("response_status_502", "502 Bad Gateway|Content-Length: 3", "bad"),
    shape("response_status_599", "599 Odd|Content-Length: 3", "odd"),
    shape("response_status_999", "999 Odd|Content-Length: 3", "odd"),
    last("response_status_99", "99 Odd|Content-Length: 3", "odd"),
    last("response_status_text", "=HTTP/1.1 abc OK|Content-Length: 2", "ok"),
    last("response_status_version", "=HTTP/3.0 200 OK|Content-Length: 2", "ok"),
    last("response_status_garbage", "=SSH-2.0-OpenSSH", ""),
    last("response_status_101", "101 Switching Protocols|Connection: Upgrade|Upgrade: foo/1", ""),
    last("response_status_nothing", "=", ""),
    shape("response_reason_empty", "200 |Content-Length: 2", "ok"),
    shape("response_reason_missing", "200|Content-Length: 2", "ok"),
    shape("response_reason_long", "200 {3000}|Content-Length: 2", "ok"),
    last("response_interim_100", "100 Continue||200 OK|Content-Length: 2", "ok"),
    last("response_interim_102", "102 Processing|X-Own: 1||200 OK|Content-Length: 2", "ok"),
    last(
        "response_interim_103",
        "103 Early Hints|Link: </a>; rel=preload; as=style||200 OK|Content-Length: 2",
        "ok",
    ),
    last("response_interim_104", "104 Odd||104 Odd||200 OK|Content-Length: 2", "ok"),
    last("response_interim_199", "199 Odd||200 OK|Content-Length: 2", "ok"),
    shape("response_chunked", "200 OK|Transfer-Encoding: chunked", "2\r\nab\r\n3;x=y\r\ncde\r\n0\r\n\r\n"),
    shape("response_chunked_upper", "200 OK|Transfer-Encoding: CHUNKED", "A\r\n0123456789\r\n000\r\n\r\n"),
    shape("response_chunked_empty", "200 OK|Transfer-Encoding: chunked", "0\r\n\r\n"),
    shape(
        "response_trailers",
        "200 OK|Transfer-Encoding: chunked|Trailer: X-Sum",
        "2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n",
    ),
    shape(
        "response_trailers_forbidden",
        "200 OK|Transfer-Encoding: chunked",
        "2\r\nok\r\n0\r\nContent-Length: 7\r\nSet-Cookie: a=b\r\nX-Sum: 2\r\n\r\n",
    ),
    last("response_chunk_invalid", "200 OK|Transfer-Encoding: chunked", "2\r\nok\r\nzz\r\nok\r\n0\r\n\r\n"),
    last("response_chunk_overlong", "200 OK|Transfer-Encoding: chunked", "2\r\nokay\r\n0\r\n\r\n"),
    last("response_chunk_truncated", "200 OK|Transfer-Encoding: chunked", "a\r\nok"),
    last("response_length_truncated", "200 OK|Content-Length: 10", "half"),
    last("response_length_missing", "200 OK|Content-Type: text/plain", "until the end"),
    last("response_length_missing_old", "=HTTP/1.0 200 OK|Content-Type: text/plain", "until the end"),
    shape("response_length_old", "=HTTP/1.0 200 OK|Connection: keep-alive|Content-Length: 2", "ok"),
    shape("response_length_zero", "200 OK|Content-Length: 0", ""),
    last("response_length_twice", "200 OK|Content-Length: 2|Content-Length: 2", "ok"),
    last("response_length_list", "200 OK|Content-Length: 2, 2", "ok"),
    last("response_length_differs", "200 OK|Content-Length: 2|Content-Length: 3", "ok."),
    last("response_length_text", "200 OK|Content-Length: two", "ok"),
    last("response_length_negative", "200 OK|Content-Length: -2", "ok"),
    last("response_length_plus", "200 OK|Content-Length: +2", "ok"),
    last("response_length_huge", "200 OK|Content-Length: 99999999999999999999999", "ok"),
    last(
        "response_length_and_chunked",
        "200 OK|Content-Length: 9|Transfer-Encoding: chunked",
        "2\r\nok\r\n0\r\n\r\n",
    ),
    last("response_coding_gzip_chunked", "200 OK|Transfer-Encoding: gzip, chunked", "2\r\nok\r\n0\r\n\r\n"),
    last("response_coding_unknown", "200 OK|Transfer-Encoding: foo", "ok"),
    last(
        "response_coding_twice",
        "200 OK|Transfer-Encoding: chunked|Transfer-Encoding: chunked",
        "2\r\nok\r\n0\r\n\r\n",
    ),
    shape(
        "response_body_large",
        "200 OK|Content-Length: 90000",
        "{9000}{9000}{9000}{9000}{9000}{9000}{9000}{9000}{9000}{9000}",
    ),
    shape(
        "response_coded",
        "200 OK|Content-Encoding: gzip|Vary: Accept-Encoding|Content-Length: 6",
        "\u{1f}\u{b}gzip",
    ),
    shape(
        "response_cookies",
        "200 OK|Set-Cookie: a=1; Path=/|Set-Cookie: b=2; Secure|Content-Length: 2",
        "ok",
    ),
    shape("response_lists", "200 OK|X-Own: 1|X-Own: 2|Vary: A, B|Vary: C|Content-Length: 2", "ok"),
    shape(
        "response_nominated",
        "200 OK|Connection: X-Own, X-More|X-Own: 1|X-Kept: 2|Content-Length: 2",
        "ok",
    ),
    last("response_nominated_close", "200 OK|Connection: close, X-Own|X-Own: 1|Content-Length: 2", "ok"),
    shape(
        "response_hop_by_hop",
        "200 OK|Keep-Alive: timeout=5|Proxy-Connection: keep-alive|Upgrade: h2c|Content-Length: 2",
        "ok",
    ),
    shape(
        "response_proxy_authenticate",
        "200 OK|Proxy-Authenticate: Basic|Proxy-Authentication-Info: a|Content-Length: 2",
        "ok",
    ),
    shape(
        "response_validators",
        "200 OK|ETag: W/\"a\"|Last-Modified: Tue, 02 Jan 2024 03:04:05 GMT|Accept-Ranges: bytes|Content-Length: 2",
        "ok",
    ),
    shape("response_header_empty", "200 OK|X-Own:|Content-Length: 2", "ok"),
    shape("response_header_spaces", "200 OK|X-Own:  \t a  b \t |Content-Length: 2", "ok"),
    shape("response_header_underscore", "200 OK|X_Own: 1|Content-Length: 2", "ok"),
    shape("response_header_odd_name", "200 OK|X!#$%&'*+.^`~: 1|Content-Length: 2", "ok"),
    shape("response_header_utf8", "200 OK|X-Own: grün|Content-Length: 2", "ok"),
    shape("response_header_long", "200 OK|X-Own: {3000}|Content-Length: 2", "ok"),
    shape("response_header_longer", "200 OK|X-Own: {9000}|Content-Length: 2", "ok"),
    last("response_header_folded", "200 OK|X-Own: a|  b|Content-Length: 2", "ok"),
    last("response_header_space_before_colon", "200 OK|X-Own : 1|Content-Length: 2", "ok"),
    last("response_header_no_colon", "200 OK|X-Own|Content-Length: 2", "ok"),
    last("response_header_bad_name", "200 OK|X(Own): 1|Content-Length: 2", "ok"),
    last("response_header_nameless", "200 OK|: 1|Content-Length: 2", "ok"),
    last("response_header_nul", "200 OK|X-Own: a\0b|Content-Length: 2", "ok"),
    last("response_header_control", "200 OK|X-Own: a\u{1}b|Content-Length: 2", "ok"),
    last("response_line_feeds", "=HTTP/1.1 200 OK\nContent-Length: 2\n\nok", ""),
    shape(
        "response_types_twice",
        "200 OK|Content-Type: text/plain|Content-Type: text/html|Content-Length: 2",
        "ok",
    ),
    shape("response_locations_twice", "201 Created|Location: /a|Location: /b|Content-Length: 2", "ok"),
    shape(
        "response_refresh",
        "200 OK|Refresh: 0; url=/|Link: </a>; rel=next|Content-Location: /b|Content-Length: 2",
        "ok",
    ),
    shape(
        "response_dates",
        "200 OK|Date: Tue, 02 Jan 2024 03:04:05 GMT|Server: own|Age: 5|Expires: 0|Content-Length: 2",
        "ok",
    ),
    shape("response_accelerated", "200 OK|X-Accel-Redirect: /internal|Content-Length: 2", "ok"),
    shape(
        "response_accelerated_hints",
        "200 OK|X-Accel-Buffering: no|X-Accel-Expires: 0|Content-Length: 2",
        "ok",
    ),
];
