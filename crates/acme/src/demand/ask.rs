//! Asks the operator's server whether a name is served.

use std::net::IpAddr;
use std::time::Duration;

use brisk_fetch::{Client, FetchError, Limits, Reason};
use http::StatusCode;

/// How long an answer may take.
const TIME: Duration = Duration::from_secs(5);

/// What an answer may have in its body, which says nothing.
const BODY: usize = 64 * 1024;

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The name is served.
    Yes,
    /// It is not.
    No,
    /// There was no answer that counts, and why.
    Unknown(String),
}

/// Asks `url` about `name`, which is a host name.
pub(super) async fn ask(client: &Client, url: &str, name: &str, asking: Option<IpAddr>) -> Answer {
    let limits = Limits { time: TIME, body: BODY, redirects: 0 };
    match client.with_limits(limits).get(&address(url, name, asking)).await {
        Ok(answer) => meaning(answer.status),
        // Their texts have the whole address too, and so what may be secret in it.
        Err(FetchError { reason: Reason::Url(_), .. }) => {
            Answer::Unknown("it is no address that can be asked".to_owned())
        }
        Err(error) => Answer::Unknown(error.reason.to_string()),
    }
}

/// The address for the log: what may be secret, user and query, is left out.
pub(super) fn without_secrets(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = plain.split_once("://") else { return String::new() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// Only 200 is a yes. What a server says of itself, and not of the name, is no answer.
fn meaning(status: StatusCode) -> Answer {
    match status {
        StatusCode::OK => Answer::Yes,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
            Answer::Unknown(format!("it answered {status}"))
        }
        status if status.is_server_error() => Answer::Unknown(format!("it answered {status}")),
        _ => Answer::No,
    }
}

/// Nothing in a host name or an address needs escapes in a query (RFC 3986 section 3.4).
fn address(url: &str, name: &str, asking: Option<IpAddr>) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    let client = asking.map(|client| format!("&client={client}")).unwrap_or_default();
    format!("{url}{separator}domain={name}{client}")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use brisk_fetch::ClientSettings;
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
            write!(stream, "HTTP/1.1 {status} X\r\n{more}Content-Length: 0\r\n\r\n")
        });
        let client = Client::new(&ClientSettings::default()).unwrap();
        let url = format!("{}/ask", origin.url());
        for (status, expected) in [
            ("200", Some(Answer::Yes)),
            ("204", Some(Answer::No)),
            ("403", Some(Answer::No)),
            ("404", Some(Answer::No)),
            ("429", None),
            ("503", None),
            ("302", None),
        ] {
            let answer = ask(&client, &url, &format!("{status}.test"), None).await;
            match expected {
                Some(expected) => assert_eq!(answer, expected, "{status}"),
                None => assert!(matches!(answer, Answer::Unknown(_)), "{status}: {answer:?}"),
            }
        }
        drop(origin);
        for gone in ["http://127.0.0.1:1/?token=secret", "http://user:secret@127.0.0.1:1/"] {
            let Answer::Unknown(reason) = ask(&client, gone, "a.test", None).await else { panic!("{gone}") };
            assert!(!reason.contains("secret"), "{reason}");
        }
    }
}
