//! Credentials of a request, and the responses that are the same for all users.
//!
//! Compression, early hints and dictionaries decide by these functions: a response with the secrets of one user must
//! neither reveal its length to another site (BREACH) nor be retained for other users.

use brisk_http::message::HeaderList;
use brisk_http_connection::Connection;
use http::{HeaderValue, header};

use crate::header_values::has_directive;

/// Credentials that a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// None: the client is unknown.
    None,
    /// A bearer token, which scripts add to a request and browsers never add by themselves.
    Token,
    /// Credentials that a browser also adds to requests which another site causes: a cookie, a password, the
    /// certificate of the client, or a login of the connection (NTLM, Negotiate).
    Ambient,
}

impl Credentials {
    /// The credentials of a request with these headers on `connection`.
    pub fn of(headers: &HeaderList, connection: &Connection) -> Self {
        let has_certificate = || {
            let record = connection.client.record.borrow();
            record.tls.as_ref().is_some_and(|tls| tls.client_subject.is_some())
        };
        let authorization = headers.get(header::AUTHORIZATION);
        let is_ambient = headers.contains_key(header::COOKIE)
            || authorization.is_some_and(|value| !is_bearer(value))
            || connection.extras.logins().is_some()
            || has_certificate();
        match authorization {
            _ if is_ambient => Self::Ambient,
            Some(_) => Self::Token,
            None => Self::None,
        }
    }

    /// Whether the response with these headers to a request with these credentials is the same for all users, so that it may be
    /// retained for others. Responses with `private` or `no-store` never are; with credentials, only those with `public` (RFC
    /// 9111 section 3.5).
    pub fn permit_retention(self, response: &HeaderList) -> bool {
        !has_directive(response, "private")
            && !has_directive(response, "no-store")
            && (self == Self::None || has_directive(response, "public"))
    }
}

fn is_bearer(authorization: &HeaderValue) -> bool {
    authorization.as_bytes().get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "))
}

#[cfg(test)]
mod tests {
    use brisk_http_connection::testing::{connection, tls_facts};
    use brisk_telemetry::TlsFacts;
    use http::HeaderName;

    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderList {
        let lines = lines.iter();
        lines.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    fn of(lines: &[(&'static str, &'static str)]) -> Credentials {
        Credentials::of(&headers(lines), &connection())
    }

    #[test]
    fn headers_with_credentials_are_recognized() {
        assert_eq!(of(&[("accept", "*/*")]), Credentials::None);
        assert_eq!(of(&[("authorization", "Bearer x")]), Credentials::Token);
        assert_eq!(of(&[("authorization", "Basic eDp5")]), Credentials::Ambient);
        assert_eq!(of(&[("authorization", "bearer x"), ("cookie", "a=b")]), Credentials::Ambient);
    }

    #[test]
    fn the_certificate_of_a_client_is_a_credential() {
        let connection = connection();
        let facts = TlsFacts { client_subject: Some("CN=a".into()), ..tls_facts() };
        connection.client.record.borrow_mut().tls = Some(Box::new(facts));
        assert_eq!(Credentials::of(&HeaderList::new(), &connection), Credentials::Ambient);
    }

    #[test]
    fn a_login_of_the_connection_is_a_credential() {
        let connection = connection();
        connection.extras.logins_or(|| Box::new(()));
        assert_eq!(Credentials::of(&HeaderList::new(), &connection), Credentials::Ambient);
    }

    #[test]
    fn responses_for_one_user_are_not_retained() {
        let may = |credentials: Credentials, control: &'static str| {
            credentials.permit_retention(&headers(&[("cache-control", control)]))
        };
        for credentials in [Credentials::None, Credentials::Token, Credentials::Ambient] {
            assert!(may(credentials, "max-age=5, Public"));
            for control in
                ["private", "no-store", "public, No-Store", "public, private", "x=\"a, public\", private"]
            {
                assert!(!may(credentials, control), "{credentials:?} {control}");
            }
            assert_eq!(may(credentials, "max-age=5"), credentials == Credentials::None);
        }
    }
}
