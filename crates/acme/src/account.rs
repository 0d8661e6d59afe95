//! Accounts with authorities: opened from the store, or made once, whatever gateways start at the same time.

use std::time::Duration;

use brisk_fetch::{Client, ClientSettings, Limits};
use instant_acme::{Account, AccountCredentials, ExternalAccountKey, NewAccount};
use serde::Deserialize;
use tokio::time::sleep;

use crate::AcmeError;
use crate::error::{is_bad_nonce, is_gone};
use crate::http::{Http, Noted};
use crate::records::Records;
use crate::settings::{AcmeSettings, AuthoritySettings};

/// How long another gateway may take to make the account.
const TURNS: u32 = 60;
const TURN: Duration = Duration::from_millis(500);

/// The longest pause between two looks at an order that an authority may ask for.
const LONGEST_LOOK: Duration = Duration::from_mins(1);

/// Attempts to say something to an authority that answers with new nonces only.
pub(crate) const NONCES: u32 = 20;

/// An authority with which there is an account.
pub(crate) struct Authority {
    /// The address of its directory.
    pub(crate) directory: String,
    pub(crate) account: Account,
    noted: Noted,
}

impl Authority {
    /// Opens the account with the authority, or makes it; `directory` is that of `settings` or that of its trial authority.
    pub(crate) async fn open(
        settings: &AuthoritySettings,
        directory: &str,
        acme: &AcmeSettings,
        records: &Records,
    ) -> Result<Self, AcmeError> {
        let opening = Opening { settings, directory, contact: &acme.contact, records };
        // Else two gateways that start together would make one each.
        for _ in 0..TURNS {
            if let Some(own) = opening.known().await? {
                return Ok(own);
            }
            if let Some(_lock) = records.lock_account(directory)? {
                return match opening.known().await? {
                    Some(own) => Ok(own),
                    None => opening.create().await,
                };
            }
            sleep(TURN).await;
        }
        Err(AcmeError::Client {
            directory: directory.to_owned(),
            reason: "another gateway holds the lock of the account".to_owned(),
        })
    }

    /// Removes the account from the store, which the authority does not know, unless another was made meanwhile.
    pub(crate) fn forget_account(&self, records: &Records) -> Result<(), AcmeError> {
        let stored = records.account(&self.directory)?;
        let stored = stored.and_then(|stored| serde_json::from_slice::<Identity>(&stored).ok());
        if stored.is_some_and(|stored| stored.id == self.account.id()) {
            tracing::warn!(
                authority = self.directory,
                "the authority has forgotten the account: another is made"
            );
            records.remove_account(&self.directory)?;
        }
        Ok(())
    }

    /// How long to wait before the next look: this long, or for as long as the authority asked for in its last answer.
    pub(crate) fn pause(&self, own: Duration) -> Duration {
        own.max(self.noted.retry_after().unwrap_or_default().min(LONGEST_LOOK))
    }

    /// An error of this authority, with what it said of the next attempt.
    pub(crate) fn error(&self, attempt: &'static str, source: instant_acme::Error) -> AcmeError {
        AcmeError::Authority { attempt, source, retry_after: self.noted.retry_after() }
    }
}

/// What an account is known by, of its credentials.
#[derive(Deserialize)]
struct Identity {
    id: String,
}

struct Opening<'a> {
    settings: &'a AuthoritySettings,
    directory: &'a str,
    contact: &'a [String],
    records: &'a Records,
}

impl Opening<'_> {
    /// The account of the store, if there is one.
    async fn known(&self) -> Result<Option<Authority>, AcmeError> {
        let Some(credentials) = self.records.account(self.directory)? else { return Ok(None) };
        let Ok(credentials) = serde_json::from_slice::<AccountCredentials>(&credentials) else {
            tracing::warn!(
                authority = self.directory,
                "the account in the store is damaged: another is made"
            );
            return Ok(None);
        };
        let (http, noted) = self.http()?;
        let opened = Account::builder_with_http(http).from_credentials(credentials).await;
        match opened {
            Ok(account) => Ok(Some(self.authority(account, noted))),
            Err(source) => Err(self.failed("the authority's directory cannot be read", source, &noted)),
        }
    }

    async fn create(&self) -> Result<Authority, AcmeError> {
        let contact: Vec<_> = self.contact.iter().map(String::as_str).collect();
        let account =
            NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let external = self.settings.external_account.as_ref().filter(|_| !self.is_trial());
        let external = external.map(|own| ExternalAccountKey::new(own.key_id.clone(), &own.key));
        let mut attempts = 0;
        loop {
            let (http, noted) = self.http()?;
            let builder = Account::builder_with_http(http);
            match builder.create(&account, self.directory.to_owned(), external.as_ref()).await {
                Ok((account, credentials)) => {
                    let credentials = serde_json::to_vec(&credentials).expect("credentials are plain values");
                    self.records.put_account(self.directory, &zeroize::Zeroizing::new(credentials))?;
                    tracing::info!(
                        authority = self.directory,
                        "an account was made; its terms of service are agreed to"
                    );
                    return Ok(self.authority(account, noted));
                }
                Err(error) if is_bad_nonce(&error) && attempts < NONCES => attempts += 1,
                Err(source) => return Err(self.failed("no account can be made", source, &noted)),
            }
        }
    }

    fn is_trial(&self) -> bool {
        self.directory != self.settings.directory
    }

    fn http(&self) -> Result<(Box<Http>, Noted), AcmeError> {
        // The trial authority of a public one is public, and that of another has its servers certified alike.
        let settings =
            ClientSettings { authorities: self.settings.ca_file.clone(), limits: Limits::default() };
        let client = Client::new(&settings).map_err(|error| AcmeError::Client {
            directory: self.directory.to_owned(),
            reason: error.to_string(),
        })?;
        let noted = Noted::default();
        Ok((Box::new(Http { client, noted: noted.clone() }), noted))
    }

    fn authority(&self, account: Account, noted: Noted) -> Authority {
        Authority { directory: self.directory.to_owned(), account, noted }
    }

    fn failed(&self, attempt: &'static str, source: instant_acme::Error, noted: &Noted) -> AcmeError {
        if is_gone(&source) {
            // The authority has forgotten it: the next attempt makes another.
            let _ = self.records.remove_account(self.directory);
        }
        AcmeError::Authority { attempt, source, retry_after: noted.retry_after() }
    }
}
