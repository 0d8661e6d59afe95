//! `ClientHello` with the bytes of Chrome (version 131 and later), in its record.

use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::kem::{AlgorithmId, Ciphertext, DecapsulationKey, ML_KEM_768};
use aws_lc_rs::rand;
use brisk_wire::registry::NamedGroup;
use brisk_wire::vectors::FieldReader;

use crate::error::ProbeError;
use crate::url::Url;

/// A reserved value that servers must ignore (RFC 8701 section 2): `0x0a0a`, `0x1a1a` and so on.
fn reserved(random: u8) -> [u8; 2] {
    [(random & 0xf0) | 0x0a; 2]
}

/// Two different reserved values, since no extension may be repeated (RFC 8446 section 4.2).
fn two_reserved(first: u8, second: u8) -> [[u8; 2]; 2] {
    let (first, second) = (reserved(first), reserved(second));
    [first, if first == second { second.map(|byte| byte ^ 0x10) } else { second }]
}

/// Suites of Chrome after its reserved value.
const SUITES: &[u16] = &[
    0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013, 0xc014, 0x009c, 0x009d,
    0x002f, 0x0035,
];
const GROUPS: &[u16] = &[0x11ec, 0x001d, 0x0017, 0x0018];
const SCHEMES: &[u16] = &[0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601];

/// Size of the random bytes in place of an encrypted hello (ECH GREASE).
const ECH: usize = 208;

/// Size of an ML-KEM-768 ciphertext.
const CIPHERTEXT: usize = 1088;

/// A `ClientHello` and its keys.
pub(super) struct Hello {
    /// Bytes of the record.
    pub(super) bytes: Vec<u8>,
    pub(super) secrets: Secrets,
}

impl Hello {
    /// The handshake message: `bytes` without the record header.
    pub(super) fn message(&self) -> &[u8] {
        &self.bytes[5..]
    }
}

/// Private keys of `key_share`.
pub(super) struct Secrets {
    quantum: DecapsulationKey<AlgorithmId>,
    classical: PrivateKey,
}

impl Secrets {
    /// Secret shared with the server, from the content of its `key_share` extension; `None` if the share is invalid.
    pub(super) fn agree(&self, share: &[u8]) -> Option<Vec<u8>> {
        let mut share = FieldReader(share);
        let group = NamedGroup(share.two()?);
        let key = share.long()?;
        match group {
            NamedGroup::X25519 => self.classical(key),
            // draft-ietf-tls-ecdhe-mlkem: first ML-KEM, then X25519.
            NamedGroup::X25519MLKEM768 => {
                let (quantum, classical) = key.split_at_checked(CIPHERTEXT)?;
                let secret = self.quantum.decapsulate(Ciphertext::from(quantum)).ok()?;
                Some([secret.as_ref(), &self.classical(classical)?].concat())
            }
            _ => None,
        }
    }

    fn classical(&self, key: &[u8]) -> Option<Vec<u8>> {
        let peer = UnparsedPublicKey::new(&X25519, key);
        agree(&self.classical, peer, (), |secret| Ok(secret.to_vec())).ok()
    }
}

/// The [`Hello`] for the host of `url`; [`ProbeError::System`] if no keys can be generated.
pub(super) fn chrome(url: &Url) -> Result<Hello, ProbeError> {
    let failed = |_| ProbeError::System("no keys can be made for a hello".to_owned());
    let mut random = [0; 32 + 32 + 8 + 1 + 32 + ECH];
    rand::fill(&mut random).map_err(failed)?;
    let (nonce, rest) = random.split_at(32);
    let (session, rest) = rest.split_at(32);
    let (grease, rest) = rest.split_at(8);
    let secrets = Secrets {
        // One X25519 key serves both shares: a server takes only one of them, so the key is used once.
        quantum: DecapsulationKey::generate(&ML_KEM_768).map_err(failed)?,
        classical: PrivateKey::generate(&X25519).map_err(failed)?,
    };
    let quantum = secrets.quantum.encapsulation_key().map_err(failed)?.key_bytes().map_err(failed)?;
    let classical = secrets.classical.compute_public_key().map_err(failed)?;
    let hybrid = [quantum.as_ref(), classical.as_ref()].concat();

    let mut body = vec![3, 3];
    body.extend_from_slice(nonce);
    // RFC 8446 appendix D.4: middleboxes expect a session ID, so Chrome sends a random one.
    body.push(32);
    body.extend_from_slice(session);
    put(&mut body, &[&reserved(grease[0])[..], &words(SUITES)].concat());
    // RFC 8446 section 4.1.2: exactly one compression method, null. Any other list is refused by TLS 1.3
    // servers.
    body.extend_from_slice(&[1, 0]);
    let shares = shares(reserved(grease[1]), &hybrid, classical.as_ref());
    let extensions = extensions(url, grease, &shares, rest);
    put(&mut body, &extensions);

    // RFC 8446 section 5.1: an initial hello may have the record version 0x0301, for servers that refuse
    // newer ones.
    let mut record = vec![22, 3, 1];
    record.extend_from_slice(&((body.len() + 4) as u16).to_be_bytes());
    record.push(1);
    record.extend_from_slice(&(body.len() as u32).to_be_bytes()[1..]);
    record.extend_from_slice(&body);
    Ok(Hello { bytes: record, secrets })
}

fn shares(reserved: [u8; 2], hybrid: &[u8], classical: &[u8]) -> Vec<u8> {
    let mut shares = Vec::new();
    // RFC 8446 section 4.2.8: no share may be empty, so the reserved group has one byte.
    for (group, share) in [(reserved, &[0][..]), ([0x11, 0xec], hybrid), ([0, 0x1d], classical)] {
        shares.extend_from_slice(&group);
        put(&mut shares, share);
    }
    let mut list = Vec::new();
    put(&mut list, &shares);
    list
}

fn extensions(url: &Url, grease: &[u8], shares: &[u8], random: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    let mut add = |number: [u8; 2], content: &[u8]| {
        all.extend_from_slice(&number);
        put(&mut all, content);
    };
    let [begin, end] = two_reserved(grease[2], grease[4]);
    add(begin, &[]);
    // RFC 6066 section 3: an address is no host name.
    if url.address().is_none() {
        let mut name = vec![0];
        put(&mut name, url.host.as_bytes());
        add([0, 0], &list(&name));
    }
    add([0, 23], &[]);
    add([0xff, 1], &[0]);
    // RFC 8446 section 4.2.8: each share needs its group in this list. The reserved one is therefore drawn
    // from the same byte as in `shares`.
    add([0, 10], &list(&[&reserved(grease[1])[..], &words(GROUPS)].concat()));
    add([0, 11], &[1, 0]);
    add([0, 35], &[]);
    add([0, 16], &list(b"\x02h2\x08http/1.1"));
    add([0, 5], &[1, 0, 0, 0, 0]);
    add([0, 13], &list(&words(SCHEMES)));
    add([0, 18], &[]);
    add([0, 51], shares);
    add([0, 45], &[1, 1]);
    add([0, 43], &[&[6][..], &reserved(grease[3]), &[3, 4, 3, 3]].concat());
    add([0, 27], &[2, 0, 2]);
    // ALPS, for HTTP/2.
    add([0x44, 0xcd], &list(b"\x02h2"));
    add([0xfe, 0x0d], &ech(random));
    // One reserved extension is empty and one has a byte, because servers have to ignore both forms.
    add(end, &[0]);
    all
}

/// Extension that resembles an encrypted hello: HKDF-SHA256 and AES-128-GCM, a random key and random bytes.
fn ech(random: &[u8]) -> Vec<u8> {
    let (id, rest) = random.split_at(1);
    let (key, payload) = rest.split_at(32);
    let mut content = vec![0, 0, 1, 0, 1, id[0]];
    put(&mut content, key);
    put(&mut content, payload);
    content
}

fn words(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}

fn list(content: &[u8]) -> Vec<u8> {
    let mut list = Vec::new();
    put(&mut list, content);
    list
}

/// Appends a vector with a length of two bytes.
fn put(out: &mut Vec<u8>, content: &[u8]) {
    out.extend_from_slice(&(content.len() as u16).to_be_bytes());
    out.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use brisk_wire::client_hello::{ClientHello, Progress};
    use brisk_wire::registry::{NamedGroup, ProtocolVersion};

    use super::*;

    #[test]
    fn the_hello_says_what_chrome_says() {
        let bytes = chrome(&"https://example.test/".parse().expect("a URL")).expect("a hello").bytes;
        let Ok(Progress::Complete(hello)) = ClientHello::read(&bytes, 16 * 1024) else { panic!("no hello") };
        assert_eq!(hello.server_name.as_deref(), Some("example.test"));
        assert_eq!(hello.alpn, [b"h2".to_vec(), b"http/1.1".to_vec()]);
        assert_eq!(hello.versions[1..], [ProtocolVersion::TLS1_3, ProtocolVersion::TLS1_2]);
        assert_eq!(hello.groups[1], NamedGroup::X25519MLKEM768);
        assert_eq!(hello.key_shares.map(|shares| shares.len()), Some(3));
        assert_eq!(hello.versions[0].0 & 0x0f0f, 0x0a0a);
        assert!(bytes.len() > 1500, "{}", bytes.len());
    }

    #[test]
    fn no_extension_comes_twice_whatever_is_drawn() {
        let url: Url = "https://example.test/".parse().expect("a URL");
        for drawn in 0..=u8::MAX {
            let grease = [0, 0, drawn << 4, 0, drawn & 0xf0, 0, 0, 0];
            let all = extensions(&url, &grease, &[], &[0; 1 + 32 + ECH]);
            let mut numbers: Vec<_> =
                brisk_handshake_view::message::extensions(&all).iter().map(|(number, _)| *number).collect();
            let count = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!((numbers.len(), count), (18, 18), "{drawn:#04x}");
            assert_eq!(numbers.iter().filter(|number| *number & 0x0f0f == 0x0a0a).count(), 2);
        }
    }
}
