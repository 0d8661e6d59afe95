//! Properties of a visit's connection and page load, each from a closed set of values.

use brisk_telemetry::{Resumption, ResumptionFailure, TlsFacts};
use brisk_wire::registry::SignatureScheme;

use crate::closed::closed;

closed! {
    /// Kind of the connection's session, with the [reason](ResumptionFailure) if it was not resumed.
    Session {
        /// Unknown, or no TLS.
        Unknown = "unknown",
        /// A full handshake: the client offered no session, as a new visitor does.
        NewVisitor = "full-new-visitor",
        /// A full handshake: the session does not exist or no longer exists.
        NoSession = "full-no-session",
        /// A full handshake: the key that sealed the ticket is not in the keyring.
        UnknownKey = "full-unknown-key",
        /// A full handshake: the ticket had expired.
        Expired = "full-expired",
        /// A full handshake: the ticket or the stored session was forged or damaged.
        Forged = "full-forged",
        /// A full handshake: the session store did not answer in time.
        StoreLate = "full-store-late",
        /// A full handshake: the session store was unavailable.
        StoreDown = "full-store-down",
        /// A full handshake: the session had been used before.
        Used = "full-used",
        /// A full handshake: the session was created for another name, client-certificate policy, suite or version.
        Unsuitable = "full-unsuitable",
        /// Resumed by TLS 1.2 session ID (RFC 5246 section 7.3).
        SessionId = "resumed-session-id",
        /// Resumed by TLS 1.2 session ticket (RFC 5077).
        Ticket = "resumed-ticket",
        /// Resumed by TLS 1.3 `pre_shared_key`.
        Psk = "resumed-psk",
        /// Resumed by TLS 1.3 `pre_shared_key` with accepted `early_data`.
        EarlyData = "resumed-0-rtt",
    }
}

impl Session {
    /// The session of a completed handshake.
    pub fn of(facts: &TlsFacts) -> Self {
        Self::of_parts(facts.resumption, facts.resumption_failure)
    }

    /// The session for `resumption`; `failure` is the reason if an offered session was not resumed.
    pub fn of_parts(resumption: Resumption, failure: Option<ResumptionFailure>) -> Self {
        match (resumption, failure) {
            (Resumption::SessionId, _) => Self::SessionId,
            (Resumption::Ticket, _) => Self::Ticket,
            (Resumption::Psk, _) => Self::Psk,
            (Resumption::EarlyData, _) => Self::EarlyData,
            (Resumption::Full, None) => Self::NewVisitor,
            (Resumption::Full, Some(failure)) => match failure {
                ResumptionFailure::NoSession => Self::NoSession,
                ResumptionFailure::UnknownKey => Self::UnknownKey,
                ResumptionFailure::Expired => Self::Expired,
                ResumptionFailure::Forged => Self::Forged,
                ResumptionFailure::StoreLate => Self::StoreLate,
                ResumptionFailure::StoreDown => Self::StoreDown,
                ResumptionFailure::Used => Self::Used,
                ResumptionFailure::Unsuitable => Self::Unsuitable,
            },
        }
    }

    /// Whether a session was resumed; `None` for [`Self::Unknown`].
    pub const fn is_resumed(self) -> Option<bool> {
        match self {
            Self::Unknown => None,
            Self::SessionId | Self::Ticket | Self::Psk | Self::EarlyData => Some(true),
            _ => Some(false),
        }
    }
}

closed! {
    /// Whether the page's navigation opened its connection.
    Connection {
        /// Unknown.
        Unknown = "unknown",
        /// The navigation opened the connection and waited for TCP and TLS.
        New = "new",
        /// The connection was open already.
        Reused = "reused",
    }
}

closed! {
    /// Key type of the certificate sent to the client.
    CertificateType {
        /// Unknown, for example after resumption.
        Unknown = "unknown",
        /// ECDSA.
        Ecdsa = "ecdsa",
        /// RSA.
        Rsa = "rsa",
        /// Another kind.
        Other = "other",
    }
}

impl CertificateType {
    /// The key type that signs with `scheme`.
    pub const fn of(scheme: SignatureScheme) -> Self {
        match scheme {
            SignatureScheme::ECDSA_SHA1
            | SignatureScheme::ECDSA_SECP256R1_SHA256
            | SignatureScheme::ECDSA_SECP384R1_SHA384
            | SignatureScheme::ECDSA_SECP521R1_SHA512 => Self::Ecdsa,
            SignatureScheme::RSA_PKCS1_SHA1
            | SignatureScheme::RSA_PKCS1_SHA256
            | SignatureScheme::RSA_PKCS1_SHA384
            | SignatureScheme::RSA_PKCS1_SHA512
            | SignatureScheme::RSA_PSS_RSAE_SHA256
            | SignatureScheme::RSA_PSS_RSAE_SHA384
            | SignatureScheme::RSA_PSS_RSAE_SHA512
            | SignatureScheme::RSA_PSS_PSS_SHA256
            | SignatureScheme::RSA_PSS_PSS_SHA384
            | SignatureScheme::RSA_PSS_PSS_SHA512 => Self::Rsa,
            _ => Self::Other,
        }
    }
}

closed! {
    /// The initial congestion window of the connection, in segments.
    Window {
        /// Unknown.
        Unknown = "unknown",
        /// Up to 4 segments.
        UpTo4 = "up-to-4",
        /// 5 to 10 segments; the default of Linux is 10 (RFC 6928).
        UpTo10 = "5-to-10",
        /// 11 to 20 segments.
        UpTo20 = "11-to-20",
        /// 21 to 32 segments.
        UpTo32 = "21-to-32",
        /// More than 32 segments.
        Over32 = "over-32",
    }
}

impl Window {
    /// The class of a window of `segments`.
    pub const fn of_segments(segments: u32) -> Self {
        match segments {
            0 => Self::Unknown,
            1..=4 => Self::UpTo4,
            5..=10 => Self::UpTo10,
            11..=20 => Self::UpTo20,
            21..=32 => Self::UpTo32,
            _ => Self::Over32,
        }
    }
}

closed! {
    /// How the visitor reached the page.
    Navigation {
        /// Unknown or another way.
        Other = "other",
        /// A link, a form, or the address bar.
        Navigate = "navigate",
        /// A reload.
        Reload = "reload",
        /// Back or forward, and the page was loaded again.
        BackForward = "back_forward",
        /// Back or forward, and the page was still in memory.
        BackForwardCache = "back_forward_cache",
        /// Prerendered before the visitor navigated to it.
        Prerender = "prerender",
        /// Restored by the browser.
        Restore = "restore",
        /// Within the page, whose script changed the URL (a soft navigation).
        Soft = "soft",
    }
}

impl Navigation {
    /// Whether a response of the gateway was waited for. The other views reuse a page that the browser already has.
    pub const fn is_load(self) -> bool {
        !matches!(self, Self::BackForwardCache | Self::Soft)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_to_resume_is_a_reason_of_its_own() {
        let mut seen = vec![Session::of_parts(Resumption::Full, None)];
        seen.extend(
            ResumptionFailure::ALL.iter().map(|failure| Session::of_parts(Resumption::Full, Some(*failure))),
        );
        assert!(seen.iter().all(|session| session.is_resumed() == Some(false)));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), ResumptionFailure::ALL.len() + 1);
        // A session that was refused does not matter where another one was resumed.
        let resumed = Session::of_parts(Resumption::Psk, Some(ResumptionFailure::Expired));
        assert_eq!((resumed, resumed.is_resumed()), (Session::Psk, Some(true)));
    }

    #[test]
    fn names_are_different_and_found() {
        for session in Session::ALL {
            assert_eq!(Session::named(session.name()), Some(*session));
        }
        assert_eq!(Navigation::named("back_forward"), Some(Navigation::BackForward));
        assert_eq!(Navigation::named("<script>"), None);
    }

    #[test]
    fn windows_have_the_class_of_their_segments() {
        let classes = [0, 4, 5, 10, 11, 33, u32::MAX].map(Window::of_segments);
        assert_eq!(
            classes.map(Window::name),
            ["unknown", "up-to-4", "5-to-10", "5-to-10", "11-to-20", "over-32", "over-32"]
        );
    }
}
