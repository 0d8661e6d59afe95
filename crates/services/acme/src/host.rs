//! The certificates of one configured host, from the first order through all renewals.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime};

use brisk_certs::{Certificate, Chain, Loaded, Publish};
use brisk_keys::Keystore;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use zeroize::Zeroizing;

use crate::AcmeError;
use crate::attempt::{Attempt, due_of};
use crate::certify::first_missing;
use crate::context::{AcmeContext, HostStatus, KeyStatus};
use crate::records::{AttemptStatus, IssuedCertificate, Records};
use crate::renewal::retry;
use crate::settings::{AuthoritySettings, CertificateSpec, KeyKind};

/// Interval at which the [`Store`] is read for certificates of other gateways.
const STORE_INTERVAL: Duration = Duration::from_secs(20);

/// A configured host and its published certificates.
pub(crate) struct Host {
    pub(crate) wanted: CertificateSpec,
    pub(crate) context: Rc<AcmeContext>,
    publish: Arc<dyn Publish>,
    /// Chains of the last publication.
    shown: RefCell<Vec<String>>,
    /// Records of the last reading with their parsed content. Most readings find the same bytes, and parsing costs more
    /// than the comparison.
    known: RefCell<HashMap<KeyKind, Known>>,
    /// Dropped after the first publication.
    published: RefCell<Option<Sender<()>>>,
}

/// A stored record as bytes, and its parsed content.
type Known = (Zeroizing<Vec<u8>>, Rc<UsableCertificate>);

/// Stored state of one certificate.
struct StoredState {
    kind: KeyKind,
    usable: Result<Option<Rc<UsableCertificate>>, AcmeError>,
    status: Result<AttemptStatus, AcmeError>,
}

/// A stored certificate that handshakes can present.
pub(crate) struct UsableCertificate {
    pub(crate) issued: IssuedCertificate,
    pub(crate) certificate: Arc<Certificate>,
}

impl UsableCertificate {
    /// Returns whether it satisfies the configuration: not revoked, for all `names`, and from a configured authority
    /// unless imported.
    fn fits(&self, context: &AcmeContext, names: &[String]) -> bool {
        let is_own = |own: &AuthoritySettings| own.directory == self.issued.authority;
        !context.revoked.has(self.certificate.fingerprint)
            && first_missing(names, &self.certificate.names).is_none()
            && (self.issued.imported || context.settings.authorities.iter().any(is_own))
    }
}

impl Host {
    pub(crate) fn new(
        wanted: CertificateSpec,
        publish: Arc<dyn Publish>,
        context: Rc<AcmeContext>,
        published: Option<Sender<()>>,
    ) -> Self {
        let (shown, known, published) = (RefCell::default(), RefCell::default(), RefCell::new(published));
        Self { wanted, context, publish, shown, known, published }
    }

    /// Publishes stored certificates and obtains missing or due ones, until the task is dropped.
    pub(crate) async fn look_after(self: Rc<Self>) {
        loop {
            let next = self.run_once().await;
            // At least 200 ms, so that a time that stays in the past causes no busy loop.
            let wait = next.duration_since(SystemTime::now()).unwrap_or_default();
            tokio::select! {
                () = sleep(wait.clamp(Duration::from_millis(200), STORE_INTERVAL)) => {}
                () = self.context.revoked.news() => {}
            }
        }
    }

    /// Does everything that is due now. Returns the latest time of the next run.
    async fn run_once(&self) -> SystemTime {
        let looks = self.read_and_show().await;
        // After the first reading, also if it failed: a start waits for the publication and not for the
        // store.
        self.published.take();
        let mut next = SystemTime::now() + STORE_INTERVAL;
        for look in &looks {
            let attempt = Attempt::new(&self.context, &self.wanted, look.kind);
            if let Some(at) = self.idle_until(&attempt, look) {
                next = next.min(at);
                continue;
            }
            let done = attempt.obtain_if_due().await;
            self.read_and_show().await;
            match done {
                Ok(again) => next = next.min(again),
                Err(error) => {
                    tracing::warn!(host = self.wanted.name(), key = %look.kind, %error, "cannot maintain certificates");
                }
            }
        }
        next
    }

    /// Time until which nothing is due for a certificate. `None` if something is due, or the stored state is
    /// unreadable.
    fn idle_until(&self, attempt: &Attempt<'_>, look: &StoredState) -> Option<SystemTime> {
        let (Ok(usable), Ok(status)) = (&look.usable, &look.status) else { return None };
        let have = usable.as_deref().filter(|own| own.fits(&self.context, &self.wanted.names));
        attempt.idle_until(have, status)
    }

    async fn read_and_show(&self) -> Vec<StoredState> {
        let looks: Vec<_> = self.wanted.keys.iter().map(|kind| self.read_state(*kind)).collect();
        self.show(&looks).await;
        looks
    }

    /// Reads the state of one certificate from the [`Store`].
    fn read_state(&self, kind: KeyKind) -> StoredState {
        let status = self.context.records.status(self.wanted.name(), kind);
        StoredState { kind, usable: self.usable(kind), status }
    }

    fn usable(&self, kind: KeyKind) -> Result<Option<Rc<UsableCertificate>>, AcmeError> {
        let Some(raw) = self.context.records.issued_raw(self.wanted.name(), kind)? else { return Ok(None) };
        if let Some((known, usable)) = self.known.borrow().get(&kind)
            && *known == raw
        {
            return Ok(Some(Rc::clone(usable)));
        }
        let Some(usable) = usable(&self.context.records, self.wanted.name(), kind)?.map(Rc::new) else {
            return Ok(None);
        };
        self.known.borrow_mut().insert(kind, (raw, Rc::clone(&usable)));
        Ok(Some(usable))
    }

    /// Publishes the stored certificates if their chains differ from the last publication.
    async fn show(&self, looks: &[StoredState]) {
        let (mut usable, mut chains) = (Vec::new(), Vec::new());
        for StoredState { kind, usable: found, .. } in looks {
            match found {
                Ok(Some(own)) => {
                    chains.push(own.issued.chain.clone());
                    usable.push(own);
                }
                Ok(None) => {}
                Err(error @ AcmeError::Store(_)) => {
                    // The store cannot be read: published certificates stay.
                    tracing::error!(host = self.wanted.name(), key = %kind, %error, "cannot publish stored certificates");
                    return;
                }
                Err(error) => {
                    tracing::error!(host = self.wanted.name(), key = %kind, %error, "cannot publish a stored certificate");
                }
            }
        }
        // Without stored certificates, the published ones stay until the replacement arrives, for example
        // after a revocation by the operator.
        if chains.is_empty() || *self.shown.borrow() == chains {
            return;
        }
        let mut keys = Keystore::new();
        for own in &usable {
            if let Err(error) = keys.add_pem(own.issued.key.as_str().as_bytes()) {
                // Cannot fail: `usable` has parsed the same key.
                tracing::error!(host = self.wanted.name(), %error, "cannot publish stored certificates");
                return;
            }
        }
        let certificates: Vec<_> = usable.iter().map(|own| Arc::clone(&own.certificate)).collect();
        let publish = Arc::clone(&self.publish);
        // On a blocking thread: a publication may wait for an OCSP response, which must not delay other hosts.
        if spawn_blocking(move || publish.publish(certificates, keys)).await.is_err() {
            return;
        }
        self.shown.replace(chains);
        tracing::info!(host = self.wanted.name(), "obtained certificates published");
    }

    /// Status of a host, read from the [`Store`]. The error of a damaged record is the last error of its key.
    pub(crate) fn status_of(
        context: &AcmeContext,
        wanted: &CertificateSpec,
    ) -> Result<HostStatus, AcmeError> {
        let of = |kind: KeyKind| {
            let status = context.records.status(wanted.name(), kind);
            let own = status.and_then(|status| Ok((usable(&context.records, wanted.name(), kind)?, status)));
            let (own, status) = match own {
                Ok(found) => found,
                Err(error @ AcmeError::Store(_)) => return Err(error),
                Err(error) => {
                    let last_error = Some(error.to_string());
                    (None, AttemptStatus { last_error, ..AttemptStatus::default() })
                }
            };
            Ok(key_status(context, wanted, (kind, own.as_ref()), &status))
        };
        let keys = wanted.keys.iter().map(|kind| of(*kind)).collect::<Result<_, _>>()?;
        Ok(HostStatus { names: wanted.names.clone(), keys })
    }
}

fn key_status(
    context: &AcmeContext,
    wanted: &CertificateSpec,
    (kind, own): (KeyKind, Option<&UsableCertificate>),
    status: &AttemptStatus,
) -> KeyStatus {
    let now = SystemTime::now();
    let renewal = due_of(own.filter(|own| own.fits(context, &wanted.names)), status, now);
    let certificate = own.map(|usable| &usable.certificate);
    KeyStatus {
        kind,
        issuer: certificate.and_then(|own| brisk_certs::issuer(own.chain.first()?)),
        not_after: certificate.map(|own| own.not_after),
        renewal: renewal.max(retry(status, now)),
        failures: status.failures,
        last_error: status.last_error.clone(),
    }
}

/// Reads and parses the stored certificate of a host. `None` if there is none, or if the record is damaged.
pub(crate) fn usable(
    records: &Records,
    host: &str,
    kind: KeyKind,
) -> Result<Option<UsableCertificate>, AcmeError> {
    let issued = match records.issued(host, kind) {
        Ok(Some(issued)) => issued,
        Ok(None) => return Ok(None),
        Err(error @ AcmeError::Damaged { .. }) => {
            tracing::warn!(%error, "obtaining another certificate");
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let source = Path::new(&records.place()).join(host).join(kind.name());
    let chain = Chain::from_pem(issued.chain.as_bytes(), &source)?;
    let mut keys = Keystore::new();
    let key = keys.add_pem(issued.key.as_str().as_bytes())?;
    let certificate = Arc::new(Loaded::of_chain(chain, SystemTime::now()).certificate);
    if key != certificate.key {
        return Err(AcmeError::Unusable("the key beside it is that of another certificate".to_owned()));
    }
    Ok(Some(UsableCertificate { issued, certificate }))
}

/// The stored certificate, if it satisfies the configuration. For `None` a new one is ordered at once.
pub(crate) fn fitting(
    context: &AcmeContext,
    wanted: &CertificateSpec,
    kind: KeyKind,
) -> Result<Option<UsableCertificate>, AcmeError> {
    match usable(&context.records, wanted.name(), kind) {
        Err(error @ (AcmeError::InvalidChain(_) | AcmeError::Unusable(_) | AcmeError::StoredKey(_))) => {
            tracing::warn!(host = wanted.name(), key = %kind, %error, "obtaining another certificate");
            Ok(None)
        }
        found => Ok(found?.filter(|own| own.fits(context, &wanted.names))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, channel};

    use brisk_certs::store::{Folder, Lock, Name};
    use brisk_certs::{Challenges, Store, StoreError};
    use rcgen::{CertificateParams, KeyPair};
    use tokio::task::{LocalSet, spawn_local};

    use super::*;
    use crate::certify::new_key;
    use crate::records::{RenewalAdvice, moment, seconds};
    use crate::responses::ChallengeResponses;
    use crate::revoked::Revoked;
    use crate::settings::{AcmeSettings, ChallengeKind};

    const DIRECTORY: &str = "https://ca.test/directory";

    /// A folder that counts read operations.
    #[derive(Debug)]
    struct Counting(Folder, Arc<AtomicUsize>);

    impl Store for Counting {
        fn read(&self, name: &Name) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError> {
            self.1.fetch_add(1, Ordering::SeqCst);
            self.0.read(name)
        }

        fn write(&self, name: &Name, value: &[u8]) -> Result<(), StoreError> {
            self.0.write(name, value)
        }

        fn remove(&self, name: &Name) -> Result<(), StoreError> {
            self.0.remove(name)
        }

        fn list(&self, parent: &Name) -> Result<Vec<Name>, StoreError> {
            self.0.list(parent)
        }

        fn try_lock(&self, name: &Name) -> Result<Option<Box<dyn Lock>>, StoreError> {
            self.0.try_lock(name)
        }

        fn place(&self) -> String {
            self.0.place()
        }
    }

    /// Blocks each publication until a message arrives.
    #[derive(Debug)]
    struct Slow(Mutex<Receiver<()>>, Arc<AtomicUsize>);

    impl Publish for Slow {
        fn publish(&self, _: Vec<Arc<Certificate>>, _: Keystore) {
            let _ = self.0.lock().unwrap().recv();
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn context(records: &Records) -> Rc<AcmeContext> {
        let settings = AcmeSettings {
            authorities: vec![AuthoritySettings::new(DIRECTORY)],
            contact: Vec::new(),
            challenges: vec![ChallengeKind::TlsAlpn01],
            dns: None,
            allow_private: Arc::default(),
        };
        let answers = ChallengeResponses::new(&Challenges::new(), records);
        Rc::new(AcmeContext::new(settings, records.clone(), answers, Revoked::default()))
    }

    /// Stores a certificate that needs no action.
    fn keep(records: &Records, name: &str) {
        let key = new_key(KeyKind::Ecdsa).unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.use_authority_key_identifier_extension = true;
        let chain = params.self_signed(&KeyPair::from_pem(&key).unwrap()).unwrap().pem();
        let issued =
            IssuedCertificate::imported(&[name.to_owned()], DIRECTORY, &chain, &key, SystemTime::now());
        records.put_issued(name, KeyKind::Ecdsa, &issued).unwrap();
        let own = usable(records, name, KeyKind::Ecdsa).unwrap().unwrap();
        let certificate =
            instant_acme::CertificateIdentifier::try_from(&own.certificate.chain[0]).unwrap().to_string();
        let later = seconds(SystemTime::now()) + 100_000;
        let advice =
            RenewalAdvice { certificate, start: 0, end: 0, chosen: later, again: later, explanation: None };
        let status = AttemptStatus { advice: Some(advice), ..AttemptStatus::default() };
        records.put_status(name, KeyKind::Ecdsa, &status).unwrap();
        assert!(moment(later) < own.certificate.not_after);
    }

    fn host(records: &Records, name: &str, publish: Slow) -> Rc<Host> {
        let wanted =
            CertificateSpec { names: vec![name.to_owned()], keys: vec![KeyKind::Ecdsa], profile: None };
        Rc::new(Host::new(wanted, Arc::new(publish), context(records), None))
    }

    #[tokio::test]
    async fn a_look_reads_the_store_once_for_each_record() {
        let (folder, reads) = (tempfile::tempdir().unwrap(), Arc::new(AtomicUsize::new(0)));
        let store = Counting(Folder::new(folder.path()), Arc::clone(&reads));
        let records = Records::new(Arc::new(store));
        keep(&records, "a.test");
        let (_, free) = channel();
        let host = host(&records, "a.test", Slow(Mutex::new(free), Arc::default()));
        host.run_once().await;
        let before = reads.load(Ordering::SeqCst);
        let next = host.run_once().await;
        assert_eq!(reads.load(Ordering::SeqCst) - before, 2, "certificate and status");
        assert!(next > SystemTime::now() + STORE_INTERVAL / 2);
    }

    #[tokio::test]
    async fn a_host_that_waits_for_its_publication_keeps_no_other_waiting() {
        let (_folder, records) = Records::of_test();
        let (open, closed) = channel();
        let (_, free) = channel();
        let (slow, quick) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut hosts = Vec::new();
        for (name, may, done) in [("slow.test", closed, &slow), ("quick.test", free, &quick)] {
            keep(&records, name);
            hosts.push(host(&records, name, Slow(Mutex::new(may), Arc::clone(done))));
        }
        let local = LocalSet::new();
        local
            .run_until(async {
                let [first, second] = [hosts.remove(0), hosts.remove(0)];
                let waiting = spawn_local(async move { first.run_once().await });
                let other = spawn_local(async move { second.run_once().await });
                other.await.unwrap();
                assert_eq!((slow.load(Ordering::SeqCst), quick.load(Ordering::SeqCst)), (0, 1));
                open.send(()).unwrap();
                waiting.await.unwrap();
                assert_eq!(slow.load(Ordering::SeqCst), 1);
            })
            .await;
    }
}
