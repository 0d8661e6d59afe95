//! A configuration file as text: its values with their positions, and all errors of the file at once.
//!
//! [`Sources`] reads a file and those that it includes, [`Document::of`] their TOML, [`Document::read`] fills structs that
//! implement `Deserialize`, and [`Findings`] collects the problems that later checks find. [`ConfigError`] shows each problem in one line with position, key, fault and correction.

mod document;
mod environment;
mod error;
mod findings;
mod matching;
mod merge;
mod parts;
mod reader;
mod sources;
mod text;
mod units;
mod values;

pub use document::{Advice, Document, Syntax};
pub use environment::expand_text;
pub use error::{ConfigError, KeyPath, Located, Segment};
pub use findings::Findings;
pub use matching::matching;
#[doc(hidden)]
pub use parts::PARTS;
pub use sources::{Source, Sources};
pub use text::{Text, Written};
pub use units::{Period, PeriodLimit, Rate, Size, SizeLimit};
pub use values::{Address, ClientConnections, FastOpen, LogFile, Network, ProxyProtocol};
