//! Visits: measurements of pages combined with properties of their connections, stored in a database of bounded size.
//!
//! [`Visits::record`] takes a [`Visit`] from any worker without blocking; a single thread writes the database. Every
//! value of a visit is from a closed set or a name from the configuration, so that clients cannot create new ones.

#![expect(
    clippy::cast_possible_wrap,
    reason = "integers of SQLite are signed, and no count, time or size here comes near their limit"
)]

mod agent;
mod blind;
mod clock;
mod closed;
mod cuts;
mod distributions;
mod error;
mod experiment;
mod experiments;
mod figures;
mod gather;
mod histogram;
mod kinds;
mod lines;
mod marks;
mod metric;
mod network;
mod pages;
mod random;
mod reader;
mod row;
mod sample;
mod sequential;
mod settings;
mod shared;
mod statistics;
mod store;
mod visit;
mod visits;
mod worth;
mod writer;

pub use agent::{Browser, Device};
pub use cuts::{Cut, CutValue, Cuts, Dimension};
pub use distributions::Distribution;
pub use error::VisitsError;
pub use experiment::{ARMS_OF_A_VISIT, Arm, Arms, Experiment, ExperimentId, MOST_ARMS};
pub use experiments::{ArmReport, ExperimentReport};
pub use kinds::{CertificateType, Connection, Navigation, Session, Window};
pub use lines::{Cell, Line, Lines, Table};
pub use marks::{Mark, MarkKind, MarkName, MarkNameError};
pub use metric::{Measures, Metric};
pub use network::{Network, Networks, NetworksError};
pub use reader::{Analysis, Change, Percentile, Point, Query, Reader, Series, Span};
pub use sequential::{Decision, Interval};
pub use settings::Settings;
pub use statistics::Estimate;
pub use visit::Visit;
pub use visits::{Status, Visits};
pub use worth::{Finding, Imbalance, Share, Worth};
