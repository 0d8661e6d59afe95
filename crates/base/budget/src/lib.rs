//! Memory held on behalf of clients: budgets of the process, with a share for each client.
//!
//! A component whose memory clients share reserves bytes from a [`Budget`] of [`Budgets`] before the bytes exist.
//! One client gets at most half of the free bytes. A client that holds much and makes no progress loses its
//! reservations first. `docs/security.md` lists the components.

mod budget;
mod budgets;

pub use budget::{Budget, Full, Reservation};
pub use budgets::{BudgetMetrics, Budgets, Limits, Resource, stored_part};
