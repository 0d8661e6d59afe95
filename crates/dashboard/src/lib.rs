//! The dashboard: one page that shows an operator what a gateway does now, on a listener and a thread of its own.
//!
//! Nothing here is called by workers. The page is embedded, and so is the library that draws its charts (uPlot); it loads
//! nothing from elsewhere. Whatever it shows may be what strangers sent: it goes out as JSON, and the page makes text of it.

mod admission;
mod assets;
mod board;
mod dashboard;
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
