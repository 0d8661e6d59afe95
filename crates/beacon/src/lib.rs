//! Beacons: what browsers send about the pages that they showed.
//!
//! A page whose visit is measured gets an id with its answer, which cannot be guessed. Its beacon comes back with that id, once,
//! and becomes a visit: what the gateway noted of the connection and the request, and what the page measured. A beacon
//! without such an id is counted and dropped, so that no stranger can add a visit that did not take place.
//!
//! Everything here takes bytes of strangers, has a bound in time and memory, and knows nothing of HTTP.

mod admission;
mod beacons;
mod counts;
mod form;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod page;
mod pages;
mod refusal;
mod reports;
mod script;
mod token;

pub use admission::{Held, LARGEST};
pub use beacons::{Beacons, Kind};
pub use counts::{BeaconMetrics, Insertion};
pub use page::Page;
pub use pages::Issued;
pub use refusal::Refusal;
pub use script::{SCRIPT, script_version};
pub use token::Token;
