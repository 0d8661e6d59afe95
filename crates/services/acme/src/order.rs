//! One order (RFC 8555 section 7.4), from the request or its stored state to the issued certificate.
//!
//! Each step is stored before the next: the URL of the order as soon as it exists, with the key of the certificate. A
//! process that is killed at any point continues the same order after its restart and creates no second one.

use std::mem;
use std::time::{Duration, SystemTime};

use brisk_certs::store::Lock;
use brisk_fetch::FetchError;
use instant_acme::{CertificateIdentifier, Identifier, NewOrder, Order, OrderStatus};
use tokio::time::{Instant, sleep_until};

use crate::AcmeError;
use crate::account::{Authority, NONCES};
use crate::certify::{check, new_key, request};
use crate::dns::DnsSettings;
use crate::error::{ForeignError, is_account_gone, is_bad_nonce, is_gone, is_refused};
use crate::prove::{Prover, why_invalid};
use crate::records::{IssuedCertificate, Pending, Records, Secret, seconds};
use crate::responses::{ChallengeResponses, withdraw};
use crate::settings::{ChallengeKind, KeyKind};

/// Timeout of an order. The authority may still finish it; the next attempt continues it.
pub(crate) const LIMIT: Duration = Duration::from_mins(10);

/// Interval at which the lock is extended during long operations.
pub(crate) const LOCK: Duration = Duration::from_secs(20);

/// Pauses between two polls of an order: the first, and the longest.
pub(crate) const POLLS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// Inputs of an order.
pub(crate) struct OrderJob<'a> {
    /// Name of the host in store and log.
    pub(crate) host: &'a str,
    pub(crate) names: &'a [String],
    pub(crate) kind: KeyKind,
    pub(crate) profile: Option<&'a str>,
    pub(crate) authority: &'a Authority,
    pub(crate) records: &'a Records,
    pub(crate) answers: &'a ChallengeResponses,
    /// Challenges, the preferred first.
    pub(crate) challenges: Vec<ChallengeKind>,
    /// Provider of `dns-01` records.
    pub(crate) dns: Option<&'a DnsSettings>,
    /// The replaced certificate, if the same authority issued it (RFC 9773 section 5).
    pub(crate) replaces: Option<CertificateIdentifier<'static>>,
    /// Lock of the host, extended while the order is in progress.
    pub(crate) lock: &'a mut dyn Lock,
}

impl OrderJob<'_> {
    /// Obtains the certificate by a new order or by the stored one. The caller stores the result; the order stays
    /// stored until [`done`](Self::done).
    pub(crate) async fn obtain(&mut self) -> Result<IssuedCertificate, AcmeError> {
        let outcome = self.run().await;
        if outcome.as_ref().is_err_and(AcmeError::ends_order) {
            self.done()?;
        }
        outcome
    }

    /// Removes the order from the store.
    pub(crate) fn done(&self) -> Result<(), AcmeError> {
        self.records.end_pending(self.host, self.kind)
    }

    async fn run(&mut self) -> Result<IssuedCertificate, AcmeError> {
        let mut deadline = Instant::now() + LIMIT;
        let (mut order, mut pending) = match self.left_over().await? {
            Some(found) => found,
            None => self.begin().await?,
        };
        let (mut nonces, mut pause) = (0, POLLS.0);
        loop {
            self.still_ours()?;
            let step = match order.state().status {
                OrderStatus::Pending => {
                    let mut prover = Prover { job: self, pending: &mut pending, deadline };
                    prover.prove(&mut order).await?;
                    deadline = prover.deadline;
                    continue;
                }
                OrderStatus::Ready => {
                    let request = request(&pending.names, pending.key.as_str())?;
                    order.finalize_csr(&request).await.map(|()| None)
                }
                OrderStatus::Processing => {
                    self.wait_to_poll(pause, deadline).await?;
                    pause = (pause * 2).min(POLLS.1);
                    order.refresh().await.map(|_| None)
                }
                OrderStatus::Valid => order.certificate().await,
                OrderStatus::Invalid => return Err(why_invalid(&mut order).await),
            };
            match step {
                Ok(Some(chain)) => return Self::issued(pending, chain),
                Ok(None) => {}
                Err(error) if is_bad_nonce(&error) && nonces < NONCES => nonces += 1,
                Err(error) => return Err(self.authority.error("the order cannot be finished", error)),
            }
            if Instant::now() > deadline {
                return Err(AcmeError::Timeout(LIMIT));
            }
        }
    }

    /// The stored order, if it is for the same certificate and the authority still knows it.
    async fn left_over(&mut self) -> Result<Option<(Order, Pending)>, AcmeError> {
        let mut pending = match self.records.pending(self.host, self.kind) {
            Ok(Some(pending)) => pending,
            Ok(None) => return Ok(None),
            Err(error @ AcmeError::Damaged { .. }) => {
                tracing::warn!(host = self.host, %error, "the stored order is lost");
                self.done()?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // First, because the records must be removed even if the order is not continued.
        self.withdraw(&mut pending).await?;
        let done = self.records.issued(self.host, self.kind).ok().flatten();
        let is_done = done.is_some_and(|issued| issued.key.as_str() == pending.key.as_str());
        if is_done || !self.is_for_the_same(&pending) {
            self.done()?;
            return Ok(None);
        }
        for _ in 0..NONCES {
            match self.authority.account.order(pending.url.clone()).await {
                Ok(mut order) => {
                    if order.state().status == OrderStatus::Invalid {
                        break;
                    }
                    tracing::info!(host = self.host, key = %self.kind, order = pending.url, "continuing the stored order");
                    return Ok(Some((order, pending)));
                }
                Err(error) if is_bad_nonce(&error) => {}
                Err(error) if is_gone(&error) => break,
                Err(error) => return Err(self.authority.error("the order cannot be read", error)),
            }
        }
        self.done()?;
        Ok(None)
    }

    /// Removes DNS records that an interrupted attempt has left. Failures are only logged, because the records prove
    /// nothing to later orders.
    async fn withdraw(&mut self, pending: &mut Pending) -> Result<(), AcmeError> {
        if pending.txt.is_empty() {
            return Ok(());
        }
        for record in mem::take(&mut pending.txt) {
            match self.dns {
                Some(dns) => withdraw(dns, &record).await,
                None => {
                    tracing::warn!(
                        name = record.name,
                        "cannot remove a dns-01 record: there is no [acme.dns]"
                    );
                }
            }
            self.still_ours()?;
        }
        self.records.put_pending(self.host, self.kind, pending)
    }

    fn is_for_the_same(&self, pending: &Pending) -> bool {
        pending.names == self.names
            && pending.authority == self.authority.directory
            && pending.profile.as_deref() == self.profile
    }

    async fn begin(&mut self) -> Result<(Order, Pending), AcmeError> {
        let key = Secret(new_key(self.kind)?.to_string());
        let identifiers: Vec<_> = self.names.iter().map(|name| identifier(name)).collect();
        let order = self.new_order(&identifiers).await?;
        let pending = Pending {
            names: self.names.to_vec(),
            authority: self.authority.directory.clone(),
            profile: self.profile.map(str::to_owned),
            url: order.url().to_owned(),
            key,
            begun: seconds(SystemTime::now()),
            txt: Vec::new(),
        };
        // A kill before this write loses the order: its URL is known from the response only.
        self.records.put_pending(self.host, self.kind, &pending)?;
        tracing::info!(host = self.host, key = %self.kind, order = pending.url, "ordered a certificate");
        Ok((order, pending))
    }

    async fn new_order(&mut self, identifiers: &[Identifier]) -> Result<Order, AcmeError> {
        let mut nonces = 0;
        loop {
            self.still_ours()?;
            let mut order = NewOrder::new(identifiers);
            if let Some(profile) = self.profile {
                order = order.profile(profile);
            }
            if let Some(replaced) = self.replaces.clone() {
                order = order.replaces(replaced);
            }
            match self.authority.account.new_order(&order).await {
                Ok(order) => return Ok(order),
                Err(error) if is_bad_nonce(&error) && nonces < NONCES => nonces += 1,
                // The authority may not know the certificate, have replaced it already, or have issued it to another
                // account (RFC 9773 section 5). The problem types differ, so any refusal is retried without `replaces`.
                Err(error) if self.replaces.is_some() && is_worth_another(&error) => self.replaces = None,
                Err(error) => return Err(self.authority.error("the authority refuses the order", error)),
            }
        }
    }

    /// Extends the [`Lock`].
    ///
    /// # Errors
    ///
    /// [`AcmeError::Overtaken`] if another gateway holds it.
    pub(crate) fn still_ours(&mut self) -> Result<(), AcmeError> {
        if self.lock.holds() { Ok(()) } else { Err(AcmeError::Overtaken) }
    }

    /// Waits before the next poll: `own`, or exactly the `Retry-After` of the last response if that is longer. Extends
    /// the lock meanwhile.
    ///
    /// # Errors
    ///
    /// [`AcmeError::Postponed`] if the `Retry-After` ends after `deadline`; [`AcmeError::Overtaken`] if the lock is lost.
    pub(crate) async fn wait_to_poll(&mut self, own: Duration, deadline: Instant) -> Result<(), AcmeError> {
        let pause = self.authority.pause(own);
        let until = Instant::now() + pause;
        if pause > own && until > deadline {
            return Err(AcmeError::Postponed(pause));
        }
        while Instant::now() < until {
            sleep_until(until.min(Instant::now() + LOCK)).await;
            self.still_ours()?;
        }
        Ok(())
    }

    fn issued(pending: Pending, chain: String) -> Result<IssuedCertificate, AcmeError> {
        let Pending { names, authority, profile, key, .. } = pending;
        let now = SystemTime::now();
        check(&chain, key.as_str(), &names, now)?;
        Ok(IssuedCertificate {
            names,
            authority,
            profile,
            obtained: seconds(now),
            imported: false,
            chain,
            key,
        })
    }
}

fn identifier(name: &str) -> Identifier {
    name.parse().map_or_else(|_| Identifier::Dns(name.to_owned()), Identifier::Ip)
}

/// Returns whether a refused order may be accepted without `replaces`.
fn is_worth_another(error: &instant_acme::Error) -> bool {
    match error {
        instant_acme::Error::Api(_) => is_refused(error) && !is_account_gone(error),
        instant_acme::Error::Other(source) if source.is::<ForeignError>() => is_refused(error),
        // `instant-acme` reports an authority that ignores `replaces` as `Other`. After a failed request, the authority may
        // have created the order all the same.
        instant_acme::Error::Other(source) => !source.is::<FetchError>(),
        instant_acme::Error::Unsupported(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use brisk_fetch::{FetchResponse, Reason};
    use http::{HeaderMap, StatusCode};

    use super::*;
    use crate::http::understood;

    /// A failure that passes used to cost the exemption from rate limits that `replaces` gives.
    #[test]
    fn an_order_is_repeated_without_replaces_only_after_a_refusal() {
        let problem = |name: &str, status: u16| {
            let kind = format!("urn:ietf:params:acme:error:{name}");
            let problem = serde_json::json!({ "type": kind, "status": status });
            instant_acme::Error::Api(serde_json::from_value(problem).unwrap())
        };
        assert!(is_worth_another(&problem("alreadyReplaced", 409)));
        assert!(is_worth_another(&problem("malformed", 400)));
        assert!(is_worth_another(&instant_acme::Error::Unsupported("replaces")));
        assert!(is_worth_another(&instant_acme::Error::Other("replaces field mismatch".into())));
        for (name, status) in
            [("serverInternal", 500), ("malformed", 503), ("rateLimited", 429), ("accountDoesNotExist", 400)]
        {
            assert!(!is_worth_another(&problem(name, status)), "{name}");
        }
        // A proxy before the authority responds with a page, also after the authority has created the order.
        let page = |status: StatusCode| {
            let body = "<h1>later</h1>".into();
            let response = FetchResponse { status, headers: HeaderMap::new(), body };
            understood("POST https://ca.test/order".to_owned(), &response).expect_err("an error")
        };
        assert!(is_worth_another(&page(StatusCode::BAD_REQUEST)));
        for status in
            [StatusCode::TOO_MANY_REQUESTS, StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE]
        {
            assert!(!is_worth_another(&page(status)), "{status}");
        }
        let unreachable = FetchError {
            method: http::Method::POST,
            url: "https://ca.test/order".to_owned(),
            status: None,
            reason: Reason::TimedOut(LIMIT),
        };
        assert!(!is_worth_another(&instant_acme::Error::Other(Box::new(unreachable))));
    }
}
