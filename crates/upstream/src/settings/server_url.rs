//! Addresses of servers as they are written in settings.

use std::fmt;
use std::str::FromStr;

use brisk_http::url_path::UrlPath;
use brisk_net::Target;
use brisk_net::unix::{UnixTarget, UnixTargetError};
use http::uri::{Authority, PathAndQuery, Uri};
use thiserror::Error;

/// Protocol of requests to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerScheme {
    /// HTTP/1.1 over TCP or a Unix socket.
    Http,
    /// HTTP/1.1 over TLS, or HTTP/2 according to [`UpstreamTlsSettings::protocol`].
    Https,
    /// HTTP/2 over TCP or a Unix socket, with prior knowledge (RFC 9113 section 3.3).
    H2c,
}

/// The address of a server: `http://`, `https://` or `h2c://` with host and port, or `unix:` (HTTP/1.1) or `h2c+unix:`
/// with a socket.
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

    /// Host and port as written; `localhost` for a Unix socket. For requests that name no host.
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
        }
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
        if text.starts_with("http://unix:") {
            return Err(wrong("a Unix socket has no http:// in front of it"));
        }
        let uri: Uri = text.parse().map_err(|_| wrong("it has to be a URL"))?;
        let scheme = match uri.scheme_str() {
            Some("http") => ServerScheme::Http,
            Some("https") => ServerScheme::Https,
            Some("h2c") => ServerScheme::H2c,
            _ => return Err(wrong("it has to start with http://, https://, h2c://, unix: or h2c+unix:")),
        };
        let path = match uri.path_and_query().map(PathAndQuery::as_str) {
            None | Some("" | "/") => None,
            Some(path) => Some(path.parse::<UrlPath>().map_err(|reason| wrong(&reason))?),
        };
        let authority = uri.authority().ok_or_else(|| wrong("it has to name a host"))?.clone();
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(wrong("it has to name a host and no user"));
        }
        let port = authority.port_u16().unwrap_or(if scheme == ServerScheme::Https { 443 } else { 80 });
        let address = ServerAddress::Tcp(Target::new(authority.host(), port));
        Ok(Self { scheme, authority, address, path })
    }
}

/// Protocol and address of a server on a Unix socket.
fn unix_socket(text: &str) -> Option<(ServerScheme, &str)> {
    let schemes = [("unix:", ServerScheme::Http), ("h2c+unix:", ServerScheme::H2c)];
    schemes.into_iter().find_map(|(prefix, scheme)| Some((scheme, text.strip_prefix(prefix)?)))
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, before_unix) = match self.scheme {
            ServerScheme::Http => ("http", ""),
            ServerScheme::Https => ("https", ""),
            ServerScheme::H2c => ("h2c", "h2c+"),
        };
        match &self.address {
            ServerAddress::Tcp(_) => write!(formatter, "{scheme}://{}{}", self.authority, self.path()),
            ServerAddress::Unix(target) => write!(formatter, "{before_unix}{target}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_written_alike() {
        let sockets = ["unix:/run/app.sock", "h2c+unix:/run/grpc.sock", "unix:@app"];
        for text in
            ["http://127.0.0.1:8080", "https://app.internal", "h2c://[::1]:50051", "http://app:1/base/x"]
                .iter()
                .chain(&sockets)
        {
            assert_eq!(text.parse::<ServerUrl>().expect(text).to_string(), *text);
        }
    }

    #[test]
    fn the_port_follows_from_the_scheme() {
        let port = |text: &str| match text.parse::<ServerUrl>().expect(text).address() {
            ServerAddress::Tcp(target) => target.port(),
            ServerAddress::Unix(_) => panic!("{text} is a Unix socket"),
        };
        assert_eq!((port("http://app"), port("https://app"), port("h2c://app:1")), (80, 443, 1));
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
            "http://",
        ]
        .iter()
        .chain(&sockets)
        {
            assert!(text.parse::<ServerUrl>().is_err(), "{text:?}");
        }
    }
}
