//! Operations of `brisk cert`: the same orders over the same store as in the gateway, which may run at the same time.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use brisk_certs::{Challenges, Store};
use instant_acme::{RevocationReason, RevocationRequest};
use tokio::runtime::{Builder, Runtime};

use crate::AcmeError;
use crate::answers::Answers;
use crate::attempt::Attempt;
use crate::certify::check;
use crate::common::{Common, HostStatus};
use crate::host::{Host, usable};
use crate::persist::Standing;
use crate::records::{Issued, Records, Status};
use crate::revoked::Revoked;
use crate::settings::{AcmeSettings, KeyKind, Wanted};

/// Orders, renews, revokes and imports certificates, and waits for the result. It has no listener: the gateways that
/// share its store respond to challenges.
pub struct Operator {
    common: Rc<Common>,
    runtime: Runtime,
}

impl Operator {
    /// Opens the operations over `store`.
    pub fn new(settings: AcmeSettings, store: Arc<dyn Store>) -> io::Result<Self> {
        let records = Records::new(store);
        let answers = Answers::new(&Challenges::new(), &records);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self {
            common: Rc::new(Common::new(settings, records, answers, Revoked::default(), Arc::default())),
            runtime,
        })
    }

    /// The stored records.
    pub fn records(&self) -> &Records {
        &self.common.records
    }

    /// Status of a host.
    pub fn status(&self, wanted: &Wanted) -> HostStatus {
        Host::status_of(&self.common, wanted)
    }

    /// Orders a certificate now, due or not.
    pub fn obtain(&self, wanted: &Wanted, kind: KeyKind) -> Result<(), AcmeError> {
        self.runtime.block_on(Attempt::new(&self.common, wanted, kind).at_once())
    }

    /// Updates the renewal information, then renews or orders the certificate if due. Returns whether the certificate
    /// has changed.
    pub fn renew(&self, wanted: &Wanted, kind: KeyKind) -> Result<bool, AcmeError> {
        let before = self.common.records.issued(wanted.name(), kind)?.map(|issued| issued.chain);
        // The renewal information is requested even if its `Retry-After` has not passed, and neither the pause after a
        // failure nor a trial order applies.
        let known = self.common.records.status(wanted.name(), kind)?;
        let fresh = Status { advice: None, retry: 0, held: Vec::new(), tried: true, ..known.clone() };
        self.common.records.put_status(wanted.name(), kind, &fresh)?;
        let attempt = Attempt::new(&self.common, wanted, kind);
        let turn = self.runtime.block_on(attempt.turn());
        turn?;
        let after = self.common.records.issued(wanted.name(), kind)?.map(|issued| issued.chain);
        let status = self.common.records.status(wanted.name(), kind)?;
        match status.last_error.filter(|_| status.failures > known.failures) {
            Some(reason) => Err(AcmeError::Failed(reason)),
            None => Ok(after != before),
        }
    }

    /// The DNS records for `dns-persist-01`, each with the directory URL of its authority. Creates missing accounts.
    pub fn standing_records(&self, wanted: &Wanted) -> Result<Vec<(String, Standing)>, AcmeError> {
        let names: Vec<_> =
            wanted.names.iter().filter(|name| name.parse::<IpAddr>().is_err()).cloned().collect();
        let mut all = Vec::new();
        for settings in &self.common.settings.authorities {
            let records = self.runtime.block_on(async {
                let authority = self.common.authority(settings, &settings.directory).await?;
                authority.standing_records(&names).await
            })?;
            all.extend(records.into_iter().map(|record| (settings.directory.clone(), record)));
        }
        Ok(all)
    }

    /// Revokes the certificate at its authority (RFC 8555 section 7.6) and removes it from the store. The gateway
    /// orders another within a minute.
    pub fn revoke(&self, host: &str, kind: KeyKind, key_compromised: bool) -> Result<(), AcmeError> {
        let Some(_lock) = self.records().lock(host)? else { return Err(AcmeError::Busy) };
        let Some(own) = usable(&self.common.records, host, kind)? else { return Err(AcmeError::Missing) };
        let mut authorities = self.common.settings.authorities.iter();
        let Some(settings) = authorities.find(|one| one.directory == own.issued.authority) else {
            return Err(AcmeError::Stranger(own.issued.authority));
        };
        let reason =
            if key_compromised { RevocationReason::KeyCompromise } else { RevocationReason::Superseded };
        let request = RevocationRequest { certificate: &own.certificate.chain[0], reason: Some(reason) };
        self.runtime.block_on(async {
            let authority = self.common.authority(settings, &settings.directory).await?;
            let revoked = authority.account.revoke(&request).await;
            revoked.map_err(|error| authority.error("the certificate is not revoked", error))
        })?;
        self.common.records.end_issued(host, kind)?;
        // Gateways that present it as an on-demand certificate compare this list at once.
        self.common.records.end_demanded(host)?;
        self.common.records.put_status(host, kind, &Status::default())
    }

    /// Stores a certificate from another source. It must be valid for all names, with its key.
    pub fn import(&self, wanted: &Wanted, kind: KeyKind, issued: &Issued) -> Result<(), AcmeError> {
        let Some(_lock) = self.records().lock(wanted.name())? else { return Err(AcmeError::Busy) };
        check(&issued.chain, issued.key.as_str(), &wanted.names, SystemTime::now())?;
        self.records().put_issued(wanted.name(), kind, issued)
    }
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").field("records", &self.common.records).finish_non_exhaustive()
    }
}
