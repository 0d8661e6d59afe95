//! The certificates of one host, from the first order through all renewals.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use brisk_certs::{Certificate, Chain, Loaded, Publish};
use brisk_keys::Keystore;
use tokio::time::sleep;

use crate::AcmeError;
use crate::attempt::{Attempt, due_of};
use crate::certify::first_missing;
use crate::common::{Common, HostStatus, KeyStatus};
use crate::records::{Issued, Records};
use crate::renewal::retry;
use crate::settings::{AuthoritySettings, KeyKind, Wanted};

/// How often the store is looked at for what others have put there.
const LOOK: Duration = Duration::from_secs(20);

/// One host, and what it shows.
pub(crate) struct Host {
    pub(crate) wanted: Wanted,
    pub(crate) common: Rc<Common>,
    publish: Arc<dyn Publish>,
    /// The chains that were published last.
    shown: RefCell<Vec<String>>,
}

/// A certificate of the store that can be shown.
pub(crate) struct Usable {
    pub(crate) issued: Issued,
    pub(crate) certificate: Arc<Certificate>,
}

impl Usable {
    /// Whether it is what is wanted: for all names, and of an authority of the configuration, unless it was imported.
    fn fits(&self, common: &Common, names: &[String]) -> bool {
        let is_own = |own: &AuthoritySettings| own.directory == self.issued.authority;
        first_missing(names, &self.certificate.names).is_none()
            && (self.issued.imported || common.settings.authorities.iter().any(is_own))
    }
}

impl Host {
    pub(crate) fn new(wanted: Wanted, publish: Arc<dyn Publish>, common: Rc<Common>) -> Self {
        Self { wanted, publish, common, shown: RefCell::default() }
    }

    /// Shows what there is, and obtains what is missing or due, until it is dropped.
    pub(crate) async fn look_after(self: Rc<Self>) {
        loop {
            let next = self.turn().await;
            let wait = next.duration_since(SystemTime::now()).unwrap_or_default();
            sleep(wait.clamp(Duration::from_millis(200), LOOK)).await;
        }
    }

    /// Does what is due now. Returns when to look again at the latest.
    async fn turn(&self) -> SystemTime {
        self.show();
        self.report();
        let mut next = SystemTime::now() + LOOK;
        for kind in self.wanted.keys.iter().copied() {
            let done = Attempt::new(&self.common, &self.wanted, kind).turn().await;
            self.show();
            match done {
                Ok(again) => next = next.min(again),
                Err(error) => {
                    tracing::warn!(host = self.wanted.name(), key = %kind, %error, "certificates are not looked after");
                }
            }
        }
        self.report();
        next
    }

    /// Publishes what the store has, if that is something else than before.
    fn show(&self) {
        let mut keys = Keystore::new();
        let (mut certificates, mut chains) = (Vec::new(), Vec::new());
        for kind in self.wanted.keys.iter().copied() {
            match self.with_key(kind, &mut keys) {
                Ok(Some(usable)) => {
                    chains.push(usable.issued.chain);
                    certificates.push(usable.certificate);
                }
                Ok(None) => {}
                Err(error @ AcmeError::Store(_)) => {
                    // What cannot be read now has not gone: what is shown stays.
                    tracing::error!(host = self.wanted.name(), key = %kind, %error, "certificates of the store are not shown");
                    return;
                }
                Err(error) => {
                    tracing::error!(host = self.wanted.name(), key = %kind, %error, "a certificate of the store is not shown");
                }
            }
        }
        if !chains.is_empty() && *self.shown.borrow() != chains {
            self.publish.publish(certificates, keys);
            self.shown.replace(chains);
            tracing::info!(
                host = self.wanted.name(),
                "new handshakes are shown certificates that were obtained"
            );
        }
    }

    /// The certificate with this kind of key, and its key in `keys`.
    fn with_key(&self, kind: KeyKind, keys: &mut Keystore) -> Result<Option<Usable>, AcmeError> {
        let Some(usable) = usable(&self.common.records, self.wanted.name(), kind)? else { return Ok(None) };
        keys.add_pem(usable.issued.key.as_str().as_bytes())?;
        Ok(Some(usable))
    }

    fn report(&self) {
        self.common.report(Self::status_of(&self.common, &self.wanted));
    }

    /// How a host stands.
    pub(crate) fn status_of(common: &Common, wanted: &Wanted) -> HostStatus {
        let keys =
            wanted.keys.iter().filter_map(|kind| Self::key_status(common, wanted, *kind).ok()).collect();
        HostStatus { names: wanted.names.clone(), keys }
    }

    fn key_status(common: &Common, wanted: &Wanted, kind: KeyKind) -> Result<KeyStatus, AcmeError> {
        let status = common.records.status(wanted.name(), kind)?;
        let now = SystemTime::now();
        let own = usable(&common.records, wanted.name(), kind)?;
        let renewal = due_of(own.as_ref().filter(|own| own.fits(common, &wanted.names)), &status, now);
        let certificate = own.map(|usable| usable.certificate);
        Ok(KeyStatus {
            kind,
            issuer: certificate.as_ref().and_then(|own| brisk_certs::issuer(own.chain.first()?)),
            not_after: certificate.map(|own| own.not_after),
            renewal: renewal.max(retry(&status, now)),
            failures: status.failures,
            last_error: status.last_error,
        })
    }
}

/// The certificate of the store for this host with this kind of key, if it can be read.
pub(crate) fn usable(records: &Records, host: &str, kind: KeyKind) -> Result<Option<Usable>, AcmeError> {
    let issued = match records.issued(host, kind) {
        Ok(Some(issued)) => issued,
        Ok(None) => return Ok(None),
        Err(error @ AcmeError::Damaged { .. }) => {
            tracing::warn!(%error, "another certificate is obtained");
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
    Ok(Some(Usable { issued, certificate }))
}

/// The certificate of the store with this kind of key, if it is what the host wants: else another is ordered at once.
pub(crate) fn fitting(common: &Common, wanted: &Wanted, kind: KeyKind) -> Result<Option<Usable>, AcmeError> {
    match usable(&common.records, wanted.name(), kind) {
        Err(error @ (AcmeError::Issued(_) | AcmeError::Unusable(_) | AcmeError::StoredKey(_))) => {
            tracing::warn!(host = wanted.name(), key = %kind, %error, "another certificate is obtained");
            Ok(None)
        }
        found => Ok(found?.filter(|own| own.fits(common, &wanted.names))),
    }
}
