//! Connections that several operations use at the same time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use brisk_tls_client::{ClientFacts, SavedSession};
use tokio::sync::Mutex;

use crate::connection::{Kind, Opener};
use crate::error::Failure;
use crate::measure::Exchange;
use crate::workload::{PerConnection, Request};

/// A connection with several concurrent requests.
pub(crate) trait Multiplexed: Sized {
    /// Opens a connection of this [`Kind`] for the given number of requests. With 0-RTT, `request` is sent in the first
    /// flight.
    async fn open(
        opener: &Opener,
        kind: &Kind,
        session: Option<SavedSession>,
        requests: PerConnection,
        request: &Request,
    ) -> Result<Self, Failure>;

    /// The result of the handshake; `None` without TLS, and after the connection was cut.
    fn facts(&self) -> Option<ClientFacts>;

    /// Whether requests can still be sent.
    fn is_open(&self) -> bool;

    /// Requests that may still be sent.
    fn left(&self) -> &Cell<u64>;

    /// Sends `request` and reads its response to the end.
    async fn exchange(&self, request: &Request) -> Result<Exchange, Failure>;

    /// Closes the connection gracefully.
    async fn close(self);
}

/// A connection shared by some operations, replaced by a new one when needed.
#[derive(Debug)]
pub(crate) struct SharedConnection<C> {
    current: RefCell<Option<Rc<C>>>,
    /// Held while a connection is being made, so that all waiting operations get the same one.
    opening: Mutex<()>,
}

impl<C> Default for SharedConnection<C> {
    fn default() -> Self {
        Self { current: RefCell::default(), opening: Mutex::default() }
    }
}

impl<C: Multiplexed> SharedConnection<C> {
    /// Returns a connection with room for one more request, the current or a new one.
    pub(crate) async fn connection(
        &self,
        opener: &Opener,
        requests: PerConnection,
        request: &Request,
    ) -> Result<Rc<C>, Failure> {
        if let Some(found) = self.find() {
            return Ok(found);
        }
        // Looks again after the lock: another operation may have opened a connection meanwhile.
        let _opening = self.opening.lock().await;
        if let Some(found) = self.find() {
            return Ok(found);
        }
        // The old connection stays with its users, and the last one closes it.
        self.forget();
        let kind = opener.next_kind();
        let opened = Rc::new(C::open(opener, kind, kind.session(), requests, request).await?);
        take_place(&*opened);
        *self.current.borrow_mut() = Some(Rc::clone(&opened));
        Ok(opened)
    }

    /// Releases a connection. Returns it to be closed after its last request, if this was its last user.
    pub(crate) fn give_back(&self, connection: Rc<C>) -> Option<C> {
        if connection.left().get() == 0 || !connection.is_open() {
            // Only if no newer connection has taken its place.
            self.current.borrow_mut().take_if(|current| Rc::ptr_eq(current, &connection));
        }
        // `None` while other operations use the connection.
        Rc::into_inner(connection)
    }

    /// Discards the current connection, so that the next request gets a new one.
    pub(crate) fn forget(&self) {
        self.current.borrow_mut().take();
    }

    fn find(&self) -> Option<Rc<C>> {
        let current = self.current.borrow();
        let found = current.as_ref().filter(|found| found.is_open() && take_place(&***found))?;
        Some(Rc::clone(found))
    }
}

/// Reserves room for one request. Returns whether there was any.
fn take_place(connection: &impl Multiplexed) -> bool {
    let left = connection.left().get();
    // Stays at 0, since several operations may find the connection full.
    connection.left().set(left.saturating_sub(1));
    left > 0
}
