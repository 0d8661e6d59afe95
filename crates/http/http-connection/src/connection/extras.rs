//! State that few connections need.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::net::IpAddr;
use std::rc::Weak;
use std::sync::Arc;
use std::time::Duration;

use brisk_budget::Resource;
use brisk_certs::Identity;
use brisk_http::message::HeaderList;
use brisk_net::rates::{Event, Rates};
use brisk_variants::AssignedValues;
use http::StatusCode;

use crate::gathering::Shared;
use crate::streams::StreamKey;

/// An interim response that the driver of its connection has not sent.
#[derive(Debug)]
pub struct InterimResponse {
    /// Stream of the request; `None` on a connection with one request at a time.
    pub stream: Option<StreamKey>,
    /// Status from `100` to `199`.
    pub status: StatusCode,
    /// Headers without hop-by-hop ones.
    pub headers: HeaderList,
}

/// State that few connections need, allocated by the first use.
#[derive(Debug, Default)]
pub struct Extras(OnceCell<Box<Boxed>>);

/// The allocated state.
#[derive(Debug, Default)]
struct Boxed {
    /// Values of settings that vary between connections, if the connection has any.
    assigned: OnceCell<AssignedValues>,
    /// Rate limits of clients, if there are any.
    rates: OnceCell<Arc<Rates>>,
    /// The upstream's transport after a switch of protocols, until the driver joins both transports.
    upgrade: RefCell<Option<Box<dyn Any>>>,
    /// Upstream connections that carry only this client's requests.
    logins: OnceCell<Box<dyn Any>>,
    /// Upstream connections whose PROXY header names this client.
    proxied: OnceCell<Box<dyn Any>>,
    /// Number of holdings of each resource.
    holdings: [Cell<u32>; Resource::ALL.len()],
    /// Names in the client's certificate, once a route asks for these.
    identity: OnceCell<Identity>,
    /// Interim responses that the driver has not sent.
    interims: RefCell<Vec<InterimResponse>>,
    /// Responses gathered while they are sent.
    gatherings: RefCell<Vec<Weak<Shared>>>,
}

impl Extras {
    /// Applies the rate limits of clients to requests on this connection. Call it once, before the first request.
    pub fn limit_requests(&self, rates: Arc<Rates>) {
        // Already set; the first value is kept.
        let _ = self.boxed().rates.set(rates);
    }

    /// Whether requests on this connection have a rate limit.
    pub fn limits_requests(&self) -> bool {
        self.0.get().is_some_and(|boxed| boxed.rates.get().is_some())
    }

    /// Assigns values of varied settings to the connection. Call it once, before the first request.
    pub fn assign(&self, values: AssignedValues) {
        if !values.is_empty() {
            // Already set; the first value is kept.
            let _ = self.boxed().assigned.set(values);
        }
    }

    /// Values of varied settings, if the connection has any.
    pub fn assigned(&self) -> Option<&AssignedValues> {
        self.0.get()?.assigned.get()
    }

    /// Stores the upstream's transport of a switched protocol for the driver. Its type is defined in
    /// `brisk_upstream::upgrade`.
    pub fn leave_upgrade(&self, upgrade: Box<dyn Any>) {
        self.boxed().upgrade.replace(Some(upgrade));
    }

    /// Takes the upstream's transport of a switched protocol, if a request has left one.
    pub fn take_upgrade(&self) -> Option<Box<dyn Any>> {
        self.0.get()?.upgrade.take()
    }

    /// Upstream connections that carry only this client's requests. Their type is defined in `brisk-upstream`, module
    /// `login`.
    pub fn logins(&self) -> Option<&dyn Any> {
        self.0.get()?.logins.get().map(|logins| &**logins)
    }

    /// Like [`Self::logins`], created by `make` if absent.
    pub fn logins_or(&self, make: impl FnOnce() -> Box<dyn Any>) -> &dyn Any {
        &**self.boxed().logins.get_or_init(make)
    }

    /// Upstream connections whose PROXY header names this client. Their type is defined in `brisk-upstream`, module
    /// `proxied`.
    pub fn proxied(&self) -> Option<&dyn Any> {
        self.0.get()?.proxied.get().map(|proxied| &**proxied)
    }

    /// Like [`Self::proxied`], created by `make` if absent.
    pub fn proxied_or(&self, make: impl FnOnce() -> Box<dyn Any>) -> &dyn Any {
        &**self.boxed().proxied.get_or_init(make)
    }

    /// Counts a request of `client`. Returns the time until the next permitted request if the client exceeds `rates.requests`;
    /// `None` if the request is permitted.
    pub fn over_rate(&self, client: IpAddr) -> Option<Duration> {
        let rates = self.0.get()?.rates.get()?;
        rates.take(client, Event::Request).err()
    }

    /// The identity in the client's certificate, in DER.
    pub(super) fn identity_of(&self, certificate: &[u8]) -> &Identity {
        self.boxed().identity.get_or_init(|| Identity::read(certificate))
    }

    /// Queues an interim response. The driver sends it at the end of the turn, or before the final response.
    pub(crate) fn queue_interim(&self, interim: InterimResponse) {
        self.boxed().interims.borrow_mut().push(interim);
    }

    /// Takes the queued interim responses.
    pub fn take_interims(&self) -> Vec<InterimResponse> {
        self.0.get().map(|boxed| boxed.interims.take()).unwrap_or_default()
    }

    pub(crate) fn hold(&self, resource: Resource) {
        let holdings = &self.boxed().holdings[resource as usize];
        holdings.set(holdings.get() + 1);
    }

    pub(crate) fn release(&self, resource: Resource) {
        let holdings = &self.boxed().holdings[resource as usize];
        holdings.set(holdings.get() - 1);
    }

    pub(crate) fn holds(&self, resource: Resource) -> bool {
        self.0.get().is_some_and(|boxed| boxed.holdings[resource as usize].get() > 0)
    }

    pub(crate) fn gather(&self, shared: Weak<Shared>) {
        let mut gatherings = self.boxed().gatherings.borrow_mut();
        // Ended responses leave the list here, so that it does not grow with the number of requests.
        gatherings.retain(|shared| shared.strong_count() > 0);
        gatherings.push(shared);
    }

    pub(crate) fn take_gatherings(&self) -> Vec<Weak<Shared>> {
        self.0.get().map(|boxed| boxed.gatherings.take()).unwrap_or_default()
    }

    fn boxed(&self) -> &Boxed {
        self.0.get_or_init(Box::default)
    }
}
