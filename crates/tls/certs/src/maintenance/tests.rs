//! Maintenance of certificates against simulated servers of a CA.

use std::path::Path;
use std::sync::atomic::AtomicUsize;

use brisk_keys::{Keystore, LocalEngine};
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::ca_site::response;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType, IsCa, KeyPair};
use rustls_pki_types::CertificateDer;

use super::*;
use crate::certificate::{Loaded, load};
use crate::chain::Chain;
use crate::der::{OID, SEQUENCE, write};
use crate::ocsp::CertId;
use crate::store::{Folder, Name};

const HOUR: Duration = Duration::from_hours(1);

/// Bodies by URL; all other URLs fail.
#[derive(Debug, Default)]
struct Web(HashMap<String, Vec<u8>>);

impl Fetch for Web {
    fn get<'a>(&'a self, url: &'a str, _limit: usize) -> Fetching<'a> {
        let missing = || FetchFailure::Unreachable(format!("nothing is at {url}"));
        let body = self.0.get(url).cloned().ok_or_else(missing);
        Box::pin(async { Ok(Fetched { body: body?, max_age: None }) })
    }

    fn post<'a>(&'a self, url: &'a str, _: &'static str, _: Vec<u8>, limit: usize) -> Fetching<'a> {
        self.get(url, limit)
    }
}

/// Outcome of a fetch by URL and method; URLs of a GET begin with those of the responder.
struct Rules<F>(F);

impl<F> fmt::Debug for Rules<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").finish_non_exhaustive()
    }
}

impl<F> Fetch for Rules<F>
where
    F: Fn(&str, &str) -> Result<Vec<u8>, FetchFailure> + Send + Sync + 'static,
{
    fn get<'a>(&'a self, url: &'a str, _limit: usize) -> Fetching<'a> {
        Box::pin(async { Ok(Fetched { body: self.0("GET", url)?, max_age: None }) })
    }

    fn post<'a>(&'a self, url: &'a str, _: &'static str, _: Vec<u8>, _limit: usize) -> Fetching<'a> {
        Box::pin(async { Ok(Fetched { body: self.0("POST", url)?, max_age: None }) })
    }
}

/// A certificate with two responders and two revocation lists.
fn with_services(ca: &TestCa) -> (Leaf, Certificate) {
    let leaf = ca.server(&["a.test"]).ocsp_at("http://one.test").issue();
    let loaded = load(&leaf.chain, &leaf.key, &mut Keystore::new(), SystemTime::now()).unwrap();
    let mut certificate = loaded.certificate;
    certificate.services.responders = ["http://one.test", "http://two.test"].map(str::to_owned).into();
    certificate.services.lists = ["http://one.test/list", "http://two.test/list"].map(str::to_owned).into();
    (leaf, certificate)
}

/// The state of `certificate` once it is `wanted`.
fn report_when(
    certificate: Certificate,
    web: impl Fetch,
    wanted: impl Fn(&Report) -> bool,
) -> (Report, Maintenance) {
    let maintenance = Maintenance::start(MaintenanceSettings::default(), Arc::new(web), None, None).unwrap();
    maintenance.prepare_more(&[Arc::new(certificate)]);
    let report = brisk_testkit::process::wait_until("the report", || {
        maintenance.report().into_iter().find(|report| wanted(report))
    });
    (report, maintenance)
}

#[test]
fn a_responder_without_use_is_asked_by_post_and_then_the_next() {
    let ca = TestCa::new();
    let (leaf, certificate) = with_services(&ca);
    let cert_id = CertId::new(&certificate.chain[0], certificate.issuer.as_ref().unwrap()).unwrap();
    let good = response(&ca, &[&leaf], &[], None, &cert_id.request());
    let unreachable = || Err(FetchFailure::Unreachable("connection refused".to_owned()));
    let status = |code: u16| Err(FetchFailure::Response(format!("the answer is {code}")));
    let refused = |code: u8| Ok(vec![0x30, 3, 0x0a, 1, code]);
    let html = || Ok(b"<html>".to_vec());
    // By GET and by POST at the first responder, then at the second.
    let cases: [[Result<Vec<u8>, FetchFailure>; 4]; 6] = [
        [status(405), Ok(good.clone()), unreachable(), unreachable()],
        [status(403), status(500), Ok(good.clone()), unreachable()],
        [refused(6), Ok(good.clone()), unreachable(), unreachable()],
        [refused(3), refused(3), html(), Ok(good.clone())],
        [unreachable(), unreachable(), Ok(good.clone()), unreachable()],
        [unreachable(), Ok(good.clone()), status(404), refused(1)],
    ];
    for case in cases {
        let shown = format!("{case:?}");
        let rule = move |method: &str, url: &str| {
            if url.ends_with("/list") {
                return unreachable();
            }
            let server = usize::from(url.starts_with("http://two.test"));
            case[2 * server + usize::from(method == "POST")].clone()
        };
        let (report, _alive) = report_when(certificate.clone(), Rules(rule), |report| report.is_tried);
        assert!(report.staple.is_some() && report.failures.staple == 0, "{shown}: {:?}", report.trouble);
    }
}

#[test]
fn of_several_revocation_lists_one_is_enough_also_in_pem() {
    let ca = TestCa::new();
    let (leaf, certificate) = with_services(&ca);
    let lists = ca.crls(&[&leaf], HOUR);
    for list in [lists.intermediate_der, lists.intermediate_pem.into_bytes()] {
        let rule = move |_: &str, url: &str| match url {
            "http://two.test/list" => Ok(list.clone()),
            "http://one.test/list" => Ok(b"<html>".to_vec()),
            _ => Err(FetchFailure::Unreachable("connection refused".to_owned())),
        };
        let (report, _alive) =
            report_when(certificate.clone(), Rules(rule), |report| report.revoked.is_some());
        assert_eq!(report.failures.list, 0);
    }
}

/// An `AuthorityInfoAccess` extension with `caIssuers` addresses.
fn issuer_at(addresses: &[&str]) -> CustomExtension {
    let method = write(OID, &[&[0x2b, 6, 1, 5, 5, 7, 0x30, 2]]);
    let entries: Vec<_> = addresses
        .iter()
        .flat_map(|address| write(SEQUENCE, &[&method, &write(0x86, &[address.as_bytes()])]))
        .collect();
    CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], write(SEQUENCE, &[&entries]))
}

fn params(name: &str, addresses: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    params.custom_extensions = if addresses.is_empty() { Vec::new() } else { vec![issuer_at(addresses)] };
    (params.not_before, params.not_after) =
        ((SystemTime::now() - HOUR).into(), (SystemTime::now() + HOUR).into());
    params
}

fn authority(name: &str, addresses: &[&str]) -> CertificateParams {
    let mut params = params(name, addresses);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

/// A certificate whose chain file contains nothing else, its intermediate, and the root.
struct Site {
    leaf: Arc<Certificate>,
    intermediate: CertificateDer<'static>,
    /// An expired certificate for the key of the intermediate.
    expired: CertificateDer<'static>,
    root: CertificateDer<'static>,
}

fn site(addresses: &[&str]) -> Site {
    let key = || KeyPair::generate().unwrap();
    let root = CertifiedIssuer::self_signed(authority("root", &[]), key()).unwrap();
    let signer = key();
    let mut over = authority("intermediate", &["http://ca.test/root"]);
    over.not_after = (SystemTime::now() - HOUR / 2).into();
    let expired = over.signed_by(&signer, &root).unwrap().der().clone();
    let above = authority("intermediate", &["http://ca.test/root"]);
    let intermediate = CertifiedIssuer::signed_by(above, signer, &root).unwrap();
    let pem = params("a.test", addresses).signed_by(&key(), &intermediate).unwrap().pem();
    let chain = Chain::from_pem(pem.as_bytes(), Path::new("a.pem")).unwrap();
    let leaf = Arc::new(Loaded::of_chain(chain, SystemTime::now()).certificate);
    Site { leaf, intermediate: intermediate.der().clone(), expired, root: root.der().clone() }
}

/// The certificate in the slot once the report satisfies `wanted`.
fn shown_when(
    site: &Site,
    web: &[(&str, &CertificateDer<'static>)],
    wanted: impl Fn(&Report) -> bool,
) -> Served {
    let web = web.iter().map(|(address, der)| ((*address).to_owned(), der.to_vec())).collect();
    let maintenance =
        Maintenance::start(MaintenanceSettings::default(), Arc::new(Web(web)), None, None).unwrap();
    let engine: Arc<dyn PrivateKeyEngine> = Arc::new(LocalEngine::new(Arc::new(Keystore::new())));
    let slot = Slot::new();
    slot.publish(vec![Served::new(Arc::clone(&site.leaf), engine)]);
    maintenance.follow(vec![Arc::clone(&slot)]);
    brisk_testkit::process::wait_until("the report", || {
        maintenance.report().iter().any(&wanted).then_some(())
    });
    // The report may precede the update of the slot.
    maintenance.look(&slot);
    slot.load()[0].clone()
}

/// A responder that reports every certificate as revoked and counts requests.
#[derive(Debug)]
struct Revoking {
    response: Vec<u8>,
    asked: AtomicUsize,
}

impl Fetch for Revoking {
    fn get<'a>(&'a self, _url: &'a str, _limit: usize) -> Fetching<'a> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(Fetched { body: self.response.clone(), max_age: None }) })
    }

    fn post<'a>(&'a self, url: &'a str, _: &'static str, _: Vec<u8>, limit: usize) -> Fetching<'a> {
        self.get(url, limit)
    }
}

#[test]
fn a_good_staple_in_the_store_of_a_fleet_does_not_end_a_revocation() {
    let ca = TestCa::new();
    let leaf = ca.server(&["a.test"]).ocsp_at("http://ocsp.test").issue();
    let loaded = load(&leaf.chain, &leaf.key, &mut Keystore::new(), SystemTime::now()).unwrap();
    let certificate = Arc::new(loaded.certificate);
    let cert_id = CertId::new(&certificate.chain[0], certificate.issuer.as_ref().unwrap()).unwrap();
    let answer = |good: &[&Leaf], bad: &[&Leaf]| response(&ca, good, bad, None, &cert_id.request());
    let web = Arc::new(Revoking { response: answer(&[], &[&leaf]), asked: AtomicUsize::new(0) });
    let folder = tempfile::tempdir().unwrap();
    let fleet: Arc<dyn Store> = Arc::new(Folder::new(folder.path()));
    let fetch: Arc<dyn Fetch> = Arc::<Revoking>::clone(&web);
    let maintenance =
        Maintenance::start(MaintenanceSettings::default(), fetch, None, Some(Arc::clone(&fleet))).unwrap();
    maintenance.prepare_more(std::slice::from_ref(&certificate));
    let revoked = || maintenance.report()[0].revoked;
    brisk_testkit::process::wait_until("the revocation", revoked);
    // As written by a gateway that has not learned of the revocation.
    let name = Name::of(["staples", &certificate.fingerprint.to_string()]);
    fleet.write(&name, &answer(&[&leaf], &[])).unwrap();
    let before = web.asked.load(Ordering::Relaxed);
    brisk_testkit::process::wait_until("the next question", || {
        (web.asked.load(Ordering::Relaxed) > before).then_some(())
    });
    assert!(revoked().is_some() && maintenance.staple(&certificate).is_none());
}

#[test]
fn a_certificate_that_is_loaded_twice_at_once_is_waited_for_as_one() {
    let mut first = Certificate::clone(&site(&[]).leaf);
    first.services.responders = vec!["http://ocsp.test".to_owned()];
    let this_update = SystemTime::now();
    let staple = Some(Arc::new(Staple { der: vec![7], this_update, next_update: this_update + HOUR }));
    let second = Certificate { staple, ..first.clone() };
    let settings = MaintenanceSettings { wait: HOUR, completes: false, ..MaintenanceSettings::default() };
    let maintenance = Maintenance::start(settings, Arc::new(Web::default()), None, None).unwrap();
    let (done, waits) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        maintenance.prepare_more(&[Arc::new(first), Arc::new(second)]);
        done.send(()).unwrap();
    });
    waits.recv_timeout(Duration::from_mins(1)).expect("the second is in the place of the first");
}

#[test]
fn a_missing_intermediate_is_sent_although_its_own_issuer_cannot_be_fetched() {
    let site = site(&["http://ca.test/issuer"]);
    let shown = shown_when(&site, &[("http://ca.test/issuer", &site.intermediate)], |report| {
        report.trouble.as_ref().is_some_and(|trouble| trouble.contains("nothing is at http://ca.test/root"))
    });
    assert_eq!(shown.certificate.chain[1..], [site.intermediate]);
}

#[test]
fn an_intermediate_that_has_expired_is_not_sent_and_other_addresses_are_tried() {
    let site = site(&["http://old.test/issuer", "http://gone.test/issuer", "http://ca.test/issuer"]);
    let all = [
        ("http://old.test/issuer", &site.expired),
        ("http://ca.test/issuer", &site.intermediate),
        ("http://ca.test/root", &site.root),
    ];
    let shown = shown_when(&site, &all, |report| report.is_complete && report.trouble.is_none());
    assert_eq!(&shown.certificate.chain[1..], std::slice::from_ref(&site.intermediate));
    let shown = shown_when(&site, &all[..1], |report| report.trouble.is_some());
    assert_eq!(shown.certificate.chain.len(), 1);
}

#[test]
fn a_certificate_whose_list_cannot_be_watched_is_in_trouble() {
    let mut own = Certificate::clone(&site(&[]).leaf);
    own.services.lists = vec!["http://ca.test/list".to_owned()];
    let site = Site { leaf: Arc::new(own), ..site(&[]) };
    shown_when(&site, &[], |report| {
        report.trouble.as_ref().is_some_and(|trouble| trouble.contains("revocation list is not watched"))
    });
}

#[test]
fn what_is_loaded_again_with_another_staple_file_is_looked_after_as_it_is_now() {
    let first = site(&[]).leaf;
    let maintenance =
        Maintenance::start(MaintenanceSettings::default(), Arc::new(Web::default()), None, None).unwrap();
    maintenance.prepare_more(std::slice::from_ref(&first));
    let staple = |life| {
        let this_update = SystemTime::now();
        Some(Arc::new(Staple { der: vec![7], this_update, next_update: this_update + life }))
    };
    let with = |staple| Arc::new(Certificate { staple, ..Certificate::clone(&first) });
    let second = with(staple(HOUR));
    maintenance.prepare_more(std::slice::from_ref(&second));
    let shown = maintenance.report()[0].staple.unwrap().1;
    assert_eq!(shown, second.staple.as_ref().unwrap().next_update);
    maintenance.prepare_more(std::slice::from_ref(&first));
    assert_eq!(maintenance.report()[0].staple, None, "the file is gone");
}
