//! Compression dictionaries (RFC 9842): responses with `Use-As-Dictionary` are stored, and later responses are
//! compressed against them for clients that still have them (`dcz`).
//!
//! All workers share the store and its limit. A lock is taken only for requests and responses that name a dictionary. A
//! client names a dictionary by its SHA-256, so the coding of a response reveals whether exactly these bytes were stored:
//! a dictionary belongs to the authority that sent it, and only responses that are the same for all users
//! ([`Credentials::permit_retention`](crate::credentials::Credentials::permit_retention)) are stored.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use brisk_budget::stored_part;
use brisk_coding::Dictionary;
use brisk_http::error::BodyError;
use brisk_http::message::{HeaderList, Response};
use brisk_http_connection::Connection;
use brisk_http_connection::gathering::Gathering;
use bytes::Bytes;
use http::HeaderValue;
use http::header::{self, HeaderName};
use http_body::{Body as _, Frame, SizeHint};

use crate::body::Body;

pub(super) const AVAILABLE_DICTIONARY: HeaderName = HeaderName::from_static("available-dictionary");
const USE_AS_DICTIONARY: HeaderName = HeaderName::from_static("use-as-dictionary");

/// Maximum size of a dictionary in bytes. Preparing one takes about a millisecond per MiB.
const LARGEST: usize = 1 << 20;

/// Maximum number of entries in [`Store::known`]. When it is reached, all responses are examined again.
const KNOWN: usize = 4096;

static STORE: LazyLock<RwLock<Store>> = LazyLock::new(RwLock::default);
static CLOCK: AtomicU64 = AtomicU64::new(0);

#[derive(Default)]
struct Store {
    dictionaries: HashMap<DictionaryKey, Entry>,
    bytes: usize,
    /// Dictionaries by the hash of the response that they were made of.
    known: HashMap<u64, DictionaryKey>,
    /// Hashes of the responses that are being gathered.
    gathering: HashSet<u64>,
    hasher: RandomState,
}

/// Authority that sent a dictionary, in lower case, and the SHA-256 of the dictionary.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DictionaryKey {
    authority: Arc<str>,
    hash: [u8; 32],
}

struct Entry {
    dictionary: Arc<Dictionary>,
    used: AtomicU64,
}

/// Size of all stored dictionaries in bytes.
pub(super) fn held() -> usize {
    read().bytes
}

/// The stored dictionary of `authority` that the client names (RFC 9842 section 2.2).
pub(super) fn available(headers: &HeaderList, authority: &str) -> Option<Arc<Dictionary>> {
    // A byte sequence of RFC 9651 section 3.3.5.
    let value = headers.get(AVAILABLE_DICTIONARY)?.to_str().ok()?.trim();
    let text = value.strip_prefix(':')?.strip_suffix(':')?;
    let hash: [u8; 32] = STANDARD.decode(text).ok()?.try_into().ok()?;
    let store = read();
    let entry = store.dictionaries.get(&DictionaryKey::new(authority, hash))?;
    // `used` only orders evictions, so a read lock and `Relaxed` suffice.
    entry.used.store(tick(), Ordering::Relaxed);
    Some(Arc::clone(&entry.dictionary))
}

/// Stores the body of `response` while it is sent on `connection`, if `Use-As-Dictionary` marks it (RFC 9842 section 2.1)
/// and it has no coding. `source` is the requested resource. Finished dictionaries may take three quarters of `limit` bytes,
/// since others are being gathered.
pub(super) fn keep(
    source: &DictionarySource,
    response: &mut Response<Body>,
    limit: usize,
    connection: &Connection,
) {
    let headers = response.headers();
    let is_one = headers.get(USE_AS_DICTIONARY).and_then(|value| value.to_str().ok());
    // RFC 9842 section 2.1.1: `match` is required. The pattern itself concerns the client only.
    if limit == 0 || !is_one.is_some_and(|value| value.contains("match=")) {
        return;
    }
    let validator = headers.get(header::ETAG).or_else(|| headers.get(header::LAST_MODIFIED));
    let known = known_by(source, validator, headers.get(USE_AS_DICTIONARY));
    // Without a validator, the content may have changed under the same target.
    if validator.is_some() && is_kept(known) {
        return;
    }
    let limit = stored_part(limit);
    let mut body = std::mem::take(response.body_mut());
    *response.body_mut() = match body.whole() {
        Some(whole) => {
            if whole.len() <= LARGEST {
                insert(source, known, whole.to_vec(), limit);
            }
            Body::full(whole)
        }
        None => match Gatherer::start(source, known, limit, connection) {
            Some(gatherer) => Body::boxed(Kept { source: body, gatherer: Some(gatherer) }),
            None => body,
        },
    };
}

/// The resource whose response may become a dictionary.
#[derive(Clone, Debug)]
pub(super) struct DictionarySource {
    /// The authority of the request, a name of the host, in lower case.
    authority: Arc<str>,
    /// The requested path; with the query, unless the resource is a file.
    target: String,
}

impl DictionarySource {
    pub(super) fn new(authority: &str, target: &str) -> Self {
        Self { authority: authority.to_ascii_lowercase().into(), target: target.to_owned() }
    }

    pub(super) fn authority(&self) -> &str {
        &self.authority
    }
}

impl DictionaryKey {
    fn new(authority: &str, hash: [u8; 32]) -> Self {
        Self { authority: authority.into(), hash }
    }
}

/// A body that a [`Gatherer`] gathers while it is sent.
struct Kept {
    source: Body,
    gatherer: Option<Gatherer>,
}

/// The gathered part of a future dictionary. One response at a time gathers it.
struct Gatherer {
    gathering: Option<Gathering>,
    source: DictionarySource,
    known: u64,
    limit: usize,
}

impl Gatherer {
    fn start(source: &DictionarySource, known: u64, limit: usize, connection: &Connection) -> Option<Self> {
        // Of concurrent responses only the first one gathers, so most of them need no write lock.
        if read().gathering.contains(&known) {
            return None;
        }
        // Before the insertion: without memory, the response must not count as one that is gathered.
        let gathering = connection.gather(LARGEST)?;
        let is_first = write().gathering.insert(known);
        is_first.then(|| Self { gathering: Some(gathering), source: source.clone(), known, limit })
    }

    fn finish(mut self) {
        if let Some(bytes) = self.gathering.take().and_then(Gathering::finish) {
            insert(&self.source, self.known, bytes, self.limit);
        }
    }
}

impl Drop for Gatherer {
    fn drop(&mut self) {
        write().gathering.remove(&self.known);
    }
}

impl Kept {
    fn note(&mut self, polled: Option<&Result<Frame<Bytes>, BodyError>>) {
        match polled {
            Some(Ok(frame)) => {
                if let (Some(gatherer), Some(data)) = (&self.gatherer, frame.data_ref())
                    && let Some(gathering) = &gatherer.gathering
                {
                    gathering.add(data);
                }
                // A reader need not poll again after the last data, so the end has to be noticed together
                // with the data.
                if !self.source.is_end_stream() && frame.is_data() {
                    return;
                }
            }
            Some(Err(_)) => self.gatherer = None,
            None => {}
        }
        if let Some(gatherer) = self.gatherer.take() {
            gatherer.finish();
        }
    }
}

impl http_body::Body for Kept {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = ready!(Pin::new(&mut self.source).poll_frame(context));
        self.note(polled.as_ref());
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.source.size_hint()
    }
}

fn tick() -> u64 {
    CLOCK.fetch_add(1, Ordering::Relaxed)
}

fn read() -> RwLockReadGuard<'static, Store> {
    STORE.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Store> {
    STORE.write().unwrap_or_else(PoisonError::into_inner)
}

fn known_by(source: &DictionarySource, validator: Option<&HeaderValue>, says: Option<&HeaderValue>) -> u64 {
    read().hasher.hash_one((source.authority(), &source.target, validator, says))
}

fn is_kept(known: u64) -> bool {
    let store = read();
    store.known.get(&known).is_some_and(|key| store.dictionaries.contains_key(key))
}

fn insert(source: &DictionarySource, known: u64, bytes: Vec<u8>, limit: usize) {
    // Before the lock, because the preparation takes about a millisecond per MiB.
    let Some(dictionary) = Dictionary::new(bytes) else { return };
    let mut store = write();
    if store.known.len() >= KNOWN {
        store.known.clear();
    }
    let key = DictionaryKey { authority: Arc::clone(&source.authority), hash: *dictionary.hash() };
    store.known.insert(known, key.clone());
    store.insert(key, dictionary, limit);
}

impl Store {
    fn insert(&mut self, key: DictionaryKey, dictionary: Dictionary, limit: usize) {
        let size = dictionary.bytes().len();
        if self.dictionaries.contains_key(&key) || size > limit {
            return;
        }
        while self.bytes + size > limit {
            let used = |entry: &Entry| entry.used.load(Ordering::Relaxed);
            let oldest =
                self.dictionaries.iter().min_by_key(|(_, entry)| used(entry)).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { return };
            if let Some(entry) = self.dictionaries.remove(&oldest) {
                self.bytes -= entry.dictionary.bytes().len();
            }
        }
        self.bytes += size;
        self.dictionaries
            .insert(key, Entry { dictionary: Arc::new(dictionary), used: AtomicU64::new(tick()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(value: &str) -> HeaderList {
        let mut headers = HeaderList::new();
        headers.insert(AVAILABLE_DICTIONARY, HeaderValue::from_str(value).expect("a value"));
        headers
    }

    #[test]
    fn the_least_recently_used_goes_when_there_are_too_many() {
        let mut store = Store::default();
        let dictionary = |byte: u8| Dictionary::new(vec![byte; 1000]).expect("a dictionary");
        let key = |dictionary: &Dictionary| DictionaryKey::new("a.example", *dictionary.hash());
        for byte in 0..10 {
            store.insert(key(&dictionary(byte)), dictionary(byte), 5000);
            assert!(store.bytes <= 5000);
        }
        assert_eq!(store.dictionaries.len(), 5);
        assert!(store.dictionaries.contains_key(&key(&dictionary(9))));
        assert!(!store.dictionaries.contains_key(&key(&dictionary(0))));
        let large = Dictionary::new(vec![7; 6000]).expect("a dictionary");
        store.insert(key(&large), large, 5000);
        assert_eq!(store.dictionaries.len(), 5, "too large for any");
    }

    #[test]
    fn a_name_is_a_hash_as_a_byte_sequence() {
        let bytes = b"a dictionary that is kept for this test".to_vec();
        let hash = *Dictionary::new(bytes.clone()).expect("a dictionary").hash();
        insert(&DictionarySource::new("A.example", "/"), 1, bytes, 1 << 20);
        let name = STANDARD.encode(hash);
        assert!(available(&named(&format!(":{name}:")), "a.example").is_some());
        assert!(available(&named(&format!(":{name}:")), "b.example").is_none(), "of another host");
        for wrong in [name.as_str(), ":", "::", ":AAAA:", ":!:", "", &format!(":{name}{name}:")] {
            assert!(available(&named(wrong), "a.example").is_none(), "{wrong}");
        }
        assert!(available(&HeaderList::new(), "a.example").is_none());
        assert!(Dictionary::new(vec![0x37, 0xa4, 0x30, 0xec, 0, 0, 0, 0, 0]).is_none(), "zstd's own form");
    }
}
