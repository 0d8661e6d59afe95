//! Catalogue of the findings that an audit can have: description, [`Severity`], and changes in brisk and in nginx. Also
//! listed in `docs/audit.md`.

use std::fmt;

use serde::Serialize;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Information; no change is necessary.
    Info,
    /// A protection is not used.
    Low,
    /// Clients or their data are at risk under certain conditions.
    Medium,
    /// An attack is known, or clients refuse the server.
    High,
    /// Exploitable by anyone.
    Critical,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Info => "info",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        })
    }
}

/// Kind of a [`Finding`](crate::Finding).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Kind {
    /// Stable name for filters and CI.
    pub id: &'static str,
    /// Severity.
    pub severity: Severity,
    /// Description in one sentence.
    pub what: &'static str,
    /// Change in brisk.
    pub brisk: &'static str,
    /// Change in nginx.
    pub nginx: &'static str,
}

/// Remedy for findings that brisk never has.
const NEVER: &str = "brisk never does this";

/// Remedies of findings that brisk avoids without a setting.
const AUTOMATIC: [&str; 4] =
    [NEVER, "brisk always speaks it", "brisk has elliptic curves only", "brisk has X25519MLKEM768"];

impl Kind {
    /// Whether brisk avoids the finding by itself, so that there is no setting to advise.
    pub fn is_automatic(&self) -> bool {
        AUTOMATIC.contains(&self.brisk)
    }
}

macro_rules! kinds {
    ($($name:ident = $id:literal, $severity:ident, $what:literal, $brisk:expr, $nginx:literal;)+) => {
        $(
            #[doc = concat!("`", $id, "`")]
            pub const $name: Kind =
                Kind { id: $id, severity: Severity::$severity, what: $what, brisk: $brisk, nginx: $nginx };
        )+

        /// All kinds, by subject.
        pub const ALL: &[Kind] = &[$($name),+];
    };
}

kinds! {
    SSLV2 = "protocol-sslv2", Critical, "SSL 2.0 is spoken: keys of all servers with this certificate can be attacked (DROWN)",
        NEVER, "ssl_protocols TLSv1.2 TLSv1.3;";
    SSLV3 = "protocol-sslv3", High, "SSL 3.0 is spoken, whose block ciphers can be decrypted (POODLE)",
        NEVER, "ssl_protocols TLSv1.2 TLSv1.3;";
    TLS10 = "protocol-tls10", Medium, "TLS 1.0 is spoken, which RFC 8996 forbids",
        NEVER, "ssl_protocols TLSv1.2 TLSv1.3;";
    TLS11 = "protocol-tls11", Medium, "TLS 1.1 is spoken, which RFC 8996 forbids",
        NEVER, "ssl_protocols TLSv1.2 TLSv1.3;";
    NO_TLS13 = "protocol-no-tls13", Low, "TLS 1.3 is not spoken, which saves a round trip and hides the certificate",
        "brisk always speaks it", "ssl_protocols TLSv1.2 TLSv1.3;";
    COMPRESSION = "compression", High, "TLS compression is on, which leaks what is compressed (CRIME)",
        NEVER, "build nginx with OpenSSL 1.0.0 or newer, which leaves compression off";
    NO_FALLBACK_SIGNAL = "fallback-accepted", Low, "a fallback to an older version is not refused (RFC 7507)",
        NEVER, "ssl_protocols TLSv1.2 TLSv1.3; and a current OpenSSL";
    SUITE_NULL = "suite-null", Critical, "suites without encryption are accepted", NEVER, "ssl_ciphers HIGH:!aNULL:!eNULL;";
    SUITE_ANONYMOUS = "suite-anonymous", Critical, "suites without authentication are accepted: anyone can be the server",
        NEVER, "ssl_ciphers HIGH:!aNULL;";
    SUITE_EXPORT = "suite-export", Critical, "suites made weak for export are accepted (FREAK, Logjam)",
        NEVER, "ssl_ciphers HIGH:!aNULL:!EXP;";
    SUITE_RC4 = "suite-rc4", High, "RC4 is accepted, which RFC 7465 forbids", NEVER, "ssl_ciphers HIGH:!aNULL:!RC4;";
    SUITE_SHORT_BLOCKS = "suite-short-blocks", Medium, "ciphers with blocks of 64 bits are accepted (SWEET32)",
        NEVER, "ssl_ciphers HIGH:!aNULL:!3DES:!IDEA;";
    NO_FORWARD_SECRECY = "suite-no-forward-secrecy", Medium,
        "suites without forward secrecy are accepted: who gets the key decrypts what was recorded",
        NEVER, "ssl_ciphers ECDHE+AESGCM:ECDHE+CHACHA20;";
    NO_AEAD = "suite-no-aead", Medium, "no suite has authenticated encryption", NEVER, "ssl_ciphers ECDHE+AESGCM:ECDHE+CHACHA20;";
    BEAST = "suite-cbc-tls10", Low, "block ciphers with TLS 1.0 or older (BEAST)", NEVER, "ssl_protocols TLSv1.2 TLSv1.3;";
    CLIENT_ORDER = "suite-client-order", Low, "clients choose among suites of which some are weak",
        NEVER, "ssl_prefer_server_ciphers on;";
    DH_SMALL = "dh-small", High, "Diffie-Hellman has a prime of less than 2048 bits (Logjam)",
        "brisk has elliptic curves only", "ssl_dhparam with 2048 bits or more, or ssl_ciphers without DHE";
    NO_POST_QUANTUM = "group-no-post-quantum", Info, "no group withstands quantum computers: what is recorded today may be read then",
        "brisk has X25519MLKEM768", "ssl_ecdh_curve X25519MLKEM768:X25519:prime256v1; with OpenSSL 3.5";
    GROUP_WEAK = "group-weak", Medium, "curves of less than 224 bits are accepted", NEVER, "ssl_ecdh_curve X25519:prime256v1;";
    SCHEME_SHA1 = "scheme-sha1", Low, "handshakes are signed with SHA-1 for clients that ask for it (RFC 9155)",
        NEVER, "ssl_conf_command SignatureAlgorithms ECDSA+SHA256:RSA-PSS+SHA256:RSA+SHA256;";
    CHAIN_ORDER = "chain-order", Medium, "certificates are not in the order of their chain",
        "chain of the host: the server's first, then each one's issuer", "ssl_certificate: the server's first, then each one's issuer";
    CHAIN_INCOMPLETE = "chain-incomplete", High, "an intermediate certificate is missing: clients that do not fetch it refuse the server",
        "chain of the host: add the intermediate, or leave certificates.complete_chains on", "ssl_certificate: add the intermediate";
    CHAIN_ROOT = "chain-root", Info, "the root is sent, which no client needs", "chain of the host: leave the root out", "ssl_certificate: leave the root out";
    CHAIN_STRAY = "chain-stray", Low, "certificates are sent that do not belong to the chain",
        "chain of the host: leave them out", "ssl_certificate: leave them out";
    UNTRUSTED = "certificate-untrusted", High, "no set of authorities trusts the certificate", "acme = true of the host, or a certificate of a public authority",
        "a certificate of a public authority";
    WRONG_NAME = "certificate-name", High, "the certificate is not for this name", "a [[host]] with this name and its certificate",
        "a server with this server_name and its certificate";
    EXPIRED = "certificate-expired", High, "a certificate is expired, or not valid yet", "acme = true of the host renews in time; brisk cert renew",
        "renew it, and reload nginx";
    EXPIRES_SOON = "certificate-expires-soon", Medium, "the certificate expires soon", "acme = true of the host renews in time; brisk cert renew",
        "renew it, and reload nginx";
    SHA1 = "certificate-sha1", High, "a certificate is signed with SHA-1 or MD5, which clients refuse", "a new certificate", "a new certificate";
    KEY_SMALL = "certificate-key-small", High, "a key of the chain is too short", "a new key with 2048 bits of RSA, or P-256",
        "a new key with 2048 bits of RSA, or P-256";
    NO_ECDSA = "certificate-no-ecdsa", Low, "there is no ECDSA certificate: handshakes cost the server some 10 times the processor",
        "a second certificate with an ECDSA key; with acme = true it comes by itself", "a second ssl_certificate with an ECDSA key";
    LIFETIME = "certificate-lifetime", Medium, "the certificate lives longer than the 398 days that clients accept of public authorities",
        "acme = true of the host", "a certificate of 398 days or less";
    NO_SCT = "certificate-no-sct", Medium, "the certificate of a public authority is in less than two CT logs: browsers refuse it",
        "a certificate with SCTs", "a certificate with SCTs";
    MUST_STAPLE = "staple-missing", High, "the certificate demands a staple, and none is sent", "leave certificates.staple on", "ssl_stapling on;";
    STAPLE_WRONG = "staple-wrong", High, "the staple is stale or wrong, and clients refuse it", "leave staple of the certificate out: brisk fetches its own",
        "ssl_stapling on; without ssl_stapling_file, or a fresh file";
    CAA_ISSUER = "caa-issuer", Medium, "CAA records do not permit the authority of the certificate: it will not renew the certificate",
        "a CAA record with the authority, or acme.directory of a permitted one", "a CAA record with the authority, or a certificate of a permitted one";
    CAA_MISSING = "caa-missing", Info, "there are no CAA records: every public authority may issue certificates for the name",
        "in DNS: CAA 0 issue \"letsencrypt.org\", or another authority", "in DNS: CAA 0 issue \"letsencrypt.org\", or another authority";
    INSECURE_RENEGOTIATION = "renegotiation-insecure", High, "renegotiation is not secured (RFC 5746)", NEVER, "a current OpenSSL";
    CLIENT_RENEGOTIATION = "renegotiation-by-client", Medium, "clients may begin a second handshake, which costs the server more than them",
        NEVER, "a current nginx, which refuses it";
    HEARTBLEED = "heartbleed", Critical, "memory of the server is given away (CVE-2014-0160)", NEVER, "a current OpenSSL, and new keys";
    EARLY_CCS = "ccs-injection", Critical, "change_cipher_spec is taken before its time (CVE-2014-0224)", NEVER, "a current OpenSSL";
    ROBOT = "robot", Critical, "RSA decryption is an oracle: recorded connections can be decrypted (ROBOT)",
        NEVER, "ssl_ciphers ECDHE+AESGCM:ECDHE+CHACHA20;";
    PADDING_ACCEPTED = "padding-accepted", Critical, "a wrong padding of block ciphers is accepted: what others change on the way decrypts it (POODLE against TLS)",
        NEVER, "a current TLS stack; ssl_ciphers ECDHE+AESGCM:ECDHE+CHACHA20;";
    PADDING_ORACLE = "padding-oracle", Critical, "answers distinguish a wrong padding from a wrong MAC: what others change on the way decrypts it (GOLDENDOODLE)",
        NEVER, "a current TLS stack; ssl_ciphers ECDHE+AESGCM:ECDHE+CHACHA20;";
    TICKETBLEED = "ticketbleed", Critical, "memory of the server is given away in session IDs (CVE-2016-9244)", NEVER, "a current TLS stack";
    TICKET_LIFETIME = "ticket-lifetime", Low, "tickets live longer than the 7 days that RFC 8446 allows", "brisk keeps to it", "ssl_session_timeout 1d;";
    TICKET_KEYS = "ticket-keys-fixed", Medium, "the keys of tickets did not change for a day or longer: who gets them decrypts what was recorded",
        "sessions.ticket_keys = \"memory\" or \"secret\", which rotate", "ssl_session_ticket_key: replace daily, or leave it out and restart";
    NOT_SHARED = "resumption-not-shared", Info, "other addresses of the name do not resume sessions of this one",
        "sessions.ticket_keys = \"secret\" with the same sessions.secret", "the same ssl_session_ticket_key on all";
    REPLAY = "early-data-replayed", High, "early data is accepted twice: requests can be replayed",
        "early_data = \"safe\" or \"no\"; brisk takes a session for early data once", "ssl_early_data off; or 425 for what is not safe to repeat";
    NO_HSTS = "hsts-missing", Low, "there is no HSTS: the first request of a browser may go without TLS", "hsts = { max_age = \"365d\" }",
        "add_header Strict-Transport-Security max-age=31536000 always;";
    SHORT_HSTS = "hsts-short", Low, "HSTS is kept for less than 180 days", "hsts = { max_age = \"365d\" }",
        "add_header Strict-Transport-Security max-age=31536000 always;";
    PRELOAD = "hsts-preload", Info, "HSTS asks for the preload list, and does not fulfil its conditions",
        "hsts = { max_age = \"365d\", include_subdomains = true, preload = true }",
        "max-age=31536000; includeSubDomains; preload";
    PLAIN = "http-plain", Medium, "port 80 answers without leading to HTTPS", "server.http redirects", "return 301 https://$host$request_uri;";
    PLAIN_OTHER = "http-redirect-host", Low, "port 80 leads to another host first: browsers learn no HSTS of this one",
        "redirect to HTTPS on the same host first", "return 301 https://$host$request_uri;";
    COOKIE = "cookie-attributes", Low, "cookies lack Secure, HttpOnly or SameSite", "set them in the application",
        "proxy_cookie_flags ~ secure httponly samesite=lax;";
    HEADERS = "headers-missing", Info, "headers that protect pages are missing", "security_headers = \"modern\"", "add_header ... always;";
    PINS = "header-pins", Low, "Public-Key-Pins is sent, which browsers ignore and which locked visitors out", "remove it", "remove it";
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../../docs/audit.md");

    #[test]
    fn every_id_is_there_once_and_in_the_documentation() {
        let mut ids: Vec<_> = ALL.iter().map(|kind| kind.id).collect();
        ids.sort_unstable();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
        for kind in ALL {
            let row = format!("| `{}` | {} |", kind.id, kind.severity);
            assert!(DOCUMENT.contains(&row), "docs/audit.md lacks {row:?}");
        }
    }
}
