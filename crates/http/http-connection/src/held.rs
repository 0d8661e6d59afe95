//! Memory of connections with several requests at a time, beside their responses: heads, and input from upstreams.
//!
//! A part of each [`Account`] needs no reservation, which suffices for usual requests. Bytes above it are reserved from the
//! client's share of a budget. HTTP/1.1 has one request at a time, so the limits of one request are those of the connection.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use brisk_budget::{Full, Reservation, Resource};

use crate::connection::Connection;

/// Step of reservations in bytes, so that few requests take the lock of the budget.
const STEP: usize = 64 << 10;

/// Memory that one connection holds for its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// Heads of requests and responses in progress, and the links of interim responses.
    Heads,
    /// Data of upstreams over HTTP/2 that the client's responses have not taken, and bodies of requests to them that are
    /// kept for a retry.
    Input,
}

/// The accounts of one connection.
#[derive(Debug, Default)]
pub struct Accounts {
    heads: Balance,
    input: Balance,
}

/// Bytes of one [`Account`].
#[derive(Debug, Default)]
struct Balance {
    held: Cell<usize>,
    /// The client's reservation for bytes above [`Account::free`], in multiples of [`STEP`].
    reserved: RefCell<Option<Reservation>>,
}

/// Bytes of one request in an [`Account`] of its connection, counted until dropped.
#[derive(Debug)]
pub struct HeldBytes {
    connection: Rc<Connection>,
    account: Account,
    bytes: usize,
}

impl Account {
    /// Bytes that each connection may hold without a reservation.
    pub fn free(self) -> usize {
        match self {
            Self::Heads => 64 << 10,
            // The window of one stream.
            Self::Input => 256 << 10,
        }
    }

    /// The budget for bytes above [`Self::free`].
    fn resource(self) -> Resource {
        match self {
            Self::Heads => Resource::Heads,
            Self::Input => Resource::Responses,
        }
    }
}

impl Accounts {
    /// Number of bytes that the connection holds.
    #[cfg(any(test, feature = "testing"))]
    pub fn held(&self, account: Account) -> usize {
        self.of(account).held.get()
    }

    fn of(&self, account: Account) -> &Balance {
        match account {
            Account::Heads => &self.heads,
            Account::Input => &self.input,
        }
    }
}

impl Balance {
    /// Reserves memory for `held` bytes of `connection`.
    fn reserve(&self, held: usize, account: Account, connection: &Connection) -> Result<(), Full> {
        let needed = (held.saturating_sub(account.free()).div_ceil(STEP) * STEP) as u64;
        let mut reserved = self.reserved.borrow_mut();
        let missing = needed.saturating_sub(reserved.as_ref().map_or(0, Reservation::bytes));
        let (Some(budgets), 1..) = (connection.budgets(), missing) else { return Ok(()) };
        if let Some(reserved) = &mut *reserved {
            return reserved.grow(missing);
        }
        let budget = budgets.of(account.resource());
        *reserved = Some(budget.reserve(connection.client.address(), missing)?);
        Ok(())
    }

    fn release(&self, bytes: usize, account: Account) {
        let held = self.held.get() - bytes;
        self.held.set(held);
        // Half, so that a connection at the limit does not take the lock for each request.
        if held <= account.free() / 2 && self.reserved.borrow().is_some() {
            self.reserved.take();
        }
    }
}

impl HeldBytes {
    /// No bytes yet; `None` on a connection with one request at a time.
    pub fn begin(connection: &Rc<Connection>, account: Account) -> Option<Self> {
        connection.multiplexed()?;
        Some(Self { connection: Rc::clone(connection), account, bytes: 0 })
    }

    /// Adds `bytes` to the account.
    ///
    /// # Errors
    ///
    /// [`Full`] if the client has its share of the budget or the limit is reached; logged and counted. The bytes are not
    /// added then.
    pub fn add(&mut self, bytes: usize) -> Result<(), Full> {
        let Some(multiplexed) = self.connection.multiplexed() else { return Ok(()) };
        let balance = multiplexed.accounts.of(self.account);
        let held = balance.held.get() + bytes;
        // Before the bytes are counted: after a refusal the account is unchanged, and the caller has to undo
        // nothing.
        if held > self.account.free() {
            balance.reserve(held, self.account, &self.connection)?;
        }
        balance.held.set(held);
        self.bytes += bytes;
        Ok(())
    }

    /// Number of bytes that this request holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes `bytes`, at most all.
    pub fn remove(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        if let Some(multiplexed) = self.connection.multiplexed() {
            multiplexed.accounts.of(self.account).release(bytes, self.account);
        }
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.remove(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::Arc;

    use brisk_budget::Budgets;
    use brisk_net::DeadlineWheel;
    use brisk_telemetry::{ConnectionRecord, Metrics, Timeline};

    use super::*;
    use crate::buffers::WorkerBuffers;
    use crate::connection::Surroundings;
    use crate::settings::HttpSettings;

    fn connection(client: u8, budgets: &Arc<Budgets>) -> Rc<Connection> {
        let address = SocketAddr::from((Ipv4Addr::new(192, 0, 2, client), 1));
        let connection = Connection::new(ConnectionRecord::new(1, address, address, Timeline::start()), true);
        connection.multiplex();
        connection.surround(Surroundings {
            settings: Rc::default(),
            wheel: DeadlineWheel::new(),
            buffers: WorkerBuffers::new(Metrics::new(), Arc::clone(budgets)),
            drain: brisk_net::drain::channel().1,
        });
        connection
    }

    fn budgets(limit: u64) -> Arc<Budgets> {
        let budgets = Arc::new(Budgets::new(&HttpSettings::default().limits()));
        budgets.of(Resource::Heads).set_limit(limit);
        budgets
    }

    const FREE: usize = 64 << 10;

    /// As many heads of `bytes` as `connection` gets.
    fn fill(connection: &Rc<Connection>, bytes: usize) -> Vec<HeldBytes> {
        let head = || {
            let mut heads = HeldBytes::begin(connection, Account::Heads)?;
            heads.add(bytes).ok().map(|()| heads)
        };
        std::iter::from_fn(head).take(10_000).collect()
    }

    #[test]
    fn heads_of_usual_requests_reserve_nothing() {
        let budgets = budgets(0);
        let connection = connection(1, &budgets);
        let heads = fill(&connection, 1 << 10);
        assert_eq!(heads.len(), FREE >> 10);
        drop(heads);
        assert_eq!(connection.multiplex().accounts.held(Account::Heads), 0);
        assert_eq!(fill(&connection, FREE).len(), 1);
    }

    #[test]
    fn one_client_leaves_memory_for_the_heads_of_others_on_however_many_connections() {
        let limit = 8 << 20;
        let budgets = budgets(limit as u64);
        let client = |client: u8| {
            let connections: Vec<_> = (0..20).map(|_| connection(client, &budgets)).collect();
            let heads: Vec<_> =
                connections.iter().flat_map(|connection| fill(connection, 32 << 10)).collect();
            let above = heads.len() * (32 << 10) - connections.len() * FREE;
            (heads, above)
        };
        let (first, above) = client(1);
        assert_eq!(above, limit / 2);
        assert_eq!(client(2).1, limit / 4);
        drop(first);
        assert_eq!(budgets.of(Resource::Heads).held(), 0);
        assert_eq!(client(3).1, limit / 2);
    }

    #[test]
    fn a_head_that_is_refused_is_not_counted_and_later_ones_are_admitted() {
        let budgets = budgets(0);
        let connection = connection(1, &budgets);
        let mut first =
            HeldBytes::begin(&connection, Account::Heads).expect("a connection with several requests");
        first.add(FREE - 10).expect("room");
        let mut second =
            HeldBytes::begin(&connection, Account::Heads).expect("a connection with several requests");
        assert_eq!(second.add(11), Err(Full));
        assert_eq!(second.add(10), Ok(()));
        drop(first);
        assert_eq!(second.add(FREE - 10), Ok(()));
        drop(second);
        assert_eq!(connection.multiplex().accounts.held(Account::Heads), 0);
    }

    #[test]
    fn bytes_that_are_removed_are_free_again() {
        let budgets = budgets(0);
        budgets.of(Resource::Responses).set_limit(1 << 20);
        let connection = connection(1, &budgets);
        let mut input =
            HeldBytes::begin(&connection, Account::Input).expect("a connection with several requests");
        assert_eq!(input.add(512 << 10), Ok(()));
        assert_eq!(budgets.of(Resource::Responses).held(), 256 << 10);
        assert_eq!(input.add(2 << 20), Err(Full));
        input.remove(384 << 10);
        assert_eq!(budgets.of(Resource::Responses).held(), 0);
        input.remove(1 << 20);
        assert_eq!(connection.multiplex().accounts.held(Account::Input), 0);
    }
}
