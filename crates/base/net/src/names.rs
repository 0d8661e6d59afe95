//! Addresses of names from the system's resolver, and the last known ones while the resolver fails: [`LastKnown`].

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// Number of names whose addresses are kept; a further name replaces the one that was resolved longest ago.
const NAMES: usize = 1024;

/// Number of addresses kept of a name.
const ADDRESSES: usize = 16;

/// Time after which addresses are not used without a renewal; RFC 8767 section 5 suggests one to three days.
const KEPT: Duration = Duration::from_hours(24);

/// Time that a connection waits for the resolver if addresses are known: a part of `timeouts.connect`, which has to suffice for
/// the connection too.
const WAIT: Duration = Duration::from_secs(1);

/// Time after a failure without a further question about known addresses. Each question occupies a thread until `getaddrinfo`
/// returns, which takes 10 s and more without a DNS server.
const PAUSE: Duration = Duration::from_secs(5);

/// Texts of `gai_strerror` for a name that does not exist, of glibc and musl; [`io::Error`] has no kind for it.
const GONE: [&str; 4] = [
    "Name or service not known",
    "No address associated with hostname",
    "Name does not resolve",
    "Name has no usable address",
];

/// The last known addresses of names. A name that no longer exists has none: its addresses may belong to another owner.
#[derive(Debug, Default)]
pub(crate) struct LastKnown(Mutex<HashMap<Box<str>, Known>>);

#[derive(Debug)]
struct Known {
    addresses: Box<[SocketAddr]>,
    renewed: Instant,
    /// Time of the last failure of the resolver since [`Self::renewed`].
    failed: Option<Instant>,
    is_warned: bool,
}

impl LastKnown {
    /// The addresses known to this process.
    pub(crate) fn of_process() -> &'static Arc<Self> {
        static OF_PROCESS: LazyLock<Arc<LastKnown>> = LazyLock::new(Arc::default);
        &OF_PROCESS
    }

    /// The addresses of `name` from `lookup`, which asks the resolver; the last known ones if that fails, or takes longer than
    /// [`WAIT`]. A late result is kept for the next connection.
    ///
    /// # Errors
    ///
    /// The error of `lookup`, or [`io::ErrorKind::TimedOut`] after `deadline`, without known addresses.
    pub(crate) async fn resolve<L>(
        self: &Arc<Self>,
        name: &str,
        deadline: Instant,
        lookup: L,
    ) -> io::Result<Vec<SocketAddr>>
    where
        L: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        let known = self.known(name);
        if let Some((addresses, Asking::Paused)) = known {
            return Ok(addresses);
        }
        let now = Instant::now();
        // The connection needs a part of the time too.
        let wait = WAIT.min(deadline.saturating_duration_since(now) / 2);
        let limit = known.as_ref().map_or(deadline, |_| now + wait);
        let (own, owned) = (Arc::clone(self), Box::from(name));
        // A task of its own, so that a late result is kept. Without it, a resolver that always takes longer than `WAIT` would
        // never renew the addresses.
        let asked = tokio::spawn(async move {
            let found = lookup.await;
            match &found {
                Ok(addresses) => own.renew(owned, addresses),
                // Also if the connection has stopped waiting: the addresses of a name that has
                // ended may get another owner.
                Err(error) if is_gone(error) => drop(own.lock().remove(&owned)),
                Err(_) => {}
            }
            found
        });
        let failure = match timeout_at(limit, asked).await {
            Ok(Ok(Ok(addresses))) if !addresses.is_empty() => return Ok(addresses),
            Ok(Ok(Ok(_))) => io::Error::new(io::ErrorKind::NotFound, "no address has that name"),
            Ok(Ok(Err(error))) => error,
            Ok(Err(error)) => io::Error::other(error),
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
        let Some((addresses, _)) = known.filter(|_| !is_gone(&failure)) else { return Err(failure) };
        self.note_failure(name, &failure);
        Ok(addresses)
    }

    /// The known addresses of `name`, and whether the resolver is asked for them.
    fn known(&self, name: &str) -> Option<(Vec<SocketAddr>, Asking)> {
        let names = self.lock();
        let known = names.get(name).filter(|known| known.renewed.elapsed() < KEPT)?;
        let is_paused = known.failed.is_some_and(|failed| failed.elapsed() < PAUSE);
        Some((known.addresses.to_vec(), if is_paused { Asking::Paused } else { Asking::Due }))
    }

    fn renew(&self, name: Box<str>, addresses: &[SocketAddr]) {
        // An empty result is a failure for `resolve`, so that it must not replace addresses that are known.
        if addresses.is_empty() {
            return;
        }
        let mut names = self.lock();
        // The scan is rare: operators configure few names, and certificates and authorities add some.
        if names.len() >= NAMES && !names.contains_key(&name) {
            let oldest = names.iter().min_by_key(|(_, known)| known.renewed).map(|(name, _)| name.clone());
            oldest.and_then(|oldest| names.remove(&oldest));
        }
        let addresses = &addresses[..addresses.len().min(ADDRESSES)];
        if names.get(&name).is_some_and(|known| known.is_warned) {
            tracing::info!(name = &*name, "the name is resolved again");
        }
        let known =
            Known { addresses: addresses.into(), renewed: Instant::now(), failed: None, is_warned: false };
        names.insert(name, known);
    }

    fn note_failure(&self, name: &str, error: &io::Error) {
        let mut names = self.lock();
        let Some(known) = names.get_mut(name) else { return };
        known.failed = Some(Instant::now());
        // A slow resolver fails after each late result, which is no reason for a line each time.
        if !known.is_warned && known.renewed.elapsed() >= PAUSE {
            known.is_warned = true;
            tracing::warn!(name, %error, "the name cannot be resolved: its last known addresses are used");
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the name does not exist.
fn is_gone(error: &io::Error) -> bool {
    let text = error.to_string();
    GONE.iter().any(|gone| text.contains(gone))
}

/// Whether the resolver is asked for known addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asking {
    Due,
    /// The resolver has just failed.
    Paused,
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::advance;

    use super::*;

    fn address(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 0))
    }

    fn failure() -> io::Result<Vec<SocketAddr>> {
        Err(io::Error::other("SERVFAIL"))
    }

    async fn resolved(
        names: &Arc<LastKnown>,
        lookup: impl Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    ) -> io::Result<Vec<SocketAddr>> {
        names.resolve("app", Instant::now() + Duration::from_secs(5), lookup).await
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_addresses_are_used_while_the_resolver_fails() {
        let names = Arc::default();
        let error = resolved(&names, ready(failure())).await.expect_err("nothing known");
        assert_eq!(error.to_string(), "SERVFAIL");
        assert!(
            resolved(&names, pending()).await.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut)
        );
        let first = vec![address(1), address(2)];
        assert_eq!(resolved(&names, ready(Ok(first.clone()))).await.expect("addresses"), first);
        for _ in 0..3 {
            assert_eq!(resolved(&names, ready(failure())).await.expect("known"), first);
            advance(PAUSE).await;
            assert_eq!(resolved(&names, ready(Ok(Vec::new()))).await.expect("known"), first);
            advance(PAUSE).await;
            assert_eq!(resolved(&names, pending()).await.expect("known"), first);
            advance(PAUSE).await;
        }
        assert_eq!(resolved(&names, ready(Ok(vec![address(3)]))).await.expect("addresses"), [address(3)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_resolver_is_asked_again_after_a_pause_and_delays_one_connection() {
        let names = Arc::default();
        resolved(&names, ready(Ok(vec![address(1)]))).await.expect("addresses");
        let start = Instant::now();
        resolved(&names, pending()).await.expect("known");
        assert_eq!(start.elapsed(), WAIT);
        resolved(&names, async { panic!("asked within the pause") }).await.expect("known");
        assert_eq!(start.elapsed(), WAIT);
        advance(PAUSE).await;
        assert_eq!(resolved(&names, ready(Ok(vec![address(2)]))).await.expect("addresses"), [address(2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_result_is_kept() {
        let names = Arc::default();
        resolved(&names, ready(Ok(vec![address(1)]))).await.expect("addresses");
        let late = async {
            tokio::time::sleep(WAIT * 2).await;
            Ok(vec![address(2)])
        };
        assert_eq!(resolved(&names, late).await.expect("known"), [address(1)]);
        tokio::time::sleep(WAIT * 2).await;
        assert_eq!(resolved(&names, ready(failure())).await.expect("known"), [address(2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_no_longer_exists_has_no_addresses_even_if_that_is_known_late() {
        let gone = || Err(io::Error::other(format!("failed to lookup address information: {}", GONE[0])));
        let names = Arc::default();
        resolved(&names, ready(Ok(vec![address(1)]))).await.expect("addresses");
        assert!(resolved(&names, ready(gone())).await.is_err());
        assert!(resolved(&names, ready(failure())).await.is_err(), "nothing known");
        resolved(&names, ready(Ok(vec![address(1)]))).await.expect("addresses");
        let late = async move {
            tokio::time::sleep(WAIT * 2).await;
            gone()
        };
        assert_eq!(resolved(&names, late).await.expect("known"), [address(1)]);
        tokio::time::sleep(WAIT * 2).await;
        assert!(resolved(&names, ready(failure())).await.is_err(), "nothing known");
    }

    #[tokio::test(start_paused = true)]
    async fn known_addresses_are_bounded_in_age_and_number() {
        let names: Arc<LastKnown> = Arc::default();
        resolved(&names, ready(Ok(vec![address(1); 100]))).await.expect("addresses");
        assert_eq!(resolved(&names, ready(failure())).await.expect("known").len(), ADDRESSES);
        for number in 0..NAMES {
            advance(Duration::from_millis(1)).await;
            names.renew(number.to_string().into(), &[address(2)]);
        }
        assert_eq!(names.lock().len(), NAMES);
        assert!(resolved(&names, ready(failure())).await.is_err(), "the oldest name was replaced");
        assert_eq!(names.known("7").map(|(addresses, _)| addresses), Some(vec![address(2)]));
        advance(KEPT).await;
        assert_eq!(names.known("7"), None);
    }
}
