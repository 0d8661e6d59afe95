//! Requests of visitors, and the judgement of their responses.

use brisk_behaviour::site::NAME;
use brisk_testkit::random::Random;
use bytes::Bytes;
use http::header::{HOST, RETRY_AFTER};
use http::response::Parts;
use http::{Method, Request, StatusCode};
use http_body_util::Full;

use crate::fault::Failure;
use crate::shared::Outcome;
use crate::upstream::{ID, SLOW, body, receipt};

/// A request with an id of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) id: u64,
    pub(crate) kind: Kind,
}

/// Kind of an [`Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A body of this length from an upstream.
    Body(usize),
    /// A body whose response begins late, so that some are always under way.
    Slow,
    /// A POST of this length, which must not be repeated.
    Echo(usize),
    /// A body that ends early.
    Cut,
    /// The path of the request, without an upstream.
    Own,
}

impl Ask {
    /// A random request.
    pub(crate) fn random(id: u64, random: &mut Random) -> Self {
        let kind = match random.below(20) {
            0 => Kind::Cut,
            10 | 11 => Kind::Slow,
            1..=5 => Kind::Own,
            6..=9 => Kind::Echo(*random.of(&[1, 100, 3_000, 60_000])),
            _ => Kind::Body(*random.of(&[0, 10, 2_000, 2_000, 20_000, 200_000])),
        };
        Self { id, kind }
    }

    /// Path of the request.
    pub(crate) fn path(&self) -> String {
        let id = self.id;
        match self.kind {
            Kind::Body(length) => format!("/body/{length}/{id}"),
            Kind::Slow => format!("/slow/200/{id}"),
            Kind::Echo(_) => format!("/echo/{id}"),
            Kind::Cut => format!("/cut/{id}"),
            Kind::Own => format!("/own/{id}"),
        }
    }

    /// The request in the form of a version of HTTP.
    pub(crate) fn request(&self, version: Version) -> Request<Full<Bytes>> {
        let (path, request) = (self.path(), Request::builder());
        let request = match version {
            Version::Http1 => request.uri(path).header(HOST, NAME),
            Version::Http2 => request.uri(format!("https://{NAME}{path}")),
        };
        let (method, upload) = match self.kind {
            Kind::Echo(length) => (Method::POST, body(!self.id, length)),
            Kind::Body(_) | Kind::Slow | Kind::Cut | Kind::Own => (Method::GET, Vec::new()),
        };
        request.method(method).body(Full::from(upload)).expect("a request")
    }

    /// Outcome of a response, whose body is `None` if it ended early.
    pub(crate) fn judge(&self, head: &Parts, received: Option<&[u8]>) -> Outcome {
        match head.status {
            StatusCode::OK => self.judge_body(head, received),
            StatusCode::SERVICE_UNAVAILABLE if head.headers.contains_key(RETRY_AFTER) => {
                Outcome::Failed(Failure::Unavailable)
            }
            StatusCode::SERVICE_UNAVAILABLE => Outcome::Wrong("503 without Retry-After".to_owned()),
            // The gateway may see the end of the connection before it has sent a byte of the response.
            StatusCode::BAD_GATEWAY if self.kind == Kind::Cut => Outcome::Right,
            StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => {
                Outcome::Failed(self.failure(Failure::Gateway))
            }
            status => Outcome::Wrong(format!("status {status}")),
        }
    }

    fn judge_body(&self, head: &Parts, received: Option<&[u8]>) -> Outcome {
        let id = head.headers.get(ID).map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned());
        let of_other = self.kind != Kind::Own && id.as_deref() != Some(self.id.to_string().as_str());
        if of_other {
            return Outcome::Wrong(format!("the response of another request: {id:?}"));
        }
        let expected = match self.kind {
            Kind::Body(length) => body(self.id, length),
            Kind::Slow => body(self.id, SLOW),
            Kind::Echo(length) => receipt(self.id, &body(!self.id, length)).into_bytes(),
            Kind::Own => self.path().into_bytes(),
            Kind::Cut => {
                let is_cut = received.is_none();
                return if is_cut {
                    Outcome::Right
                } else {
                    Outcome::Wrong("a cut body looks complete".to_owned())
                };
            }
        };
        match received {
            None => Outcome::Failed(Failure::Cut),
            Some(received) if received == expected => Outcome::Right,
            Some(received) if self.kind == Kind::Own && received.starts_with(b"/own/") => {
                Outcome::Wrong("the response of another request".to_owned())
            }
            Some(received) => {
                let place = received.iter().zip(&expected).take_while(|(one, other)| one == other).count();
                Outcome::Wrong(format!(
                    "a wrong byte: {} of {} bytes, byte {place}",
                    received.len(),
                    expected.len()
                ))
            }
        }
    }

    /// The failure, which is [`Failure::Unsafe`] for a request that must not be repeated.
    pub(crate) fn failure(&self, failure: Failure) -> Failure {
        let is_unsafe = matches!(self.kind, Kind::Echo(_));
        match failure {
            Failure::Closed | Failure::Gateway | Failure::Cut if is_unsafe => Failure::Unsafe,
            failure => failure,
        }
    }
}

/// Version of HTTP of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    fn judged(ask: Ask, status: u16, headers: &[(&str, &str)], received: Option<&[u8]>) -> Outcome {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        ask.judge(&response.body(()).expect("a response").into_parts().0, received)
    }

    #[test]
    fn responses_are_judged_by_id_bytes_and_status() {
        let ask = Ask { id: 7, kind: Kind::Body(20) };
        let right = body(7, 20);
        let mut wrong = right.clone();
        wrong[3] ^= 1;
        let of = |id| judged(ask, 200, &[(ID, id)], Some(&right));
        assert_eq!(of("7"), Outcome::Right);
        assert!(matches!(of("8"), Outcome::Wrong(text) if text.contains("another request")));
        let outcome = judged(ask, 200, &[(ID, "7")], Some(&wrong));
        assert!(matches!(outcome, Outcome::Wrong(text) if text.contains("byte 3")));
        assert_eq!(judged(ask, 200, &[(ID, "7")], None), Outcome::Failed(Failure::Cut));
        assert_eq!(judged(ask, 502, &[], Some(b"")), Outcome::Failed(Failure::Gateway));
        assert_eq!(
            judged(ask, 503, &[("retry-after", "1")], Some(b"")),
            Outcome::Failed(Failure::Unavailable)
        );
        assert!(matches!(judged(ask, 503, &[], Some(b"")), Outcome::Wrong(_)));
        assert!(matches!(judged(ask, 404, &[], Some(b"")), Outcome::Wrong(_)));
    }

    #[test]
    fn a_cut_body_must_be_seen_and_an_upload_is_unsafe() {
        let cut = Ask { id: 7, kind: Kind::Cut };
        assert_eq!(judged(cut, 200, &[(ID, "7")], None), Outcome::Right);
        assert!(matches!(judged(cut, 200, &[(ID, "7")], Some(b"x")), Outcome::Wrong(_)));
        let upload = Ask { id: 7, kind: Kind::Echo(3) };
        assert_eq!(judged(upload, 504, &[], Some(b"")), Outcome::Failed(Failure::Unsafe));
        let sum = receipt(7, &body(!7, 3));
        assert_eq!(judged(upload, 200, &[(ID, "7")], Some(sum.as_bytes())), Outcome::Right);
    }
}
