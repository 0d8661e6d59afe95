//! ACME accounts (RFC 8555 section 7.3), opened from the store or created once per fleet.

use std::sync::Arc;
use std::time::Duration;

use brisk_fetch::{Client, ClientSettings, Destinations, Limits};
use instant_acme::{Account, AccountCredentials, ExternalAccountKey, Key, NewAccount};
use rustls_pki_types::PrivatePkcs8KeyDer;
use serde::Deserialize;
use tokio::time::sleep;
use zeroize::Zeroizing;

use crate::AcmeError;
use crate::error::{is_bad_nonce, is_gone, is_refused};
use crate::http::{Http, LastRetryAfter};
use crate::persist::PersistentRecord;
use crate::records::Records;
use crate::settings::{AcmeSettings, AuthoritySettings};

/// Attempts to obtain the [`Lock`] of the [`Account`], and the pause between two: a gateway of the fleet has 30 s to
/// create it.
const LOCK_ATTEMPTS: u32 = 60;
const LOCK_PAUSE: Duration = Duration::from_millis(500);

/// Number of times that a request is repeated because the authority rejected its nonce (`badNonce`, RFC 8555 section
/// 6.5).
pub(crate) const NONCES: u32 = 20;

/// An authority with an open account.
pub(crate) struct Authority {
    /// URL of the authority's directory.
    pub(crate) directory: String,
    pub(crate) account: Account,
    client: Client,
    noted: LastRetryAfter,
}

impl Authority {
    /// Opens the [`Account`] with the authority at `directory`, or creates one. `directory` is that of `settings` or of
    /// its trial authority.
    ///
    /// # Errors
    ///
    /// [`AcmeError::Client`] if another gateway holds the [`Lock`] of the account for 30 s, [`AcmeError::Authority`] if
    /// the authority refuses the account.
    pub(crate) async fn open(
        settings: &AuthoritySettings,
        directory: &str,
        acme: &AcmeSettings,
        records: &Records,
    ) -> Result<Self, AcmeError> {
        let opening = Opening { settings, directory, acme, records };
        // The lock prevents gateways that start at the same time from creating one account each.
        for _ in 0..LOCK_ATTEMPTS {
            if let Some(own) = opening.known().await? {
                return Ok(own);
            }
            if let Some(_lock) = records.lock_account(directory)? {
                // Another gateway may have created the account before the lock was taken.
                return match opening.known().await? {
                    Some(own) => Ok(own),
                    None => opening.create().await,
                };
            }
            sleep(LOCK_PAUSE).await;
        }
        Err(AcmeError::Client {
            directory: directory.to_owned(),
            reason: "another gateway holds the lock of the account".to_owned(),
        })
    }

    /// Removes the [`Account`] from the [`Store`] because the authority no longer knows it. An account that another
    /// gateway has stored in the meantime is kept.
    pub(crate) fn forget_account(&self, records: &Records) -> Result<(), AcmeError> {
        let stored = records.account(&self.directory)?;
        let stored = stored.and_then(|stored| serde_json::from_slice::<Identity>(&stored).ok());
        if stored.is_some_and(|stored| stored.id == self.account.id()) {
            tracing::warn!(
                authority = self.directory,
                "the authority no longer knows the account; creating another"
            );
            records.remove_account(&self.directory)?;
        }
        Ok(())
    }

    /// Returns the DNS records that prove `names` permanently (`dns-persist-01`). Reads the issuer's name from
    /// `caaIdentities` of the directory.
    pub(crate) async fn persistent_records(
        &self,
        names: &[String],
    ) -> Result<Vec<PersistentRecord>, AcmeError> {
        let unread = |reason: String| AcmeError::Client { directory: self.directory.clone(), reason };
        let directory =
            self.client.get_ok(&self.directory).await.map_err(|error| unread(error.to_string()))?;
        let directory: Directory = serde_json::from_slice(&directory)
            .map_err(|error| unread(format!("cannot parse its directory: {error}")))?;
        let Some(issuer) = directory.meta.caa_identities.into_iter().next() else {
            let reason =
                "its directory names no issuer (caaIdentities), which records for dns-persist-01 need";
            return Err(unread(reason.to_owned()));
        };
        Ok(PersistentRecord::of(names, &issuer, self.account.id()))
    }

    /// Pause before the next poll of an order: `own`, or the `Retry-After` of the last response if that is longer.
    pub(crate) fn pause(&self, own: Duration) -> Duration {
        own.max(self.noted.retry_after().unwrap_or_default())
    }

    /// Wraps an error of this authority, together with the `Retry-After` of its last response.
    pub(crate) fn error(&self, attempt: &'static str, source: instant_acme::Error) -> AcmeError {
        AcmeError::Authority { attempt, source, retry_after: self.noted.retry_after() }
    }
}

/// Members of a directory object that are read (RFC 8555 section 7.1.1).
#[derive(Deserialize)]
struct Directory {
    #[serde(default)]
    meta: Meta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    #[serde(default)]
    caa_identities: Vec<String>,
}

/// Identifier of an [`Account`], as `instant-acme` serializes it among the credentials.
#[derive(Deserialize)]
struct Identity {
    id: String,
}

/// A created account and the credentials that open it later.
type Made = Result<(Account, AccountCredentials), instant_acme::Error>;

struct Opening<'a> {
    settings: &'a AuthoritySettings,
    directory: &'a str,
    acme: &'a AcmeSettings,
    records: &'a Records,
}

impl Opening<'_> {
    /// Opens the stored account. `None` if there is none, or if it is damaged.
    async fn known(&self) -> Result<Option<Authority>, AcmeError> {
        let Some(credentials) = self.records.account(self.directory)? else { return Ok(None) };
        let Ok(credentials) = serde_json::from_slice::<AccountCredentials>(&credentials) else {
            tracing::warn!(authority = self.directory, "the stored account is damaged; creating another");
            return Ok(None);
        };
        let (http, noted) = self.http()?;
        let client = http.client.clone();
        let opened = Account::builder_with_http(http).from_credentials(credentials).await;
        match opened {
            Ok(account) => Ok(Some(self.authority(account, client, noted))),
            Err(source) => Err(self.failed("the authority's directory cannot be read", source, &noted)),
        }
    }

    async fn create(&self) -> Result<Authority, AcmeError> {
        // External accounts are accounts with the real authority; the trial authority does not know their
        // keys.
        let external = self.settings.external_account.as_ref().filter(|_| !self.is_trial());
        let external = external.map(|own| ExternalAccountKey::new(own.key_id.clone(), &own.key));
        let mut attempts = 0;
        loop {
            let (http, noted) = self.http()?;
            let client = http.client.clone();
            let made = match &external {
                None => self.with_key(http).await?,
                // `instant-acme` generates the key of a bound account itself, so the key cannot be stored first. A
                // process that is killed here leaves an account that no gateway knows.
                Some(external) => self.with_binding(http, external).await,
            };
            match made {
                Ok((account, credentials)) => {
                    let credentials = serde_json::to_vec(&credentials).expect("credentials are plain values");
                    // Stored before its key is removed: a process that is killed in between leaves an
                    // account that can be opened.
                    self.records.put_account(self.directory, &Zeroizing::new(credentials))?;
                    self.records.remove_account_key(self.directory)?;
                    tracing::info!(
                        authority = self.directory,
                        "account created; its terms of service are accepted"
                    );
                    return Ok(self.authority(account, client, noted));
                }
                Err(error) if is_bad_nonce(&error) && attempts < NONCES => attempts += 1,
                Err(source) => return Err(self.failed("cannot create an account", source, &noted)),
            }
        }
    }

    /// Creates an [`Account`] with a key that is stored before the authority learns of it. The authority keeps one
    /// account per key (RFC 8555 section 7.3.1), so a repeated attempt returns the same account.
    async fn with_key(&self, http: Box<Http>) -> Result<Made, AcmeError> {
        let key = if let Some(kept) = self.records.account_key(self.directory)? {
            PrivatePkcs8KeyDer::from(kept.to_vec())
        } else {
            let new = match Key::generate_pkcs8() {
                Ok((_, new)) => new,
                Err(error) => return Ok(Err(error)),
            };
            self.records.put_account_key(self.directory, new.secret_pkcs8_der())?;
            new
        };
        let parsed = match Key::from_pkcs8_der(key.clone_key()) {
            Ok(parsed) => parsed,
            Err(error) => {
                // A damaged key; the next attempt generates another.
                self.records.remove_account_key(self.directory)?;
                return Ok(Err(error));
            }
        };
        let builder = Account::builder_with_http(http);
        let made = builder.create_from_key((parsed, key.into()), self.directory.to_owned()).await;
        let (account, credentials) = match made {
            Ok(made) => made,
            Err(error) => {
                if is_refused(&error) {
                    // The authority rejects this key; the next attempt generates another.
                    self.records.remove_account_key(self.directory)?;
                }
                return Ok(Err(error));
            }
        };
        let contact: Vec<_> = self.acme.contact.iter().map(String::as_str).collect();
        // `create_from_key` accepts no contacts. Set afterwards, a refused contact costs no second account.
        if contact.is_empty() {
            return Ok(Ok((account, credentials)));
        }
        Ok(account.update_contacts(&contact).await.map(|()| (account, credentials)))
    }

    async fn with_binding(&self, http: Box<Http>, external: &ExternalAccountKey) -> Made {
        let contact: Vec<_> = self.acme.contact.iter().map(String::as_str).collect();
        let account =
            NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let builder = Account::builder_with_http(http);
        builder.create(&account, self.directory.to_owned(), Some(external)).await
    }

    fn is_trial(&self) -> bool {
        self.directory != self.settings.directory
    }

    fn http(&self) -> Result<(Box<Http>, LastRetryAfter), AcmeError> {
        // `ca_file` applies to the trial authority too: public authorities have public ones, and a private authority
        // uses one CA for both servers.
        let destinations = Destinations::new(Arc::clone(&self.acme.allow_private)).with_url(self.directory);
        let settings = ClientSettings {
            authorities: self.settings.ca_file.clone(),
            limits: Limits::default(),
            destinations,
        };
        let client = Client::new(&settings).map_err(|error| AcmeError::Client {
            directory: self.directory.to_owned(),
            reason: error.to_string(),
        })?;
        let noted = LastRetryAfter::default();
        Ok((Box::new(Http { client, noted: noted.clone() }), noted))
    }

    fn authority(&self, account: Account, client: Client, noted: LastRetryAfter) -> Authority {
        Authority { directory: self.directory.to_owned(), account, client, noted }
    }

    fn failed(
        &self,
        attempt: &'static str,
        source: instant_acme::Error,
        noted: &LastRetryAfter,
    ) -> AcmeError {
        if is_gone(&source) {
            // The authority no longer knows the account; the next attempt creates another.
            let _ = self.records.remove_account(self.directory);
        }
        AcmeError::Authority { attempt, source, retry_after: noted.retry_after() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use brisk_certs::store::{Folder, Lock, Name};
    use brisk_certs::{Store, StoreError};
    use brisk_testkit::pebble::PebbleOptions;

    use super::*;
    use crate::settings::ChallengeKind;

    /// A folder that rejects writes of accounts while `full` is set.
    #[derive(Debug)]
    struct Filling {
        folder: Folder,
        full: Arc<AtomicBool>,
    }

    impl Store for Filling {
        fn read(&self, name: &Name) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError> {
            self.folder.read(name)
        }

        fn write(&self, name: &Name, value: &[u8]) -> Result<(), StoreError> {
            if self.full.load(Ordering::SeqCst) && name.as_str().starts_with("accounts/") {
                return Err(StoreError::new("write", name, "no space"));
            }
            self.folder.write(name, value)
        }

        fn remove(&self, name: &Name) -> Result<(), StoreError> {
            self.folder.remove(name)
        }

        fn list(&self, parent: &Name) -> Result<Vec<Name>, StoreError> {
            self.folder.list(parent)
        }

        fn try_lock(&self, name: &Name) -> Result<Option<Box<dyn Lock>>, StoreError> {
            self.folder.try_lock(name)
        }

        fn place(&self) -> String {
            self.folder.place()
        }
    }

    #[tokio::test]
    async fn an_account_that_could_not_be_written_is_the_same_after_another_attempt() {
        let (pebble, folder) = (PebbleOptions::default().start(), tempfile::tempdir().unwrap());
        let full = Arc::new(AtomicBool::new(true));
        let store = Filling { folder: Folder::new(folder.path()), full: Arc::clone(&full) };
        let records = Records::new(Arc::new(store));
        let own = AuthoritySettings {
            ca_file: Some(pebble.ca_file()),
            ..AuthoritySettings::new(pebble.directory())
        };
        let with_contact = |contact: &str| AcmeSettings {
            authorities: vec![own.clone()],
            contact: vec![contact.to_owned()],
            challenges: vec![ChallengeKind::TlsAlpn01],
            dns: None,
            allow_private: Arc::default(),
        };
        let (acme, wrong) = (with_contact("mailto:admin@example.com"), with_contact("mailto:nonsense"));
        let open = || Authority::open(&own, &own.directory, &acme, &records);
        for _ in 0..3 {
            assert!(matches!(open().await, Err(AcmeError::Store(_))));
        }
        full.store(false, Ordering::SeqCst);
        let refused = Authority::open(&own, &own.directory, &wrong, &records).await;
        assert!(matches!(refused, Err(AcmeError::Authority { .. })), "the contact is no address");
        let first = open().await.unwrap();
        // Pebble numbers its accounts: all attempts must have used the same one.
        assert_eq!(pebble.log().matches("accounts in memory").count(), 1, "{}", pebble.log());
        let second = open().await.unwrap();
        assert_eq!(first.account.id(), second.account.id());
        assert!(records.account_key(&own.directory).unwrap().is_none(), "it is in the account");
    }
}
