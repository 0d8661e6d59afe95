//! Beacons: measurements that browsers send about the pages that they displayed.
//!
//! The response with a measured page contains an unguessable id. Its beacon returns this id, once, and creates a
//! visit from the gateway's facts of the connection and request and the page's measurements. A beacon without such an
//! id is counted and dropped, so that a client cannot add a visit that did not take place.
//!
//! All input is untrusted; processing is bounded in time and memory. The crate does not depend on HTTP.

mod admission;
mod beacons;
mod counts;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod page;
mod pages;
mod paths;
mod refusal;
mod reports;
mod script;
mod token;

pub use admission::LARGEST;
pub use beacons::{Beacons, Kind};
pub use counts::{BeaconMetrics, Insertion};
pub use page::{Page, View};
pub use pages::Issued;
pub use refusal::Refusal;
pub use script::{SCRIPT, script_version};
pub use token::Token;
