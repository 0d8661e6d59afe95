//! Variables of templates: facts of a request and its connection.

use std::str::FromStr;

use http::HeaderName;

/// One fact of a request or its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// IP address of the client.
    ClientAddress,
    /// Port of the client.
    ClientPort,
    /// Name of the user that `basic_auth` or `jwt` of the route has verified.
    User,
    /// Subject of the client's verified certificate.
    ClientSubject,
    /// SHA-256 of the client's verified certificate.
    ClientFingerprint,
    /// IP address that the client connected to.
    ServerAddress,
    /// Port that the client connected to.
    ServerPort,
    /// Id of the request, as in the access log.
    Id,
    /// Method.
    Method,
    /// `https` or `http`.
    Scheme,
    /// Host that the client asked for, without its port, in lower case and without a dot at its end.
    Host,
    /// Path as the client sent it.
    Path,
    /// Query as the client sent it, without the question mark.
    Query,
    /// The same with the question mark; empty without a query.
    QueryPart,
    /// Path and query as the client sent them.
    Target,
    /// Version of HTTP.
    Version,
    /// First value of a header of the request.
    Header(HeaderName),
    /// First value of a cookie.
    Cookie(String),
    /// First value of a parameter of the query, decoded.
    Parameter(String),
    /// Version of TLS.
    TlsVersion,
    /// Cipher suite.
    TlsCipher,
    /// Name that the client asked for in the handshake (SNI).
    TlsServerName,
    /// JA4 of the `ClientHello`.
    Ja4,
    /// Seconds since 1970 with milliseconds (`1732198930.123`), when the text is formed.
    Time,
    /// Address of the server that answered. Only in responses.
    Upstream,
    /// Status of the response.
    ResponseStatus,
    /// First value of a header of the response, before the rules.
    ResponseHeader(HeaderName),
    /// Text of a group of the expression that selected the route. Only in redirects and bodies, by number or name.
    Group(usize),
    /// Path as `RequestPath::decoded` has it for routes: decoded, with resolved dot segments.
    DecodedPath,
    /// Value of `expires`. Only in `text` of `signed_links`.
    LinkExpires,
}

/// Variables with a fixed name.
const NAMED: [(&str, Variable); 24] = [
    ("client.address", Variable::ClientAddress),
    ("client.port", Variable::ClientPort),
    ("client.certificate.subject", Variable::ClientSubject),
    ("user", Variable::User),
    ("server.address", Variable::ServerAddress),
    ("server.port", Variable::ServerPort),
    ("request.id", Variable::Id),
    ("request.method", Variable::Method),
    ("request.scheme", Variable::Scheme),
    ("request.host", Variable::Host),
    ("request.path", Variable::Path),
    ("request.decoded_path", Variable::DecodedPath),
    ("request.query", Variable::Query),
    ("request.query_part", Variable::QueryPart),
    ("request.target", Variable::Target),
    ("request.version", Variable::Version),
    ("tls.version", Variable::TlsVersion),
    ("tls.cipher", Variable::TlsCipher),
    ("tls.server_name", Variable::TlsServerName),
    ("tls.client.fingerprint", Variable::ClientFingerprint),
    ("ja4", Variable::Ja4),
    ("time.unix", Variable::Time),
    ("upstream.address", Variable::Upstream),
    ("response.status", Variable::ResponseStatus),
];

/// Variables whose names end with a name of the request.
const OPEN: [&str; 4] = ["request.header.", "request.cookie.", "request.query.", "response.header."];

impl Variable {
    /// Whether the value is known with the response only.
    pub fn is_of_response(&self) -> bool {
        matches!(self, Self::Upstream | Self::ResponseStatus | Self::ResponseHeader(_))
    }
}

impl FromStr for Variable {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, variable)) = NAMED.iter().find(|(name, _)| *name == text) {
            return Ok(variable.clone());
        }
        let Some((prefix, name)) = OPEN.iter().find_map(|prefix| Some((*prefix, text.strip_prefix(prefix)?)))
        else {
            return Err(unknown(text));
        };
        if name.is_empty() {
            return Err(format!("{{{text}}} lacks a name, as {{{prefix}name}}"));
        }
        let header = || {
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
                format!("{name:?} is not the name of a header: write one as {{request.header.user-agent}}")
            })
        };
        match prefix {
            "request.header." => header().map(Self::Header),
            "response.header." => header().map(Self::ResponseHeader),
            "request.cookie." => Ok(Self::Cookie(name.to_owned())),
            _ => Ok(Self::Parameter(name.to_owned())),
        }
    }
}

fn unknown(text: &str) -> String {
    if let Some(prefix) = OPEN.iter().find(|prefix| prefix.strip_suffix('.') == Some(text)) {
        return format!("{{{text}}} lacks a name, as {{{prefix}name}}");
    }
    let near = |name: &str| strsim::jaro_winkler(text, name);
    let nearest = NAMED.iter().map(|(name, _)| *name).max_by(|one, other| near(one).total_cmp(&near(other)));
    if let Some(name) = nearest.filter(|name| near(name) > 0.9) {
        return format!("{{{text}}} is no variable; did you mean {{{name}}}?");
    }
    let named = NAMED.iter().map(|(name, _)| format!("{{{name}}}"));
    let known: Vec<_> = named.chain(OPEN.iter().map(|prefix| format!("{{{prefix}NAME}}"))).collect();
    format!("{{{text}}} is no variable; known here: {}, {{map.NAME}}", known.join(", "))
}
