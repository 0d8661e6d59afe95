//! Login: exchanges the token for a cookie. The token is sent in the body of a `POST` request, so that it appears in no
//! URL and no log.

use std::time::Duration;

use http::header::{CONNECTION, HeaderValue, LOCATION, SET_COOKIE};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::admission::NAME;
use crate::assets::LOGIN;
use crate::form;
use crate::responses::{self, Body};
use crate::settings::DashboardSettings;
use crate::token::{LIFETIME, TokenVerifier};

/// Maximum length of the form, in bytes.
const FORM: usize = 8 << 10;

/// Timeout for the form. The client is not authorized yet, and occupies a connection slot.
const FORM_LIMIT: Duration = Duration::from_secs(10);

/// Responds with a cookie and a redirect to the page, or with the login page.
pub(crate) async fn log_in(
    settings: &DashboardSettings,
    verifier: &TokenVerifier,
    body: Incoming,
) -> Response<Body> {
    let Some(token) = &settings.token else { return to_page(None) };
    let form = match timeout(FORM_LIMIT, Limited::new(body, FORM).collect()).await {
        Ok(Ok(form)) => form,
        Ok(Err(_)) => {
            return last(responses::text(StatusCode::PAYLOAD_TOO_LARGE, "the form is too large\n"));
        }
        Err(_) => {
            return last(responses::text(
                StatusCode::REQUEST_TIMEOUT,
                "the form was not received within 10 s\n",
            ));
        }
    };
    let presented = form::field(&form.to_bytes(), "token", FORM).map(Zeroizing::new);
    if !presented.is_some_and(|presented| verifier.is_token(token, presented.trim_ascii().as_bytes())) {
        return responses::asset(&LOGIN, StatusCode::FORBIDDEN, &http::HeaderMap::new());
    }
    let secure = if settings.tls.is_some() { "; Secure" } else { "" };
    // `HttpOnly` hides the cookie from scripts, `SameSite=Strict` withholds it from requests of other sites.
    let (cookie, age) = (verifier.cookie(token), LIFETIME.as_secs());
    to_page(Some(&format!("{NAME}={cookie}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}")))
}

/// Closes the connection after the response, because its request was not read completely.
fn last(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Responds with the removal of the cookie [`NAME`].
pub(crate) fn log_out() -> Response<Body> {
    to_page(Some(&format!("{NAME}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict")))
}

fn to_page(cookie: Option<&str>) -> Response<Body> {
    let mut response = responses::text(StatusCode::SEE_OTHER, "");
    let headers = response.headers_mut();
    headers.insert(LOCATION, HeaderValue::from_static("/"));
    if let Some(cookie) = cookie.and_then(|cookie| HeaderValue::from_str(cookie).ok()) {
        headers.insert(SET_COOKIE, cookie);
    }
    response
}
