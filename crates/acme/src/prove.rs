//! Proves to an authority that the names of an order are served here.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use instant_acme::{
    AuthorizationHandle, AuthorizationStatus, ChallengeStatus, ChallengeType, Order, OrderStatus,
};
use tokio::time::{Instant, sleep};

use crate::AcmeError;
use crate::account::NONCES;
use crate::answers::{Answers, Given};
use crate::dns::DnsSettings;
use crate::error::is_bad_nonce;
use crate::order::{Job, LOOKS};
use crate::settings::ChallengeKind;

/// How often the lock is asked after while something takes long.
const LOCK: Duration = Duration::from_secs(20);

/// An order whose names are to be proven.
pub(crate) struct Prover<'j, 'a> {
    pub(crate) job: &'j mut Job<'a>,
    /// When it is given up.
    pub(crate) deadline: Instant,
}

impl Prover<'_, '_> {
    /// Answers the challenges of each name, and waits until the order is no longer pending.
    pub(crate) async fn prove(&mut self, order: &mut Order) -> Result<(), AcmeError> {
        // Withdrawn when the authority has looked at them all.
        let mut given = Vec::new();
        let mut ready = HashSet::new();
        let mut nonces = 0;
        while let Err(error) = self.answer_all(order, &mut ready, &mut given).await? {
            nonces += 1;
            if nonces > NONCES {
                return Err(self.job.authority.error("the authority takes no answer", error));
            }
        }
        let settled = self.settle(order).await;
        for answer in given {
            answer.withdraw().await;
        }
        settled
    }

    /// Answers what is not answered yet. The inner error is a nonce that was refused: the rest is still to be done.
    async fn answer_all(
        &mut self,
        order: &mut Order,
        ready: &mut HashSet<String>,
        given: &mut Vec<Given>,
    ) -> Result<Result<(), instant_acme::Error>, AcmeError> {
        let mut authorizations = order.authorizations();
        while let Some(next) = authorizations.next().await {
            self.job.still_ours()?;
            let handle = match next {
                Ok(handle) => handle,
                Err(error) if is_bad_nonce(&error) => return Ok(Err(error)),
                Err(error) => {
                    return Err(self.job.authority.error("the authority shows no challenges", error));
                }
            };
            if handle.status != AuthorizationStatus::Pending || ready.contains(handle.url()) {
                continue;
            }
            let url = handle.url().to_owned();
            match self.answer(handle, given).await? {
                Ok(()) => ready.insert(url),
                Err(error) => return Ok(Err(error)),
            };
        }
        Ok(Ok(()))
    }

    async fn answer(
        &mut self,
        mut handle: AuthorizationHandle<'_>,
        given: &mut Vec<Given>,
    ) -> Result<Result<(), instant_acme::Error>, AcmeError> {
        let name = handle.identifier().to_string();
        let kind = self.choose(&name, &handle)?;
        let mut challenge = handle.challenge(kind.of_protocol()).expect("it was chosen from these");
        let authorization = challenge.key_authorization();
        let answer = match (kind, self.job.dns) {
            (ChallengeKind::Dns01, Some(dns)) => self.record(dns, &name, authorization.dns_value()).await?,
            _ => self.job.answers.give(kind, &name, &challenge.token, authorization.as_str())?,
        };
        given.push(answer);
        tracing::debug!(host = self.job.host, name, challenge = kind.name(), "the authority may check");
        if challenge.status != ChallengeStatus::Pending {
            return Ok(Ok(()));
        }
        match challenge.set_ready().await {
            Ok(()) => Ok(Ok(())),
            Err(error) if is_bad_nonce(&error) => Ok(Err(error)),
            Err(error) => Err(self.job.authority.error("the authority does not check", error)),
        }
    }

    /// Puts a record, which may take longer than the lock is lent for.
    async fn record(&mut self, dns: &DnsSettings, name: &str, value: String) -> Result<Given, AcmeError> {
        let mut put = pin!(Answers::record(dns, name, value));
        loop {
            tokio::select! {
                given = &mut put => return given,
                () = sleep(LOCK) => self.job.still_ours()?,
            }
        }
    }

    /// The preferred one of the ways that are possible for a name.
    fn choose(&self, name: &str, handle: &AuthorizationHandle<'_>) -> Result<ChallengeKind, AcmeError> {
        let is_offered = |kind: &&ChallengeKind| {
            handle.challenges.iter().any(|offered| offered.r#type == kind.of_protocol())
        };
        let fitting = self.job.challenges.iter().filter(|kind| fits(**kind, name));
        fitting.clone().find(is_offered).copied().ok_or_else(|| AcmeError::NoChallenge {
            name: name.to_owned(),
            offered: list(handle.challenges.iter().map(|challenge| name_of(&challenge.r#type))),
            allowed: list(fitting.map(|kind| kind.name())),
            hint: if name.starts_with("*.") {
                "; wildcards are proven by dns-01 alone: write [acme.dns]"
            } else {
                ""
            },
        })
    }

    /// Waits until the authority has checked.
    async fn settle(&mut self, order: &mut Order) -> Result<(), AcmeError> {
        let (mut pause, mut nonces) = (LOOKS.0, 0);
        loop {
            self.job.still_ours()?;
            sleep(pause).await;
            pause = (pause * 2).min(LOOKS.1);
            match order.refresh().await {
                Ok(state) if state.status != OrderStatus::Pending => {
                    tracing::debug!(host = self.job.host, status = ?state.status, "the authority has checked");
                    return Ok(());
                }
                Ok(_) if Instant::now() > self.deadline => {
                    return Err(AcmeError::Order("no longer checked by the authority".to_owned()));
                }
                Ok(_) => {}
                Err(error) if is_bad_nonce(&error) && nonces < NONCES => nonces += 1,
                Err(error) => return Err(self.job.authority.error("the order cannot be read", error)),
            }
        }
    }
}

/// Whether a name can be proven in this way at all.
fn fits(kind: ChallengeKind, name: &str) -> bool {
    match kind {
        ChallengeKind::Dns01 => name.parse::<std::net::IpAddr>().is_err(),
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

/// What the authority says of an order that it gave up.
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
                reason: problem.detail.clone().unwrap_or_else(|| problem.to_string()),
            };
        }
    }
    let problem = order.state().error.as_ref();
    AcmeError::Order(problem.map_or_else(|| "invalid".to_owned(), |problem| format!("invalid: {problem}")))
}
