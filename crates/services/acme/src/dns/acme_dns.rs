//! Provider for `acme-dns` servers, which store nothing but `TXT` records of challenges.

use brisk_fetch::{Client, Destinations};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, StatusCode};
use serde_json::json;

use super::{AcmeDnsSettings, DnsError, Txt};

/// Sets the `TXT` record of the account.
pub(super) async fn put(settings: &AcmeDnsSettings, record: &Txt, http: &Client) -> Result<(), DnsError> {
    let failed = |reason: String| DnsError { by: format!("acme-dns at {}", settings.url), reason };
    let body = json!({ "subdomain": settings.subdomain, "txt": record.value }).to_string();
    let header = |text: &str| HeaderValue::from_str(text).map_err(|error| failed(error.to_string()));
    let mut request = Request::new(Bytes::from(body));
    *request.method_mut() = Method::POST;
    let url = format!("{}/update", settings.url.trim_end_matches('/'));
    *request.uri_mut() = url.parse().map_err(|error: http::uri::InvalidUri| failed(error.to_string()))?;
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("x-api-user", header(&settings.username)?);
    headers.insert("x-api-key", header(&settings.password)?);
    let http = http.with_destinations(Destinations::default().with_url(&settings.url));
    let answer = http.send(request).await.map_err(|error| failed(error.to_string()))?;
    match answer.status {
        StatusCode::OK => Ok(()),
        status => Err(failed(format!("the server responded with {status}"))),
    }
}
