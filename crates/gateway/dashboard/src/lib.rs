//! The dashboard: a web page that shows the present state of a gateway, on a listener and thread of its own.
//!
//! Workers never call this crate. The page and its chart library (uPlot) are embedded in the program; nothing is loaded
//! from other servers. Displayed values may come from attackers: they are sent as JSON, and the page inserts them as
//! text only.

mod admission;
mod assets;
mod board;
mod dashboard;
mod documentation;
mod error;
mod events;
mod form;
mod login;
mod pages;
mod responses;
mod settings;
mod socket;
mod sources;
mod token;
mod visitors;

pub use dashboard::{Dashboard, Prepared};
pub use error::DashboardError;
pub use settings::DashboardSettings;
pub use sources::{Sources, WorkerLoad};
pub use token::{Token, TokenError};
