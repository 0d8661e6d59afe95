//! Names of the contents of packets: handshake messages, requests and responses.

use brisk_handshake_view::Party;
use brisk_handshake_view::records::ContentType;

use crate::http::Http;
use crate::tls::{APPLICATION_DATA, TlsAnalysis};

/// Contents of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Names<'a> {
    pub(crate) tls: Option<&'a TlsAnalysis>,
    pub(crate) http: Option<&'a Http>,
}

impl Names<'_> {
    /// Names of the messages that begin in the `len` bytes of `from` at `offset`, or of the handshake message that continues
    /// there. Empty for other data.
    pub(crate) fn of(self, from: Party, offset: u64, len: u64) -> Vec<String> {
        let begins = |at: u64| (offset..offset + len).contains(&at);
        let http = self.http.into_iter().flat_map(|http| http.names(from));
        let http: Vec<_> = http.filter(|(at, _)| begins(*at)).map(|(_, name)| name).collect();
        let mut names = self.tls.map(|tls| tls.names(from, offset, len)).unwrap_or_default();
        if !http.is_empty() {
            // The requests are the content of these records.
            names.retain(|name| name != APPLICATION_DATA);
        }
        names.extend(http);
        names
    }

    /// The most important of the names that [`of`](Self::of) returns.
    pub(crate) fn first(self, from: Party, offset: u64, len: u64) -> Option<String> {
        let names = self.of(from, offset, len);
        // RFC 8446 appendix D.4: this record has no meaning in TLS 1.3, and precedes the message that was
        // waited for.
        let is_change = |name: &&String| *name == ContentType::ChangeCipherSpec.name();
        names.iter().find(|name| !is_change(name)).or(names.first()).cloned()
    }
}
