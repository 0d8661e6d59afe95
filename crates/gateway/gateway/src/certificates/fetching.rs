//! HTTP client of the maintenance of certificates: for staples, revocation lists and missing certificates of chains.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use brisk_certs::maintenance::{Fetch, FetchFailure, Fetched, Fetching};
use brisk_certs::{CertError, Maintenance, Store};
use brisk_fetch::{
    Client, ClientSettings, Destinations, FetchError, FetchResponse, Limits, PrivateHost, Reason,
};
use brisk_wire::cache_control;
use http::header::CACHE_CONTROL;
use http::{HeaderValue, StatusCode};

use crate::settings::CertificateSettings;

/// Timeout of one [`Fetch`].
const TIME: Duration = Duration::from_secs(10);

/// Starts the [`Maintenance`] of certificates, with an empty set.
pub(crate) fn start(
    settings: &CertificateSettings,
    fetcher: Arc<CertificateFetcher>,
) -> Result<Maintenance, CertError> {
    let store = settings.store.clone().map(|store| store as Arc<dyn Store>);
    Maintenance::start(settings.maintenance, fetcher, store, settings.fleet.clone())
}

/// Fetches with a [`Client`] that is made for the first fetch: most gateways never need one.
///
/// Certificates contain the URLs, so the provider of a certificate chooses them. So only public addresses are permitted,
/// and those of [`CertificateSettings::allow_private`].
#[derive(Debug)]
pub(crate) struct CertificateFetcher {
    client: OnceLock<Result<Client, String>>,
    private: Mutex<Arc<[PrivateHost]>>,
}

impl CertificateFetcher {
    pub(crate) fn new(private: Arc<[PrivateHost]>) -> Self {
        Self { client: OnceLock::new(), private: Mutex::new(private) }
    }

    /// Replaces the permitted [`PrivateHost`]s. Returns whether they differ.
    pub(crate) fn permit(&self, private: &Arc<[PrivateHost]>) -> bool {
        let mut own = self.private.lock().unwrap_or_else(PoisonError::into_inner);
        let differs = *own != *private;
        *own = Arc::clone(private);
        differs
    }

    /// The [`Client`] with a `limit` of the body in bytes, and the destinations that are permitted now.
    fn limited(&self, limit: usize) -> Result<Client, FetchFailure> {
        let limits = Limits { time: TIME, body: limit, ..Limits::default() };
        // Read for each fetch, so that a reload applies without another client.
        let private = Arc::clone(&self.private.lock().unwrap_or_else(PoisonError::into_inner));
        let client = self.client().map_err(FetchFailure::Unreachable)?;
        Ok(client.with_limits(limits).with_destinations(Destinations::new(private)))
    }

    fn client(&self) -> Result<&Client, String> {
        let made = || {
            Client::new(&ClientSettings::default()).map_err(|error| format!("cannot fetch anything: {error}"))
        };
        self.client.get_or_init(made).as_ref().map_err(Clone::clone)
    }
}

impl Fetch for CertificateFetcher {
    fn get<'a>(&'a self, url: &'a str, limit: usize) -> Fetching<'a> {
        Box::pin(async move { fetched(self.limited(limit)?.get(url).await) })
    }

    fn post<'a>(
        &'a self,
        url: &'a str,
        content_type: &'static str,
        body: Vec<u8>,
        limit: usize,
    ) -> Fetching<'a> {
        Box::pin(async move { fetched(self.limited(limit)?.post(url, content_type, body.into()).await) })
    }
}

fn fetched(response: Result<FetchResponse, FetchError>) -> Result<Fetched, FetchFailure> {
    let response = response.map_err(|error| match error.reason {
        // A server has responded, so that it is not unreachable; another attempt would have the same result.
        Reason::TooLarge(_) | Reason::TooManyRedirects(_) | Reason::Redirect(_) => {
            FetchFailure::Response(error.to_string())
        }
        _ => FetchFailure::Unreachable(error.to_string()),
    })?;
    if response.status != StatusCode::OK {
        return Err(FetchFailure::Response(format!("the answer is {}", response.status)));
    }
    let control = response.headers.get_all(CACHE_CONTROL).iter().map(HeaderValue::as_bytes);
    Ok(Fetched { max_age: cache_control::max_age(control), body: response.body.to_vec() })
}
