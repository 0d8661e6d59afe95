//! Compression dictionaries (RFC 9842): responses with `Use-As-Dictionary` are stored, and later responses are
//! compressed against them for clients that still have them (`dcz`).
//!
//! All workers share the store and its limit. A lock is taken only for requests and responses that name a dictionary. A
//! client names a dictionary by its SHA-256, so it already has the bytes: dictionaries of one host are harmless at
//! another.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use brisk_coding::Dictionary;
use brisk_http::error::BodyError;
use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Response};
use http_body::{Body as _, Frame, SizeHint};

use crate::body::Body;

pub(super) const AVAILABLE_DICTIONARY: HeaderName = HeaderName::from_static("available-dictionary");
const USE_AS_DICTIONARY: HeaderName = HeaderName::from_static("use-as-dictionary");

/// Maximum size of a dictionary in bytes. Preparing one takes about a millisecond per MiB.
const LARGEST: usize = 1 << 20;

/// Maximum number of responses with a known dictionary. When it is reached, all are examined again.
const KNOWN: usize = 4096;

static STORE: LazyLock<RwLock<Store>> = LazyLock::new(RwLock::default);
static CLOCK: AtomicU64 = AtomicU64::new(0);

#[derive(Default)]
struct Store {
    dictionaries: HashMap<[u8; 32], Entry>,
    bytes: usize,
    /// Hashes of dictionaries, by the key of the response.
    known: HashMap<u64, [u8; 32]>,
    hasher: RandomState,
}

struct Entry {
    dictionary: Arc<Dictionary>,
    used: AtomicU64,
}

/// Size of all dictionaries in bytes.
pub(super) fn held() -> usize {
    read().bytes
}

/// The stored dictionary named by the client (RFC 9842 section 2.2).
pub(super) fn available(headers: &HeaderMap) -> Option<Arc<Dictionary>> {
    // A byte sequence of RFC 9651 section 3.3.5.
    let value = headers.get(AVAILABLE_DICTIONARY)?.to_str().ok()?.trim();
    let text = value.strip_prefix(':')?.strip_suffix(':')?;
    let hash: [u8; 32] = STANDARD.decode(text).ok()?.try_into().ok()?;
    let store = read();
    let entry = store.dictionaries.get(&hash)?;
    entry.used.store(tick(), Ordering::Relaxed);
    Some(Arc::clone(&entry.dictionary))
}

/// Stores the body of `response` while it is sent, if it is marked as a dictionary (RFC 9842 section 2.1) and has no
/// coding.
pub(super) fn keep(file: &str, response: &mut Response<Body>, limit: usize) {
    let headers = response.headers();
    let is_one = headers.get(USE_AS_DICTIONARY).and_then(|value| value.to_str().ok());
    if limit == 0 || !is_one.is_some_and(|value| value.contains("match=")) {
        return;
    }
    let validator = headers.get(header::ETAG).or_else(|| headers.get(header::LAST_MODIFIED));
    let known = known_by(file, validator, headers.get(USE_AS_DICTIONARY));
    if validator.is_some() && is_kept(known) {
        return;
    }
    let mut body = std::mem::take(response.body_mut());
    *response.body_mut() = match body.whole() {
        Some(whole) => {
            if whole.len() <= LARGEST {
                insert(known, whole.to_vec(), limit);
            }
            Body::full(whole)
        }
        None => Body::boxed(Kept { source: body, gathered: Some(Vec::new()), known, limit }),
    };
}

/// A body that is collected while it is sent.
struct Kept {
    source: Body,
    gathered: Option<Vec<u8>>,
    known: u64,
    limit: usize,
}

impl Kept {
    fn note(&mut self, polled: Option<&Result<Frame<Bytes>, BodyError>>) {
        match polled {
            Some(Ok(frame)) => {
                let data = frame.data_ref().map_or(&[][..], |data| &data[..]);
                let fits = |gathered: &mut Vec<u8>| {
                    gathered.extend_from_slice(data);
                    gathered.len() <= LARGEST
                };
                self.gathered.take_if(|gathered| !fits(gathered));
                if !self.source.is_end_stream() && frame.is_data() {
                    return;
                }
            }
            Some(Err(_)) => self.gathered = None,
            None => {}
        }
        if let Some(gathered) = self.gathered.take() {
            insert(self.known, gathered, self.limit);
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

fn known_by(file: &str, validator: Option<&HeaderValue>, says: Option<&HeaderValue>) -> u64 {
    read().hasher.hash_one((file, validator, says))
}

fn is_kept(known: u64) -> bool {
    let store = read();
    store.known.get(&known).is_some_and(|hash| store.dictionaries.contains_key(hash))
}

fn insert(known: u64, bytes: Vec<u8>, limit: usize) {
    let Some(dictionary) = Dictionary::new(bytes) else { return };
    let mut store = write();
    if store.known.len() >= KNOWN {
        store.known.clear();
    }
    store.known.insert(known, *dictionary.hash());
    store.insert(dictionary, limit);
}

impl Store {
    fn insert(&mut self, dictionary: Dictionary, limit: usize) {
        let size = dictionary.bytes().len();
        if self.dictionaries.contains_key(dictionary.hash()) || size > limit {
            return;
        }
        while self.bytes + size > limit {
            let used = |entry: &Entry| entry.used.load(Ordering::Relaxed);
            let oldest = self.dictionaries.iter().min_by_key(|(_, entry)| used(entry)).map(|(hash, _)| *hash);
            let Some(oldest) = oldest else { return };
            if let Some(entry) = self.dictionaries.remove(&oldest) {
                self.bytes -= entry.dictionary.bytes().len();
            }
        }
        self.bytes += size;
        let hash = *dictionary.hash();
        self.dictionaries
            .insert(hash, Entry { dictionary: Arc::new(dictionary), used: AtomicU64::new(tick()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(AVAILABLE_DICTIONARY, HeaderValue::from_str(value).expect("a value"));
        headers
    }

    #[test]
    fn the_least_recently_used_goes_when_there_are_too_many() {
        let mut store = Store::default();
        let dictionary = |byte: u8| Dictionary::new(vec![byte; 1000]).expect("a dictionary");
        for byte in 0..10 {
            store.insert(dictionary(byte), 5000);
            assert!(store.bytes <= 5000);
        }
        assert_eq!(store.dictionaries.len(), 5);
        assert!(store.dictionaries.contains_key(dictionary(9).hash()));
        assert!(!store.dictionaries.contains_key(dictionary(0).hash()));
        store.insert(Dictionary::new(vec![7; 6000]).expect("a dictionary"), 5000);
        assert_eq!(store.dictionaries.len(), 5, "too large for any");
    }

    #[test]
    fn a_name_is_a_hash_as_a_byte_sequence() {
        let bytes = b"a dictionary that is kept for this test".to_vec();
        let hash = *Dictionary::new(bytes.clone()).expect("a dictionary").hash();
        insert(1, bytes, 1 << 20);
        let name = STANDARD.encode(hash);
        assert!(available(&named(&format!(":{name}:"))).is_some());
        for wrong in [name.as_str(), ":", "::", ":AAAA:", ":!:", "", &format!(":{name}{name}:")] {
            assert!(available(&named(wrong)).is_none(), "{wrong}");
        }
        assert!(available(&HeaderMap::new()).is_none());
        assert!(Dictionary::new(vec![0x37, 0xa4, 0x30, 0xec, 0, 0, 0, 0, 0]).is_none(), "zstd's own form");
    }
}
