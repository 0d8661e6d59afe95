//! Access control.

use std::sync::Arc;

use brisk_access::{CertificateRules, Credentials, NetworkRules};
use brisk_http::validate::Refusal;
use brisk_http_connection::Connection;
use brisk_telemetry::Side;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::error_page::error_page;
use crate::exchange::Exchange;
use crate::settings::BasicAuth;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};

/// Time after which a client may try again if too many passwords are being verified, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("2");

/// Refuses clients that may not use the route, with 403 (RFC 9110 section 15.5.4), or with 401 and a challenge if a
/// password is missing. Compiled if the route or its host restricts the clients; the networks of the host apply to requests
/// without a route as well.
#[derive(Debug)]
pub(super) struct AccessStage {
    networks: Option<Arc<NetworkRules>>,
    certificates: Option<Arc<CertificateRules>>,
    basic_auth: Option<BasicAuth>,
    /// Whether one restriction is sufficient, instead of all.
    is_any_sufficient: bool,
}

impl Stage for AccessStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let route = context.route().map(|route| &route.access);
        let of_route = route.and_then(|access| access.networks.as_ref());
        let networks = of_route.or(context.host?.settings.networks.as_ref());
        let stage = Self {
            networks: networks.filter(|networks| !networks.is_open()).cloned(),
            certificates: route.and_then(|access| access.certificates.clone()),
            basic_auth: route.and_then(|access| access.basic_auth.clone()),
            is_any_sufficient: route.is_some_and(|access| access.is_any_sufficient),
        };
        let is_open = stage.networks.is_none() && stage.certificates.is_none() && stage.basic_auth.is_none();
        (!is_open).then_some(stage)
    }

    fn request(&self, exchange: &mut Exchange, request: &mut ClientRequest, _: &mut RequestState) -> Flow {
        let basic_auth = match self.decision(exchange.connection()) {
            Decision::Permitted => return Flow::Continue,
            Decision::Refused(reason) => return Flow::Refuse(Refusal::new(StatusCode::FORBIDDEN, reason)),
            Decision::ByPassword(basic_auth) => basic_auth,
        };
        let Some(credentials) = credentials(&request.head.headers) else {
            return challenge(basic_auth, exchange);
        };
        match basic_auth.passwords.remembered(&credentials) {
            Some(user) => admit(user, exchange),
            None => Flow::Wait,
        }
    }

    /// Waits for the verification of a password.
    async fn wait(&self, exchange: &mut Exchange, request: &mut ClientRequest, _: &mut RequestState) -> Flow {
        let credentials = credentials(&request.head.headers);
        let Some((basic_auth, credentials)) = self.basic_auth.as_ref().zip(credentials) else {
            return Flow::Refuse(Refusal::new(StatusCode::FORBIDDEN, "password"));
        };
        let client = exchange.connection().client.record.borrow().client.ip();
        match basic_auth.passwords.verify(credentials, client, &basic_auth.threads).await {
            Ok(Some(user)) => admit(user, exchange),
            Ok(None) => {
                exchange.fail(Side::Client, "password");
                challenge(basic_auth, exchange)
            }
            Err(_) => {
                exchange.fail(Side::Internal, "password-queue");
                let mut response = error_page(StatusCode::SERVICE_UNAVAILABLE, exchange.id());
                response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
                Flow::Respond(Box::new(response))
            }
        }
    }

    // Not before: other stages examine the request for credentials, so that its response is not shared.
    fn forward(&self, _: &Exchange, _: &RequestState, headers: &mut HeaderMap) {
        if self.basic_auth.as_ref().is_some_and(|basic_auth| !basic_auth.forwards) {
            headers.remove(header::AUTHORIZATION);
        }
    }
}

/// Decision about a connection, before the password of a request is examined.
enum Decision<'a> {
    Permitted,
    Refused(&'static str),
    ByPassword(&'a BasicAuth),
}

impl AccessStage {
    fn decision(&self, connection: &Connection) -> Decision<'_> {
        let address = || connection.client.record.borrow().client.ip();
        let owns = |certificates: &Arc<CertificateRules>| {
            connection.identity().is_some_and(|identity| certificates.permit(identity))
        };
        let results = [
            self.networks.as_ref().map(|networks| (networks.permits(address()), "client-address")),
            self.certificates.as_ref().map(|certificates| (owns(certificates), "client-certificate")),
        ];
        let results = || results.iter().flatten();
        let is_met = self.is_any_sufficient && results().any(|(is_met, _)| *is_met);
        let fault = results().find(|(is_met, _)| !is_met).map(|(_, reason)| *reason);
        match (fault, &self.basic_auth) {
            _ if is_met => Decision::Permitted,
            (Some(reason), basic_auth) if !self.is_any_sufficient || basic_auth.is_none() => {
                Decision::Refused(reason)
            }
            (_, Some(basic_auth)) => Decision::ByPassword(basic_auth),
            (_, None) => Decision::Permitted,
        }
    }
}

/// The credentials in a request. `None` also for several headers, of which an upstream could use another one.
fn credentials(headers: &HeaderMap) -> Option<Credentials> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    Credentials::read(value.as_bytes())
}

fn admit(user: Arc<str>, exchange: &mut Exchange) -> Flow {
    exchange.name_user(user);
    Flow::Continue
}

/// RFC 9110 section 15.5.2: a 401 response has a challenge.
fn challenge(basic_auth: &BasicAuth, exchange: &Exchange) -> Flow {
    let mut response = error_page(StatusCode::UNAUTHORIZED, exchange.id());
    response.headers_mut().insert(header::WWW_AUTHENTICATE, basic_auth.challenge.clone());
    Flow::Respond(Box::new(response))
}
