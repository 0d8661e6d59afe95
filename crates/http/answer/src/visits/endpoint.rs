//! The paths below `/.brisk/` of a measured host: the script and the receiver of beacons.
//!
//! The response to a beacon is always `204`: the page does not wait for it, and attackers learn nothing from it. Metrics
//! count dropped beacons by reason.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use brisk_beacon::{Kind, LARGEST, Refusal as Dropped, SCRIPT, script_version};
use brisk_budget::Resource;
use brisk_http::conditional;
use brisk_http::message::{HeaderList, RequestParts, Response};
use brisk_http::validate;
use brisk_http::validate::{Methods, Refusal};
use brisk_http_connection::body::client::ClientBody;
use brisk_http_connection::holding::Holding;
use brisk_transform::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use http_body::Body as _;

use super::{SEC_FETCH_SITE, SiteVisits, wants_privacy};
use crate::exchange::Exchange;
use crate::headers::RESOURCE_POLICY;

/// Path of the script.
pub(crate) const SCRIPT_PATH: &str = "/.brisk/rum.js";
/// Path that receives beacons.
pub(crate) const BEACON_PATH: &str = "/.brisk/beacon";

/// Timeout for the body of a beacon.
const ARRIVAL: Duration = Duration::from_secs(5);

impl SiteVisits {
    /// Records the beacon in a request for [`BEACON_PATH`].
    pub(crate) async fn take_beacon(
        &self,
        head: &RequestParts,
        body: ClientBody,
        exchange: &Exchange,
    ) -> Result<Response<Body>, Refusal> {
        let is_get = head.method == Method::GET;
        // Boomerang sends short beacons in the query of an image request.
        if head.method != Method::POST && !(is_get && head.uri.query().is_some()) {
            return Err(Refusal::method(Methods::Form));
        }
        self.beacons.arrived();
        if let Err(dropped) = self.receive(head, body, exchange).await {
            tracing::debug!(request = %exchange.id(), reason = dropped.name(), "a beacon was dropped");
            self.beacons.refused(dropped);
        }
        Ok(taken())
    }

    async fn receive(
        &self,
        head: &RequestParts,
        body: ClientBody,
        exchange: &Exchange,
    ) -> Result<(), Dropped> {
        let connection = exchange.connection();
        let headers = &head.headers;
        if wants_privacy(headers) {
            return Err(Dropped::Privacy);
        }
        let kind = Kind::of(headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes));
        if !is_of_own_page(headers, validate::authority_of(head), kind) {
            return Err(Dropped::OtherSite);
        }
        if body.size_hint().lower() > LARGEST as u64 {
            return Err(Dropped::TooLarge);
        }
        let client = exchange.client().one_client();
        // Before the body: beacons beyond the rate hold no memory.
        self.beacons.admit(client)?;
        if head.method == Method::GET {
            let query = head.uri.query().unwrap_or_default();
            return self.beacons.take(Kind::Form, query.as_bytes(), &self.host, client);
        }
        // Nothing at first: the reservation grows with the bytes that arrive.
        let holding = connection.reserve(Resource::Beacons, 0).map_err(|_| Dropped::Busy)?;
        let arriving = Box::pin(arrived(body, holding));
        let whole = match connection.register_deadline() {
            Some(deadline) => {
                deadline.set(ARRIVAL);
                deadline.within(arriving).await.unwrap_or(Err(Dropped::CutOff))
            }
            None => arriving.await,
        };
        self.beacons.take(kind, &whole?.0, &self.host, client)
    }
}

/// The whole body, with the memory reserved for it.
async fn arrived(mut body: ClientBody, mut holding: Holding) -> Result<(Vec<u8>, Holding), Dropped> {
    let mut whole = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|_| Dropped::CutOff)?;
        if let Ok(piece) = frame.into_data() {
            if whole.len() + piece.len() > LARGEST {
                return Err(Dropped::TooLarge);
            }
            holding.extend(&mut whole, &piece, LARGEST).map_err(|_| Dropped::Busy)?;
        }
    }
    Ok((whole, holding))
}

/// Whether a page of the same origin sent the request.
///
/// Browsers add these headers and pages cannot change them. Reports are sent by the browser itself, which may omit
/// both.
fn is_of_own_page(headers: &HeaderList, authority: &str, kind: Kind) -> bool {
    let site = headers.get(SEC_FETCH_SITE).map(|site| site == "same-origin");
    let origin = headers.get(header::ORIGIN).map(|origin| {
        let origin = origin.as_bytes().strip_prefix(b"https://").unwrap_or_default();
        // Browsers omit the default port in `Origin`.
        let usual =
            |authority: &[u8]| authority.strip_suffix(b":443").unwrap_or(authority).to_ascii_lowercase();
        !origin.is_empty() && usual(origin) == usual(authority.as_bytes())
    });
    match (site, origin) {
        (None, None) => kind == Kind::Reports,
        (site, origin) => site.unwrap_or(true) && origin.unwrap_or(true),
    }
}

fn taken() -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The response to a request for [`SCRIPT_PATH`]. The URL with the version is immutable, so caches may keep it for a
/// year.
pub(crate) fn script(head: &RequestParts) -> Result<Response<Body>, Refusal> {
    if head.method != Method::GET && head.method != Method::HEAD {
        return Err(Refusal::method(Methods::Read));
    }
    let version = script_version();
    let tag = HeaderValue::try_from(format!("\"{version}\"")).expect("digits");
    let is_known = conditional::is_known(head.headers.get_all(header::IF_NONE_MATCH), tag.as_bytes());
    let mut response =
        Response::new(if is_known { Body::Empty } else { Body::full(Bytes::from_static(SCRIPT.as_bytes())) });
    // Pages that contain the script themselves have no version in its URL, so
    // caches keep it for an hour only.
    let kept = if head.uri.query() == Some(version) {
        "public, max-age=31536000, immutable"
    } else {
        "public, max-age=3600"
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(kept));
    headers.insert(header::ETAG, tag);
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return Ok(response);
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/javascript; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn beacons_come_from_pages_of_the_same_origin() {
        let allowed = |lines: &[(&'static str, &'static str)], kind| {
            let lines = lines
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            is_of_own_page(&lines.collect(), "www.Example:443", kind)
        };
        let (site, origin) = ("sec-fetch-site", "origin");
        for lines in [
            &[(site, "same-origin")][..],
            &[(origin, "https://www.example")],
            &[(site, "same-origin"), (origin, "https://www.example")],
        ] {
            assert!(allowed(lines, Kind::Form), "{lines:?}");
        }
        for lines in [
            &[][..],
            &[(site, "cross-site")],
            &[(site, "same-site")],
            &[(site, "none")],
            &[(origin, "null")],
            &[(origin, "http://www.example")],
            &[(origin, "https://other.example")],
            &[(origin, "https://www.example:8443")],
            &[(site, "same-origin"), (origin, "https://other.example")],
        ] {
            assert!(!allowed(lines, Kind::Form), "{lines:?}");
        }
        assert!(allowed(&[], Kind::Reports) && !allowed(&[(site, "cross-site")], Kind::Reports));
    }
}
