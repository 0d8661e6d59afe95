//! [`Refusal`], the reason why a handshake did not complete, and the alerts for it.

use brisk_telemetry::HandshakeOutcome;
use brisk_wire::client_hello::ClientHello;
use brisk_wire::registry::ProtocolVersion;
use brisk_wire::suites::{self, Exchange};
use rustls::AlertDescription;

use crate::notes::Notes;

/// Reason why a handshake did not complete. The client has been sent the corresponding alert, if TLS has one.
#[derive(Debug)]
pub struct Refusal {
    /// Class of the failure, for metrics and the log.
    pub outcome: HandshakeOutcome,
    /// Details for the log, never for the client.
    pub detail: Option<String>,
    /// Server name in the hello; `None` if it contains none or was not read.
    pub server_name: Option<String>,
}

impl Refusal {
    /// A refusal without `detail` and `server_name`.
    pub fn new(outcome: HandshakeOutcome) -> Self {
        Self { outcome, detail: None, server_name: None }
    }

    /// A refusal with `reason` as its `detail`.
    pub fn because(outcome: HandshakeOutcome, reason: &impl ToString) -> Self {
        Self { detail: Some(reason.to_string()), ..Self::new(outcome) }
    }

    /// The refusal for an error of [`rustls`], more precise if the [`Notes`] of the handshake explain it.
    pub(crate) fn of(error: &rustls::Error, notes: Notes) -> Self {
        use rustls::Error;
        let outcome = match error {
            // The notes first: rustls reports every failed callback as a general error.
            _ if notes.limited => HandshakeOutcome::Limited,
            _ if notes.key_failed => HandshakeOutcome::KeyOperation,
            _ if notes.no_certificate => HandshakeOutcome::NoCertificate,
            Error::AlertReceived(AlertDescription::CloseNotify | AlertDescription::UserCanceled) => {
                HandshakeOutcome::ClientClosed
            }
            Error::AlertReceived(_) => HandshakeOutcome::Alert,
            Error::InvalidMessage(_) => HandshakeOutcome::Malformed,
            Error::InvalidCertificate(_) | Error::NoCertificatesPresented => {
                HandshakeOutcome::ClientCertificate
            }
            Error::PeerIncompatible(_) => HandshakeOutcome::NothingInCommon,
            Error::General(_) => HandshakeOutcome::Internal,
            _ => HandshakeOutcome::ProtocolError,
        };
        Self::because(outcome, error)
    }

    /// Adds the server name of `hello`, and [`HandshakeOutcome::RsaKeyExchange`] if its suites explain the refusal.
    pub(crate) fn refined(self, hello: ClientHello) -> Self {
        Self { outcome: refined(self.outcome, &hello), server_name: hello.server_name, ..self }
    }
}

/// The alert for `error`, if that of [`rustls`] is not sent. All of these errors occur before encryption begins.
pub(crate) fn own_alert(
    error: &rustls::Error,
    notes: Notes,
    version: Option<rustls::ProtocolVersion>,
) -> Option<AlertDescription> {
    match error {
        // rustls has no alert for an engine that failed or was not used because of the limits.
        _ if notes.key_failed || notes.limited => Some(AlertDescription::InternalError),
        // RFC 8446 section 4.4.2.2, RFC 5246 section 7.4.1.3: no common parameters. rustls would send
        // access_denied.
        _ if notes.no_certificate => Some(AlertDescription::HandshakeFailure),
        // RFC 5246 section 7.4.6: certificate_required is an alert of TLS 1.3.
        rustls::Error::NoCertificatesPresented if version == Some(rustls::ProtocolVersion::TLSv1_2) => {
            Some(AlertDescription::HandshakeFailure)
        }
        _ => None,
    }
}

/// [`HandshakeOutcome::RsaKeyExchange`] instead of a less precise `outcome`: operators count clients that need another
/// server.
fn refined(outcome: HandshakeOutcome, hello: &ClientHello) -> HandshakeOutcome {
    let is_vague = matches!(outcome, HandshakeOutcome::NothingInCommon | HandshakeOutcome::NoCertificate);
    if !is_vague || !hello.offers_version(ProtocolVersion::TLS1_2) {
        return outcome;
    }
    // Unknown suites, such as the reserved values of RFC 8701, prove nothing.
    let suites = hello.suites.iter().filter_map(|suite| suites::find(*suite));
    let mut rsa_only = false;
    for suite in suites {
        if suite.has_forward_secrecy() {
            return outcome;
        }
        rsa_only |= suite.exchange == Exchange::Rsa;
    }
    if rsa_only { HandshakeOutcome::RsaKeyExchange } else { outcome }
}
