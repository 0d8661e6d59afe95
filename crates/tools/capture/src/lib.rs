//! Analysis of packet captures: TCP and TLS of each connection, and the causes of its time.
//!
//! [`analyse`] reads a capture as a stream and reports each connection at its end to an [`Output`]. Memory is bounded by
//! [`Limits`]. The packet results are those of Wireshark; the milestones have the names of the access log.

mod advice;
mod analysis;
mod blocks;
mod compare;
mod connection;
mod decode;
mod decrypt;
mod error;
mod flags;
mod fragments;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod half;
mod http;
mod join;
mod json;
mod ladder;
mod names;
mod options;
mod page;
mod pcap;
mod quic;
mod reader;
mod record;
mod record_sizes;
mod report;
mod room;
mod secrets;
mod side;
mod source;
mod stream;
mod summary;
pub mod terminal;
#[cfg(test)]
mod testing;
mod time;
mod tls;
mod waits;
mod waterfall;

pub use analysis::{Limits, Output, PacketReport, Rows, Settings, analyse};
pub use compare::{Comparison, ComparisonRow, Interval, Sample, Verdict};
pub use error::CaptureError;
pub use flags::{FlagCounts, Flags};
pub use http::RequestReport;
pub use join::{JoinCounts, RecordReport, Records};
pub use json::JsonLines;
pub use options::SynOptions;
pub use page::Page;
pub use quic::{QuicReport, Traffic};
pub use record::{Filter, Recorder, Ring, RingFiles};
pub use record_sizes::RecordSizes;
pub use report::{CauseReport, ConnectionReport, SideReport, SplitMs};
pub use secrets::{Secrets, SkippedLines};
pub use summary::{CauseRow, Summary};
pub use time::Nanos;
pub use tls::TlsFacts;
pub use waits::Cause;
