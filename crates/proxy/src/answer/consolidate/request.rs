//! What an origin gets of a request.

use brisk_coding::{Accepted, Coding};
use brisk_rewrite::Place;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};

use super::{Consolidated, Cookies, cookies};

const AVAILABLE_DICTIONARY: HeaderName = HeaderName::from_static("available-dictionary");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Whether the answer may be a document that is changed. It is asked for in gzip, whose decoder takes little memory; what is sure
/// to be none is asked for in all codings, since it passes as it is.
fn may_be_document(headers: &HeaderMap) -> bool {
    let destination = headers.get(SEC_FETCH_DEST).map(HeaderValue::as_bytes);
    !matches!(destination, Some(b"script" | b"font" | b"audio" | b"video" | b"track" | b"empty" | b"worker"))
}

impl Consolidated {
    /// `own` is the host of the request, or empty.
    pub(super) fn change_request(&self, headers: &mut HeaderMap, own: &str) {
        if self.rewrites {
            // What cannot be decoded here cannot be changed.
            let offered = if may_be_document(headers) { &[Coding::Gzip][..] } else { &Coding::ALL };
            let narrowed = Accepted::of(headers).narrowed(offered);
            headers.insert(header::ACCEPT_ENCODING, narrowed.unwrap_or(HeaderValue::from_static("identity")));
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
            headers.remove(header::AUTHORIZATION);
        }
        self.change_origin(headers, place, own);
    }

    /// The addresses of the origin's own pages are its own again; of other pages it gets the origin, as browsers do it
    /// (Referrer Policy, `strict-origin-when-cross-origin`).
    fn change_origin(&self, headers: &mut HeaderMap, place: &Place, own: &str) {
        let Some(referer) = headers.remove(header::REFERER) else { return };
        let text = referer.to_str().unwrap_or_default();
        let path = text.strip_prefix("https://").and_then(|rest| rest.strip_prefix(own));
        let Some(path) = path.filter(|path| !own.is_empty() && path.starts_with('/')) else { return };
        let from = self.settings.map.origin_of(path);
        let sender = from.map_or_else(|| format!("https://{own}"), |(origin, _)| origin.to_string());
        let referer = match from {
            Some((origin, rest)) if *origin == place.origin => format!("{origin}{rest}"),
            _ => format!("{sender}/"),
        };
        if let Ok(referer) = HeaderValue::try_from(referer) {
            headers.insert(header::REFERER, referer);
        }
        let is_own = headers.get(header::ORIGIN).is_some_and(|origin| {
            origin.as_bytes().strip_prefix(b"https://").is_some_and(|origin| origin == own.as_bytes())
        });
        if let (true, Ok(sender)) = (is_own, HeaderValue::try_from(sender)) {
            headers.insert(header::ORIGIN, sender);
        }
    }

    /// The last changes before an origin gets a request: it is asked by its own name, and hears of no other.
    pub(crate) fn address(&self, headers: &mut HeaderMap) {
        let Some(place) = self.place() else { return };
        if let Ok(host) = HeaderValue::try_from(place.origin.authority()) {
            headers.insert(header::HOST, host);
        }
        headers.remove(X_FORWARDED_HOST);
        headers.remove(header::FORWARDED);
    }
}
