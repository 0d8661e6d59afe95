//! Memory that requests reserve from the budgets of the process for the client of their connection.

use std::rc::Rc;

use brisk_budget::{Full, Reservation, Resource};

use crate::connection::Connection;

/// Resources without which the responses of other clients fail. A connection that holds such memory and makes no progress
/// is closed while other clients need the memory. Encoders are none of them: without an encoder a response is only longer.
const INDISPENSABLE: [Resource; 2] = [Resource::Decoders, Resource::WideDecoders];

/// Memory of a [`Resource`] reserved for the client of a connection, free again when dropped.
#[derive(Debug)]
pub struct Holding {
    resource: Resource,
    /// `None` on a connection without budgets, as in tests.
    reservation: Option<Reservation>,
    connection: Rc<Connection>,
}

impl Connection {
    /// Reserves `bytes` of `resource` for the client. Without budgets, as in tests, always `Ok`.
    ///
    /// # Errors
    ///
    /// [`Full`] if the client has its share of the budget or the limit is reached; logged and counted.
    pub fn reserve(self: &Rc<Self>, resource: Resource, bytes: usize) -> Result<Holding, Full> {
        let client = self.client.address();
        let budget = self.budgets().map(|budgets| budgets.of(resource));
        let reservation = budget.map(|budget| budget.reserve(client, bytes as u64)).transpose()?;
        // After the reservation: a refused one creates no `Holding` whose drop would take the count back.
        self.extras.hold(resource);
        Ok(Holding { resource, reservation, connection: Rc::clone(self) })
    }

    /// Whether [`Self::reserve`] would succeed now.
    pub fn has_room(&self, resource: Resource, bytes: usize) -> bool {
        let client = self.client.address();
        self.budgets().is_none_or(|budgets| budgets.of(resource).has_room(client, bytes as u64))
    }

    /// Whether the connection should end if its client makes no progress, because it holds memory that other clients
    /// need.
    pub fn must_yield(&self) -> bool {
        let Some(budgets) = self.budgets() else { return false };
        let must_yield = |resource| budgets.of(resource).must_yield(self.client.address());
        INDISPENSABLE.into_iter().any(|resource| self.extras.holds(resource) && must_yield(resource))
            // A connection within its minimum share has no reservation here, so its end would free nothing
            // for other clients.
            || (self.multiplexed().is_some_and(|multiplexed| multiplexed.bodies.exceed_share())
                && must_yield(Resource::Bodies))
            || (self.answers.exceed_share() && must_yield(Resource::Responses))
    }
}

impl Holding {
    /// Reserves `bytes` more.
    ///
    /// # Errors
    ///
    /// [`Full`] as for [`Connection::reserve`]. The holding stays as it was.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        self.reservation.as_mut().map_or(Ok(()), |reservation| reservation.grow(bytes as u64))
    }

    /// Appends `piece` to `buffer`, after its additional capacity is reserved. The capacity doubles, up to `limit` bytes or
    /// the length.
    ///
    /// # Errors
    ///
    /// [`Full`] as for [`Connection::reserve`]. The holding and the buffer stay as they were.
    pub fn extend(&mut self, buffer: &mut Vec<u8>, piece: &[u8], limit: usize) -> Result<(), Full> {
        let (length, capacity) = (buffer.len() + piece.len(), buffer.capacity());
        if length > capacity {
            // A piece above `limit` is accepted, because a caller such as `Gathered` writes the buffer to a
            // file afterwards.
            let larger = length.max((2 * capacity).min(limit));
            self.grow(larger - capacity)?;
            buffer.reserve_exact(larger - buffer.len());
        }
        buffer.extend_from_slice(piece);
        Ok(())
    }

    /// Whether [`Self::grow`] would succeed now.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.connection.has_room(self.resource, bytes)
    }

    /// Whether the client holds so little that its refusals make others release memory.
    pub fn is_small(&self) -> bool {
        let budgets = self.connection.budgets();
        budgets.is_some_and(|budgets| budgets.of(self.resource).is_small(self.connection.client.address()))
    }

    /// Whether the memory should be released if the client makes no progress, because other clients need it.
    pub fn must_yield(&self) -> bool {
        let budgets = self.connection.budgets();
        budgets.is_some_and(|budgets| budgets.of(self.resource).must_yield(self.connection.client.address()))
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.connection.extras.release(self.resource);
    }
}
