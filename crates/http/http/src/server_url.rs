//! Addresses of servers as they are written in settings.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use brisk_net::Target;
use brisk_net::unix::{UnixTarget, UnixTargetError};
use brisk_wire::uri::without_scheme;
use http::uri::{Authority, PathAndQuery, Uri};
use thiserror::Error;

use crate::cgi::CgiProtocol;
use crate::url_path::UrlPath;

/// Protocol of requests to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerScheme {
    /// HTTP/1.1 over TCP or a Unix socket.
    Http,
    /// HTTP/1.1 over TLS, or HTTP/2 according to `UpstreamTlsSettings::protocol`.
    Https,
    /// HTTP/2 over TCP or a Unix socket, with prior knowledge (RFC 9113 section 3.3).
    H2c,
    /// Bytes over TCP or a Unix socket, for `[[tcp]]`.
    Tcp,
    /// Bytes over TLS, for `[[tcp]]`.
    Tls,
    /// FastCGI, uwsgi or SCGI over TCP or a Unix socket.
    Cgi(CgiProtocol),
}

impl ServerScheme {
    /// Whether connections are encrypted by TLS.
    pub const fn is_encrypted(self) -> bool {
        matches!(self, Self::Https | Self::Tls)
    }

    /// Whether the server gets the bytes of TCP connections instead of requests.
    pub const fn is_stream(self) -> bool {
        matches!(self, Self::Tcp | Self::Tls)
    }

    /// The protocol of an application server that gets requests as variables; `None` for others.
    pub fn cgi(self) -> Option<CgiProtocol> {
        match self {
            Self::Cgi(protocol) => Some(protocol),
            Self::Http | Self::Https | Self::H2c | Self::Tcp | Self::Tls => None,
        }
    }

    fn of(scheme: &str) -> Option<Self> {
        let known = [
            ("http", Self::Http),
            ("https", Self::Https),
            ("h2c", Self::H2c),
            ("tcp", Self::Tcp),
            ("tls", Self::Tls),
        ];
        let cgi = CGI.map(|protocol| (protocol.scheme(), Self::Cgi(protocol)));
        let mut all = known.into_iter().chain(cgi);
        all.find_map(|(name, own)| scheme.eq_ignore_ascii_case(name).then_some(own))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::H2c => "h2c",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Cgi(protocol) => protocol.scheme(),
        }
    }

    /// The port of a URL without one; `None` if it has to name a port.
    fn port(self) -> Option<u16> {
        match self {
            Self::Http | Self::H2c => Some(80),
            Self::Https => Some(443),
            Self::Tcp | Self::Tls => None,
            Self::Cgi(protocol) => Some(protocol.port()),
        }
    }
}

const CGI: [CgiProtocol; 3] = [CgiProtocol::FastCgi, CgiProtocol::Uwsgi, CgiProtocol::Scgi];

/// The address of a server: `http://`, `https://`, `h2c://`, `fastcgi://`, `uwsgi://` or `scgi://` with host and port, or
/// `unix:` (HTTP/1.1), `h2c+unix:`, `fastcgi+unix:`, `uwsgi+unix:` or `scgi+unix:` with a socket; for bytes, `tcp://` or `tls://`
/// with host and port, or `tcp+unix:` with a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    scheme: ServerScheme,
    authority: Authority,
    address: ServerAddress,
    path: Option<UrlPath>,
}

/// The address that a connection to a server is opened to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// Host and port.
    Tcp(Target),
    /// A socket of this machine.
    Unix(UnixTarget),
    /// The servers of a service, by the name of its SRV records (RFC 2782).
    Service(Box<str>),
}

/// Reason for rejecting a text as [`ServerUrl`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{url:?} is not a server: {reason}, such as \"http://127.0.0.1:8080\", \"https://app.internal\", \"h2c://[::1]:50051\" or \"unix:/run/app.sock\""
)]
pub struct ServerUrlError {
    url: String,
    reason: String,
}

impl ServerUrl {
    /// Protocol of requests.
    pub fn scheme(&self) -> ServerScheme {
        self.scheme
    }

    /// Host and port as written; `localhost` for a Unix socket, the domain of a service. For requests that name no host, and
    /// for the verification of certificates.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Address to connect to.
    pub fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// Path that precedes the path of every request, without a slash at its end; empty for none.
    pub fn path(&self) -> &str {
        self.path.as_ref().map_or("", |path| path.as_str().trim_end_matches('/'))
    }

    /// Name for the log and the metrics: host and port as written, or the Unix socket.
    pub fn name(&self) -> String {
        match &self.address {
            ServerAddress::Tcp(_) => self.authority.to_string(),
            ServerAddress::Unix(target) => target.to_string(),
            ServerAddress::Service(name) => name.to_string(),
        }
    }

    /// The same URL with this address in place of a name.
    #[must_use]
    pub fn at(&self, address: SocketAddr) -> Self {
        let target = Target::new(&address.ip().to_string(), address.port());
        Self { address: ServerAddress::Tcp(target), ..self.clone() }
    }

    fn on_unix_socket(scheme: ServerScheme, socket: &str) -> Result<Self, UnixTargetError> {
        let address = ServerAddress::Unix(socket.parse()?);
        Ok(Self { scheme, authority: Authority::from_static("localhost"), address, path: None })
    }
}

impl FromStr for ServerUrl {
    type Err = ServerUrlError;

    fn from_str(text: &str) -> Result<Self, ServerUrlError> {
        let wrong = |reason: &str| ServerUrlError { url: text.to_owned(), reason: reason.to_owned() };
        if let Some((scheme, socket)) = unix_socket(text) {
            return Self::on_unix_socket(scheme, socket).map_err(|error| wrong(&error.to_string()));
        }
        // The form of `proxy_pass` in nginx.
        if without_scheme(text, "http://unix:").is_some() {
            return Err(wrong("a Unix socket has no http:// in front of it"));
        }
        let (is_service, url) = without_scheme(text, "srv+").map_or((false, text), |url| (true, url));
        let uri: Uri = url.parse().map_err(|_| wrong("it has to be a URL"))?;
        let Some(scheme) = uri.scheme_str().and_then(ServerScheme::of) else {
            return Err(wrong(
                "it has to start with http://, https://, h2c://, fastcgi://, uwsgi://, scgi://, srv+, unix:, h2c+unix:, fastcgi+unix:, \
                 uwsgi+unix: or scgi+unix:, or for [[tcp]] with tcp://, tls:// or tcp+unix:",
            ));
        };
        let path = match uri.path_and_query().map(PathAndQuery::as_str) {
            None | Some("" | "/") => None,
            Some(_) if scheme.is_stream() => return Err(wrong("a TCP server has no path")),
            Some(_) if scheme.cgi().is_some() => {
                return Err(wrong(
                    "a server of FastCGI, uwsgi or SCGI has no path: `cgi.root` names the folder of its scripts",
                ));
            }
            Some(path) => Some(path.parse::<UrlPath>().map_err(|reason| wrong(&reason))?),
        };
        let authority = uri.authority().ok_or_else(|| wrong("it has to name a host"))?.clone();
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(wrong("it has to name a host and no user"));
        }
        if is_service {
            let (address, authority) = service(&authority).map_err(wrong)?;
            return Ok(Self { scheme, authority, address, path });
        }
        let port =
            authority.port_u16().or_else(|| scheme.port()).ok_or_else(|| wrong("it has to name a port"))?;
        let address = ServerAddress::Tcp(Target::new(authority.host(), port));
        Ok(Self { scheme, authority, address, path })
    }
}

/// The service in a URL, and its domain.
fn service(authority: &Authority) -> Result<(ServerAddress, Authority), &'static str> {
    if authority.port().is_some() {
        return Err("the ports of a service come from its SRV records, so it has to name none");
    }
    let name = authority.host();
    let mut labels = name.splitn(3, '.');
    let is_label = |label: Option<&str>| label.is_some_and(|label| label.len() > 1 && label.starts_with('_'));
    let is_service = is_label(labels.next()) && is_label(labels.next());
    let domain = labels.next().filter(|domain| is_service && !domain.is_empty());
    let domain = domain.and_then(|domain| domain.parse().ok());
    let domain = domain.ok_or("a service has a name such as _http._tcp.app.internal")?;
    Ok((ServerAddress::Service(name.into()), domain))
}

/// Protocol and address of a server on a Unix socket.
fn unix_socket(text: &str) -> Option<(ServerScheme, &str)> {
    let schemes = [
        ("unix:", ServerScheme::Http),
        ("h2c+unix:", ServerScheme::H2c),
        ("tcp+unix:", ServerScheme::Tcp),
        ("fastcgi+unix:", ServerScheme::Cgi(CgiProtocol::FastCgi)),
        ("uwsgi+unix:", ServerScheme::Cgi(CgiProtocol::Uwsgi)),
        ("scgi+unix:", ServerScheme::Cgi(CgiProtocol::Scgi)),
    ];
    schemes.into_iter().find_map(|(prefix, scheme)| Some((scheme, without_scheme(text, prefix)?)))
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.scheme.name();
        let is_usual = matches!(self.scheme, ServerScheme::Http | ServerScheme::Https);
        match &self.address {
            ServerAddress::Tcp(_) => write!(formatter, "{scheme}://{}{}", self.authority, self.path()),
            ServerAddress::Unix(target) if is_usual => write!(formatter, "{target}"),
            ServerAddress::Unix(target) => write!(formatter, "{scheme}+{target}"),
            ServerAddress::Service(name) => write!(formatter, "srv+{scheme}://{name}{}", self.path()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_written_alike() {
        let sockets = [
            "unix:/run/app.sock",
            "h2c+unix:/run/grpc.sock",
            "unix:@app",
            "tcp+unix:/run/redis.sock",
            "fastcgi+unix:/run/php.sock",
        ];
        for text in [
            "http://127.0.0.1:8080",
            "https://app.internal",
            "h2c://[::1]:50051",
            "http://app:1/base/x",
            "tcp://127.0.0.1:5432",
            "tls://db.internal:6380",
            "srv+tcp://_redis._tcp.app.internal",
            "srv+https://_app._tcp.app.internal/base",
            "fastcgi://127.0.0.1:9000",
            "uwsgi://app:3031",
            "scgi://app",
        ]
        .iter()
        .chain(&sockets)
        {
            assert_eq!(text.parse::<ServerUrl>().expect(text).to_string(), *text);
        }
    }

    #[test]
    fn a_service_has_the_name_of_its_records_and_a_domain() {
        let url: ServerUrl = "srv+https://_app._tcp.app.internal".parse().expect("a service");
        assert_eq!(url.address(), &ServerAddress::Service("_app._tcp.app.internal".into()));
        assert_eq!((url.authority().as_str(), url.scheme()), ("app.internal", ServerScheme::Https));
        let at = url.at("[2001:db8::1]:8443".parse().expect("an address"));
        assert_eq!(at.address(), &ServerAddress::Tcp(Target::new("2001:db8::1", 8443)));
        for wrong in
            ["srv+http://app.internal", "srv+http://_app._tcp", "srv+http://_app._tcp.app:80", "srv+unix:/x"]
        {
            wrong.parse::<ServerUrl>().expect_err(wrong);
        }
    }

    #[test]
    fn the_port_follows_from_the_scheme() {
        let port = |text: &str| match text.parse::<ServerUrl>().expect(text).address() {
            ServerAddress::Tcp(target) => target.port(),
            ServerAddress::Unix(_) | ServerAddress::Service(_) => panic!("{text} has no port"),
        };
        assert_eq!((port("http://app"), port("https://app"), port("h2c://app:1")), (80, 443, 1));
    }

    #[test]
    fn schemes_may_be_in_capitals() {
        for (text, same) in [
            ("HTTP://app", "http://app"),
            ("H2C://app", "h2c://app"),
            ("UNIX:/run/app.sock", "unix:/run/app.sock"),
            ("H2c+Unix:/run/app.sock", "h2c+unix:/run/app.sock"),
            ("SRV+HTTPS://_app._tcp.app.internal", "srv+https://_app._tcp.app.internal"),
        ] {
            assert_eq!(text.parse::<ServerUrl>().expect(text).to_string(), same);
        }
    }

    #[test]
    fn a_unix_socket_has_a_name_for_the_log_and_a_host_for_requests() {
        let url: ServerUrl = "h2c+unix:/run/app.sock".parse().expect("a server");
        assert_eq!((url.scheme(), url.authority().as_str()), (ServerScheme::H2c, "localhost"));
        assert_eq!(url.name(), "unix:/run/app.sock");
    }

    #[test]
    fn what_is_not_a_server_is_refused() {
        let sockets = ["unix:", "unix:app.sock", "unix:@", "unix://run/", "https+unix:/a", "http://unix:/a"];
        for text in [
            "",
            "app:80",
            "ftp://app",
            "http://app/a/../b",
            "http://app/a//b",
            "http://app/a?x",
            "http://app?x",
            "http://u@app",
            "fastcgi://app:9000/index.php",
            "http://",
            "tcp://app",
            "tls://app:1/x",
        ]
        .iter()
        .chain(&sockets)
        {
            assert!(text.parse::<ServerUrl>().is_err(), "{text:?}");
        }
    }
}
