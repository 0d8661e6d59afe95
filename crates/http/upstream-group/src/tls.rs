//! TLS to the servers of a group, and the files used for it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use brisk_tls::TlsError;
use brisk_tls::connector::{Connector, ConnectorSettings};
use brisk_wire::HttpVersion;

use crate::settings::{GroupSettings, Identity};

/// TLS to `https` servers: verification, and client authentication.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamTlsSettings {
    /// PEM file of trusted authorities. Default: the system's.
    pub ca: Option<PathBuf>,
    /// Certificate and key for servers that request client authentication. Default: none.
    pub identity: Option<Identity>,
    /// Whether servers are accepted without verification ([`ConnectorSettings::accepts_any_server`]). Default: `false`.
    pub accepts_any_server: bool,
    /// Server name that is sent (SNI) and verified. Default: the host of the server's URL.
    pub server_name: Option<String>,
    /// HTTP version. Default: HTTP/1.1.
    pub protocol: TlsProtocol,
    /// Whether a server may close a connection without `close_notify` (RFC 8446 section 6.1). Default: `false`, because a
    /// truncated response would count as complete.
    pub allows_missing_close_notify: bool,
}

/// HTTP version over TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2.
    Http2,
}

/// Hashes of the files of a [`Connector`]: authorities, chain and key. Hashes because the key is secret and the files may
/// be large.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles([Option<u64>; 3]);

impl TlsFiles {
    /// Reads and hashes the files. `None` for an unreadable file too, because [`connector`] reports that error.
    pub(crate) fn read(settings: &UpstreamTlsSettings) -> Self {
        let identity = settings.identity.as_ref();
        let files =
            [settings.ca.as_ref(), identity.map(|files| &files.chain), identity.map(|files| &files.key)];
        Self(files.map(|file| {
            // Wiped after use, since one of the files is a private key.
            let contents = brisk_secrets::read(file?).ok()?;
            let mut hasher = DefaultHasher::new();
            contents.hash(&mut hasher);
            Some(hasher.finish())
        }))
    }
}

/// Builds the [`Connector`] for the `https` and `tls` servers of a group; `None` if there are none. Reads files.
pub(crate) fn connector(settings: &GroupSettings) -> Result<Option<Connector>, TlsError> {
    if !settings.servers.iter().any(|server| server.url.scheme().is_encrypted()) {
        return Ok(None);
    }
    let protocol = match settings.tls.protocol {
        TlsProtocol::Http1 => HttpVersion::Http11,
        TlsProtocol::Http2 => HttpVersion::Http2,
    };
    let settings = ConnectorSettings {
        authorities: settings.tls.ca.clone(),
        identity: settings.tls.identity.clone(),
        // RFC 7301 section 3.2: a server refuses a client that offers unknown protocols only. That of the
        // bytes is not known here.
        protocols: if settings.is_stream() { Vec::new() } else { vec![protocol.alpn()] },
        allows_missing_close_notify: settings.tls.allows_missing_close_notify,
        accepts_any_server: settings.tls.accepts_any_server,
        ..ConnectorSettings::default()
    };
    Connector::new(&settings).map(Some)
}
