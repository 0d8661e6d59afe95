//! Access control.

mod tokens;

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use brisk_access::{CertificateRules, Credentials, NetworkRules};
use brisk_http::message::HeaderList;
use brisk_http::validate::Refusal;
use brisk_http_connection::Connection;
use brisk_jwt::{Token, TokenFault};
use brisk_net::limits::client_of;
use brisk_telemetry::Side;
use http::{StatusCode, header};

use self::tokens::Lacking;
use crate::error_page::error_page;
use crate::exchange::Exchange;
use crate::features::access::{BasicAuth, TokenAuth};
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};

/// Refuses clients that may not use the route, with `403` (RFC 9110 section 15.5.4), or with `401` and a challenge if a
/// password or a token is missing. Compiled if the route or its host restricts the clients; the networks of the host apply to
/// requests without a route as well.
#[derive(Debug)]
pub(crate) struct AccessStage {
    networks: Option<Arc<NetworkRules>>,
    certificates: Option<Arc<CertificateRules>>,
    basic_auth: Option<BasicAuth>,
    tokens: Option<TokenAuth>,
    /// Whether one restriction is sufficient, instead of all.
    is_any_sufficient: bool,
}

impl Stage for AccessStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let route = context.route().map(|route| &route.access);
        let of_route = route.and_then(|access| access.networks.as_ref());
        let networks = of_route.or(context.host?.settings.networks.as_ref());
        let tokens = route.and_then(|access| access.tokens.clone());
        let stage = Self {
            // `deny = []` of a route is open: it lifts the lists of the host.
            networks: networks.filter(|networks| !networks.is_open()).cloned(),
            certificates: route.and_then(|access| access.certificates.clone()),
            basic_auth: route.and_then(|access| access.basic_auth.clone()),
            tokens,
            is_any_sufficient: route.is_some_and(|access| access.is_any_sufficient),
        };
        let has_credentials = stage.basic_auth.is_some() || stage.tokens.is_some();
        let is_used = stage.networks.is_some() || stage.certificates.is_some() || has_credentials;
        is_used.then_some(stage)
    }

    fn request(
        &self,
        exchange: &mut Exchange,
        request: &mut ClientRequest,
        state: &mut RequestState,
    ) -> Flow {
        match self.decision(exchange.connection(), exchange.client().ip()) {
            Decision::Permitted => return Flow::Continue,
            Decision::Refused(reason) => return Flow::Refuse(Refusal::new(StatusCode::FORBIDDEN, reason)),
            Decision::ByCredentials => {}
        }
        let headers = &request.head.headers;
        let mut lacking = None;
        // The token first: a password takes tens of milliseconds.
        if let Some(tokens) = &self.tokens {
            match tokens.examine(headers) {
                Ok(Some(token)) => {
                    if self.is_sufficient(token, exchange, state) {
                        return Flow::Continue;
                    }
                }
                Ok(None) => return Flow::Wait,
                Err(fault) => lacking = Some(fault),
            }
        }
        let Some((basic_auth, credentials)) = self.next(lacking).zip(credentials(headers)) else {
            return self.challenge(lacking, exchange);
        };
        match basic_auth.passwords.remembered(&credentials) {
            Some(user) => admit(user, exchange),
            None => Flow::Wait,
        }
    }

    /// Waits for the verification of a token, for keys of tokens, and for the verification of a password.
    async fn wait(
        &self,
        exchange: &mut Exchange,
        request: &mut ClientRequest,
        state: &mut RequestState,
    ) -> Flow {
        // The work is counted for the client.
        exchange.hold_until_proven().await;
        let client = client_of(exchange.client().ip());
        let headers = &request.head.headers;
        let mut lacking = None;
        // `request` has taken a known token already, if only the password is unknown.
        if let Some(tokens) = self.tokens.as_ref().filter(|_| state.token.is_none()) {
            let connection = Rc::clone(exchange.connection());
            match tokens.verify(headers, &connection, client).await {
                Ok(token) => {
                    if self.is_sufficient(token, exchange, state) {
                        return Flow::Continue;
                    }
                }
                Err(fault) => lacking = Some(fault),
            }
        }
        let Some((basic_auth, credentials)) = self.next(lacking).zip(credentials(headers)) else {
            return self.challenge(lacking, exchange);
        };
        match basic_auth.passwords.verify(credentials, client, &basic_auth.threads).await {
            Ok(Some(user)) => admit(user, exchange),
            Ok(None) => {
                exchange.fail(Side::Client, "password");
                self.challenge(None, exchange)
            }
            Err(_) => unavailable("password-queue", exchange),
        }
    }

    // Not before: other stages examine the request for credentials, so that its response is not shared.
    fn forward(&self, _: &Exchange, state: &RequestState, headers: &mut HeaderList) {
        let is_kept = self.basic_auth.as_ref().is_none_or(|basic_auth| basic_auth.forwards)
            && self.tokens.as_ref().is_none_or(|tokens| tokens.forwards);
        if !is_kept {
            headers.remove(header::AUTHORIZATION);
        }
        for (name, value) in state.token.iter().flat_map(|token| &token.headers) {
            // `insert`: a header of the client with this name must not stay beside the claim.
            headers.insert(name, value.clone());
        }
    }
}

/// Decision about a connection, before the credentials of a request are examined.
enum Decision {
    Permitted,
    Refused(&'static str),
    ByCredentials,
}

impl AccessStage {
    // The address may be from any source, also unproven: a route with networks lets early data wait for the handshake.
    fn decision(&self, connection: &Connection, address: IpAddr) -> Decision {
        let owns = |certificates: &Arc<CertificateRules>| {
            connection.identity().is_some_and(|identity| certificates.permit(identity))
        };
        let results = [
            self.networks.as_ref().map(|networks| (networks.permits(address), "client-address")),
            self.certificates.as_ref().map(|certificates| (owns(certificates), "client-certificate")),
        ];
        let results = || results.iter().flatten();
        let is_met = self.is_any_sufficient && results().any(|(is_met, _)| *is_met);
        let fault = results().find(|(is_met, _)| !is_met).map(|(_, reason)| *reason);
        let has_credentials = self.basic_auth.is_some() || self.tokens.is_some();
        match fault {
            _ if is_met => Decision::Permitted,
            Some(reason) if !self.is_any_sufficient || !has_credentials => Decision::Refused(reason),
            _ if has_credentials => Decision::ByCredentials,
            _ => Decision::Permitted,
        }
    }

    /// Takes a valid token. Returns whether the request needs no password.
    fn is_sufficient(&self, token: Arc<Token>, exchange: &mut Exchange, state: &mut RequestState) -> bool {
        if let Some(user) = &token.subject {
            exchange.name_user(Arc::clone(user));
        }
        state.token = Some(token);
        self.is_any_sufficient || self.basic_auth.is_none()
    }

    /// The passwords to examine after the token. `None` if the request is to be refused.
    fn next(&self, lacking: Option<Lacking>) -> Option<&BasicAuth> {
        self.basic_auth.as_ref().filter(|_| lacking.is_none() || self.is_any_sufficient)
    }

    /// RFC 9110 section 15.5.2: a `401` response has `WWW-Authenticate`. Without the keys of the issuer, the response is `503`.
    fn challenge(&self, lacking: Option<Lacking>, exchange: &mut Exchange) -> Flow {
        // A request without credentials is no failure: clients send them after the challenge.
        if let Some(Lacking::Refused(fault)) = lacking {
            if fault == TokenFault::NoKeys {
                return unavailable(fault.name(), exchange);
            }
            exchange.fail(Side::Client, fault.name());
        }
        let mut response = error_page(StatusCode::UNAUTHORIZED, exchange.id());
        let basic = self.next(lacking).map(|basic_auth| basic_auth.challenge.clone());
        let token = self.tokens.as_ref().zip(lacking).map(|(_, lacking)| lacking.challenge());
        for challenge in basic.into_iter().chain(token) {
            response.headers_mut().append(header::WWW_AUTHENTICATE, challenge);
        }
        Flow::Respond(Box::new(response))
    }
}

fn unavailable(reason: &'static str, exchange: &mut Exchange) -> Flow {
    exchange.fail(Side::Internal, reason);
    Flow::Respond(Box::new(error_page(StatusCode::SERVICE_UNAVAILABLE, exchange.id())))
}

/// The credentials in a request. `None` also for several headers, of which an upstream could use another one.
fn credentials(headers: &HeaderList) -> Option<Credentials> {
    let mut values = headers.get_all(header::AUTHORIZATION);
    let value = values.next().filter(|_| values.next().is_none())?;
    Credentials::read(value.as_bytes())
}

fn admit(user: Arc<str>, exchange: &mut Exchange) -> Flow {
    exchange.name_user(user);
    Flow::Continue
}
