//! Transport of `instant-acme` over the gateway's HTTP client, which has limits for time and size.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use brisk_fetch::{Client, FetchResponse};
use brisk_telemetry::changes_display;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use serde_json::Value;
use tokio::task;

use crate::error::ForeignError;

/// Longest accepted `Retry-After`. A longer one would leave names without certificates.
const LONGEST: Duration = Duration::from_hours(24);

/// Age from which a `Retry-After` is dropped: a task reads the value as soon as it has the response.
const KEPT: Duration = Duration::from_mins(5);

/// Maximum number of tasks whose `Retry-After` is kept; a further one replaces the oldest.
const MOST_TASKS: usize = 1024;

/// `Retry-After` of the last response, by task: `instant-acme` does not return headers, and the tasks of several hosts
/// share one account. A response with a `Retry-After` drops the values older than five minutes.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastRetryAfter(Arc<Mutex<RetryAfters>>);

/// Values, each with the time of its response.
type RetryAfters = HashMap<Option<task::Id>, (Duration, Instant)>;

impl LastRetryAfter {
    /// The `Retry-After` of the last response to this task.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.get(&task::try_id()).map(|(retry_after, _)| *retry_after)
    }

    fn note(&self, retry_after: Option<Duration>, now: Instant) {
        let (task, mut noted) = (task::try_id(), self.0.lock().unwrap_or_else(PoisonError::into_inner));
        // Removed even without a new value: the pause of an earlier response must not be applied to this
        // one.
        noted.remove(&task);
        let Some(retry_after) = retry_after else { return };
        noted.retain(|_, (_, at)| now.saturating_duration_since(*at) < KEPT);
        if noted.len() >= MOST_TASKS {
            let oldest = noted.iter().min_by_key(|(_, (_, at))| *at).map(|(task, _)| *task);
            if let Some(oldest) = oldest {
                noted.remove(&oldest);
            }
        }
        noted.insert(task, (retry_after, now));
    }
}

/// HTTP client in the interface of `instant-acme`.
#[derive(Debug)]
pub(crate) struct Http {
    pub(crate) client: Client,
    pub(crate) noted: LastRetryAfter,
}

type Body = BodyWrapper<Bytes>;

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
            // A failed request must not inherit the value of the response before it.
            noted.note(None, Instant::now());
            let fetched = client.send(Request::from_parts(head, body)).await;
            let mut fetched = fetched.map_err(|error| Error::Other(Box::new(error)))?;
            noted.note(bound_retry_after(&mut fetched.headers), Instant::now());
            understood(place, &fetched)?;
            let mut response = Response::new(Full::new(body_with_status(&fetched)));
            *response.status_mut() = fetched.status;
            *response.headers_mut() = fetched.headers;
            Ok(response.into())
        })
    }
}

/// Longest excerpt of an error response, in characters.
const EXCERPT: usize = 200;

/// Reports an error response that is not JSON as a [`ForeignError`]. Without it, `instant-acme` would report a JSON syntax
/// error.
pub(crate) fn understood(request: String, response: &FetchResponse) -> Result<(), Error> {
    let kind = response.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let status = response.status;
    if status.is_success() || status.is_redirection() || kind.contains("json") {
        return Ok(());
    }
    let mut excerpt = excerpt(&response.body);
    if !excerpt.is_empty() {
        excerpt.insert_str(0, ": ");
    }
    Err(Error::Other(Box::new(ForeignError { request, status, excerpt })))
}

/// The body, in which a problem document has the status of the response. RFC 9457 section 3.1.2: the member is optional and
/// only advisory, but `instant-acme` reads the status from nowhere else.
fn body_with_status(response: &FetchResponse) -> Bytes {
    let is_error = response.status.is_client_error() || response.status.is_server_error();
    let Some(Value::Object(mut problem)) =
        is_error.then(|| serde_json::from_slice(&response.body).ok()).flatten()
    else {
        return response.body.clone();
    };
    problem.insert("status".to_owned(), response.status.as_u16().into());
    Value::Object(problem).to_string().into()
}

/// The beginning of a text in one line, without characters that change a terminal.
fn excerpt(body: &[u8]) -> String {
    // More bytes than characters are needed, and not more than these are converted.
    let text = String::from_utf8_lossy(&body[..body.len().min(8 * EXCERPT)]);
    let words = text.split(|c: char| c.is_whitespace() || changes_display(c)).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").chars().take(EXCERPT).collect()
}

/// Parses `Retry-After`: seconds or a date (RFC 9110 section 10.2.3). Values above [`LONGEST`] are replaced in the
/// headers too, because `instant-acme` adds the value to the present time, which may overflow.
fn bound_retry_after(headers: &mut HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let said = match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        // More digits than `u64` holds.
        Err(_) if is_number => Some(Duration::MAX),
        Err(_) => {
            httpdate::parse_http_date(text).ok().and_then(|date| date.duration_since(SystemTime::now()).ok())
        }
    };
    if said.is_some_and(|said| said > LONGEST) {
        headers.insert(RETRY_AFTER, HeaderValue::from(LONGEST.as_secs()));
    }
    said.map(|said| said.min(LONGEST))
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use instant_acme::Problem;

    use super::*;
    use crate::error::{is_gone, is_refused};

    /// An error of a proxy used to count as a final refusal, after which the order and the key of a new account were removed.
    #[test]
    fn a_problem_without_a_status_has_that_of_its_response() {
        let error = |status: StatusCode, body: &'static str| -> Error {
            let response = FetchResponse { status, headers: HeaderMap::new(), body: body.into() };
            let problem: Problem = serde_json::from_slice(&body_with_status(&response)).expect("a problem");
            problem.into()
        };
        assert!(!is_refused(&error(StatusCode::SERVICE_UNAVAILABLE, r#"{"message":"down"}"#)));
        assert!(!is_refused(&error(StatusCode::TOO_MANY_REQUESTS, r#"{"detail":"slow"}"#)));
        assert!(is_gone(&error(StatusCode::NOT_FOUND, r#"{"type":"about:blank","status":503}"#)));
        let other = FetchResponse { status: StatusCode::OK, headers: HeaderMap::new(), body: "{}".into() };
        assert_eq!(body_with_status(&other), "{}");
    }

    #[test]
    fn an_error_that_is_not_json_is_quoted_in_one_line() {
        assert_eq!(
            excerpt(b"<h1>down</h1>\r\n\tuntil\x1b[2J 5\xe2\x80\xaepm\xff"),
            "<h1>down</h1> until [2J 5 pm\u{fffd}"
        );
        assert_eq!(excerpt("é ".repeat(9000).as_bytes()).chars().count(), EXCERPT);
    }

    /// Each task left an entry, also after its end.
    #[tokio::test]
    async fn values_of_ended_tasks_are_dropped() {
        let (noted, now) = (LastRetryAfter::default(), Instant::now());
        let note = |seconds: u64, at: Instant| {
            let noted = noted.clone();
            tokio::spawn(async move {
                noted.note(Some(Duration::from_secs(seconds)), at);
                assert_eq!(noted.retry_after(), Some(Duration::from_secs(seconds)));
            })
        };
        let number = || noted.0.lock().expect("a lock").len();
        for seconds in 0..=MOST_TASKS as u64 {
            note(seconds, now).await.expect("a task");
        }
        assert_eq!(number(), MOST_TASKS);
        note(7, now + KEPT).await.expect("a task");
        assert_eq!(number(), 1);
    }

    #[test]
    fn no_answer_keeps_a_name_waiting_for_longer_than_a_day() {
        let bounded = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_str(text).unwrap());
            let said = bound_retry_after(&mut headers);
            (said.map(|said| said.as_secs()), headers[RETRY_AFTER].to_str().unwrap().to_owned())
        };
        assert_eq!(bounded("120"), (Some(120), "120".to_owned()));
        let day = (Some(86_400), "86400".to_owned());
        for text in
            ["604800", "18446744073709551615", "99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"]
        {
            assert_eq!(bounded(text), day, "{text}");
        }
        assert_eq!(bounded("soon").0, None);
    }
}
