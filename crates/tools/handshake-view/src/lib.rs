//! TLS handshakes reconstructed from recorded bytes: records, handshake messages, certificates, round trips and waits.
//!
//! A [`Recording`] takes direction, time and bytes, and the secrets of a key log. [`ConnectionView::read`] splits the bytes
//! into records, opens encrypted records of TLS 1.2 and 1.3 and lists the handshake messages; [`steps()`] assigns them to round trips.
//! The crate does no I/O: the recording may come from a live connection or from captured packets.

pub mod chain;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod message;
pub mod open;
mod opener;
mod recording;
pub mod records;
pub mod steps;
mod tls12;
pub mod window;

pub use chain::{Certificate, Chain};
pub use message::Ticket;
pub use opener::{OpenedRecord, RecordOpener};
pub use recording::{Direction, Party, Recording};
pub use records::ConnectionView;
pub use steps::{StepRow, Waited, steps};
pub use window::Window;
