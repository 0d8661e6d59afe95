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
use crate::attempt::Attempt;
use crate::certify::check;
use crate::context::{AcmeContext, HostStatus};
use crate::host::{Host, usable};
use crate::persist::PersistentRecord;
use crate::records::{AttemptStatus, IssuedCertificate, Records};
use crate::responses::ChallengeResponses;
use crate::revoked::Revoked;
use crate::settings::{AcmeSettings, CertificateSpec, KeyKind};

/// Orders, renews, revokes and imports certificates, and waits for the result. It has no listener: the gateways that
/// share its store respond to challenges.
pub struct Operator {
    context: Rc<AcmeContext>,
    runtime: Runtime,
}

impl Operator {
    /// Opens the operations over `store`.
    pub fn new(settings: AcmeSettings, store: Arc<dyn Store>) -> io::Result<Self> {
        let records = Records::new(store);
        let answers = ChallengeResponses::new(&Challenges::new(), &records);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self {
            context: Rc::new(AcmeContext::new(settings, records, answers, Revoked::default())),
            runtime,
        })
    }

    /// The stored records.
    pub fn records(&self) -> &Records {
        &self.context.records
    }

    /// Status of a host.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub fn status(&self, wanted: &CertificateSpec) -> Result<HostStatus, AcmeError> {
        Host::status_of(&self.context, wanted)
    }

    /// Orders a certificate now, due or not.
    pub fn obtain(&self, wanted: &CertificateSpec, kind: KeyKind) -> Result<(), AcmeError> {
        self.runtime.block_on(Attempt::new(&self.context, wanted, kind).obtain_now())
    }

    /// Updates the renewal information, then renews or orders the certificate if due. Returns whether the certificate
    /// has changed.
    pub fn renew(&self, wanted: &CertificateSpec, kind: KeyKind) -> Result<bool, AcmeError> {
        let before = self.context.records.issued(wanted.name(), kind)?.map(|issued| issued.chain);
        // The renewal information is requested even if its `Retry-After` has not passed, and neither the pause after a
        // failure nor a trial order applies.
        let known = self.context.records.status(wanted.name(), kind)?;
        let fresh = AttemptStatus { advice: None, retry: 0, held: Vec::new(), tried: true, ..known.clone() };
        self.context.records.put_status(wanted.name(), kind, &fresh)?;
        let attempt = Attempt::new(&self.context, wanted, kind);
        let turn = self.runtime.block_on(attempt.obtain_if_due());
        turn?;
        let after = self.context.records.issued(wanted.name(), kind)?.map(|issued| issued.chain);
        let status = self.context.records.status(wanted.name(), kind)?;
        match status.last_error.filter(|_| status.failures > known.failures) {
            Some(reason) => Err(AcmeError::Failed(reason)),
            None => Ok(after != before),
        }
    }

    /// The DNS records for `dns-persist-01`, each with the directory URL of its authority. Creates missing accounts.
    pub fn persistent_records(
        &self,
        wanted: &CertificateSpec,
    ) -> Result<Vec<(String, PersistentRecord)>, AcmeError> {
        let names: Vec<_> =
            wanted.names.iter().filter(|name| name.parse::<IpAddr>().is_err()).cloned().collect();
        let mut all = Vec::new();
        for settings in &self.context.settings.authorities {
            let records = self.runtime.block_on(async {
                let authority = self.context.authority(settings, &settings.directory).await?;
                authority.persistent_records(&names).await
            })?;
            all.extend(records.into_iter().map(|record| (settings.directory.clone(), record)));
        }
        Ok(all)
    }

    /// Revokes the certificate at its authority (RFC 8555 section 7.6) and removes it from the `Store`. The gateway
    /// orders another within a minute.
    pub fn revoke(&self, host: &str, kind: KeyKind, key_compromised: bool) -> Result<(), AcmeError> {
        let Some(_lock) = self.records().lock(host)? else { return Err(AcmeError::Busy) };
        let Some(own) = usable(&self.context.records, host, kind)? else { return Err(AcmeError::Missing) };
        let mut authorities = self.context.settings.authorities.iter();
        let Some(settings) = authorities.find(|one| one.directory == own.issued.authority) else {
            return Err(AcmeError::UnknownIssuer(own.issued.authority));
        };
        let reason =
            if key_compromised { RevocationReason::KeyCompromise } else { RevocationReason::Superseded };
        let request = RevocationRequest { certificate: &own.certificate.chain[0], reason: Some(reason) };
        self.runtime.block_on(async {
            let authority = self.context.authority(settings, &settings.directory).await?;
            let revoked = authority.account.revoke(&request).await;
            revoked.map_err(|error| authority.error("cannot revoke the certificate", error))
        })?;
        self.context.records.end_issued(host, kind)?;
        // Gateways that present it as an on-demand certificate compare this list at once.
        self.context.records.end_demanded(host)?;
        // Pauses after earlier failures must not delay the replacement.
        self.context.records.put_status(host, kind, &AttemptStatus::default())
    }

    /// Stores a certificate from another source. It must be valid for all names, with its key.
    pub fn import(
        &self,
        wanted: &CertificateSpec,
        kind: KeyKind,
        issued: &IssuedCertificate,
    ) -> Result<(), AcmeError> {
        let Some(_lock) = self.records().lock(wanted.name())? else { return Err(AcmeError::Busy) };
        check(&issued.chain, issued.key.as_str(), &wanted.names, SystemTime::now())?;
        self.records().put_issued(wanted.name(), kind, issued)
    }
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").field("records", &self.context.records).finish_non_exhaustive()
    }
}
