//! Servers whose answers show what is wrong with a record of a block cipher, and one that says nothing.

use aws_lc_rs::cipher::{AES_128, DecryptingKey, DecryptionContext, UnboundCipherKey};
use aws_lc_rs::hmac;
use brisk_wire::registry::CipherSuite;
use brisk_wire::suites;

use super::*;
use crate::cbc::{BLOCK, Oracles};
use crate::protocols::{AcceptedSuite, Protocol};
use crate::{cbc, tls12};

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
    /// The same as when the MAC is wrong; after its alert it waits for the client to close.
    Stays,
    /// It ends the connection at the first record, whatever that is.
    Ends,
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
    if fault == Fault::Ends {
        return None;
    }
    let is_empty = payload.len() < 100;
    let alert = record(21, V12, &[7; 48]);
    match (opener.open(kind, &payload, fault), fault) {
        (Opened::Right, _) => stream.write_all(&record(23, V12, &[7; 64])).ok(),
        (Opened::Padding, Fault::Closes) => Some(()),
        (Opened::Padding, Fault::ClosesEmpty) if is_empty => Some(()),
        (_, Fault::Stays) => {
            stream.write_all(&alert).ok()?;
            while stream.read(&mut [0; 64]).ok()? > 0 {}
            Some(())
        }
        _ => stream.write_all(&alert).ok(),
    }
}

fn found(identity: &Arc<Identity>, fault: Fault) -> Oracles {
    found_of(identity, fault, &[AES], Duration::from_mins(1))
}

/// Of a server that accepts these suites, within this time. It speaks AES-128-CBC with SHA-1 alone.
fn found_of(identity: &Arc<Identity>, fault: Fault, suites: &[u16], time: Duration) -> Oracles {
    let server = serving(identity, fault);
    let contact = AuditTarget::new("a.test", &[server.address], server.settings().limits);
    let protocols = Protocols { versions: vec![accepting(V12, suites)], ..Protocols::default() };
    cbc::find_until(&contact, &protocols, Instant::now() + time).expect("an answer")
}

fn serving(identity: &Arc<Identity>, fault: Fault) -> Server {
    let identity = Arc::clone(identity);
    Server::start(move |stream| {
        // A client that is gone is no failure of the test.
        let _ = serve(stream, &identity, fault);
    })
}

fn accepting(version: ProtocolVersion, suites: &[u16]) -> Protocol {
    let find = |code: &u16| AcceptedSuite::from(suites::find(CipherSuite(*code)).expect("a suite"));
    let suites = suites.iter().map(find).collect();
    Protocol { version: version.0, offered: true, suites, ..Protocol::default() }
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
fn a_server_that_leaves_the_connection_open_after_its_alert_costs_little() {
    let begun = Instant::now();
    let found = found(&identity(&TestCa::new()), Fault::Stays);
    assert_eq!(found, Oracles { accepts: Some(false), differs: Some(false) });
    // Seven records, for each of which the end of the connection was once waited for during 3 s.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[test]
fn a_suite_or_a_version_that_is_not_spoken_here_leaves_no_clean_verdict() {
    let identity = identity(&TestCa::new());
    let (unknown, yes) = (Oracles::default(), Oracles { accepts: Some(true), differs: Some(true) });
    let long = Duration::from_mins(1);
    // DHE, Camellia, 3DES; one that is not of block ciphers.
    for other in [0x0033, 0x0041, 0x000a] {
        assert_eq!(found_of(&identity, Fault::None, &[AES, other], long), unknown, "{other:#06x}");
        assert_eq!(found_of(&identity, Fault::Ignores, &[AES, other], long), yes, "{other:#06x}");
    }
    assert_eq!(found_of(&identity, Fault::None, &[AES, 0xc02f], long).differs, Some(false));
    assert_eq!(found_of(&identity, Fault::Ignores, &[AES], Duration::ZERO), unknown, "no time");

    let server = Server::start(|_| {});
    let contact = AuditTarget::new("a.test", &[server.address], server.settings().limits);
    for (version, suites, clean) in [
        (ProtocolVersion::TLS1_0, &[AES][..], None),
        (ProtocolVersion::TLS1_1, &[AES], None),
        (V12, &[0x0033], None),
        (V12, &[0xc02f], Some(false)),
        (ProtocolVersion::TLS1_3, &[0x1301], Some(false)),
    ] {
        let protocols = Protocols { versions: vec![accepting(version, suites)], ..Protocols::default() };
        let found = cbc::find(&contact, &protocols).expect("an answer");
        assert_eq!(found, Oracles { accepts: clean, differs: clean }, "{version} {suites:x?}");
    }
}

#[test]
fn a_suite_that_was_not_judged_leaves_its_hash_to_another() {
    let identity = identity(&TestCa::new());
    let long = Duration::from_mins(1);
    // The first of each pair has ECDHE, which this server does not speak, and is tried first.
    let found = found_of(&identity, Fault::Ignores, &[0xc013, AES], long);
    assert_eq!(found, Oracles { accepts: Some(true), differs: Some(true) });
    let found = found_of(&identity, Fault::None, &[0xc027, AES], long);
    assert_eq!(found, Oracles::default(), "nothing is known of SHA-256");
}

#[test]
fn a_server_that_answers_no_request_is_not_asked_over_each_suite() {
    let identity = identity(&TestCa::new());
    let server = serving(&identity, Fault::Ends);
    let contact = AuditTarget::new("a.test", &[server.address], server.settings().limits);
    let protocols = Protocols { versions: vec![accepting(V12, &[AES, 0x0035])], ..Protocols::default() };
    assert_eq!(cbc::find(&contact, &protocols).expect("an answer"), Oracles::default());
    assert_eq!(contact.used(), 1);
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
