//! Answers to challenges, for as long as an order needs them: at the listeners of this process, and in the store for those of
//! others.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use brisk_certs::Challenges;
use brisk_certs::challenge::{Answering, Look};
use tokio::sync::mpsc;

use crate::AcmeError;
use crate::certify::{checked_as, proof};
use crate::dns::{DnsSettings, Txt};
use crate::records::Records;
use crate::settings::ChallengeKind;

const HTTP: &str = "http";
const TLS: &str = "tls";

/// Questions of strangers that wait at most, for the next look into the store.
const QUESTIONS: usize = 64;

/// The pause between two looks.
const LOOKS: Duration = Duration::from_millis(50);

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

    /// Answers what comes to the listeners of this process, and was ordered by another: for a thread of its own, as a store may
    /// keep it waiting. It ends with the listeners.
    pub(crate) fn look_elsewhere(&self) -> impl FnOnce() + Send + use<> {
        let (sender, mut questions) = mpsc::channel(QUESTIONS);
        self.challenges.look_elsewhere(sender);
        let records = self.records.clone();
        move || {
            while let Some(first) = questions.blocking_recv() {
                let mut asked = vec![first];
                while let Ok(next) = questions.try_recv() {
                    asked.push(next);
                }
                if let Err(error) = look(&records, asked) {
                    tracing::warn!(%error, "an authority that checks a name gets no answer");
                }
                thread::sleep(LOOKS);
            }
        }
    }
}

/// Answers what there are answers to. What strangers ask without an order costs one list for all of them.
fn look(records: &Records, asked: Vec<Look>) -> Result<(), AcmeError> {
    let known = |kind, wanted: bool| if wanted { records.answered(kind) } else { Ok(HashSet::new()) };
    let http = known(HTTP, asked.iter().any(|asked| matches!(asked, Look::Http(..))))?;
    let tls = known(TLS, asked.iter().any(|asked| matches!(asked, Look::Tls(..))))?;
    for question in asked {
        let is_known = match &question {
            Look::Http(token, _) => http.contains(token),
            Look::Tls(name, _) => tls.contains(name),
        };
        if is_known {
            answer(records, question)?;
        }
    }
    Ok(())
}

fn answer(records: &Records, question: Look) -> Result<(), AcmeError> {
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
