//! Answers to challenges, for as long as an order needs them: at the listeners of this process, and in the store for those of
//! others.

use std::sync::Arc;

use brisk_certs::Challenges;
use brisk_certs::challenge::{Answering, Look};
use brisk_fetch::{Client, ClientSettings};
use tokio::sync::mpsc;

use crate::AcmeError;
use crate::certify::{checked_as, proof};
use crate::dns::{DnsError, DnsSettings, Txt};
use crate::records::Records;
use crate::settings::ChallengeKind;

const HTTP: &str = "http";
const TLS: &str = "tls";

/// Questions of strangers that wait at most: each is one look into the store.
const QUESTIONS: usize = 64;

/// Where answers are given.
#[derive(Clone, Debug)]
pub(crate) struct Answers {
    challenges: Arc<Challenges>,
    records: Records,
}

/// An answer. At listeners it is withdrawn when this is dropped; a record stays until [`withdraw`](Self::withdraw).
#[derive(Debug)]
pub(crate) enum Given {
    Listener(#[expect(dead_code, reason = "withdrawn when it is dropped")] Listening),
    Record(DnsSettings, Txt),
}

/// An answer at listeners, withdrawn when dropped.
#[derive(Debug)]
pub(crate) struct Listening {
    _here: Answering,
    records: Records,
    kind: &'static str,
    subject: String,
}

impl Given {
    /// Takes a record away again. What fails is reported: the record proves nothing to later orders.
    pub(crate) async fn withdraw(self) {
        if let Self::Record(dns, record) = self
            && let Err(error) = dns.remove(&record).await
        {
            tracing::warn!(name = record.name, %error, "a record for dns-01 stays in the DNS");
        }
    }
}

impl Answers {
    pub(crate) fn new(challenges: &Arc<Challenges>, records: &Records) -> Self {
        Self { challenges: Arc::clone(challenges), records: records.clone() }
    }

    /// Answers a challenge of `kind` for `name`.
    pub(crate) fn give(
        &self,
        kind: ChallengeKind,
        name: &str,
        token: &str,
        key_authorization: &str,
    ) -> Result<Given, AcmeError> {
        let (kind, subject) = match kind {
            ChallengeKind::Http01 => (HTTP, token.to_owned()),
            ChallengeKind::TlsAlpn01 | ChallengeKind::Dns01 => (TLS, checked_as(name)),
        };
        let here = if kind == HTTP {
            self.challenges.answer_http(&subject, key_authorization)
        } else {
            self.challenges.answer_tls(&subject, proof(name, key_authorization)?)
        };
        let stored =
            if kind == HTTP { key_authorization.to_owned() } else { format!("{name} {key_authorization}") };
        self.records.put_answer(kind, &subject, &stored)?;
        let records = self.records.clone();
        Ok(Given::Listener(Listening { _here: here, records, kind, subject }))
    }

    /// Puts the record that answers a challenge of dns-01 for `name`.
    pub(crate) async fn record(dns: &DnsSettings, name: &str, value: String) -> Result<Given, AcmeError> {
        // Only acme-dns is asked over HTTP, and its server has a public certificate.
        let http = Client::new(&ClientSettings::default())
            .map_err(|error| DnsError { by: "HTTP client".to_owned(), reason: error.to_string() })?;
        let record = Txt::proving(name, value);
        dns.put(&record, &http).await?;
        Ok(Given::Record(dns.clone(), record))
    }

    /// Answers what comes to the listeners of this process, and was ordered by another.
    pub(crate) fn look_elsewhere(&self) -> impl Future<Output = ()> + use<> {
        let (sender, mut questions) = mpsc::channel(QUESTIONS);
        self.challenges.look_elsewhere(sender);
        let records = self.records.clone();
        async move {
            while let Some(question) = questions.recv().await {
                if let Err(error) = look(&records, question) {
                    tracing::warn!(%error, "an authority that checks a name gets no answer");
                }
            }
        }
    }
}

fn look(records: &Records, question: Look) -> Result<(), AcmeError> {
    match question {
        Look::Http(token, found) => {
            if let Some(answer) = records.answer(HTTP, &token)? {
                // An error means that the authority has gone.
                let _ = found.send(answer.into());
            }
        }
        Look::Tls(name, found) => {
            let answer = records.answer(TLS, &name)?;
            if let Some((name, key_authorization)) =
                answer.as_deref().and_then(|answer| answer.split_once(' '))
            {
                let _ = found.send(proof(name, key_authorization)?);
            }
        }
    }
    Ok(())
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Err(error) = self.records.remove_answer(self.kind, &self.subject) {
            tracing::debug!(%error, "an answer to a challenge stays in the store");
        }
    }
}
