//! Requests to the operator's server, which accepts or rejects an on-demand name.

use std::net::IpAddr;
use std::time::Duration;

use brisk_fetch::{Client, FetchError, Limits, Reason};
use http::StatusCode;

/// Timeout of a request.
const TIME: Duration = Duration::from_secs(5);

/// Maximum length of a response body. The content is ignored.
const BODY: usize = 64 * 1024;

/// Decision of the operator's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The name is accepted (status 200).
    Accepted,
    /// The name is rejected.
    Rejected,
    /// No decision, with the reason.
    Unknown(String),
}

/// Requests a decision about `name`, a valid host name, from `url`. `asking` is the address of the client that sent the
/// name. Redirects are not followed.
pub(super) async fn ask(client: &Client, url: &str, name: &str, asking: Option<IpAddr>) -> Decision {
    let limits = Limits { time: TIME, body: BODY, redirects: 0 };
    match client.with_limits(limits).get(&address(url, name, asking)).await {
        Ok(answer) => meaning(answer.status),
        // The text of these errors contains the whole URL, with secrets in user or query.
        Err(FetchError { reason: Reason::Url(_), .. }) => {
            Decision::Unknown("the URL cannot be requested".to_owned())
        }
        Err(FetchError { status: Some(status), .. }) => meaning(status),
        Err(error) => Decision::Unknown(error.reason.to_string()),
    }
}

/// The URL without user, query and fragment, for the log: all three may contain secrets.
pub(super) fn without_secrets(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = plain.split_once("://") else { return String::new() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// Maps a status to a decision: only 200 accepts. Statuses about the server instead of the name (408, 429, 5xx) are no
/// decision.
fn meaning(status: StatusCode) -> Decision {
    match status {
        StatusCode::OK => Decision::Accepted,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
            Decision::Unknown(format!("it responded with {status}"))
        }
        status if status.is_server_error() => Decision::Unknown(format!("it responded with {status}")),
        _ => Decision::Rejected,
    }
}

/// Adds the name and the client to the query. Host names and IP addresses need no escapes there (RFC 3986 section 3.4).
fn address(url: &str, name: &str, asking: Option<IpAddr>) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    let client = asking.map(|client| format!("&client={client}")).unwrap_or_default();
    format!("{url}{separator}domain={name}{client}")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use brisk_fetch::{ClientSettings, Destinations};
    use brisk_testkit::origin::Origin;

    use super::*;

    #[test]
    fn the_question_is_added_to_the_address() {
        assert_eq!(address("http://a/ask", "b.test", None), "http://a/ask?domain=b.test");
        let client = Some("2001:db8::1".parse().unwrap());
        assert_eq!(
            address("http://a/?x=1", "b.test", client),
            "http://a/?x=1&domain=b.test&client=2001:db8::1"
        );
    }

    #[test]
    fn the_log_has_no_secrets_of_the_address() {
        for (url, expected) in [
            ("http://a:8000/ask", "http://a:8000/ask"),
            ("https://user:p@ss@a/ask?token=secret", "https://a/ask"),
            ("http://a?token=x/y@z", "http://a"),
        ] {
            assert_eq!(without_secrets(url), expected);
        }
    }

    #[tokio::test]
    async fn only_200_is_a_yes_and_no_answer_is_none() {
        let origin = Origin::answering(|request, stream| {
            let status = request.head.line.split(['=', ' ']).nth(2).unwrap_or("500").replace(".test", "");
            let more = if status == "302" { "Location: /yes\r\n" } else { "" };
            let page = if status == "410" { "x".repeat(BODY + 1) } else { String::new() };
            write!(stream, "HTTP/1.1 {status} X\r\n{more}Content-Length: {}\r\n\r\n{page}", page.len())
        });
        let url = format!("{}/ask", origin.url());
        let destinations = Destinations::default().with_url(&url);
        let client = Client::new(&ClientSettings { destinations, ..ClientSettings::default() }).unwrap();
        for (status, expected) in [
            ("200", Some(Decision::Accepted)),
            ("204", Some(Decision::Rejected)),
            ("403", Some(Decision::Rejected)),
            ("404", Some(Decision::Rejected)),
            // With a body above the limit, which has no meaning.
            ("410", Some(Decision::Rejected)),
            ("429", None),
            ("503", None),
            ("302", None),
        ] {
            let answer = ask(&client, &url, &format!("{status}.test"), None).await;
            match expected {
                Some(expected) => assert_eq!(answer, expected, "{status}"),
                None => assert!(matches!(answer, Decision::Unknown(_)), "{status}: {answer:?}"),
            }
        }
        drop(origin);
        for gone in ["http://127.0.0.1:1/?token=secret", "http://user:secret@127.0.0.1:1/"] {
            let Decision::Unknown(reason) = ask(&client, gone, "a.test", None).await else {
                panic!("{gone}")
            };
            assert!(!reason.contains("secret"), "{reason}");
        }
    }
}
