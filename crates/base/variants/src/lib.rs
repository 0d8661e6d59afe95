//! Variants: settings that have different values on different connections of a host.
//!
//! A feature assigns values to a connection ([`AssignedValues`]) and lists the varied settings of each host
//! ([`HostVariants`]). Requests look up their value by host and connection, without knowledge of the feature. Without a
//! varied setting, no lookup takes place.

mod assigned;
mod host;

pub use assigned::{Assigned, AssignedValues, MOST_ASSIGNED, VariedId};
pub use host::{HostVariants, Labels, RequestValues, Variants, VariedSetting};
