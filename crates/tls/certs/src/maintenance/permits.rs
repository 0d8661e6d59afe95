//! Limits of concurrent fetches, in total and for each server, so that a server that does not respond delays only its
//! own certificates.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::lock;

/// Concurrent fetches from one server, and in total.
const PER_SERVER: usize = 4;
const TOTAL: usize = 64;

/// The permits for fetches.
#[derive(Debug)]
pub(super) struct FetchPermits {
    all: Arc<Semaphore>,
    servers: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Default for FetchPermits {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(TOTAL)), servers: Mutex::default() }
    }
}

/// Permission for one fetch, returned when dropped.
#[derive(Debug)]
pub(super) struct FetchPermit {
    _server: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl FetchPermits {
    /// Waits for a permit to fetch from `url`.
    pub(super) async fn acquire(&self, url: &str) -> FetchPermit {
        let new_semaphore = || Arc::new(Semaphore::new(PER_SERVER));
        let server = Arc::clone(lock(&self.servers).entry(server(url)).or_insert_with(new_semaphore));
        // The server's permit first: a fetch that waits for a slow server then holds no permit of the total.
        let server = server.acquire_owned().await.expect("it is never closed");
        let all = Arc::clone(&self.all).acquire_owned().await.expect("it is never closed");
        FetchPermit { _server: server, _all: all }
    }

    /// Removes servers from which nothing is being fetched.
    pub(super) fn forget_unused(&self) {
        lock(&self.servers).retain(|_, permits| Arc::strong_count(permits) > 1);
    }
}

/// The authority of `url`, in lower case.
fn server(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_server_that_does_not_answer_holds_up_itself_alone() {
        Builder::new_current_thread().build().unwrap().block_on(async {
            let permits = FetchPermits::default();
            let mut slow = Vec::new();
            for number in 0..PER_SERVER {
                slow.push(permits.acquire(&format!("http://Slow.test/{number}")).await);
            }
            let mut more = pin!(permits.acquire("http://slow.test/more"));
            let one_turn = |context: &mut std::task::Context<'_>| {
                std::task::Poll::Ready(more.as_mut().poll(context).is_pending())
            };
            assert!(std::future::poll_fn(one_turn).await);
            let other = permits.acquire("http://slow.test:8080/1").await;
            slow.clear();
            drop((other, more.await));
            permits.forget_unused();
            assert!(lock(&permits.servers).is_empty());
        });
    }
}
