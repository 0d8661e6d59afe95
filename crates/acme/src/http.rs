//! The library's requests, over the gateway's own client.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use brisk_fetch::{Answer, Client};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};

/// What is noted of answers, since the library does not hand it out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted(Arc<Mutex<Option<Duration>>>);

impl Noted {
    /// The `Retry-After` of the last answer.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, answer: &Answer) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = retry_after(answer);
    }
}

/// Asks for the library.
#[derive(Debug)]
pub(crate) struct Http {
    pub(crate) client: Client,
    pub(crate) noted: Noted,
}

type Body = BodyWrapper<bytes::Bytes>;

impl HttpClient for Http {
    fn request(
        &self,
        request: Request<Body>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (client, noted) = (self.client.clone(), self.noted.clone());
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = match body.collect().await {
                Ok(body) => body.to_bytes(),
                Err(never) => match never {},
            };
            let place = format!("{} {}", head.method, head.uri);
            let answer = client.send(Request::from_parts(head, body)).await;
            let answer = answer.map_err(|error| Error::Other(Box::new(error)))?;
            noted.note(&answer);
            understood(&place, &answer)?;
            let mut response = Response::new(Full::new(answer.body));
            *response.status_mut() = answer.status;
            *response.headers_mut() = answer.headers;
            Ok(response.into())
        })
    }
}

/// An error that is no problem document is reported as what it is: the library would report that it is no JSON.
fn understood(place: &str, answer: &Answer) -> Result<(), Error> {
    let kind = answer.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if answer.status.is_success() || answer.status.is_redirection() || kind.contains("json") {
        return Ok(());
    }
    Err(Error::Other(format!("{place}: the server answered {}", answer.status).into()))
}

/// RFC 9110 section 10.2.3: seconds, or a date.
fn retry_after(answer: &Answer) -> Option<Duration> {
    let text = answer.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::now()).ok(),
    }
}
