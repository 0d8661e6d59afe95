//! Analysis of a page load that a browser recorded (HAR): its origins, and the time saved by serving them from the
//! page's own origin.

mod document;
mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod model;
mod output;
mod start;

use std::path::Path;
use std::time::Duration;

pub use error::HarError;
pub use model::Findings;

/// Reads the first page of `file` and computes [`Findings`] for visitors with the round-trip time `rtt`; `None` uses the
/// times of the recording. Files over 256 MiB are [`HarError::TooLarge`].
pub fn analyse(file: &Path, rtt: Option<Duration>) -> Result<Findings, HarError> {
    let page = document::read(file)?;
    Findings::of(&page, rtt).map_err(|reason| HarError::Unusable { file: file.to_owned(), reason })
}
