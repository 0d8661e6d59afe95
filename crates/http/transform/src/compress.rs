//! Compression of responses: selection of responses and codings, and the headers of compressed responses.
//!
//! A response is compressed if its route enables compression, its type is listed, it is long enough, and none of these
//! exceptions applies: a partial response (RFC 9110 section 14), an existing coding, `no-transform`, or a digest of the
//! content (RFC 9530). Every response that satisfies these conditions gets `Vary: accept-encoding`, whether it is compressed
//! or not.
//!
//! The length of a compressed response reveals how often a text placed by an attacker occurs in it (BREACH). Only
//! another site can make a browser request pages with the secrets of its user, so [`BreachGuard`] decides by the site
//! that the browser names. Pages of visitors who arrive from there are padded and limited in number (module `arrivals`).

mod arrivals;
mod body;
mod dictionaries;
mod encoders;
mod kept;
mod media;
mod metrics;
mod padded;
mod settings;

use std::mem;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use brisk_coding::{AcceptedCodings, Coding, Dictionary};
use brisk_http::message::{HeaderList, RequestParts, Response};
use brisk_http::validate;
use brisk_http_connection::Connection;
use brisk_variants::HostVariants;
use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderValue, Method, StatusCode};
use http_body::Body as _;

use self::arrivals::Exposure;
use self::body::CompressedBody;
use self::dictionaries::DictionarySource;
use self::encoders::Lease;
use self::kept::{Found, Key};
pub(crate) use self::media::of_file as media_of_file;
pub use self::media::{MediaPattern, MediaPatternError};
pub use self::metrics::CompressionMetrics;
pub use self::settings::{BreachGuard, CompressionSettings};
use crate::body::{Body, SentFile};
use crate::credentials::Credentials;
use crate::digests::DIGESTS;
use crate::header_values::{add_to_vary, add_vary, forbids_transforming, has_directive, is_identity};
use crate::names::Names;
use crate::weak_tags::WeakTags;

/// Maximum length in bytes of complete bodies that are compressed at once and keep a `Content-Length`.
const AT_ONCE: usize = 32 << 10;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Coding name of zstd with a dictionary of the client (RFC 9842 section 5).
const DICTIONARY_CODING: &str = "dcz";

/// Compression of one route on one worker, by its [`CompressionSettings`].
#[derive(Debug)]
pub struct Compression {
    settings: Arc<CompressionSettings>,
    /// Whether responses may contain secrets and reflect parts of requests: not those of static files.
    may_leak: bool,
    /// Folder of a static route, whose compressed files may be cached.
    root: Option<PathBuf>,
    /// Names of the host, for dictionaries; `None` if responses do not become dictionaries.
    names: Option<Rc<Names>>,
    /// Settings of the host that vary between connections.
    variants: Arc<HostVariants>,
}

/// Compression of the response to one request, from [`Compression::negotiate`].
#[derive(Debug)]
pub struct ResponseCompression {
    compression: Rc<Compression>,
    /// The client's preferred coding among those of the route.
    coding: Option<Coding>,
    /// Whether an attacker's page may have sent the request with the user's credentials; see [`BreachGuard`].
    exposure: Exposure,
    /// Whether the client forbids compression, by `Cache-Control: no-transform` or `CONNECT`.
    is_forbidden: bool,
    is_head: bool,
    known: WeakTags,
    /// Cache key of the requested file.
    file: Option<String>,
    /// The requested resource, if its response may become a dictionary.
    source: Option<DictionarySource>,
    credentials: Credentials,
    /// Dictionary that the client has.
    dictionary: Option<Arc<Dictionary>>,
}

impl Compression {
    /// Compression of responses that may contain secrets.
    pub fn new(settings: &Arc<CompressionSettings>) -> Rc<Self> {
        let (settings, variants) = (Arc::clone(settings), Arc::default());
        Rc::new(Self { settings, may_leak: true, root: None, names: None, variants })
    }

    /// Compression of a route of the host with these `names`. `root` is the folder of a static route, whose responses
    /// contain no secrets; `variants` may vary levels.
    pub fn of_route(
        settings: &Arc<CompressionSettings>,
        may_leak: bool,
        root: Option<PathBuf>,
        names: &Rc<Names>,
        variants: &Arc<HostVariants>,
    ) -> Rc<Self> {
        let names = settings.dictionaries.then(|| Rc::clone(names));
        let (settings, variants) = (Arc::clone(settings), Arc::clone(variants));
        Rc::new(Self { settings, may_leak, root, names, variants })
    }

    fn level(&self, coding: Coding, connection: &Connection) -> u8 {
        let assigned = self.variants.level(coding, connection.extras.assigned());
        assigned.unwrap_or_else(|| self.settings.level(coding))
    }

    /// Chooses the coding for the response to a request for `path`.
    pub fn negotiate(
        self: &Rc<Self>,
        connection: &Connection,
        request: &RequestParts,
        path: &[u8],
    ) -> ResponseCompression {
        let headers = &request.headers;
        let accepted = AcceptedCodings::of(headers.get_all(header::ACCEPT_ENCODING));
        let source = self.dictionary_source(request);
        let uses = || accepted.takes_dictionaries(&self.settings.codings) && may_use_dictionary(headers);
        let named = source.as_ref().filter(|_| uses());
        let credentials = Credentials::of(headers, connection);
        ResponseCompression {
            compression: Rc::clone(self),
            coding: accepted.best(&self.settings.codings),
            exposure: self.exposure(request, credentials, &accepted),
            // The response to CONNECT belongs to another protocol.
            is_forbidden: forbids_transforming(headers) || request.method == Method::CONNECT,
            is_head: request.method == Method::HEAD,
            known: WeakTags::of(headers),
            file: self.root.as_deref().map(|root| file(root, path)),
            dictionary: named.and_then(|source| dictionaries::available(headers, source.authority())),
            source,
            credentials,
        }
    }

    /// The requested resource as the source of a dictionary; `None` if the route has none, or if the authority is not a
    /// name of the host.
    fn dictionary_source(&self, request: &RequestParts) -> Option<DictionarySource> {
        let names = self.names.as_ref()?;
        let authority = validate::authority_of(request);
        let target = request.uri.path_and_query()?;
        // A query does not change a file. With it, every request would be another dictionary.
        let target = if self.root.is_some() { target.path() } else { target.as_str() };
        names.include(authority).then(|| DictionarySource::new(authority, target))
    }
}

impl ResponseCompression {
    /// Compresses `response` if all conditions hold. Costs an inspection of its head, and for a body of at most 32 KiB in
    /// memory the compression. Without memory for an encoder, the response stays uncompressed.
    pub fn apply(&self, connection: &Rc<Connection>, response: &mut Response<Body>) {
        if response.status() == StatusCode::NOT_MODIFIED {
            return self.confirm(response.headers_mut());
        }
        if !self.is_eligible(response) {
            return;
        }
        if let Some(source) = &self.source {
            add_to_vary(response.headers_mut(), &dictionaries::AVAILABLE_DICTIONARY);
            // A static file is the same for all users, regardless of the credentials in the request.
            let credentials = if self.compression.may_leak { self.credentials } else { Credentials::None };
            let may_keep = credentials.permit_retention(response.headers());
            if may_keep && !self.is_head && response.status() == StatusCode::OK {
                let limit = connection.settings().map_or(0, |settings| settings.dictionaries);
                dictionaries::keep(source, response, limit, connection);
            }
        }
        let headers = response.headers_mut();
        // RFC 9110 section 12.5.5: also if the content stays uncompressed, since a cache would send it to other clients.
        add_vary(headers);
        if self.is_forbidden {
            return;
        }
        if self.exposure != Exposure::None && !is_public(headers) {
            return self.apply_padding(connection, response);
        }
        if let Some(dictionary) = &self.dictionary {
            return self.use_dictionary(dictionary, connection, response);
        }
        let Some(coding) = self.coding else { return };
        // RFC 9110 section 9.3.2: the head is that of the response to GET.
        if self.is_head {
            mark(headers, coding.name());
            return;
        }
        let level = self.compression.level(coding, connection);
        let keeper = match self.kept(response, (coding, level), connection) {
            Found::Copy(copy) => {
                metrics::copy_sent();
                *response.body_mut() = Body::full(copy);
                return mark(response.headers_mut(), coding.name());
            }
            Found::Wanted(keeper) => Some(keeper),
            Found::Nothing => None,
        };
        // Before the body is taken: after a refusal the response is unchanged.
        let Some(lease) = Lease::take(coding, level, connection) else {
            return metrics::refused();
        };
        let is_live = is_live(response.headers());
        let body = match short(mem::take(response.body_mut()), connection) {
            Ok(whole) => {
                if let Some(compressed) = compress_at_once(&whole, lease) {
                    Body::full(compressed)
                } else {
                    *response.body_mut() = Body::full(whole);
                    return;
                }
            }
            Err(body) => {
                Body::boxed(CompressedBody::new(body, lease, is_live, keeper, Rc::clone(connection)))
            }
        };
        *response.body_mut() = body;
        mark(response.headers_mut(), coding.name());
    }

    /// Compresses `response` with the client's dictionary: `Content-Encoding: dcz` (RFC 9842 section 5).
    fn use_dictionary(
        &self,
        dictionary: &Dictionary,
        connection: &Rc<Connection>,
        response: &mut Response<Body>,
    ) {
        let length = self.length(response);
        if !self.is_head {
            let level = self.compression.level(Coding::Zstd, connection);
            let Some(lease) = Lease::with_dictionary(dictionary, level, length, connection) else {
                return metrics::refused();
            };
            let is_live = is_live(response.headers());
            let body = mem::take(response.body_mut());
            // No copy is kept, because the bytes depend on the dictionary of the client.
            let body = CompressedBody::new(body, lease, is_live, None, Rc::clone(connection));
            *response.body_mut() = Body::boxed(body);
        }
        mark(response.headers_mut(), DICTIONARY_CODING);
    }

    /// Looks up a compressed copy of the requested file; [`Found::Nothing`] without a strong `ETag`.
    fn kept(&self, response: &Response<Body>, (coding, level): (Coding, u8), client: &Connection) -> Found {
        // RFC 9110 section 8.8.1: only a strong tag changes with every change of the bytes.
        let tag = response.headers().get(header::ETAG).filter(|tag| tag.as_bytes().starts_with(b"\""));
        let (Some(file), Some(tag)) = (&self.file, tag) else { return Found::Nothing };
        // One copy for all paths that lead to one file: otherwise a client could evict all other copies.
        let file = match response.extensions().get().zip(self.compression.root.as_deref()) {
            Some((SentFile(path), root)) => self::file(root, path.path().as_bytes()),
            None => file.clone(),
        };
        let limit = client.settings().map_or(0, |settings| settings.compressed_files);
        kept::find(Key { file, tag: tag.clone(), coding, level }, limit, client)
    }

    /// Whether the response would be compressed for some client. Only such responses depend on `Accept-Encoding`.
    fn is_eligible(&self, response: &Response<Body>) -> bool {
        let settings = &self.compression.settings;
        let headers = response.headers();
        let status = response.status();
        let has_body = !status.is_informational()
            && !matches!(
                status,
                StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::PARTIAL_CONTENT
            );
        has_body
            && is_identity(headers)
            && !headers.contains_key(header::CONTENT_RANGE)
            && headers.get(header::CONTENT_TYPE).is_some_and(|kind| settings.takes(kind))
            && self.length(response).is_none_or(|length| length >= settings.least)
            && !forbids_transforming(headers)
            && !DIGESTS.iter().any(|name| headers.contains_key(name))
    }

    /// The length of the response in bytes, if known. A response to `HEAD` has no body; its `Content-Length` states the length.
    fn length(&self, response: &Response<Body>) -> Option<u64> {
        let stated = || response.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
        match response.body().size_hint().exact() {
            Some(0) if self.is_head => stated(),
            length => length,
        }
    }

    /// Completes a `304`: with `Vary` if the `200` in its place would have it (RFC 9110 section 15.4.5), and with a weak `ETag`
    /// if the client's copy was compressed, because that copy has a weak one.
    fn confirm(&self, headers: &mut HeaderList) {
        if self.may_depend_on_coding(headers) {
            add_vary(headers);
        }
        self.known.confirm(headers);
    }

    /// Whether the content that a `304` confirms may be compressed for some client. Most upstreams omit `Content-Type` and
    /// `Content-Length` in a `304`, so the result is `true` unless known otherwise.
    fn may_depend_on_coding(&self, headers: &HeaderList) -> bool {
        let stated = headers.get(header::CONTENT_TYPE).cloned();
        let kind = stated.or_else(|| media_of_file(self.file.as_ref()?.as_bytes()));
        kind.is_none_or(|kind| self.compression.settings.takes(&kind)) && !forbids_transforming(headers)
    }
}

/// Cache key of a file: `root` and `path`.
fn file(root: &Path, path: &[u8]) -> String {
    format!("{}:{}", root.display(), path.escape_ascii())
}

/// Whether the requesting page may read the response, by `Sec-Fetch-Site`. For other pages the length would reveal parts of the
/// dictionary.
fn may_use_dictionary(headers: &HeaderList) -> bool {
    // A client without the header is not a browser.
    let site = headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes);
    matches!(site, None | Some(b"same-origin" | b"none"))
}

/// Whether shared caches may store the response (`public`, RFC 9111 section 5.2.2.9), so that it contains no secrets of
/// a user.
fn is_public(headers: &HeaderList) -> bool {
    has_directive(headers, "public")
}

/// Whether each piece is sent as it arrives: event streams, and responses with `X-Accel-Buffering: no`.
fn is_live(headers: &HeaderList) -> bool {
    let is_events = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| media::essence(kind.as_bytes()).eq_ignore_ascii_case(b"text/event-stream"));
    // A convention of nginx, by which applications mark responses whose parts must not wait.
    is_events || headers.get("x-accel-buffering").is_some_and(|value| value == "no")
}

/// Sets the headers of a compressed response: `Content-Encoding`, a weak `ETag`, and neither `Content-Length` nor
/// `Accept-Ranges`.
fn mark(headers: &mut HeaderList, coding: &'static str) {
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
    headers.remove(header::CONTENT_LENGTH);
    // A range would address compressed bytes, which differ each time.
    headers.remove(header::ACCEPT_RANGES);
    weaken(headers);
}

/// Weakens `ETag`, because the bytes differ from the original (RFC 9110 section 8.8.3.3).
pub fn weaken(headers: &mut HeaderList) {
    let Some(tag) = headers.get(header::ETAG).filter(|tag| tag.as_bytes().starts_with(b"\"")) else { return };
    if let Ok(weak) = HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()) {
        headers.insert(header::ETAG, weak);
    }
}

/// The whole body, if it is complete, at most [`AT_ONCE`] bytes long, and this round permits it; otherwise the body unchanged.
fn short(mut body: Body, connection: &Connection) -> Result<Bytes, Body> {
    match body.whole() {
        Some(whole) if whole.len() <= AT_ONCE && connection.may_work(whole.len()) => Ok(whole),
        Some(whole) => Err(Body::full(whole)),
        None => Err(body),
    }
}

/// The compressed body; `None` if it is not shorter.
fn compress_at_once(whole: &[u8], mut lease: Lease) -> Option<Vec<u8>> {
    let mut compressed = Vec::with_capacity(whole.len() / 2);
    let made = lease.made();
    lease.encoder().write_whole(whole, &mut compressed).ok()?;
    (compressed.len() < whole.len()).then(|| {
        metrics::compressed(made, whole.len() as u64, compressed.len() as u64);
        // The body counts with its length (`Body::held`), so no unused capacity may stay with it.
        compressed.shrink_to_fit();
        compressed
    })
}

#[cfg(test)]
mod tests;
