//! Exporter of log records and spans over OTLP/HTTP, with the HTTP client of the gateway.
//!
//! The thread of an output of the access log uses an exporter, and waits for each response up to a timeout.

use brisk_fetch::{Client, ClientSettings, Destinations, Limits, Reason};
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
            Ok(response) => exported(response.status, response.body),
            Err(error) => match (error.status, &error.reason) {
                (Some(status), _) => exported(status, Bytes::new()),
                // A repetition would get the same response, and all later records would wait behind it.
                (None, Reason::Http(fault)) if fault.is_parse() => Exported::Refused(error.to_string()),
                // The receiver may have processed the request. Records that arrive twice are better than lost
                // ones.
                _ => Exported::Unavailable(error.to_string()),
            },
        }
    }
}

/// The meaning of a response, whose body may be missing.
fn exported(status: StatusCode, body: Bytes) -> Exported {
    if status.is_success() {
        Exported::Accepted(body.into())
    } else if is_retryable(status) {
        Exported::Unavailable(status.to_string())
    } else {
        Exported::Refused(status.to_string())
    }
}

/// Whether a request is repeated after this status, by the specification of OTLP/HTTP: `429`, `502`, `503` and `504`.
fn is_retryable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::settings::{ExportHeaders, OtlpSignal};

    /// The result of an export to a receiver that sends this response and closes the connection.
    fn export_to(response: String) -> Exported {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let settings = OtlpSettings {
            endpoint: format!("http://{}", listener.local_addr().expect("an address")),
            signal: OtlpSignal::Logs,
            service_name: String::new(),
            sample: None,
            ca: None,
            headers: ExportHeaders(Vec::new()),
            timeout: Duration::from_mins(1),
        };
        let receiver = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let (mut request, mut byte) = (Vec::new(), [0]);
            while !request.ends_with(b"\r\n\r\nx") {
                stream.read_exact(&mut byte).expect("a request");
                request.push(byte[0]);
            }
            // The exporter closes the connection after too long a body.
            let _ = stream.write_all(response.as_bytes());
        });
        let result = connect_exporter(&settings).expect("an exporter").export(b"x".to_vec());
        receiver.join().expect("a receiver");
        result
    }

    /// A refusal with a long error page used to be repeated forever, and all later records were lost.
    #[test]
    fn a_response_without_a_readable_body_counts_by_its_status() {
        let with_page = |status: u16| {
            let page = "x".repeat(RESPONSE + 1);
            export_to(format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{page}", page.len()))
        };
        assert!(matches!(with_page(413), Exported::Refused(_)));
        assert!(matches!(with_page(503), Exported::Unavailable(_)));
        assert!(matches!(with_page(200), Exported::Accepted(body) if body.is_empty()));
        let cut_off = "HTTP/1.1 400 X\r\nContent-Length: 9\r\n\r\nx".to_owned();
        assert!(matches!(export_to(cut_off), Exported::Refused(_)));
    }

    #[test]
    fn a_malformed_response_is_a_refusal_and_none_is_not() {
        assert!(matches!(export_to("HTTP/1.1 4x0 X\r\n\r\n".to_owned()), Exported::Refused(_)));
        assert!(matches!(export_to(String::new()), Exported::Unavailable(_)));
    }
}
