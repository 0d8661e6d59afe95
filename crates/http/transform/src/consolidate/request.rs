//! Requests to origins: the headers that an origin receives.

use brisk_budget::Resource;
use brisk_coding::{AcceptedCodings, Coding, Decoder};
use brisk_http::claims;
use brisk_http::message::HeaderList;
use brisk_http_connection::Connection;
use brisk_rewrite::{DocumentKind, MappedOrigin};
use http::HeaderValue;
use http::header::{self, HeaderName};

use super::{ConsolidatedRoute, Cookies, cookies};
use crate::compress::media_of_file;

const AVAILABLE_DICTIONARY: HeaderName = HeaderName::from_static("available-dictionary");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The only headers about the client that an origin receives.
const OF_CLIENTS: [HeaderName; 3] = [
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-request-id"),
];

/// Number of `gzip` decoders for which the client must have memory when a document is requested: other requests in flight
/// may need theirs first.
const ROOM: usize = 16;

/// Whether the response may be a document, which has to be changed.
///
/// Documents are requested in `gzip`, whose decoder needs little memory; other content passes unchanged and is requested
/// in all codings. If the client states the wrong kind of content, the decoders of the other codings have a small
/// budget of their own. The type of a file is known from its path.
fn may_be_document(headers: &HeaderList, file: Option<&str>) -> bool {
    if let Some(path) = file {
        let kind = media_of_file(path.as_bytes());
        return kind.is_some_and(|kind| kind.to_str().is_ok_and(|kind| DocumentKind::of(kind).is_some()));
    }
    let destination = headers.get(SEC_FETCH_DEST).map(HeaderValue::as_bytes);
    !matches!(destination, Some(b"script" | b"font" | b"audio" | b"video" | b"track" | b"worker"))
}

impl ConsolidatedRoute {
    /// Changes the headers of a request of `connection` for its origin. `own` is the host of the request, or empty,
    /// and `path` its decoded path.
    pub(super) fn change_request(
        &self,
        connection: &Connection,
        headers: &mut HeaderList,
        own: &str,
        path: &str,
    ) {
        if self.route.rewrites {
            // A coding without a decoder would prevent changes. Without memory for decoders, a document would be refused.
            let has_room = connection.has_room(Resource::Decoders, ROOM * Decoder::memory(Coding::Gzip));
            let offered = match may_be_document(headers, self.route.is_static.then_some(path)) {
                true if has_room => &[Coding::Gzip][..],
                true => &[],
                false => &Coding::ALL,
            };
            let narrowed = AcceptedCodings::of(headers.get_all(header::ACCEPT_ENCODING)).narrowed(offered);
            // RFC 9110 section 12.5.3: without the header any coding is acceptable, so its removal would
            // refuse none.
            headers.insert(header::ACCEPT_ENCODING, narrowed.unwrap_or(HeaderValue::from_static("identity")));
            // A response with a dictionary of the client could not be decoded here.
            headers.remove(AVAILABLE_DICTIONARY);
        }
        self.mark.change_known(headers);
        let Some(place) = self.place() else { return };
        match self.cookies() {
            Cookies::Own => cookies::keep_own(headers, place),
            Cookies::None => drop(headers.remove(header::COOKIE)),
            Cookies::Host => {}
        }
        if self.cookies() != Cookies::Host {
            // Credentials for the host must not reach another origin.
            headers.remove(header::AUTHORIZATION);
        }
        if !self.change_origin(headers, place, own)
            && headers.get(SEC_FETCH_SITE).is_some_and(|site| site == "same-origin")
        {
            // For the origin, pages of the host are pages of another site.
            headers.insert(SEC_FETCH_SITE, HeaderValue::from_static("cross-site"));
        }
    }

    /// Translates `Referer` and `Origin`. Returns whether the page belongs to the origin.
    ///
    /// The origin receives the full URL of its own pages and only the origin of other pages, as browsers send them
    /// (Referrer Policy, `strict-origin-when-cross-origin`).
    fn change_origin(&self, headers: &mut HeaderList, place: &MappedOrigin, own: &str) -> bool {
        let Some(referer) = headers.remove(header::REFERER) else { return false };
        let text = referer.to_str().unwrap_or_default();
        let path = text.strip_prefix("https://").and_then(|rest| rest.strip_prefix(own));
        let Some(path) = path.filter(|path| !own.is_empty() && path.starts_with('/')) else {
            return false;
        };
        let from = self.settings.map.origin_of(path);
        let sender = from.map_or_else(|| format!("https://{own}"), |(origin, _)| origin.to_string());
        let own_page = from.filter(|(origin, _)| **origin == place.origin);
        let referer =
            own_page.map_or_else(|| format!("{sender}/"), |(origin, rest)| format!("{origin}{rest}"));
        if let Ok(referer) = HeaderValue::try_from(referer) {
            headers.insert(header::REFERER, referer);
        }
        let is_own = headers.get(header::ORIGIN).is_some_and(|origin| {
            origin.as_bytes().strip_prefix(b"https://").is_some_and(|origin| origin == own.as_bytes())
        });
        if let (true, Ok(sender)) = (is_own, HeaderValue::try_from(sender)) {
            headers.insert(header::ORIGIN, sender);
        }
        own_page.is_some()
    }

    /// Sets `Host` to the name of the origin and removes all headers about the client except `OF_CLIENTS`. Does
    /// nothing for routes of the host itself.
    pub fn address(&self, headers: &mut HeaderList) {
        let Some(place) = self.place() else { return };
        if let Ok(host) = HeaderValue::try_from(place.origin.authority()) {
            headers.insert(header::HOST, host);
        }
        claims::remove_but(headers, &OF_CLIENTS);
    }
}
