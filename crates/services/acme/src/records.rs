//! Typed records in the store: accounts, certificates with keys, pending orders, status of attempts, challenge
//! responses.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brisk_certs::Store;
use brisk_certs::store::{Lock, Name};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use crate::AcmeError;
use crate::dns::Txt;
use crate::settings::KeyKind;

pub(crate) const CERTIFICATES: &str = "certificates";
const ORDERS: &str = "orders";
const STATUS: &str = "status";
pub(crate) const ACCOUNTS: &str = "accounts";
const ACCOUNT_KEYS: &str = "account-keys";
const ANSWERS: &str = "answers";
pub(crate) const ON_DEMAND: &str = "on-demand";
const TRIED: &str = "on-demand-tried";

/// A private key as PEM, wiped when dropped.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub(crate) String);

impl Secret {
    /// The PEM text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// An obtained certificate with its key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IssuedCertificate {
    /// Ordered names, in the order of the configuration.
    pub names: Vec<String>,
    /// Directory URL of the authority; empty if an imported certificate names none.
    pub authority: String,
    /// Ordered profile.
    #[serde(default)]
    pub profile: Option<String>,
    /// Time of issuance, in seconds since 1970.
    pub obtained: u64,
    /// Imported by the operator: kept until its renewal, whichever authority issued it.
    #[serde(default)]
    pub imported: bool,
    /// The chain as the authority sent it, PEM.
    pub chain: String,
    /// The private key.
    pub key: Secret,
}

impl IssuedCertificate {
    /// A certificate from another source. `authority` is the directory URL of its issuer, or empty.
    pub fn imported(names: &[String], authority: &str, chain: &str, key: &str, now: SystemTime) -> Self {
        Self {
            names: names.to_vec(),
            authority: authority.to_owned(),
            profile: None,
            obtained: seconds(now),
            imported: true,
            chain: chain.to_owned(),
            key: Secret(key.to_owned()),
        }
    }
}

/// A pending order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Pending {
    pub(crate) names: Vec<String>,
    pub(crate) authority: String,
    pub(crate) profile: Option<String>,
    /// URL of the order (RFC 8555 section 7.1.3).
    pub(crate) url: String,
    /// Key of the requested certificate.
    pub(crate) key: Secret,
    /// Time of the first request, in seconds since 1970.
    pub(crate) begun: u64,
    /// `dns-01` records that may exist and are to be removed.
    #[serde(default)]
    pub(crate) txt: Vec<Txt>,
}

/// Status of the attempts to obtain a certificate. The default is that of a certificate without attempts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AttemptStatus {
    /// Consecutive failed attempts.
    pub failures: u32,
    /// Reason of the last failure.
    pub last_error: Option<String>,
    /// Time of the last failure, in seconds since 1970.
    pub failed: u64,
    /// Earliest time of the next attempt, in seconds since 1970.
    pub retry: u64,
    /// The last attempt failed because a name could not be verified.
    pub unverified: bool,
    /// A trial order succeeded since the last failure, or the trial authority could not be used.
    pub tried: bool,
    /// Authorities that requested a pause.
    pub held: Vec<PausedAuthority>,
    /// Renewal information (RFC 9773).
    pub advice: Option<RenewalAdvice>,
    /// Consecutive certificates that replaced a revoked one.
    pub revoked: u32,
}

/// An authority that requested a pause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PausedAuthority {
    /// Directory URL.
    pub authority: String,
    /// End of the pause, in seconds since 1970.
    pub until: u64,
}

/// Renewal information of one certificate (RFC 9773).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewalAdvice {
    /// Identifier of the certificate (RFC 9773 section 4.1).
    pub certificate: String,
    /// Start of the suggested window, in seconds since 1970.
    pub start: u64,
    /// End of the suggested window, in seconds since 1970.
    pub end: u64,
    /// Chosen moment within the window; `u64::MAX` if the authority suggested none.
    pub chosen: u64,
    /// Time of the next request, in seconds since 1970.
    pub again: u64,
    /// URL of an explanation by the authority.
    #[serde(default)]
    pub explanation: Option<String>,
}

/// Seconds since 1970; 0 for an earlier time.
pub(crate) fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The time `seconds` after the beginning of 1970; the beginning itself if the result overflows.
pub(crate) fn moment(seconds: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH)
}

/// Typed access to a [`Store`].
#[derive(Clone, Debug)]
pub struct Records(Arc<dyn Store>);

impl Records {
    /// Records in `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self(store)
    }

    /// Records of a test, in a folder that is deleted with the first value.
    #[cfg(test)]
    pub(crate) fn of_test() -> (tempfile::TempDir, Self) {
        let folder = tempfile::tempdir().unwrap();
        let store = brisk_certs::store::Folder::new(folder.path());
        (folder, Self::new(Arc::new(store)))
    }

    /// The certificate of `host` with this kind of key.
    pub fn issued(&self, host: &str, kind: KeyKind) -> Result<Option<IssuedCertificate>, AcmeError> {
        self.read(&Name::of([CERTIFICATES, host, kind.name()]))
    }

    /// The bytes of [`issued`](Self::issued), for a comparison without parsing.
    pub(crate) fn issued_raw(
        &self,
        host: &str,
        kind: KeyKind,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, AcmeError> {
        Ok(self.0.read(&Name::of([CERTIFICATES, host, kind.name()]))?)
    }

    pub(crate) fn put_issued(
        &self,
        host: &str,
        kind: KeyKind,
        issued: &IssuedCertificate,
    ) -> Result<(), AcmeError> {
        self.write(&Name::of([CERTIFICATES, host, kind.name()]), issued)
    }

    pub(crate) fn end_issued(&self, host: &str, kind: KeyKind) -> Result<(), AcmeError> {
        Ok(self.0.remove(&Name::of([CERTIFICATES, host, kind.name()]))?)
    }

    /// Hosts with a certificate, a pending order or a status, sorted.
    pub fn hosts(&self) -> Result<Vec<String>, AcmeError> {
        let mut hosts = Vec::new();
        for kind in [CERTIFICATES, ORDERS, STATUS] {
            hosts.extend(self.0.list(&Name::of([kind]))?.iter().map(Name::last));
        }
        hosts.sort();
        hosts.dedup();
        Ok(hosts)
    }

    pub(crate) fn pending(&self, host: &str, kind: KeyKind) -> Result<Option<Pending>, AcmeError> {
        self.read(&Name::of([ORDERS, host, kind.name()]))
    }

    pub(crate) fn put_pending(&self, host: &str, kind: KeyKind, order: &Pending) -> Result<(), AcmeError> {
        self.write(&Name::of([ORDERS, host, kind.name()]), order)
    }

    pub(crate) fn end_pending(&self, host: &str, kind: KeyKind) -> Result<(), AcmeError> {
        Ok(self.0.remove(&Name::of([ORDERS, host, kind.name()]))?)
    }

    /// Status of the attempts; the default if there was none.
    pub fn status(&self, host: &str, kind: KeyKind) -> Result<AttemptStatus, AcmeError> {
        Ok(self.read(&Name::of([STATUS, host, kind.name()]))?.unwrap_or_default())
    }

    pub(crate) fn put_status(
        &self,
        host: &str,
        kind: KeyKind,
        status: &AttemptStatus,
    ) -> Result<(), AcmeError> {
        self.write(&Name::of([STATUS, host, kind.name()]), status)
    }

    pub(crate) fn end_status(&self, host: &str, kind: KeyKind) -> Result<(), AcmeError> {
        Ok(self.0.remove(&Name::of([STATUS, host, kind.name()]))?)
    }

    /// On-demand names with certificates.
    pub fn demanded(&self) -> Result<Vec<String>, AcmeError> {
        Ok(self.0.list(&Name::of([ON_DEMAND]))?.iter().map(Name::last).collect())
    }

    pub(crate) fn put_demanded(&self, name: &str) -> Result<(), AcmeError> {
        Ok(self.0.write(&Name::of([ON_DEMAND, name]), b"{}")?)
    }

    pub(crate) fn end_demanded(&self, name: &str) -> Result<(), AcmeError> {
        Ok(self.0.remove(&Name::of([ON_DEMAND, name]))?)
    }

    /// On-demand names with a first order, in progress or failed, and no certificate.
    pub fn tried(&self) -> Result<Vec<String>, AcmeError> {
        Ok(self.0.list(&Name::of([TRIED]))?.iter().map(Name::last).collect())
    }

    pub(crate) fn put_tried(&self, name: &str) -> Result<(), AcmeError> {
        Ok(self.0.write(&Name::of([TRIED, name]), b"{}")?)
    }

    pub(crate) fn end_tried(&self, name: &str) -> Result<(), AcmeError> {
        Ok(self.0.remove(&Name::of([TRIED, name]))?)
    }

    pub(crate) fn account(&self, directory: &str) -> Result<Option<Zeroizing<Vec<u8>>>, AcmeError> {
        Ok(self.0.read(&Name::of([ACCOUNTS, directory]))?)
    }

    pub(crate) fn put_account(&self, directory: &str, credentials: &[u8]) -> Result<(), AcmeError> {
        Ok(self.0.write(&Name::of([ACCOUNTS, directory]), credentials)?)
    }

    pub(crate) fn remove_account(&self, directory: &str) -> Result<(), AcmeError> {
        Ok(self.0.remove(&Name::of([ACCOUNTS, directory]))?)
    }

    /// Key of an account that is being created, PKCS#8.
    pub(crate) fn account_key(&self, directory: &str) -> Result<Option<Zeroizing<Vec<u8>>>, AcmeError> {
        Ok(self.0.read(&Name::of([ACCOUNT_KEYS, directory]))?)
    }

    pub(crate) fn put_account_key(&self, directory: &str, key: &[u8]) -> Result<(), AcmeError> {
        Ok(self.0.write(&Name::of([ACCOUNT_KEYS, directory]), key)?)
    }

    pub(crate) fn remove_account_key(&self, directory: &str) -> Result<(), AcmeError> {
        Ok(self.0.remove(&Name::of([ACCOUNT_KEYS, directory]))?)
    }

    pub(crate) fn lock_account(&self, directory: &str) -> Result<Option<Box<dyn Lock>>, AcmeError> {
        Ok(self.0.try_lock(&Name::of([ACCOUNTS, directory]))?)
    }

    /// The [`Lock`] of a host; its holder may order for the host. `None` if another process holds it.
    pub(crate) fn lock(&self, host: &str) -> Result<Option<Box<dyn Lock>>, AcmeError> {
        Ok(self.0.try_lock(&Name::of([ORDERS, host]))?)
    }

    /// The stored response to a challenge of `kind` for `subject`, a token or a server name: time of publication, in
    /// seconds since 1970, and key authorization. `None` also for a damaged value.
    pub(crate) fn answer(&self, kind: &str, subject: &str) -> Result<Option<(u64, String)>, AcmeError> {
        let value = self.0.read(&Name::of([ANSWERS, kind, subject]))?;
        let text = value.and_then(|value| String::from_utf8(value.to_vec()).ok());
        Ok(text.and_then(|text| {
            let (given, answer) = text.split_once(' ')?;
            Some((given.parse().ok()?, answer.to_owned()))
        }))
    }

    /// Subjects with a stored response to challenges of `kind`.
    pub(crate) fn answered(&self, kind: &str) -> Result<HashSet<String>, AcmeError> {
        Ok(self.0.list(&Name::of([ANSWERS, kind]))?.iter().map(Name::last).collect())
    }

    pub(crate) fn put_answer(
        &self,
        kind: &str,
        subject: &str,
        answer: &str,
        now: SystemTime,
    ) -> Result<(), AcmeError> {
        let value = format!("{} {answer}", seconds(now));
        Ok(self.0.write(&Name::of([ANSWERS, kind, subject]), value.as_bytes())?)
    }

    pub(crate) fn remove_answer(&self, kind: &str, subject: &str) -> Result<(), AcmeError> {
        Ok(self.0.remove(&Name::of([ANSWERS, kind, subject]))?)
    }

    /// Location of the `Store`, for messages.
    pub fn place(&self) -> String {
        self.0.place()
    }

    fn read<T: DeserializeOwned>(&self, name: &Name) -> Result<Option<T>, AcmeError> {
        let Some(value) = self.0.read(name)? else { return Ok(None) };
        serde_json::from_slice(&value).map(Some).map_err(|error| AcmeError::Damaged {
            name: name.to_string(),
            place: self.0.place(),
            reason: error.to_string(),
        })
    }

    fn write<T: Serialize>(&self, name: &Name, value: &T) -> Result<(), AcmeError> {
        let value = serde_json::to_vec_pretty(value).expect("records are plain values");
        Ok(self.0.write(name, &Zeroizing::new(value))?)
    }
}
