//! Simulated clients: version and suite that known clients agree on with the server, computed from the audit without further
//! connections. Their offers are those of the releases named, as published by SSL Labs and their vendors.

use brisk_wire::registry::ProtocolVersion;
use serde::Serialize;

use crate::Audit;
use crate::protocols::Protocol;

/// A known client.
struct Client {
    name: &'static str,
    /// Oldest and newest version.
    versions: (ProtocolVersion, ProtocolVersion),
    /// Suites before TLS 1.3 in order of preference.
    suites: &'static [u16],
    /// Whether the client supports `X25519MLKEM768`.
    post_quantum: bool,
}

/// Result of a simulated client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClientResult {
    /// Name of the client.
    pub client: &'static str,
    /// Agreed version; `None` if client and server have none in common with a suite of both.
    pub version: Option<String>,
    /// Agreed suite.
    pub suite: Option<&'static str>,
    /// Whether keys of the server cannot decrypt recorded traffic; `None` without an agreement.
    pub forward_secrecy: Option<bool>,
    /// Whether the key exchange resists quantum computers; `None` without an agreement.
    pub post_quantum: Option<bool>,
}

const SSL3: ProtocolVersion = ProtocolVersion::SSL3_0;
const TLS10: ProtocolVersion = ProtocolVersion::TLS1_0;
const TLS12: ProtocolVersion = ProtocolVersion::TLS1_2;
const TLS13: ProtocolVersion = ProtocolVersion::TLS1_3;

/// Browsers of today: ECDHE with AES-GCM and ChaCha20, then CBC.
const BROWSER: &[u16] =
    &[0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013, 0xc014, 0x009c, 0x009d, 0x002f, 0x0035];
const FIREFOX: &[u16] = &[
    0xc02b, 0xc02f, 0xcca9, 0xcca8, 0xc02c, 0xc030, 0xc00a, 0xc009, 0xc013, 0xc014, 0x009c, 0x009d, 0x002f,
    0x0035,
];
const SAFARI: &[u16] = &[
    0xc02c, 0xc02b, 0xcca9, 0xc030, 0xc02f, 0xcca8, 0xc00a, 0xc009, 0xc014, 0xc013, 0x009d, 0x009c, 0x0035,
    0x002f, 0xc008, 0xc012, 0x000a,
];
const SAFARI_OLD: &[u16] = &[
    0xc02c, 0xc02b, 0xc024, 0xc023, 0xc00a, 0xc009, 0xc030, 0xc02f, 0xc028, 0xc027, 0xc014, 0xc013, 0x009d,
    0x009c, 0x003d, 0x003c, 0x0035, 0x002f,
];
/// Safari 7 and 8: no AES-GCM.
const SAFARI_CBC: &[u16] = &[
    0xc024, 0xc023, 0xc00a, 0xc009, 0xc008, 0xc028, 0xc027, 0xc014, 0xc013, 0xc012, 0x003d, 0x003c, 0x0035,
    0x002f, 0x000a, 0xc007, 0xc011, 0x0005, 0x0004,
];
const ANDROID_44: &[u16] = &[
    0xc014, 0xc00a, 0x0039, 0x0038, 0xc00f, 0xc005, 0x0035, 0xc012, 0xc008, 0x0016, 0x0013, 0xc00d, 0xc003,
    0x000a, 0xc030, 0xc02c, 0x009d, 0xc02f, 0xc02b, 0x009c, 0xc013, 0xc009, 0x0033, 0x0032, 0x002f, 0xc011,
    0xc007, 0x0005, 0x0004,
];
const ANDROID_7: &[u16] = &[
    0xcca9, 0xcca8, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xc009, 0xc013, 0xc00a, 0xc014, 0x009c, 0x009d, 0x002f,
    0x0035,
];
const INTERNET_EXPLORER_7: &[u16] = &[
    0xc028, 0xc027, 0xc014, 0xc013, 0x009f, 0x009e, 0x0039, 0x0033, 0x009d, 0x009c, 0x003d, 0x003c, 0x0035,
    0x002f, 0xc02c, 0xc02b, 0xc024, 0xc023, 0xc00a, 0xc009, 0x000a,
];
const SCHANNEL_10: &[u16] = &[
    0xc02c, 0xc02b, 0xc030, 0xc02f, 0x009f, 0x009e, 0xc024, 0xc023, 0xc028, 0xc027, 0xc00a, 0xc009, 0xc014,
    0xc013, 0x009d, 0x009c, 0x003d, 0x003c, 0x0035, 0x002f, 0x000a,
];
const WINDOWS_XP: &[u16] =
    &[0x0004, 0x0005, 0x000a, 0x0009, 0x0064, 0x0062, 0x0003, 0x0006, 0x0013, 0x0012, 0x0063];
const JAVA_8: &[u16] = &[
    0xc024, 0xc028, 0x003d, 0xc026, 0xc02a, 0x006b, 0x006a, 0xc00a, 0xc014, 0x0035, 0xc005, 0xc00f, 0x0039,
    0x0038, 0xc023, 0xc027, 0x003c, 0xc025, 0xc029, 0x0067, 0x0040, 0xc009, 0xc013, 0x002f, 0xc004, 0xc00e,
    0x0033, 0x0032, 0xc02c, 0xc02b, 0xc030, 0x009d, 0xc02e, 0xc032, 0x009f, 0x00a3, 0xc02f, 0x009c, 0xc02d,
    0xc031, 0x009e, 0x00a2,
];
const JAVA_11: &[u16] = &[
    0xc02c, 0xc02b, 0xc030, 0x009d, 0xc02e, 0xc032, 0x009f, 0x00a3, 0xc02f, 0x009c, 0xc02d, 0xc031, 0x009e,
    0x00a2, 0xc024, 0xc028, 0x003d, 0xc023, 0xc027, 0x003c, 0xc00a, 0xc014, 0x0035, 0xc009, 0xc013, 0x002f,
];
const JAVA_7: &[u16] = &[
    0xc009, 0xc013, 0x002f, 0xc004, 0xc00e, 0x0033, 0x0032, 0xc008, 0xc012, 0x000a, 0xc003, 0xc00d, 0x0016,
    0x0013, 0xc007, 0xc011, 0x0005, 0xc002, 0xc00c, 0x0004,
];
const OPENSSL_098: &[u16] = &[
    0x0039, 0x0038, 0x0035, 0x0016, 0x0013, 0x000a, 0x0033, 0x0032, 0x002f, 0x0005, 0x0004, 0x0015, 0x0012,
    0x0009,
];
const OPENSSL_101: &[u16] = &[
    0xc030, 0xc02c, 0xc028, 0xc024, 0xc014, 0xc00a, 0x009f, 0x006b, 0x0039, 0x009d, 0x003d, 0x0035, 0xc02f,
    0xc02b, 0xc027, 0xc023, 0xc013, 0xc009, 0x009e, 0x0067, 0x0033, 0x009c, 0x003c, 0x002f, 0xc012, 0xc008,
    0x0016, 0x000a,
];
const OPENSSL_111: &[u16] = &[
    0xc02c, 0xc030, 0x009f, 0xcca9, 0xcca8, 0xccaa, 0xc02b, 0xc02f, 0x009e, 0xc024, 0xc028, 0x006b, 0xc023,
    0xc027, 0x0067, 0xc00a, 0xc014, 0x0039, 0xc009, 0xc013, 0x0033, 0x009d, 0x009c, 0x003d, 0x003c, 0x0035,
    0x002f,
];
const GO: &[u16] = &[0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc009, 0xc013, 0xc00a, 0xc014];

/// The clients, the newest of each family first.
const CLIENTS: [Client; 20] = [
    client("Chrome 131", (TLS12, TLS13), BROWSER, true),
    client("Chrome 80", (TLS10, TLS13), BROWSER, false),
    client("Firefox 132", (TLS12, TLS13), FIREFOX, true),
    client("Firefox 60 ESR", (TLS10, TLS12), FIREFOX, false),
    client("Safari 18, iOS 18", (TLS12, TLS13), SAFARI, false),
    client("Safari 10, iOS 10", (TLS10, TLS12), SAFARI_OLD, false),
    client("Safari 8, iOS 8", (TLS10, TLS12), SAFARI_CBC, false),
    client("Android 10", (TLS10, TLS13), ANDROID_7, false),
    client("Android 7", (TLS10, TLS12), ANDROID_7, false),
    client("Android 4.4", (SSL3, TLS12), ANDROID_44, false),
    client("Edge 18, Windows 10", (TLS10, TLS12), SCHANNEL_10, false),
    client("Internet Explorer 11, Windows 7", (TLS10, TLS12), INTERNET_EXPLORER_7, false),
    client("Internet Explorer 8, Windows XP", (SSL3, TLS10), WINDOWS_XP, false),
    client("Java 11", (TLS10, TLS13), JAVA_11, false),
    client("Java 8", (TLS10, TLS12), JAVA_8, false),
    client("Java 7", (TLS10, TLS10), JAVA_7, false),
    client("OpenSSL 1.1.1", (TLS10, TLS13), OPENSSL_111, false),
    client("OpenSSL 1.0.1", (SSL3, TLS12), OPENSSL_101, false),
    client("OpenSSL 0.9.8", (SSL3, TLS10), OPENSSL_098, false),
    client("Go 1.24", (TLS12, TLS13), GO, true),
];

const fn client(
    name: &'static str,
    versions: (ProtocolVersion, ProtocolVersion),
    suites: &'static [u16],
    post_quantum: bool,
) -> Client {
    Client { name, versions, suites, post_quantum }
}

/// The results of all clients.
pub(crate) fn simulate(audit: &Audit) -> Vec<ClientResult> {
    CLIENTS.iter().map(|client| agreed(client, audit)).collect()
}

fn agreed(client: &Client, audit: &Audit) -> ClientResult {
    let (oldest, newest) = client.versions;
    let versions = audit.protocols.versions.iter().rev().filter(|own| own.offered);
    let mut shared = versions.filter(|own| (oldest.0..=newest.0).contains(&own.version));
    let found = shared.find_map(|own| Some((own, suite(client, own)?)));
    let Some((own, index)) = found else {
        return ClientResult {
            client: client.name,
            version: None,
            suite: None,
            forward_secrecy: None,
            post_quantum: None,
        };
    };
    let is13 = own.version == TLS13.0;
    let quantum = is13 && client.post_quantum && audit.groups.post_quantum == Some(true);
    ClientResult {
        client: client.name,
        version: Some(own.name.clone()),
        suite: Some(own.suites[index].name),
        forward_secrecy: Some(own.suites[index].forward_secrecy),
        post_quantum: Some(quantum),
    }
}

/// Index of the suite that client and server agree on in this version.
fn suite(client: &Client, own: &Protocol) -> Option<usize> {
    // Clients offer the three suites of TLS 1.3, and nearly all servers choose by their own order.
    if own.version == TLS13.0 {
        return (!own.suites.is_empty()).then_some(0);
    }
    let offers = |index: &usize| client.suites.contains(&own.suites[*index].suite.code.0);
    // SSL 3.0 to TLS 1.1 have no AEAD; the server accepts none there, so the list needs no filter.
    if own.server_order == Some(false) {
        let place = |code: u16| own.suites.iter().position(|accepted| accepted.suite.code.0 == code);
        return client.suites.iter().find_map(|code| place(*code));
    }
    (0..own.suites.len()).find(offers)
}

#[cfg(test)]
mod tests {
    use brisk_wire::suites;

    use super::*;

    #[test]
    fn every_offered_suite_is_registered() {
        for client in &CLIENTS {
            for code in client.suites {
                let found = suites::find(brisk_wire::registry::CipherSuite(*code));
                assert!(found.is_some_and(|suite| !suite.is_tls13()), "{}: {code:04x}", client.name);
            }
        }
    }

    fn protocol(version: ProtocolVersion, codes: &[u16], server_order: Option<bool>) -> Protocol {
        let suite =
            |code: &u16| suites::find(brisk_wire::registry::CipherSuite(*code)).expect("a suite").into();
        Protocol {
            name: version.to_string(),
            version: version.0,
            offered: true,
            suites: codes.iter().map(suite).collect(),
            server_order,
            ..Protocol::default()
        }
    }

    #[test]
    fn the_order_of_the_side_that_decides_is_used() {
        let chrome = &CLIENTS[1];
        // AES-256 before AES-128, against the order of Chrome.
        let by_server = protocol(TLS12, &[0xc030, 0xc02f], Some(true));
        assert_eq!(suite(chrome, &by_server), Some(0));
        let by_client = protocol(TLS12, &[0xc030, 0xc02f], Some(false));
        assert_eq!(suite(chrome, &by_client), Some(1));
        assert_eq!(suite(chrome, &protocol(TLS12, &[0x0005], None)), None, "RC4 alone");
        assert_eq!(suite(chrome, &protocol(TLS13, &[0x1301], None)), Some(0));
    }
}
