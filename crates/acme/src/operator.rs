//! What an operator does by hand, beside the gateway or before it runs: the same orders over the same store.

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

/// Orders, renews, revokes and imports for one who waits. Answers to challenges are given by the gateways that share the
/// store, as this has no listener of its own.
pub struct Operator {
    common: Rc<Common>,
    runtime: Runtime,
}

impl Operator {
    /// Over `store`.
    pub fn new(settings: AcmeSettings, store: Arc<dyn Store>) -> io::Result<Self> {
        let records = Records::new(store);
        let answers = Answers::new(&Challenges::new(), &records);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self {
            common: Rc::new(Common::new(settings, records, answers, Revoked::default(), Arc::default())),
            runtime,
        })
    }

    /// What the store has.
    pub fn records(&self) -> &Records {
        &self.common.records
    }

    /// How a host stands.
    pub fn status(&self, wanted: &Wanted) -> HostStatus {
        Host::status_of(&self.common, wanted)
    }

    /// Orders a certificate now, whatever there is.
    pub fn obtain(&self, wanted: &Wanted, kind: KeyKind) -> Result<(), AcmeError> {
        self.runtime.block_on(Attempt::new(&self.common, wanted, kind).at_once())
    }

    /// Renews, or orders, what is due, after asking the authority for its advice. Whether there is another certificate now.
    pub fn renew(&self, wanted: &Wanted, kind: KeyKind) -> Result<bool, AcmeError> {
        let before = self.common.records.issued(wanted.name(), kind)?.map(|issued| issued.chain);
        // The advice is asked for even if that is not due, and an operator waits neither for the pause after a failure nor for
        // a trial.
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

    /// The records that have to stand in the DNS for dns-persist-01, with the directory of the authority that each is for. An account
    /// that is missing is made.
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

    /// Has the authority revoke the certificate, and forgets it: the gateway orders another within a minute.
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
        // Gateways that show it as one on demand look at once.
        self.common.records.end_demanded(host)?;
        self.common.records.put_status(host, kind, &Status::default())
    }

    /// Takes over a certificate that was obtained otherwise. It has to be one for the names, with its key.
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
