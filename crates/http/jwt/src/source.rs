//! Where the keys of an issuer come from: a file, or a URL that is fetched again and again.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use brisk_fetch::{Client, ClientSettings, Destinations, Limits};
use brisk_wire::cache_control;
use http::header::CACHE_CONTROL;
use http::{HeaderMap, HeaderValue};
use tokio::sync::{Notify, mpsc, watch};

use crate::key_set::KeySet;

/// Limits of a fetch. A redirect is an error: the operator wrote the URL of the keys.
const LIMITS: Limits = Limits { time: Duration::from_secs(5), body: 256 << 10, redirects: 0 };

/// Time between fetches if the response has no `max-age`, and the limits within which `max-age` counts.
const PERIOD: Duration = Duration::from_hours(1);
const PERIODS: (Duration, Duration) = (Duration::from_mins(1), Duration::from_hours(24));

/// Minimum time between fetches, also for tokens with unknown keys.
const SPACING: Duration = Duration::from_secs(10);

/// Maximum time between attempts after failures; the first is repeated after a second.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Maximum time that a request waits for a fetch. Longer than a fetch, so that only a thread that has failed exceeds it.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Maximum number of requests that wait for a fetch: of all clients, and of one. Beyond it, [`KeySource::refresh`] is `false`.
const MOST_WAITING: usize = 256;
const MOST_OF_CLIENT: usize = 16;

/// The keys of an issuer. Replaced as a whole; a failed fetch leaves the last [`KeySet`] in use.
#[derive(Debug)]
pub struct KeySource {
    keys: ArcSwapOption<KeySet>,
    remote: Option<Remote>,
}

#[derive(Debug)]
struct Remote {
    url: String,
    /// PEM file with trust anchors in place of those of the system.
    authorities: Option<PathBuf>,
    state: Mutex<State>,
    /// Ends the pause between fetches.
    wake: Arc<Notify>,
    /// Number of fetches that have ended.
    ended: watch::Sender<u64>,
    thread: Arc<FetchThread>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether the thread fetches the keys.
    is_started: bool,
    is_fetching: bool,
    /// End of the last fetch.
    last: Option<Instant>,
    failures: u32,
    /// Requests that wait, by client.
    waiting: HashMap<IpAddr, usize>,
}

impl State {
    /// Whether [`SPACING`] has not passed since the last fetch.
    fn is_soon(&self) -> bool {
        self.last.is_some_and(|last| last.elapsed() < SPACING)
    }
}

impl KeySource {
    /// Keys that do not change.
    pub fn of_file(keys: KeySet) -> Arc<Self> {
        Arc::new(Self { keys: ArcSwapOption::from_pointee(keys), remote: None })
    }

    /// The keys; `None` before the first successful fetch.
    pub fn keys(&self) -> Option<Arc<KeySet>> {
        self.keys.load_full()
    }

    /// Starts to fetch keys of a URL. Without effect for a file, and after the first call. Without a thread for it, the first
    /// fetch fails; a call ten seconds later tries again.
    pub fn start(self: &Arc<Self>) {
        let Some(remote) = &self.remote else { return };
        {
            let mut state = remote.state();
            if state.is_started || state.is_soon() {
                return;
            }
            // The first fetch begins without a request for it.
            (state.is_started, state.is_fetching) = (true, true);
        }
        if let Err(error) = remote.thread.add(self) {
            self.fail_to_start(remote, &error);
        }
    }

    /// Ends the first fetch, for which no thread runs.
    fn fail_to_start(&self, remote: &Remote, error: &io::Error) {
        // `SPACING` precedes the next attempt, instead of the pause.
        self.finish(remote, Err(format!("no thread fetches them: {error}")));
        remote.state().is_started = false;
    }

    /// Waits for a fetch, for a token whose key is not known. Returns whether [`Self::keys`] may have changed: `true` also
    /// after a failed fetch.
    ///
    /// At once `false` for a file, within ten seconds after the last fetch, and if 256 requests or 16 of `client` wait; a fetch
    /// takes at most five seconds. `false` after 30 seconds if no fetch ends.
    pub async fn refresh(self: &Arc<Self>, client: IpAddr) -> bool {
        let Some(remote) = &self.remote else { return false };
        self.start();
        let mut ended = remote.ended.subscribe();
        let _slot = {
            let mut state = remote.state();
            if !state.is_fetching && (!state.is_started || state.is_soon()) {
                return false;
            }
            let Some(slot) = Slot::reserve(remote, &mut state, client) else { return false };
            // Under the lock: a fetch that has ended before is not the one that this request waits for.
            ended.mark_unchanged();
            if !state.is_fetching {
                state.is_fetching = true;
                // `Notify` keeps the permit if the task does not wait yet, so no wake-up is lost.
                remote.wake.notify_one();
            }
            slot
        };
        tokio::time::timeout(LONGEST_WAIT, ended.changed()).await.is_ok_and(|changed| changed.is_ok())
    }

    #[cfg(test)]
    pub(crate) fn replace_for_test(&self, keys: KeySet) {
        self.keys.store(Some(Arc::new(keys)));
    }

    /// Takes the result of a fetch. Returns the pause until the next one: [`period`], or 1 s doubled with each failure up to
    /// [`LONGEST_PAUSE`].
    fn finish(&self, remote: &Remote, fetched: Result<(KeySet, Duration), String>) -> Duration {
        let mut state = remote.state();
        let url = &remote.url;
        let pause = match fetched {
            Ok((keys, period)) => {
                let former = self.keys.load();
                if former.is_none() || state.failures > 0 {
                    tracing::info!(%url, keys = keys.len(), "keys of tokens fetched");
                }
                if let Some(reasons) = keys.newly_skipped(former.as_deref()) {
                    tracing::warn!(%url, "not all keys of tokens are used: {reasons}");
                }
                // Unchanged keys stay, and with them the tokens that were verified.
                if former.as_ref().is_none_or(|own| !own.is_same(&keys)) {
                    self.keys.store(Some(Arc::new(keys)));
                }
                state.failures = 0;
                period
            }
            Err(reason) => {
                state.failures = state.failures.saturating_add(1);
                let effect = if self.keys.load().is_some() {
                    "the last ones stay in use"
                } else {
                    "requests with tokens get 503"
                };
                tracing::warn!(%url, "cannot fetch the keys of tokens, {effect}: {reason}");
                // At most 64 s, which `LONGEST_PAUSE` cuts: the shift must not overflow after many failures.
                let seconds = 1 << (state.failures - 1).min(6);
                Duration::from_secs(seconds).min(LONGEST_PAUSE)
            }
        };
        state.is_fetching = false;
        state.last = Some(Instant::now());
        // Each woken request takes the lock to release its slot.
        drop(state);
        remote.ended.send_modify(|ended| *ended += 1);
        pause
    }
}

impl Drop for KeySource {
    fn drop(&mut self) {
        // `rotate` holds a weak reference: it wakes from its pause and ends.
        if let Some(remote) = &self.remote {
            remote.wake.notify_one();
        }
    }
}

impl Remote {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn fetch(url: String, authorities: Option<PathBuf>) -> Result<(KeySet, Duration), String> {
        let destinations = Destinations::new(Arc::default()).with_url(&url);
        let settings = ClientSettings { authorities, limits: LIMITS, destinations };
        let client = Client::new(&settings).map_err(|error| error.to_string())?;
        let response = client.get(&url).await.map_err(|error| error.to_string())?;
        if response.status != http::StatusCode::OK {
            return Err(format!("the response is {}", response.status));
        }
        let keys = KeySet::from_json(&response.body).map_err(|error| error.to_string())?;
        Ok((keys, period(&response.headers)))
    }
}

/// Time until the next fetch: `max-age` (RFC 9111 section 5.2.2.1) within [`PERIODS`], or [`PERIOD`].
fn period(headers: &HeaderMap) -> Duration {
    let control = headers.get_all(CACHE_CONTROL).iter().map(HeaderValue::as_bytes);
    cache_control::max_age(control).unwrap_or(PERIOD).clamp(PERIODS.0, PERIODS.1)
}

/// The slot of a request that waits for a fetch.
struct Slot<'r> {
    remote: &'r Remote,
    client: IpAddr,
}

impl<'r> Slot<'r> {
    fn reserve(remote: &'r Remote, state: &mut State, client: IpAddr) -> Option<Self> {
        // At most `MOST_WAITING` entries, so the sum needs no counter of its own.
        let all: usize = state.waiting.values().sum();
        let own = state.waiting.get(&client).copied().unwrap_or_default();
        if all >= MOST_WAITING || own >= MOST_OF_CLIENT {
            return None;
        }
        state.waiting.insert(client, own + 1);
        Some(Self { remote, client })
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut state = self.remote.state();
        if let Some(own) = state.waiting.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                state.waiting.remove(&self.client);
            }
        }
    }
}

/// URL, and file with trust anchors.
type Place = (String, Option<PathBuf>);

/// The [`KeySource`]s of a process by URL. A reload continues to use the keys that were fetched.
#[derive(Debug, Default)]
pub struct KeySources {
    // Weak, so that the fetches of a URL end when no configuration uses the URL.
    sources: Mutex<HashMap<Place, Weak<KeySource>>>,
    thread: Arc<FetchThread>,
}

impl KeySources {
    /// The keys at a URL, with trust anchors from a file or of the system. Nothing is fetched before [`KeySource::start`].
    pub fn of_url(&self, url: &str, authorities: Option<PathBuf>) -> Arc<KeySource> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.retain(|_, source| source.strong_count() > 0);
        let place = (url.to_owned(), authorities);
        if let Some(known) = sources.get(&place).and_then(Weak::upgrade) {
            return known;
        }
        let remote = Remote {
            url: url.to_owned(),
            authorities: place.1.clone(),
            state: Mutex::default(),
            wake: Arc::default(),
            ended: watch::Sender::new(0),
            thread: Arc::clone(&self.thread),
        };
        let source = Arc::new(KeySource { keys: ArcSwapOption::empty(), remote: Some(remote) });
        sources.insert(place, Arc::downgrade(&source));
        source
    }
}

/// The thread that fetches keys, started for the first URL.
#[derive(Debug, Default)]
struct FetchThread(Mutex<Option<mpsc::UnboundedSender<Weak<KeySource>>>>);

impl FetchThread {
    /// Fails without a thread.
    fn add(&self, source: &Arc<KeySource>) -> io::Result<()> {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sender.is_none() {
            let (new, sources) = mpsc::unbounded_channel();
            thread::Builder::new().name("token-keys".to_owned()).spawn(move || run(sources))?;
            *sender = Some(new);
        }
        let sent = sender.as_ref().map(|sender| sender.send(Arc::downgrade(source)));
        // The thread receives for as long as this sender exists, unless it has panicked.
        sent.and_then(Result::ok).ok_or_else(|| io::Error::other("the thread has ended"))
    }
}

fn run(mut sources: mpsc::UnboundedReceiver<Weak<KeySource>>) {
    while let Some(source) = sources.blocking_recv() {
        let error = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => return runtime.block_on(rotate_all(source, sources)),
            Err(error) => error,
        };
        // The next source, or this one again, may find a runtime.
        if let Some(source) = source.upgrade()
            && let Some(remote) = &source.remote
        {
            source.fail_to_start(remote, &error);
        }
    }
}

/// Fetches the keys of `first` and of the further `sources` until no more can arrive.
async fn rotate_all(first: Weak<KeySource>, mut sources: mpsc::UnboundedReceiver<Weak<KeySource>>) {
    tokio::spawn(rotate(first));
    while let Some(source) = sources.recv().await {
        tokio::spawn(rotate(source));
    }
}

/// Fetches the keys of one source until it is dropped.
async fn rotate(source: Weak<KeySource>) {
    loop {
        // The strong reference lasts for this statement only: a reload during the
        // fetch must be able to drop the source.
        let Some((url, authorities, wake)) = source.upgrade().and_then(|source| {
            let remote = source.remote.as_ref()?;
            remote.state().is_fetching = true;
            Some((remote.url.clone(), remote.authorities.clone(), Arc::clone(&remote.wake)))
        }) else {
            return;
        };
        // A task of its own, so that a panic is a failure as any other.
        let fetched = tokio::spawn(Remote::fetch(url, authorities)).await;
        let fetched = fetched.unwrap_or_else(|error| Err(error.to_string()));
        let Some(pause) = source.upgrade().and_then(|source| {
            let remote = source.remote.as_ref()?;
            Some(source.finish(remote, fetched))
        }) else {
            return;
        };
        // The error is ignored: it is the usual end of the pause.
        let _ = tokio::time::timeout(pause, wake.notified()).await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use jsonwebtoken::Algorithm;

    use super::*;
    use crate::rules::tests::{Issuer, jwks};

    /// A server that sends these responses, one for each connection, and counts them. Without a response it is silent.
    fn server(responses: Vec<Option<String>>) -> (String, Arc<Mutex<usize>>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/jwks.json", listener.local_addr().expect("an address"));
        let count = Arc::<Mutex<usize>>::default();
        let counted = Arc::clone(&count);
        thread::spawn(move || {
            let mut silent = Vec::new();
            for response in responses {
                let Ok((mut stream, _)) = listener.accept() else { return };
                *counted.lock().expect("a lock") += 1;
                let _ = stream.read(&mut [0; 4096]);
                match response {
                    Some(response) => drop(stream.write_all(response.as_bytes())),
                    None => silent.push(stream),
                }
            }
            // Their connections stay open until the test ends.
            std::mem::forget(silent);
        });
        (url, count)
    }

    fn ok(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn allow_at_once(source: &KeySource) {
        source.remote.as_ref().expect("a URL").state().last = None;
    }

    #[tokio::test]
    async fn keys_are_fetched_again_for_an_unknown_one_and_kept_after_faults() {
        let (one, other) = (Issuer::new(Algorithm::ES256, "a"), Issuer::new(Algorithm::ES256, "b"));
        let huge = format!("{{\"keys\":[],\"x\":\"{}\"}}", "x".repeat(LIMITS.body));
        let responses = vec![
            ok(&jwks(&[one.jwk()])),
            ok(&jwks(&[other.jwk()])),
            ok("<html>"),
            ok(&huge),
            ok(&jwks(&[])),
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n".to_owned(),
            "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_owned(),
        ];
        let (url, count) = server(responses.into_iter().map(Some).collect());
        let sources = KeySources::default();
        let source = sources.of_url(&url, None);
        assert!(
            source.keys().is_none() && *count.lock().expect("a lock") == 0,
            "nothing is fetched before the start"
        );
        assert!(source.refresh(CLIENT).await);
        let has = |source: &KeySource, id: &str| {
            let keys = source.keys().expect("keys");
            keys.candidates(Some(id), Algorithm::ES256).count() == 1
        };
        assert!(has(&source, "a") && !has(&source, "b"));
        assert!(!source.refresh(CLIENT).await, "ten seconds have not passed");
        assert_eq!(*count.lock().expect("a lock"), 1);
        allow_at_once(&source);
        assert!(source.refresh(CLIENT).await);
        assert!(!has(&source, "a") && has(&source, "b"));
        let kept = source.keys().expect("keys");
        for _ in 0..5 {
            allow_at_once(&source);
            assert!(source.refresh(CLIENT).await);
            assert!(Arc::ptr_eq(&kept, &source.keys().expect("keys")), "the last keys stay");
        }
        assert_eq!(*count.lock().expect("a lock"), 7);
        assert!(Arc::ptr_eq(&source, &sources.of_url(&url, None)), "a reload finds them");
    }

    #[tokio::test]
    async fn waiting_requests_are_bounded_for_each_client() {
        let (url, _) = server(vec![None]);
        let source = KeySources::default().of_url(&url, None);
        let remote = source.remote.as_ref().expect("a URL");
        let mut slots = Vec::new();
        for number in 0..MOST_WAITING + 2 * MOST_OF_CLIENT {
            let client = IpAddr::from([10, 0, 0, u8::try_from(number / MOST_OF_CLIENT / 2).expect("a byte")]);
            slots.extend(Slot::reserve(remote, &mut remote.state(), client));
        }
        assert_eq!(slots.len(), MOST_WAITING / 2 + MOST_OF_CLIENT);
        let another = {
            let mut state = remote.state();
            Slot::reserve(remote, &mut state, CLIENT)
        };
        slots.extend(another);
        assert_eq!(slots.len(), MOST_WAITING / 2 + MOST_OF_CLIENT + 1);
        drop(slots);
        assert!(remote.state().waiting.is_empty());
        // A server that is silent for longer than the limit is a failure.
        assert!(source.refresh(CLIENT).await && source.keys().is_none());
    }

    /// Requests waited for a fetch that no thread had begun, without an end.
    #[test]
    fn without_a_thread_no_request_waits_for_keys() {
        let source = KeySources::default().of_url("http://127.0.0.1:1/", None);
        let remote = source.remote.as_ref().expect("a URL");
        // The receiver is dropped, as that of a thread that has ended.
        *remote.thread.0.lock().expect("a lock") = Some(mpsc::unbounded_channel().0);
        let refresh = || pin!(source.refresh(CLIENT)).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(refresh(), Poll::Ready(false));
        assert_eq!(refresh(), Poll::Ready(false), "the next attempt is later");
        assert!(remote.state().waiting.is_empty());
        allow_at_once(&source);
        *remote.thread.0.lock().expect("a lock") = None;
        source.start();
        assert!(remote.state().is_started, "another attempt");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_a_limited_time() {
        let source = KeySources::default().of_url("http://127.0.0.1:1/", None);
        let remote = source.remote.as_ref().expect("a URL");
        // As if the thread had panicked during the fetch.
        remote.state().is_started = true;
        remote.state().is_fetching = true;
        assert!(!source.refresh(CLIENT).await);
        assert!(remote.state().waiting.is_empty());
    }

    #[test]
    fn periods_of_issuers_have_limits() {
        let of = |value: &'static str| {
            period(&[(CACHE_CONTROL, value.parse().expect("a value"))].into_iter().collect())
        };
        assert_eq!(of("public, max-age=7200"), Duration::from_hours(2));
        assert_eq!(of("max-age=0"), PERIODS.0);
        assert_eq!(of("max-age=99999999999"), PERIODS.1);
        assert_eq!(of("Max-Age=\"7200\""), Duration::from_hours(2));
        assert_eq!(of("max-age=soon"), PERIODS.0);
        assert_eq!(of("no-store"), PERIOD);
    }
}
