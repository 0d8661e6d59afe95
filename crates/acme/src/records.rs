//! What the store knows: accounts, certificates with their keys, orders under way, and how the last attempts went.

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

const CERTIFICATES: &str = "certificates";
const ORDERS: &str = "orders";
const STATUS: &str = "status";
const ACCOUNTS: &str = "accounts";
const ACCOUNT_KEYS: &str = "account-keys";
const ANSWERS: &str = "answers";
const ON_DEMAND: &str = "on-demand";
const TRIED: &str = "on-demand-tried";

/// A private key as PEM, wiped when dropped.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub(crate) String);

impl Secret {
    /// The PEM.
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

/// A certificate that was obtained, with its key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Issued {
    /// The names that it was ordered for, in the order of the configuration.
    pub names: Vec<String>,
    /// The directory of the authority; empty for one that was imported.
    pub authority: String,
    /// The profile that was ordered.
    #[serde(default)]
    pub profile: Option<String>,
    /// When it was obtained, in seconds since 1970.
    pub obtained: u64,
    /// It was obtained otherwise, and is kept until it is to be renewed, whichever authority issued it.
    #[serde(default)]
    pub imported: bool,
    /// The chain as the authority sent it, PEM.
    pub chain: String,
    /// The private key.
    pub key: Secret,
}

impl Issued {
    /// A certificate that was obtained otherwise, of the authority with this directory; empty if that is not known.
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

/// An order under way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Pending {
    pub(crate) names: Vec<String>,
    pub(crate) authority: String,
    pub(crate) profile: Option<String>,
    /// The order at the authority.
    pub(crate) url: String,
    /// The key that the certificate is requested with.
    pub(crate) key: Secret,
    /// When it was begun, in seconds since 1970.
    pub(crate) begun: u64,
    /// Records for dns-01 that may be in the DNS, and are to be taken away.
    #[serde(default)]
    pub(crate) txt: Vec<Txt>,
}

/// How the attempts to obtain a certificate went, and when it is to be renewed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Attempts that have failed since the last one that succeeded.
    pub failures: u32,
    /// Why the last one failed.
    pub last_error: Option<String>,
    /// When it did, in seconds since 1970.
    pub failed: u64,
    /// No attempt before then, in seconds since 1970.
    pub retry: u64,
    /// The last one failed because a name could not be verified.
    pub unverified: bool,
    /// An order succeeded at the trial authority since the last failure, or that cannot be asked.
    pub tried: bool,
    /// Authorities that are not asked for a while, as they said.
    pub held: Vec<Held>,
    /// What the authority says of the renewal (RFC 9773).
    pub advice: Option<Advice>,
    /// Certificates in a row that were ordered as the one before was revoked.
    pub revoked: u32,
}

/// An authority that said when it wants to be asked again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Its directory.
    pub authority: String,
    /// Not before then, in seconds since 1970.
    pub until: u64,
}

/// When an authority wants a certificate to be renewed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// The certificate that it is about: that of RFC 9773 section 4.1.
    pub certificate: String,
    /// The window, in seconds since 1970.
    pub start: u64,
    /// Its end.
    pub end: u64,
    /// The moment that was chosen in it.
    pub chosen: u64,
    /// When the authority is asked again.
    pub again: u64,
    /// A page that says why.
    #[serde(default)]
    pub explanation: Option<String>,
}

/// Seconds since 1970.
pub(crate) fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The moment `seconds` after the beginning of 1970.
pub(crate) fn moment(seconds: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH)
}

/// The store, and what is in it.
#[derive(Clone, Debug)]
pub struct Records(Arc<dyn Store>);

impl Records {
    /// What is in `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self(store)
    }

    /// Records of a test, in a folder that lasts as long as the first.
    #[cfg(test)]
    pub(crate) fn of_test() -> (tempfile::TempDir, Self) {
        let folder = tempfile::tempdir().unwrap();
        let store = brisk_certs::store::Folder::new(folder.path());
        (folder, Self::new(Arc::new(store)))
    }

    /// The certificate of this host with this kind of key.
    pub fn issued(&self, host: &str, kind: KeyKind) -> Result<Option<Issued>, AcmeError> {
        self.read(&Name::of([CERTIFICATES, host, kind.name()]))
    }

    /// The same as it is in the store.
    pub(crate) fn issued_raw(
        &self,
        host: &str,
        kind: KeyKind,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, AcmeError> {
        Ok(self.0.read(&Name::of([CERTIFICATES, host, kind.name()]))?)
    }

    pub(crate) fn put_issued(&self, host: &str, kind: KeyKind, issued: &Issued) -> Result<(), AcmeError> {
        self.write(&Name::of([CERTIFICATES, host, kind.name()]), issued)
    }

    pub(crate) fn end_issued(&self, host: &str, kind: KeyKind) -> Result<(), AcmeError> {
        Ok(self.0.remove(&Name::of([CERTIFICATES, host, kind.name()]))?)
    }

    /// The hosts that have certificates, orders or failures.
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

    /// How the attempts went; the default where there was none.
    pub fn status(&self, host: &str, kind: KeyKind) -> Result<Status, AcmeError> {
        Ok(self.read(&Name::of([STATUS, host, kind.name()]))?.unwrap_or_default())
    }

    pub(crate) fn put_status(&self, host: &str, kind: KeyKind, status: &Status) -> Result<(), AcmeError> {
        self.write(&Name::of([STATUS, host, kind.name()]), status)
    }

    pub(crate) fn end_status(&self, host: &str, kind: KeyKind) -> Result<(), AcmeError> {
        Ok(self.0.remove(&Name::of([STATUS, host, kind.name()]))?)
    }

    /// The names that certificates were obtained for on demand.
    pub fn demanded(&self) -> Result<Vec<String>, AcmeError> {
        Ok(self.0.list(&Name::of([ON_DEMAND]))?.iter().map(Name::last).collect())
    }

    pub(crate) fn put_demanded(&self, name: &str) -> Result<(), AcmeError> {
        Ok(self.0.write(&Name::of([ON_DEMAND, name]), b"{}")?)
    }

    pub(crate) fn end_demanded(&self, name: &str) -> Result<(), AcmeError> {
        Ok(self.0.remove(&Name::of([ON_DEMAND, name]))?)
    }

    /// The names that are, or were, ordered for on demand for the first time, and have no certificate yet.
    pub(crate) fn tried(&self) -> Result<Vec<String>, AcmeError> {
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

    /// The key of an account that is being made, PKCS#8.
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

    /// The lock of a host: who holds it orders for it.
    pub(crate) fn lock(&self, host: &str) -> Result<Option<Box<dyn Lock>>, AcmeError> {
        Ok(self.0.try_lock(&Name::of([ORDERS, host]))?)
    }

    /// The key authorization that answers a challenge of this kind for `subject`, a token or a server name, and since when it
    /// does, in seconds since 1970. `None` also for what cannot be understood.
    pub(crate) fn answer(&self, kind: &str, subject: &str) -> Result<Option<(u64, String)>, AcmeError> {
        let value = self.0.read(&Name::of([ANSWERS, kind, subject]))?;
        let text = value.and_then(|value| String::from_utf8(value.to_vec()).ok());
        Ok(text.and_then(|text| {
            let (given, answer) = text.split_once(' ')?;
            Some((given.parse().ok()?, answer.to_owned()))
        }))
    }

    /// The subjects that challenges of this kind are answered for.
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

    /// Where all of it is, for messages.
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
