//! A configuration file as text: its values with their positions, and all errors of the file at once.
//!
//! [`Document::parse`] reads TOML, [`Document::read`] fills structs that implement `Deserialize`, and [`Findings`] collects the
//! problems that later checks find. [`ConfigError`] shows each problem in one line with position, key, fault and correction.

mod document;
mod environment;
mod error;
mod findings;
mod parts;
mod reader;
mod text;
mod units;
mod values;

pub use document::{Advice, Document};
pub use error::{ConfigError, KeyPath, Located, Segment};
pub use findings::Findings;
#[doc(hidden)]
pub use parts::PARTS;
pub use text::{Text, Written};
pub use units::{Period, PeriodLimit, Rate, Size, SizeLimit};
pub use values::{Address, ClientConnections, FastOpen, LogFile, Network, ProxyProtocol};
