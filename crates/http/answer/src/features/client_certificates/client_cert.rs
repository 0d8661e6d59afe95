//! The certificate of a client in headers for upstreams: `Client-Cert` and `Client-Cert-Chain` (RFC 9440).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use brisk_http::message::HeaderList;
use brisk_telemetry::ConnectionRecord;
use bytes::Bytes;
use http::HeaderValue;
use http::header::HeaderName;

const CERTIFICATE: HeaderName = HeaderName::from_static("client-cert");
const CHAIN: HeaderName = HeaderName::from_static("client-cert-chain");

/// Names of the headers with certificates.
pub(crate) static NAMES: [HeaderName; 2] = [CERTIFICATE, CHAIN];

/// The certificates of a client that are sent to upstreams. The client's own certificate is verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCert {
    /// No certificate.
    #[default]
    None,
    /// The client's own certificate, in `Client-Cert` (RFC 9440 section 2.2).
    Certificate,
    /// Like [`Self::Certificate`], and the further certificates of the client's chain in
    /// `Client-Cert-Chain` (RFC 9440 section 2.3).
    Chain,
}

impl ClientCert {
    /// Sets the headers of a request for an upstream.
    ///
    /// The caller has removed headers of these names from the client, even from a trusted proxy (RFC 9440 section 4).
    pub(crate) fn apply(self, headers: &mut HeaderList, record: &ConnectionRecord) {
        if self == Self::None {
            return;
        }
        let chain = record.tls.as_ref().map_or(&[][..], |tls| &tls.client_chain);
        let Some((own, others)) = chain.split_first() else { return };
        headers.insert(CERTIFICATE, value(item(own)));
        if self == Self::Chain && !others.is_empty() {
            let list: Vec<_> = others.iter().map(|certificate| item(certificate)).collect();
            headers.insert(CHAIN, value(list.join(", ")));
        }
    }
}

/// RFC 9440 section 2.1: the DER certificate as a byte sequence (RFC 8941 section 3.3.5).
fn item(der: &[u8]) -> String {
    format!(":{}:", STANDARD.encode(der))
}

fn value(text: String) -> HeaderValue {
    // The buffer is shared and not copied: a chain has several kilobytes.
    HeaderValue::from_maybe_shared(Bytes::from(text)).expect("base64, colons, commas and spaces")
}
