//! Authentication of connections instead of requests: `NTLM`, and `Negotiate` as many servers implement it (RFC 4559).
//!
//! A server that has authenticated a connection treats every request on it as one of that user. An HTTP/1.1 connection
//! with such an attempt or challenge therefore belongs to one client connection from then on: it carries only that
//! client's requests, closes with it and is never shared. HTTP/2 shares connections by design: if either side uses
//! HTTP/2, a request with such a login gets an upstream connection for itself. The several steps of NTLM cannot succeed
//! there, the single step of Kerberos can.
//!
//! With `pool.max_connections`, an idle connection closes for a request that waits ([`Server::yield_idle`]). The client then has to
//! log in again. Otherwise a few clients could hold all connections.

use std::cell::RefCell;
use std::rc::Rc;

use brisk_http::message::HeaderList;
use brisk_http_connection::Connection;
use http::header::{AUTHORIZATION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};

use crate::group::{Group, Server};
use crate::http1::Http1;
use crate::pool::PrivateSlot;

/// Whether a request tries to authenticate its connection, in `Authorization` or `Proxy-Authorization`.
pub(crate) fn is_attempt(headers: &HeaderList) -> bool {
    let credentials = [AUTHORIZATION, PROXY_AUTHORIZATION];
    credentials.into_iter().any(|name| headers.get_all(name).any(names_scheme))
}

/// Whether a response demands the authentication of its connection: `401` or `407` with one of the schemes.
pub(crate) fn is_challenge(status: StatusCode, headers: &HeaderList) -> bool {
    let name = match status {
        StatusCode::UNAUTHORIZED => WWW_AUTHENTICATE,
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => PROXY_AUTHENTICATE,
        _ => return false,
    };
    headers.get_all(name).any(names_scheme)
}

/// Whether a challenge, or credentials, name `NTLM` or `Negotiate`.
///
/// RFC 9110 section 11.6.1: a value may list several challenges. A comma within a quoted string can only produce a
/// false match, which costs one connection.
fn names_scheme(value: &HeaderValue) -> bool {
    value.as_bytes().split(|byte| *byte == b',').any(|challenge| {
        let challenge = challenge.trim_ascii_start();
        let end = challenge.iter().position(u8::is_ascii_whitespace).unwrap_or(challenge.len());
        let scheme = &challenge[..end];
        scheme.eq_ignore_ascii_case(b"ntlm") || scheme.eq_ignore_ascii_case(b"negotiate")
    })
}

/// Idle upstream connections of one client connection with a login: at most one per [`Server`].
#[derive(Debug, Default)]
pub(crate) struct PrivateConnections(RefCell<Vec<(Rc<Server>, Rc<PrivateSlot>)>>);

impl PrivateConnections {
    /// The connections of `client`; `None` if `client` never had any.
    pub(crate) fn of(client: &Connection) -> Option<&Self> {
        client.extras.logins()?.downcast_ref()
    }

    /// The connections of `client`, created if necessary.
    pub(crate) fn with(client: &Connection) -> &Self {
        let private = client.extras.logins_or(|| Box::new(Self::default()));
        private.downcast_ref().expect("nothing else is kept here")
    }

    /// The server of `group` at which the client is authenticated, if known.
    pub(crate) fn server(&self, group: &Group) -> Option<Rc<Server>> {
        let kept = self.0.borrow();
        if kept.is_empty() {
            return None;
        }
        let is_known = |server: &&Rc<Server>| {
            kept.iter().any(|(own, slot)| Rc::ptr_eq(own, server) && slot.borrow().is_some())
        };
        group.servers().iter().find(is_known).cloned()
    }

    /// Takes the connection to `server`, unless it has been closed.
    pub(crate) fn take(&self, server: &Rc<Server>) -> Option<Box<Http1>> {
        let mut kept = self.0.borrow_mut();
        let index = kept.iter().position(|(own, _)| Rc::ptr_eq(own, server))?;
        let (_, slot) = kept.swap_remove(index);
        let mut http1 = slot.take()?;
        // The login has ended with a closed connection. The server then demands another one.
        (!http1.found_closed()).then_some(http1)
    }

    /// Keeps a reusable connection for the client's next request. Replaces an earlier connection to the same server.
    pub(crate) fn put(&self, server: &Rc<Server>, http1: Box<Http1>) {
        let mut kept = self.0.borrow_mut();
        kept.retain(|(own, _)| !Rc::ptr_eq(own, server));
        kept.push((Rc::clone(server), server.pool().put_private(http1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(value: &'static str) -> bool {
        names_scheme(&HeaderValue::from_static(value))
    }

    #[test]
    fn schemes_that_log_a_connection_in_are_found_wherever_they_stand() {
        for value in [
            "NTLM",
            "ntlm TlRMTVNT",
            "Negotiate",
            "NEGOTIATE YII=",
            "Basic realm=\"a\", NTLM",
            "Basic,negotiate",
        ] {
            assert!(names(value), "{value}");
        }
        for value in ["", "Basic TlRMTQ==", "Bearer ntlm", "Digest realm=\"NTLM\"", "NTLMv2", "Negotiated x"]
        {
            assert!(!names(value), "{value}");
        }
    }

    #[test]
    fn only_a_refusal_is_a_challenge() {
        let mut headers = HeaderList::new();
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("NTLM"));
        assert!(is_challenge(StatusCode::UNAUTHORIZED, &headers));
        assert!(!is_challenge(StatusCode::OK, &headers));
        assert!(!is_challenge(StatusCode::PROXY_AUTHENTICATION_REQUIRED, &headers));
    }
}
