//! Servers whose answers show what is wrong with a record of a block cipher, and one that says nothing.

use aws_lc_rs::cipher::{AES_128, DecryptingKey, DecryptionContext, UnboundCipherKey};
use aws_lc_rs::hmac;
use brisk_wire::registry::CipherSuite;
use brisk_wire::suites;

use super::*;
use crate::audit::cbc::{BLOCK, Oracles};
use crate::audit::protocols::{AcceptedSuite, Protocol};
use crate::audit::{cbc, tls12};

const V12: ProtocolVersion = ProtocolVersion::TLS1_2;

/// Bytes of a MAC of HMAC-SHA1.
const MAC: usize = 20;

/// What a server does when the padding is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The same as when the MAC is wrong.
    None,
    /// It looks at the length alone, as SSL 3.0 does.
    Ignores,
    /// It closes the connection without the alert that a wrong MAC gets.
    Closes,
    /// The same of records without content alone.
    ClosesEmpty,
}

#[derive(Debug, PartialEq, Eq)]
enum Opened {
    Right,
    Mac,
    Padding,
}

struct Opener {
    cipher: DecryptingKey,
    mac: hmac::Key,
    sequence: u64,
}

impl Opener {
    fn open(&mut self, kind: u8, payload: &[u8], fault: Fault) -> Opened {
        let mut content = Vec::new();
        for at in (BLOCK..payload.len()).step_by(BLOCK) {
            let mut block: [u8; BLOCK] = payload[at..at + BLOCK].try_into().expect("whole blocks");
            self.cipher.decrypt(&mut block, DecryptionContext::None).expect("a block");
            let before = &payload[at - BLOCK..at];
            content.extend(block.iter().zip(before).map(|(byte, other)| byte ^ other));
        }
        let length = usize::from(*content.last().expect("content"));
        let Some(end) = content.len().checked_sub(length + 1 + MAC) else { return Opened::Padding };
        let padding = &content[end + MAC..];
        if fault != Fault::Ignores && padding.iter().any(|byte| usize::from(*byte) != length) {
            return Opened::Padding;
        }
        let covered =
            [&self.sequence.to_be_bytes()[..], &[kind, 3, 3], &(end as u16).to_be_bytes(), &content[..end]];
        self.sequence += 1;
        let is_right = hmac::verify(&self.mac, &covered.concat(), &content[end..end + MAC]).is_ok();
        if is_right { Opened::Right } else { Opened::Mac }
    }
}

fn read_record(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut header = [0; 5];
    stream.read_exact(&mut header).ok()?;
    let mut payload = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
    stream.read_exact(&mut payload).ok()?;
    Some((header[0], payload))
}

/// A handshake with RSA and AES-128-CBC, then one record.
fn serve(mut stream: TcpStream, identity: &Identity, fault: Fault) -> Option<()> {
    let (_, hello) = read_record(&mut stream)?;
    let client = &hello[6..38];
    let body = [&[3, 3][..], &[7; 32], &[0, 0, AES as u8, 0, 0, 5, 0xff, 1, 0, 1, 0]].concat();
    let entries: Vec<u8> =
        identity.chain.iter().flat_map(|der| [&length24(der), &der[..]].concat()).collect();
    let chain = handshake(11, &[&length24(&entries), &entries[..]].concat());
    let flight = [handshake(2, &body), chain, handshake(14, &[])].concat();
    stream.write_all(&record(22, V12, &flight)).ok()?;

    let (_, exchange) = read_record(&mut stream)?;
    let key = PrivateDecryptingKey::from_pkcs8(&identity.key).expect("a key");
    let key = Pkcs1PrivateDecryptingKey::new(key).expect("a key of 2048 bits");
    let mut secret = vec![0; key.min_output_size()];
    let premaster = key.decrypt(&exchange[6..], &mut secret).expect("a premaster secret");
    let hash = tls12::Hash::of(CipherSuite(AES));
    let master = hash.prf(premaster, b"master secret", &[client, &[7; 32]].concat(), 48);
    let keys = hash.prf(&master, b"key expansion", &[&[7; 32], client].concat(), 2 * (MAC + BLOCK));
    let cipher = UnboundCipherKey::new(&AES_128, &keys[2 * MAC..2 * MAC + BLOCK]).expect("a key");
    let mut opener = Opener {
        cipher: DecryptingKey::ecb(cipher).expect("a key"),
        mac: hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &keys[..MAC]),
        sequence: 0,
    };
    assert_eq!(read_record(&mut stream)?.0, 20);
    let (kind, finished) = read_record(&mut stream)?;
    assert_eq!(opener.open(kind, &finished, Fault::None), Opened::Right, "the client's Finished");
    // The probe does not look into what the server encrypts.
    stream.write_all(&[record(20, V12, &[1]), record(22, V12, &[7; 64])].concat()).ok()?;

    let (kind, payload) = read_record(&mut stream)?;
    let is_empty = payload.len() < 100;
    let alert = record(21, V12, &[7; 48]);
    match (opener.open(kind, &payload, fault), fault) {
        (Opened::Right, _) => stream.write_all(&record(23, V12, &[7; 64])).ok(),
        (Opened::Padding, Fault::Closes) => Some(()),
        (Opened::Padding, Fault::ClosesEmpty) if is_empty => Some(()),
        _ => stream.write_all(&alert).ok(),
    }
}

fn found(identity: &Arc<Identity>, fault: Fault) -> Oracles {
    let identity = Arc::clone(identity);
    let server = Server::start(move |stream| {
        // A client that is gone is no failure of the test.
        let _ = serve(stream, &identity, fault);
    });
    let contact = Contact::new("a.test", &[server.address], server.settings().limits);
    let suites = [AES].map(|code| AcceptedSuite::from(suites::find(CipherSuite(code)).expect("a suite")));
    let own = Protocol { version: V12.0, offered: true, suites: suites.to_vec(), ..Protocol::default() };
    let protocols = Protocols { versions: vec![own], ..Protocols::default() };
    cbc::find(&contact, &protocols).expect("an answer")
}

#[test]
fn a_server_that_distinguishes_padding_from_mac_is_found_and_no_other() {
    let identity = identity(&TestCa::new());
    for (fault, accepts, differs) in [
        (Fault::None, false, false),
        (Fault::Ignores, true, true),
        (Fault::Closes, false, true),
        (Fault::ClosesEmpty, false, true),
    ] {
        let found = found(&identity, fault);
        assert_eq!(found, Oracles { accepts: Some(accepts), differs: Some(differs) }, "{fault:?}");
    }
}

#[test]
fn what_cannot_be_judged_is_no_finding() {
    let ca = TestCa::new();
    // It ends each handshake with an alert.
    let usual = Server::with(right(), &identity(&ca)).audit();
    assert_eq!((usual.weaknesses.padding_accepted, usual.weaknesses.padding_oracle), (None, None));
    assert!(
        usual.not_judged.iter().any(|line| line.starts_with("oracles of CBC padding")),
        "{:?}",
        usual.not_judged
    );

    let mut audit = usual;
    audit.weaknesses.padding_oracle = Some(true);
    assert!(judged::findings(&audit).iter().any(|finding| finding.kind.id == "padding-oracle"));
    audit.weaknesses.padding_accepted = Some(true);
    let ids: Vec<_> = judged::findings(&audit).iter().map(|finding| finding.kind.id).collect();
    assert!(ids.contains(&"padding-accepted") && !ids.contains(&"padding-oracle"), "{ids:?}");
    audit.certificates.clear();
    assert!(grade::grade(&audit).reasons.iter().any(|reason| reason.contains("POODLE against TLS")));
}
