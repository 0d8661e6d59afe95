//! Proof of control over the names of an order (RFC 8555 section 7.5): responses to challenges and their withdrawal.

use std::collections::HashSet;
use std::pin::pin;

use instant_acme::{
    AuthorizationHandle, AuthorizationStatus, ChallengeStatus, ChallengeType, Order, OrderStatus,
};
use tokio::time::{Instant, sleep};

use crate::AcmeError;
use crate::account::NONCES;
use crate::certify::is_same;
use crate::dns::{Txt, put};
use crate::error::is_bad_nonce;
use crate::order::{LIMIT, LOCK, OrderJob, POLLS};
use crate::records::Pending;
use crate::responses::PublishedResponse;
use crate::settings::ChallengeKind;

/// A step that all names pass before any passes the next, so that slow DNS copies are waited for once.
#[derive(Clone, Copy)]
enum Step {
    /// Responses are published.
    Give,
    /// The authority may check.
    Ready,
}

/// An order with unproven names.
pub(crate) struct Prover<'j, 'a> {
    pub(crate) job: &'j mut OrderJob<'a>,
    /// Stored state of the order.
    pub(crate) pending: &'j mut Pending,
    /// Time at which the order is given up.
    pub(crate) deadline: Instant,
}

impl Prover<'_, '_> {
    /// Responds to the challenges of all names and waits until the order leaves `pending`. The responses are withdrawn
    /// at the end, also after an error.
    pub(crate) async fn prove(&mut self, order: &mut Order) -> Result<(), AcmeError> {
        let mut given = Vec::new();
        let proven = self.answer_and_settle(order, &mut given).await;
        // The gateway that continues the order publishes identical responses, so they must not be withdrawn here.
        if matches!(proven, Err(AcmeError::Overtaken)) || self.job.still_ours().is_err() {
            given.into_iter().for_each(PublishedResponse::hand_over);
            return Err(AcmeError::Overtaken);
        }
        for answer in given {
            answer.withdraw().await;
        }
        if !self.pending.txt.is_empty() {
            self.pending.txt.clear();
            self.note()?;
        }
        proven
    }

    async fn answer_and_settle(
        &mut self,
        order: &mut Order,
        given: &mut Vec<PublishedResponse>,
    ) -> Result<(), AcmeError> {
        let mut done = HashSet::new();
        self.each(order, Step::Give, &mut done, given).await?;
        self.wait_for_records(given).await?;
        let mut done = HashSet::new();
        self.each(order, Step::Ready, &mut done, given).await?;
        self.settle(order).await
    }

    /// Takes a step for each name, and repeats it for rejected nonces.
    async fn each(
        &mut self,
        order: &mut Order,
        step: Step,
        done: &mut HashSet<String>,
        given: &mut Vec<PublishedResponse>,
    ) -> Result<(), AcmeError> {
        let mut nonces = 0;
        while let Err(error) = self.each_once(order, step, done, given).await? {
            nonces += 1;
            if nonces > NONCES {
                return Err(self.job.authority.error("the authority refuses the response", error));
            }
        }
        Ok(())
    }

    /// Takes a step for each name that is not in `done`. The inner error is a rejected nonce; the remaining names are
    /// still to be done.
    async fn each_once(
        &mut self,
        order: &mut Order,
        step: Step,
        done: &mut HashSet<String>,
        given: &mut Vec<PublishedResponse>,
    ) -> Result<Result<(), instant_acme::Error>, AcmeError> {
        let mut authorizations = order.authorizations();
        while let Some(next) = authorizations.next().await {
            self.job.still_ours()?;
            let handle = match next {
                Ok(handle) => handle,
                Err(error) if is_bad_nonce(&error) => return Ok(Err(error)),
                Err(error) => {
                    return Err(self.job.authority.error("cannot read the challenges", error));
                }
            };
            // RFC 8555 section 7.1.3: an order may contain authorizations that were completed for an
            // earlier order.
            if handle.status != AuthorizationStatus::Pending || done.contains(handle.url()) {
                continue;
            }
            let url = handle.url().to_owned();
            let taken = match step {
                Step::Give => self.give(handle, given).await.map(Ok)?,
                Step::Ready => self.ready(handle).await?,
            };
            match taken {
                Ok(()) => done.insert(url),
                Err(error) => return Ok(Err(error)),
            };
        }
        Ok(Ok(()))
    }

    /// Publishes the response for a name.
    async fn give(
        &mut self,
        mut handle: AuthorizationHandle<'_>,
        given: &mut Vec<PublishedResponse>,
    ) -> Result<(), AcmeError> {
        let name = handle.identifier().to_string();
        let kind = self.choose(&name, &handle)?;
        let challenge = handle.challenge(kind.of_protocol()).expect("it was chosen from these");
        let authorization = challenge.key_authorization();
        match (kind, self.job.dns) {
            (ChallengeKind::Dns01, Some(dns)) => {
                let record = Txt::proving(&name, authorization.dns_value());
                // Stored before the record is set: after a kill, the next start removes it.
                self.pending.txt.push(record.clone());
                self.note()?;
                // Registered before the result is known: a failed request may have set the record.
                given.push(PublishedResponse::Record(dns.clone(), record.clone()));
                self.while_ours(Box::pin(put(dns, &record))).await??;
            }
            (ChallengeKind::DnsPersist01, _) => {
                // Nothing is published: the operator sets the record.
                let all = self.job.authority.persistent_records(self.job.names).await?;
                for record in all.iter().filter(|record| record.is_for(&name)) {
                    tracing::info!(host = self.job.host, %record, "dns-persist-01 needs this DNS record");
                }
            }
            _ => {
                given.push(self.job.answers.publish(
                    kind,
                    &name,
                    &challenge.token,
                    authorization.as_str(),
                )?);
            }
        }
        Ok(())
    }

    fn note(&self) -> Result<(), AcmeError> {
        self.job.records.put_pending(self.job.host, self.job.kind, self.pending)
    }

    /// Waits once for the copies of the zone, then restarts the timeout, so that the authority has the full time.
    async fn wait_for_records(&mut self, given: &[PublishedResponse]) -> Result<(), AcmeError> {
        let is_record = |given: &PublishedResponse| matches!(given, PublishedResponse::Record(..));
        if let Some(dns) = self.job.dns.filter(|_| given.iter().any(is_record)) {
            self.while_ours(sleep(dns.wait)).await?;
            self.deadline = Instant::now() + LIMIT;
        }
        Ok(())
    }

    /// Notifies the authority that a challenge is ready (RFC 8555 section 7.5.1).
    async fn ready(
        &mut self,
        mut handle: AuthorizationHandle<'_>,
    ) -> Result<Result<(), instant_acme::Error>, AcmeError> {
        let name = handle.identifier().to_string();
        let kind = self.choose(&name, &handle)?;
        let mut challenge = handle.challenge(kind.of_protocol()).expect("it was chosen from these");
        tracing::debug!(host = self.job.host, name, challenge = kind.name(), "the authority may check");
        // A continued order may have notified the authority before.
        if challenge.status != ChallengeStatus::Pending {
            return Ok(Ok(()));
        }
        match challenge.set_ready().await {
            Ok(()) => Ok(Ok(())),
            Err(error) if is_bad_nonce(&error) => Ok(Err(error)),
            Err(error) => Err(self.job.authority.error("the authority refuses to check", error)),
        }
    }

    /// Runs `what` and extends the lock meanwhile.
    ///
    /// # Errors
    ///
    /// [`AcmeError::Overtaken`] if the lock is lost.
    async fn while_ours<T>(&mut self, what: impl Future<Output = T>) -> Result<T, AcmeError> {
        let mut what = pin!(what);
        loop {
            tokio::select! {
                done = &mut what => return Ok(done),
                () = sleep(LOCK) => self.job.still_ours()?,
            }
        }
    }

    /// The preferred challenge that the authority offers for a name.
    fn choose(&self, name: &str, handle: &AuthorizationHandle<'_>) -> Result<ChallengeKind, AcmeError> {
        // The authority chooses the name: nothing may be proven that this host did not order.
        if !self.job.names.iter().any(|own| is_same(own, name)) {
            return Err(AcmeError::UnorderedName(name.to_owned()));
        }
        let is_offered = |kind: &&ChallengeKind| {
            handle.challenges.iter().any(|offered| offered.r#type == kind.of_protocol())
        };
        let fitting = self.job.challenges.iter().filter(|kind| fits(**kind, name));
        fitting.clone().find(is_offered).copied().ok_or_else(|| AcmeError::NoChallenge {
            name: name.to_owned(),
            offered: list(handle.challenges.iter().map(|challenge| name_of(&challenge.r#type))),
            allowed: list(fitting.map(|kind| kind.name())),
            hint: if name.starts_with("*.") {
                "; wildcards are proven by dns-01 or dns-persist-01 alone: write [acme.dns]"
            } else {
                ""
            },
        })
    }

    /// Polls the order until the authority has checked all names.
    async fn settle(&mut self, order: &mut Order) -> Result<(), AcmeError> {
        let (mut pause, mut nonces) = (POLLS.0, 0);
        loop {
            self.job.still_ours()?;
            self.job.wait_to_poll(pause, self.deadline).await?;
            pause = (pause * 2).min(POLLS.1);
            match order.refresh().await {
                Ok(state) if state.status != OrderStatus::Pending => {
                    tracing::debug!(host = self.job.host, status = ?state.status, "the authority has checked");
                    return Ok(());
                }
                Ok(_) if Instant::now() > self.deadline => {
                    return Err(AcmeError::Order(
                        "stuck: the authority did not finish its checks".to_owned(),
                    ));
                }
                Ok(_) => {}
                Err(error) if is_bad_nonce(&error) && nonces < NONCES => nonces += 1,
                Err(error) => return Err(self.job.authority.error("the order cannot be read", error)),
            }
        }
    }
}

/// Returns whether a challenge can prove a name at all: no address by DNS, no wildcard without it.
fn fits(kind: ChallengeKind, name: &str) -> bool {
    match kind {
        ChallengeKind::Dns01 | ChallengeKind::DnsPersist01 => name.parse::<std::net::IpAddr>().is_err(),
        ChallengeKind::TlsAlpn01 | ChallengeKind::Http01 => !name.starts_with("*."),
    }
}

fn name_of(kind: &ChallengeType) -> &str {
    match kind {
        ChallengeType::Http01 => "http-01",
        ChallengeType::Dns01 => "dns-01",
        ChallengeType::TlsAlpn01 => "tls-alpn-01",
        ChallengeType::Unknown(name) => name,
        _ => "another way",
    }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    if names.is_empty() { "none that fits".to_owned() } else { names.join(", ") }
}

/// The authority's reason for an order that became `invalid`.
pub(crate) async fn why_invalid(order: &mut Order) -> AcmeError {
    let mut authorizations = order.authorizations();
    while let Some(next) = authorizations.next().await {
        let Ok(handle) = next else { continue };
        let failed =
            handle.challenges.iter().find_map(|challenge| Some((challenge, challenge.error.as_ref()?)));
        if let Some((challenge, problem)) = failed {
            return AcmeError::Unverified {
                name: handle.identifier().to_string(),
                challenge: name_of(&challenge.r#type).to_owned(),
                reason: problem.to_string(),
            };
        }
    }
    let problem = order.state().error.as_ref();
    AcmeError::Order(problem.map_or_else(|| "invalid".to_owned(), |problem| format!("invalid: {problem}")))
}
