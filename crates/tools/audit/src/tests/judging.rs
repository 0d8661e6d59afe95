//! Verdicts: what is known, what is not, and what is taken of a stranger.

use std::sync::atomic::AtomicUsize;

use brisk_wire::suites;

use super::*;

fn judged(chain: Vec<Vec<u8>>, ca: &TestCa) -> Certificate {
    let judges = AuthoritySets::new(&[ca.root_file()]).expect("authorities");
    let shown = SentChain { chain, ..SentChain::default() };
    certificate::judge(&shown, "a.test", &judges, SystemTime::now()).expect("a certificate")
}

#[test]
fn an_address_needs_an_entry_for_addresses() {
    let ca = TestCa::new();
    let judges = AuthoritySets::new(&[ca.root_file()]).expect("authorities");
    let matches = |chain: Vec<Vec<u8>>, host: &str| {
        let shown = SentChain { chain, ..SentChain::default() };
        certificate::judge(&shown, host, &judges, SystemTime::now()).expect("a certificate").name_matches
    };
    let right = certificates_of(&ca.server(&["192.0.2.1", "::1"]).issue().chain_pem);
    for (host, is_right) in [("192.0.2.1", true), ("0:0:0:0:0:0:0:1", true), ("::2", false)] {
        assert_eq!(matches(right.clone(), host), is_right, "{host}");
    }
    let mut wrong = certificates_of(&ca.server(&["192-0-2-1"]).issue().chain_pem);
    // A name that looks like an address, which no library for certificates writes.
    for at in 0..wrong[0].len() {
        if wrong[0][at..].starts_with(b"192-0-2-1") {
            wrong[0][at..at + 9].copy_from_slice(b"192.0.2.1");
        }
    }
    assert!(!matches(wrong, "192.0.2.1"));
}

fn is_anchored(certificate: &Certificate, authorities: &str) -> bool {
    certificate.trust.iter().any(|trust| trust.authorities == authorities && trust.is_anchored)
}

#[test]
fn an_expired_certificate_is_anchored_where_its_issuer_is() {
    let ca = TestCa::new();
    let expired = judged(certificates_of(&ca.server(&["a.test"]).expired().issue().chain_pem), &ca);
    assert!(is_anchored(&expired, "those of --ca") && !is_anchored(&expired, "Mozilla"), "{expired:?}");
    assert!(expired.is_complete && expired.missing.is_none(), "{expired:?}");
}

#[test]
fn an_intermediate_is_missed_only_where_the_certificate_names_one() {
    let (ca, stranger) = (TestCa::new(), TestCa::new());
    let direct = certificates_of(&ca.server(&["a.test"]).below_root().issue().chain_pem);
    let own = judged(direct.clone(), &ca);
    assert!(own.is_complete && own.missing.is_none(), "{own:?}");
    let unknown = judged(direct, &stranger);
    assert!(unknown.is_complete && unknown.missing.is_some(), "{unknown:?}");
    let leaf = ca.server(&["a.test"]).issuer_at("http://127.0.0.1:9/issuer").issue();
    let named = judged(certificates_of(&leaf.chain_pem)[..1].to_vec(), &ca);
    assert!(!named.is_complete, "{named:?}");
    let whole = judged(certificates_of(&leaf.chain_pem), &ca);
    assert!(whole.is_complete && whole.missing.is_none(), "{whole:?}");
}

#[test]
fn a_staple_is_judged_by_the_issuer_wherever_it_stands() {
    let ca = TestCa::new();
    let (leaf, stray) = (ca.server(&["a.test"]).issue(), ca.server(&["b.test"]).issue());
    let mut chain = certificates_of(&leaf.chain_pem);
    let question = CertId::new(&chain[0], &chain[1]).expect("a question");
    let staple = response(&ca, &[&leaf], &[], None, &question.request());
    chain.insert(1, certificates_of(&stray.chain_pem).remove(0));
    let judges = AuthoritySets::new(&[ca.root_file()]).expect("authorities");
    let shown = SentChain { chain, staple: Some(staple), ..SentChain::default() };
    let judged = certificate::judge(&shown, "a.test", &judges, SystemTime::now()).expect("a certificate");
    assert!(judged.staple.starts_with("good until") && !judged.staple_is_wrong, "{}", judged.staple);
}

#[test]
fn grades_follow_what_is_known() {
    let ca = TestCa::new();
    let mut audit = Server::with(right(), &identity(&ca)).audit();
    for trust in &mut audit.certificates[0].trust {
        trust.distrust = None;
    }
    audit.certificates[0].key_bits = 4096;
    assert_eq!(grade::grade(&audit).letter, Letter::B);
    assert_eq!(grade::grade(&audit).key_exchange, 100);
    audit.groups.tls12 = vec!["x25519".to_owned()];
    assert_eq!(grade::grade(&audit).key_exchange, 90);

    // A weak hash is a matter of trust.
    let mut weak = audit.clone();
    weak.certificates[0].weak_hash = Some("CN=a is signed with SHA-1".to_owned());
    let graded = grade::grade(&weak);
    assert_eq!((graded.letter, graded.if_trusted), (Letter::T, Letter::B));

    // Without a certificate there is no trust.
    let mut none = audit.clone();
    none.certificates.clear();
    assert_eq!(grade::grade(&none).letter, Letter::T);

    // Whose order counts matters where one version has both kinds of suites.
    let forward = suites::find(CipherSuite(0xc02f)).expect("a suite").into();
    let open =
        |audit: &Audit| grade::grade(audit).reasons.iter().any(|reason| reason.contains("clients may"));
    let tls12 = audit.protocols.versions.iter_mut().find(|own| own.offered).expect("TLS 1.2");
    tls12.suites.push(forward);
    tls12.server_order = Some(true);
    let tls13 = audit.protocols.versions.last_mut().expect("TLS 1.3");
    tls13.server_order = Some(false);
    tls13.suites = vec![suites::find(CipherSuite(0x1301)).expect("a suite").into()];
    assert!(!open(&audit));
    for own in &mut audit.protocols.versions {
        own.server_order = own.offered.then_some(false);
    }
    assert!(open(&audit));
}

#[test]
fn a_connection_that_fails_is_asked_again() {
    let ca = TestCa::new();
    let identity = identity(&ca);
    let manners = Manners { suites: vec![AES, 0x0035, 0xc013], ..right() };
    let usual = Server::with(manners.clone(), &identity).audit();
    let count = AtomicUsize::new(0);
    let server = Server::start(move |stream| {
        if count.fetch_add(1, Ordering::SeqCst) % 3 != 2 {
            let _ = answer(stream, &manners, &identity);
        }
    });
    let audit = server.audit();
    assert_eq!(ids(&audit), ids(&usual));
    assert!(audit.protocols.is_whole(), "{:?}", audit.protocols);
    assert_eq!(audit.protocols.suites().count(), 3);
}

#[test]
fn a_version_without_an_answer_is_not_known() {
    let ca = TestCa::new();
    let identity = identity(&ca);
    let server = Server::start(move |mut stream| {
        let mut bytes = [0; 8192];
        let read = stream.peek(&mut bytes).unwrap_or(0);
        // `supported_versions` with TLS 1.3 alone.
        if bytes[..read].windows(7).any(|window| window == [0, 43, 0, 3, 2, 3, 4]) {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
            while stream.read(&mut bytes).is_ok_and(|read| read > 0) {}
            return;
        }
        let _ = answer(stream, &right(), &identity);
    });
    let mut settings = server.settings();
    settings.limits.step = Duration::from_millis(1500);
    let audit = run(&settings, &mut |_| {}).expect("an audit");
    assert!(!ids(&audit).contains(&"protocol-no-tls13"), "{:?}", ids(&audit));
    assert!(!ids(&audit).contains(&"suite-no-aead"), "{:?}", ids(&audit));
    assert!(audit.not_judged.iter().any(|one| one.contains("asked twice")), "{:?}", audit.not_judged);
    let junit = output::junit(&audit);
    let skipped = "name=\"protocol-no-tls13\">\n    <skipped message=\"hellos got no answer\"/>";
    assert!(junit.contains(skipped), "{junit}");
}

/// A server that makes session IDs of at least 31 bytes as long as 32, as one with Ticketbleed; of shorter ones it would give away more.
#[test]
fn one_byte_is_enough_to_find_ticketbleed() {
    for (longest, expected) in [(32, Some(true)), (0, Some(false))] {
        let server = Server::start(move |mut stream| {
            let mut bytes = [0; 8192];
            let read = stream.read(&mut bytes).unwrap_or(0);
            // After the record's header, the message's, the version and the random.
            let Some(id) = bytes[..read].get(44..44 + usize::from(bytes[43])) else { return };
            let mut id = id.to_vec();
            assert!(id.len() >= 31, "{} bytes", id.len());
            id.resize(id.len().max(longest), 9);
            let body = [&[3, 3][..], &[7; 32], &[id.len() as u8], &id[..], &[0xc0, 0x2f, 0]].concat();
            let flight = [handshake(2, &body), handshake(14, &[])].concat();
            let _ = stream.write_all(&record(22, ProtocolVersion::TLS1_2, &flight));
        });
        let settings = server.settings();
        let contact = AuditTarget::new("a.test", &[server.address], settings.limits);
        let bleeds = tls12::bleeds_ids(&contact, &[1; 64], CipherSuite(0xc02f)).expect("an answer");
        assert_eq!(bleeds, expected);
    }
}
