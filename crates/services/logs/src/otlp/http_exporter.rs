//! Exporter of log records and spans over OTLP/HTTP, with the HTTP client of the gateway.
//!
//! The thread of an output of the access log uses an exporter, and waits for each response up to a timeout.

use brisk_fetch::{Client, ClientSettings, Destinations, Limits};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use tokio::runtime::{self, Runtime};

use super::{Exported, Exporter};
use crate::settings::OtlpSettings;

/// Maximum length of a response in bytes.
const RESPONSE: usize = 64 << 10;

/// An exporter for one signal.
#[derive(Debug)]
struct HttpExporter {
    runtime: Runtime,
    client: Client,
    url: Uri,
    headers: HeaderMap,
}

/// Prepares the [`Exporter`] of an output. Reads the trust anchors of [`OtlpSettings::ca`], but does not connect.
///
/// # Errors
///
/// The reason: trust anchors that cannot be read, or a URL or header that is not valid.
pub fn connect_exporter(settings: &OtlpSettings) -> Result<Box<dyn Exporter>, String> {
    let url = format!("{}/{}", settings.endpoint.trim_end_matches('/'), settings.signal.path());
    let client = Client::new(&ClientSettings {
        authorities: settings.ca.clone(),
        limits: Limits { time: settings.timeout, body: RESPONSE, redirects: 0 },
        // The operator wrote the URL, so the receiver may have a private address.
        destinations: Destinations::default().with_url(&url),
    });
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    for (name, value) in &settings.headers.0 {
        let name: HeaderName = name.parse().map_err(|_| format!("{name:?} is no name of a header"))?;
        let mut value =
            HeaderValue::from_str(value).map_err(|_| format!("the value of {name} is not valid"))?;
        // Values may be credentials, which `Debug` then hides.
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    // A runtime for each exporter: its thread blocks on it, and a slow receiver delays no other output.
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    Ok(Box::new(HttpExporter {
        runtime: runtime.map_err(|error| error.to_string())?,
        client: client.map_err(|error| error.to_string())?,
        url: url.parse().map_err(|_| format!("{url} is no URL"))?,
        headers,
    }))
}

impl Exporter for HttpExporter {
    fn export(&mut self, body: Vec<u8>) -> Exported {
        let mut request = Request::new(Bytes::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = self.headers.clone();
        match self.runtime.block_on(self.client.send(request)) {
            Ok(response) if response.status.is_success() => Exported::Accepted(response.body.into()),
            Ok(response) if is_retryable(response.status) => {
                Exported::Unavailable(response.status.to_string())
            }
            Ok(response) => Exported::Refused(response.status.to_string()),
            // The receiver may have processed the request. Records that arrive twice are better than lost
            // ones.
            Err(error) => Exported::Unavailable(error.to_string()),
        }
    }
}

/// Whether a request is repeated after this status, by the specification of OTLP/HTTP: `429`, `502`, `503` and `504`.
fn is_retryable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}
