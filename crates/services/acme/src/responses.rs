//! Responses to challenges (RFC 8555 section 8): published at the listeners of this process and in the store, where
//! other gateways of the fleet find them.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use brisk_certs::Challenges;
use brisk_certs::challenge::{ChallengeLookup, PublishedChallenge};
use tokio::sync::mpsc;

use crate::AcmeError;
use crate::certify::{checked_as, proof};
use crate::dns::{DnsSettings, Txt};
use crate::records::{Records, moment, seconds};
use crate::settings::ChallengeKind;

const HTTP: &str = "http";
const TLS: &str = "tls";

/// Capacity of the queue of unknown challenges that wait for a look-up in the store. Challenges beyond it get no
/// response. Larger than the number of requests that unknown clients send between two look-ups, so that the authority's
/// request has a slot.
const QUEUE: usize = 4096;

/// Pause between two look-ups in the store. Batches the challenges of that time into one listing.
const LOOKUP_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum age of a stored response; longer than any order. Older responses were left by a gateway that was killed.
const MAX_AGE: Duration = Duration::from_hours(2);

/// Publishes responses to challenges.
#[derive(Clone, Debug)]
pub(crate) struct ChallengeResponses {
    challenges: Arc<Challenges>,
    records: Records,
}

/// A published response. [`ListenerResponse`] is withdrawn when dropped; a DNS record stays until
/// [`withdraw`](Self::withdraw), because its removal is asynchronous.
#[derive(Debug)]
pub(crate) enum PublishedResponse {
    Listener(ListenerResponse),
    Record(DnsSettings, Txt),
}

/// A response at listeners and in the store, withdrawn when dropped.
#[derive(Debug)]
pub(crate) struct ListenerResponse {
    _here: PublishedChallenge,
    records: Records,
    kind: &'static str,
    subject: String,
    /// Time and content of the stored response. A different value belongs to another gateway and is not removed.
    stored: (u64, String),
    /// Another gateway continues the order: the stored response must stay.
    is_handed_over: bool,
}

impl PublishedResponse {
    /// Leaves the stored response to the gateway that continues the order.
    pub(crate) fn hand_over(self) {
        if let Self::Listener(mut listening) = self {
            listening.is_handed_over = true;
        }
    }

    /// Removes a DNS record. Failures are only logged, because the record proves nothing to later orders.
    pub(crate) async fn withdraw(self) {
        if let Self::Record(dns, record) = self {
            withdraw(&dns, &record).await;
        }
    }
}

/// Removes a DNS record; logs failures.
pub(crate) async fn withdraw(dns: &DnsSettings, record: &Txt) {
    if let Err(error) = dns.remove(record).await {
        tracing::warn!(name = record.name, %error, "cannot remove a dns-01 record");
    }
}

impl ChallengeResponses {
    pub(crate) fn new(challenges: &Arc<Challenges>, records: &Records) -> Self {
        Self { challenges: Arc::clone(challenges), records: records.clone() }
    }

    /// Publishes the response to a challenge of `kind` for `name`.
    pub(crate) fn publish(
        &self,
        kind: ChallengeKind,
        name: &str,
        token: &str,
        key_authorization: &str,
    ) -> Result<PublishedResponse, AcmeError> {
        let (kind, subject) = match kind {
            ChallengeKind::Http01 => (HTTP, token.to_owned()),
            // `Prover::give` publishes DNS records itself, so the two DNS challenges never occur here.
            ChallengeKind::TlsAlpn01 | ChallengeKind::Dns01 | ChallengeKind::DnsPersist01 => {
                (TLS, checked_as(name))
            }
        };
        let here = if kind == HTTP {
            self.challenges.publish_http(&subject, key_authorization)
        } else {
            self.challenges.publish_tls(&subject, proof(name, key_authorization)?)
        };
        let stored =
            if kind == HTTP { key_authorization.to_owned() } else { format!("{name} {key_authorization}") };
        let now = SystemTime::now();
        self.records.put_answer(kind, &subject, &stored, now)?;
        let (records, stored) = (self.records.clone(), (seconds(now), stored));
        Ok(PublishedResponse::Listener(ListenerResponse {
            _here: here,
            records,
            kind,
            subject,
            stored,
            is_handed_over: false,
        }))
    }

    /// Returns a queue for unknown challenges, and a loop that answers them from the store, where other gateways put the
    /// responses of their orders. The loop blocks and therefore needs a thread of its own; it ends when the last sender
    /// of the queue is dropped.
    pub(crate) fn serve_from_store(&self) -> (mpsc::Sender<ChallengeLookup>, impl FnOnce() + Send + use<>) {
        let (sender, mut questions) = mpsc::channel(QUEUE);
        let records = self.records.clone();
        let serve = move || {
            let mut swept = None;
            while let Some(first) = questions.blocking_recv() {
                if swept.is_none_or(|swept: Instant| swept.elapsed() > MAX_AGE) {
                    swept = Some(Instant::now());
                    sweep(&records, SystemTime::now());
                }
                let mut asked = vec![first];
                while let Ok(next) = questions.try_recv() {
                    asked.push(next);
                }
                if let Err(error) = answer_all(&records, asked) {
                    tracing::warn!(%error, "cannot read the responses of other gateways to challenges");
                }
                thread::sleep(LOOKUP_INTERVAL);
            }
        };
        (sender, serve)
    }
}

/// Removes responses older than [`MAX_AGE`].
fn sweep(records: &Records, now: SystemTime) {
    let old = |kind: &str| -> Result<(), AcmeError> {
        for subject in records.answered(kind)? {
            let answer = records.answer(kind, &subject)?;
            if answer.is_none_or(|(given, _)| is_over(given, now)) {
                records.remove_answer(kind, &subject)?;
            }
        }
        Ok(())
    };
    for kind in [HTTP, TLS] {
        if let Err(error) = old(kind) {
            tracing::debug!(%error, "cannot remove expired responses to challenges");
        }
    }
}

fn is_over(given: u64, now: SystemTime) -> bool {
    moment(given) + MAX_AGE < now
}

/// Answers the challenges that have a stored response. Costs one listing per kind of challenge, however many unknown
/// tokens clients request.
fn answer_all(records: &Records, asked: Vec<ChallengeLookup>) -> Result<(), AcmeError> {
    let known = |kind, wanted: bool| if wanted { records.answered(kind) } else { Ok(HashSet::new()) };
    let http = known(HTTP, asked.iter().any(|asked| matches!(asked, ChallengeLookup::Http(..))))?;
    let tls = known(TLS, asked.iter().any(|asked| matches!(asked, ChallengeLookup::Tls(..))))?;
    for question in asked {
        let is_known = match &question {
            ChallengeLookup::Http(token, _) => http.contains(token),
            ChallengeLookup::Tls(name, _) => tls.contains(name),
        };
        if is_known {
            answer(records, question)?;
        }
    }
    Ok(())
}

fn answer(records: &Records, question: ChallengeLookup) -> Result<(), AcmeError> {
    match question {
        ChallengeLookup::Http(token, found) => {
            if let Some((_, answer)) = records.answer(HTTP, &token)? {
                // An error means that the authority has closed its connection.
                let _ = found.send(answer.into());
            }
        }
        ChallengeLookup::Tls(name, found) => {
            let answer = records.answer(TLS, &name)?;
            if let Some((name, key_authorization)) =
                answer.as_ref().and_then(|(_, answer)| answer.split_once(' '))
            {
                let _ = found.send(proof(name, key_authorization)?);
            }
        }
    }
    Ok(())
}

impl Drop for ListenerResponse {
    fn drop(&mut self) {
        if self.is_handed_over {
            return;
        }
        let remove = || match self.records.answer(self.kind, &self.subject)? {
            Some(other) if other != self.stored => Ok(()),
            _ => self.records.remove_answer(self.kind, &self.subject),
        };
        if let Err(error) = remove() {
            tracing::debug!(%error, "cannot remove the response to a challenge");
        }
    }
}

#[cfg(test)]
mod tests {
    use brisk_certs::challenge::HTTP_PATH;

    use super::*;

    #[tokio::test]
    async fn strangers_who_ask_for_anything_leave_place_for_an_authority() {
        let (_folder, records) = Records::of_test();
        records.put_answer(HTTP, "own-token", "own-token.thumbprint", SystemTime::now()).unwrap();
        let challenges = Challenges::new();
        let (lookups, serve) = ChallengeResponses::new(&challenges, &records).serve_from_store();
        challenges.look_elsewhere(lookups);
        let mut strangers = Vec::new();
        for number in 0..1000 {
            let challenges = Arc::clone(&challenges);
            let asking = async move { challenges.http(&format!("{HTTP_PATH}token{number}")).await };
            strangers.push(tokio::spawn(asking));
        }
        tokio::task::yield_now().await;
        let own = tokio::spawn({
            let challenges = Arc::clone(&challenges);
            async move { challenges.http(&format!("{HTTP_PATH}own-token")).await }
        });
        tokio::task::yield_now().await;
        thread::spawn(serve);
        assert_eq!(own.await.unwrap().as_deref(), Some("own-token.thumbprint"));
        for stranger in strangers {
            assert_eq!(stranger.await.unwrap(), None);
        }
    }

    #[test]
    fn an_answer_that_another_gateway_gives_now_is_left_to_it() {
        let (_folder, records) = Records::of_test();
        let answers = ChallengeResponses::new(&Challenges::new(), &records);
        let publish =
            || answers.publish(ChallengeKind::Http01, "a.test", "token", "token.thumbprint").unwrap();
        drop(publish());
        assert!(records.answered(HTTP).unwrap().is_empty());
        publish().hand_over();
        assert_eq!(records.answered(HTTP).unwrap().len(), 1);
        let own = publish();
        let later = SystemTime::now() + Duration::from_mins(1);
        records.put_answer(HTTP, "token", "token.thumbprint", later).unwrap();
        drop(own);
        assert_eq!(records.answered(HTTP).unwrap().len(), 1);
    }

    #[test]
    fn answers_of_a_gateway_that_was_killed_do_not_stay() {
        let (_folder, records) = Records::of_test();
        let now = SystemTime::now();
        records.put_answer(HTTP, "old", "old.thumbprint", now - MAX_AGE * 2).unwrap();
        records.put_answer(HTTP, "new", "new.thumbprint", now).unwrap();
        sweep(&records, now);
        assert_eq!(records.answered(HTTP).unwrap(), HashSet::from(["new".to_owned()]));
        assert_eq!(records.answer(HTTP, "new").unwrap().unwrap().1, "new.thumbprint");
    }
}
