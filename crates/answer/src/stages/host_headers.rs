//! Headers of every response of a host, such as `Strict-Transport-Security`.

use http::{HeaderValue, Response, header};

use crate::body::Body;
use crate::exchange::Exchange;
use crate::settings::{HostHeaders, HstsSettings};
use crate::stage::{RequestState, Stage, StageContext};

/// Adds the headers of the host. Compiled if the host has any.
#[derive(Debug)]
pub(super) struct HostHeadersStage {
    hsts: Option<HeaderValue>,
    headers: HostHeaders,
}

impl Stage for HostHeadersStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let host = context.host?.settings;
        let is_used = host.hsts.is_some() || !host.headers.0.is_empty();
        is_used.then(|| Self { hsts: host.hsts.map(transport_security), headers: host.headers.clone() })
    }

    fn response(&self, exchange: &Exchange, _: &RequestState, response: &mut Response<Body>) {
        // RFC 6797 section 7.2: never over plain HTTP.
        if let (true, Some(hsts)) = (exchange.connection().client.secure, &self.hsts) {
            response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, hsts.clone());
        }
        self.headers.apply(response.headers_mut());
    }
}

/// The value of `Strict-Transport-Security` (RFC 6797 section 6.1).
fn transport_security(settings: HstsSettings) -> HeaderValue {
    let mut value = format!("max-age={}", settings.max_age.as_secs());
    if settings.include_subdomains {
        value.push_str("; includeSubDomains");
    }
    if settings.preload {
        value.push_str("; preload");
    }
    HeaderValue::try_from(value).expect("digits and fixed words")
}
