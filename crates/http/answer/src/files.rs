//! Files of a folder as responses: media types, ranges, conditional requests (`ETag`, `Last-Modified`) and index files.
//!
//! Only files beneath the folder are served. Symbolic links are followed if they are relative and stay beneath the
//! folder; others get `404`. So do names that begin with a dot, except `.well-known`, and everything that is neither file
//! nor folder. The folder itself may be a symbolic link that is switched at run time.
//!
//! `ServeDir` finds the file; [`selected`] evaluates conditions and ranges.

mod listing;
mod multipart;
mod readers;
mod room;
mod selected;

use std::borrow::Cow;
use std::sync::Arc;

use brisk_coding::{AcceptedCodings, Coding};
use brisk_folder::Beneath;
use brisk_http::error::BodyError;
use brisk_http::message::{RequestParts, Response};
use brisk_http::path::RequestPath;
use brisk_http::ranges::Ranges;
use brisk_rules::PathRewrite;
use brisk_transform::body::{Body, SentFile};
use brisk_transform::header_values::add_vary;
use brisk_upstream_group::settings::CgiSettings;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Method, StatusCode, Uri, header};
use http_body_util::BodyExt;
use percent_encoding::percent_decode_str;
use tower_http::services::ServeDir;
use tower_http::services::fs::DefaultServeDirFallback;
use tower_service::Service as _;

use crate::redirect;
use crate::settings::{MediaTypes, RoutePath, StaticSettings, UrlPath};
use listing::Listings;
pub(crate) use room::{Room, in_room};

/// Size of a read in bytes: two TLS records. Every response has a buffer of this size from its start.
const CHUNK: usize = 32 << 10;

/// Codings of precompressed copies, preferred first: brotli is the shortest, and its cost at compression time is
/// irrelevant.
const COPIES: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

type Folder = ServeDir<DefaultServeDirFallback, Beneath>;

/// Serves the files of one folder below one route.
#[derive(Debug)]
pub(crate) struct StaticFiles {
    files: Files,
    /// The files with lookup of compressed copies.
    with_copies: Option<Files>,
    route: String,
    /// The only file, for all requests.
    only: Option<Uri>,
    /// The file for paths without one.
    fallback: Option<Uri>,
    /// Paths of the pages of folders in place of `/index.html`.
    index: Vec<UrlPath>,
    /// Media types in place of the usual ones.
    types: Option<Arc<MediaTypes>>,
    /// Pages for folders without an index file.
    listings: Option<Listings>,
    /// Location of the folder for its path without the final slash, with which links of its pages would be wrong; `None` for a
    /// route with this path only.
    location: Option<String>,
    /// Scripts that an upstream executes: their source text is not sent.
    scripts: Option<CgiSettings>,
    /// Paths below the folder in place of the requested one, for paths that match.
    rewrite: Option<Arc<[PathRewrite]>>,
}

/// The files of one folder. A subfolder gets its index file, or a redirect to its path with a trailing slash.
#[derive(Clone, Debug)]
struct Files {
    /// Opens the path as a file without a previous `stat`; does not find folders. `GET` only.
    at_once: Folder,
    /// Determines the type of the path before it opens a file.
    after_a_look: Folder,
}

impl StaticFiles {
    /// The files of a folder, for requests below the path `route`.
    pub(crate) fn new(settings: &StaticSettings, route: &RoutePath) -> Self {
        let location = location(route);
        let route = route.as_str();
        let prefix = route.trim_end_matches('/');
        let folder = |beneath| {
            ServeDir::with_backend("", beneath)
                .append_index_html_on_directories(true)
                .redirect_path_prefix(prefix)
                .with_buf_chunk_size(CHUNK)
        };
        let with_copies = settings.precompressed.then(|| {
            Files::of(&Beneath::with_copies(&settings.root), |beneath| {
                folder(beneath).precompressed_br().precompressed_zstd().precompressed_gzip()
            })
        });
        let files = Files::of(&Beneath::new(&settings.root), folder);
        let target = |path: &Option<UrlPath>| path.as_ref().and_then(|path| path.as_str().parse().ok());
        let (only, fallback) = (target(&settings.only), target(&settings.fallback));
        let listings = settings.listing.then(|| Listings::new(Beneath::new(&settings.root)));
        let (route, types, scripts) = (route.to_owned(), None, None);
        let (index, rewrite) = (settings.index.clone(), settings.rewrite.clone());
        Self { files, with_copies, route, only, fallback, index, types, listings, location, scripts, rewrite }
    }

    /// The files without the source text of `scripts`, which an upstream executes: they do not exist here.
    pub(crate) fn without_scripts(self, scripts: Option<&CgiSettings>) -> Self {
        Self { scripts: scripts.cloned(), ..self }
    }

    /// These files with `types` in place of the usual media types.
    pub(crate) fn with_types(self, types: Option<Arc<MediaTypes>>) -> Self {
        Self { types, ..self }
    }

    /// Responds to a request for `path`, within the memory of `room`.
    pub(crate) async fn answer(
        &self,
        request: &RequestParts,
        path: &RequestPath<'_>,
        room: &mut Room,
    ) -> Response<Body> {
        if let Some(only) = &self.only {
            return self.look_up(request, only.clone()).await;
        }
        if let Some(response) = self.with_slash(request, path) {
            return response;
        }
        let (response, is_folder) = if let Some(formed) = self.formed(path) {
            if formed.is_empty() {
                return status(StatusCode::NOT_FOUND);
            }
            (self.find_formed(request, &request.uri, formed).await, false)
        } else {
            let Some(target) = self.target(request, path) else { return status(StatusCode::NOT_FOUND) };
            let is_folder = target.path().ends_with('/');
            (self.find(request, target).await, is_folder)
        };
        if let Some(listings) = self.listings.as_ref().filter(|_| is_folder)
            && response.status() == StatusCode::NOT_FOUND
        {
            let below = path.decoded.get(self.route.trim_end_matches('/').len()..).unwrap_or_default();
            if let Some(page) = listings.answer(&request.method, below, path, room).await {
                return page;
            }
        }
        match &self.fallback {
            // Methods other than GET and HEAD got 405.
            Some(fallback) if response.status() == StatusCode::NOT_FOUND => {
                let mut response = self.look_up(request, fallback.clone()).await;
                // Copies in memory have the path of the fallback as their key: with invented paths, a client
                // could displace the copies of other files.
                response.extensions_mut().insert(SentFile(fallback.clone()));
                response
            }
            _ => response,
        }
    }

    /// Whether `path` has a file, or is a folder with an index file or a list. Reads nothing.
    pub(crate) async fn has(&self, request: &RequestParts, path: &RequestPath<'_>) -> bool {
        let head = RequestParts { method: Method::HEAD, ..RequestParts::default() };
        let (found, folder) = if let Some(formed) = self.formed(path) {
            let own = &request.uri;
            (self.find_formed(&head, own, formed).await.status(), own.path().to_owned())
        } else {
            let Some(target) = self.target(request, path) else { return false };
            let folder = target.path().to_owned();
            (self.find(&head, target).await.status(), folder)
        };
        if !found.is_redirection() {
            return found != StatusCode::NOT_FOUND;
        }
        if self.listings.is_some() {
            return true;
        }
        let folder = format!("{}/", folder.trim_end_matches('/')).parse();
        let Ok(folder) = folder else { return false };
        self.find(&head, folder).await.status() != StatusCode::NOT_FOUND
    }

    /// The redirect of a request for the folder itself without the final slash.
    fn with_slash(&self, request: &RequestParts, path: &RequestPath<'_>) -> Option<Response<Body>> {
        let location = self.location.as_ref().filter(|_| !is_rewritten(self.rewrite.as_deref(), path))?;
        let is_read = request.method == Method::GET || request.method == Method::HEAD;
        if *path.decoded != *self.route.as_bytes() || !is_read {
            return None;
        }
        Some(redirect::final_slash(location, request))
    }

    fn is_script(&self, decoded: &[u8]) -> bool {
        self.scripts.as_ref().is_some_and(|scripts| scripts.is_source(decoded))
    }

    /// The file at `target`, or the page of the folder there.
    async fn find(&self, request: &RequestParts, target: Uri) -> Response<Body> {
        let folder = target.path().strip_suffix('/').filter(|_| !self.index.is_empty());
        let Some(folder) = folder else { return self.look_up(request, target).await };
        for page in self.index.iter().filter(|page| !self.is_script(page.as_str().as_bytes())) {
            let query = target.query().map(|query| format!("?{query}")).unwrap_or_default();
            let Ok(page) = format!("{folder}{page}{query}").parse() else { continue };
            let response = self.look_up(request, page).await;
            if response.status() != StatusCode::NOT_FOUND {
                return response;
            }
        }
        status(StatusCode::NOT_FOUND)
    }

    /// The first file among the paths that an expression formed from `own`, the target of the request. Without a file, a folder
    /// at the path of `own` is a redirect to its final slash.
    async fn find_formed(&self, request: &RequestParts, own: &Uri, formed: Vec<Uri>) -> Response<Body> {
        let mut is_folder = false;
        for target in formed {
            let mut response = self.find(request, target.clone()).await;
            let found = response.status();
            // A redirect to the final slash of a folder would name the formed path.
            let is_redirect = found.is_redirection() && found != StatusCode::NOT_MODIFIED;
            // With several leading slashes, it would lead to another host (RFC 3986 section 4.2).
            let is_own = self.route == "/" && target.path() == own.path() && !own.path().starts_with("//");
            is_folder |= is_redirect && is_own;
            if !is_redirect && found != StatusCode::NOT_FOUND {
                // Another route may have another file for the path of the request, so copies in memory have the formed path as
                // their key.
                response.extensions_mut().insert(SentFile(target));
                return response;
            }
        }
        // With the query of the request, which formed paths do not have.
        let slash = own.path_and_query().filter(|_| is_folder);
        let Some(slash) = slash else { return status(StatusCode::NOT_FOUND) };
        self.find(request, Uri::from(slash.clone())).await
    }

    /// The file at `target`.
    async fn look_up(&self, request: &RequestParts, target: Uri) -> Response<Body> {
        let kind = self.types.as_ref().and_then(|types| types.of(&name_of(target.path())));
        let mut asked = http::Request::new(());
        *asked.method_mut() = request.method.clone();
        *asked.uri_mut() = target;
        let ranges = Ranges::of(request);
        // A copy that is requested by its own name is sent as it is, without a coding.
        let Some(with_copies) = self.with_copies.as_ref().filter(|_| !names_copy(asked.uri().path())) else {
            return selected::answer(&self.files, request, asked, (ranges.as_ref(), kind)).await;
        };
        if let Some(codings) =
            AcceptedCodings::of(request.headers.get_all(header::ACCEPT_ENCODING)).narrowed(&COPIES)
        {
            asked.headers_mut().insert(header::ACCEPT_ENCODING, codings);
        }
        // RFC 9110 section 14.2: conditions and ranges apply to the file that is sent without them, so to a copy.
        let mut response = selected::answer(with_copies, request, asked, (ranges.as_ref(), kind)).await;
        if matches!(
            response.status(),
            StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::NOT_MODIFIED
        ) {
            add_vary(response.headers_mut());
        }
        response
    }

    /// Paths below the folder in place of the requested one, without those that must not be served; `None` if no expression
    /// matches.
    fn formed(&self, path: &RequestPath<'_>) -> Option<Vec<Uri>> {
        let formed = self.rewrite.as_ref()?.iter().find_map(|rewrite| rewrite.all(&path.decoded))?;
        let targets = formed
            .into_iter()
            .filter_map(|target| PathAndQuery::from_maybe_shared(target).ok().map(Uri::from));
        // Groups may form the name of a hidden file or of a script.
        let is_served = |target: &Uri| {
            let path = RequestPath::read(target.path());
            path.is_ok_and(|path| !is_hidden(&path.decoded) && !self.is_script(&path.decoded))
        };
        Some(targets.filter(is_served).collect())
    }

    /// The target to look up in the folder; `None` if it must not be served.
    fn target(&self, request: &RequestParts, path: &RequestPath<'_>) -> Option<Uri> {
        let below = path.below(&self.route).ok()?;
        let start = self.route.trim_end_matches('/').len();
        if is_hidden(path.decoded.get(start..).unwrap_or_default()) || self.is_script(&path.decoded) {
            return None;
        }
        // Several leading slashes would turn the redirect to a folder into a redirect to another host (RFC 3986 section
        // 4.2).
        let below = below.trim_start_matches('/');
        let target = match request.uri.query() {
            Some(query) => format!("/{below}?{query}"),
            None => format!("/{below}"),
        };
        PathAndQuery::from_maybe_shared(target).ok().map(Uri::from)
    }
}

impl Files {
    fn of(beneath: &Beneath, folder: impl Fn(Beneath) -> Folder) -> Self {
        Self { at_once: folder(beneath.clone().at_once()), after_a_look: folder(beneath.clone()) }
    }

    /// The file or a part of it, for a request without conditions.
    async fn find(&self, request: http::Request<()>) -> Response<Body> {
        if request.method() == Method::GET && !request.uri().path().ends_with('/') {
            // The usual request needs no `stat`.
            let response = call(&self.at_once, request.clone()).await;
            if response.status() != StatusCode::NOT_FOUND {
                return response;
            }
        }
        call(&self.after_a_look, request).await
    }
}

/// Whether one of `rewrites` forms another path below the folder for `path`.
pub(crate) fn is_rewritten(rewrites: Option<&[PathRewrite]>, path: &RequestPath<'_>) -> bool {
    rewrites.is_some_and(|rewrites| rewrites.iter().any(|rewrite| rewrite.is_match(&path.decoded)))
}

/// The path of a route with a slash at its end, if it lacks one; see [`StaticFiles::location`].
pub(crate) fn location(route: &RoutePath) -> Option<String> {
    let RoutePath::Prefix(path) = route else { return None };
    (!path.ends_with('/')).then(|| redirect::encoded(path) + "/")
}

async fn call(folder: &Folder, request: http::Request<()>) -> Response<Body> {
    // `call` needs `&mut`, and a folder serves many requests at a time.
    let Ok(response) = folder.clone().call(request).await;
    let response = Response::from(response);
    response.map(|body| Body::boxed(body.map_err(BodyError::File).map_frame(|frame| frame.map_data(fitting))))
}

/// Shrinks a short piece to its length. The end of a file arrives in a buffer of [`CHUNK`] bytes, and every response
/// that waits for its client would keep one.
fn fitting(data: Bytes) -> Bytes {
    if data.len() < CHUNK / 2 { Bytes::copy_from_slice(&data) } else { data }
}

/// The name of the file for a path; that of a folder is the name of its index file.
fn name_of(path: &str) -> Cow<'_, str> {
    match path.rsplit('/').next() {
        None | Some("") => Cow::Borrowed("index.html"),
        Some(name) => percent_decode_str(name).decode_utf8_lossy(),
    }
}

/// Whether a request names a compressed copy itself.
fn names_copy(path: &str) -> bool {
    let mut extensions = COPIES.iter().map(|coding| coding.extension());
    extensions.any(|extension| path.strip_suffix(extension).is_some_and(|rest| rest.ends_with('.')))
}

fn is_hidden(decoded: &[u8]) -> bool {
    let mut segments = decoded.split(|byte| *byte == b'/');
    segments.any(is_hidden_name)
}

/// Whether files and folders with this name are not served: hidden ones, except `.well-known` (RFC 8615).
pub fn is_hidden_name(name: &[u8]) -> bool {
    name.starts_with(b".") && name != b".well-known"
}

fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests;
