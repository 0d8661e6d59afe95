//! Measures the algorithms of TLS on one core, and forecasts how many handshakes per second the core can serve.
//!
//! Handshakes are measured too, not calculated from the algorithms, because a handshake is more than its cryptography.
//! Nothing here prints: [`tables`] and [`json`] format a result.

mod cores;
mod error;
mod handshakes;
pub mod json;
mod live;
mod measure;
pub mod result;
mod server;
mod settings;
mod subject;
pub mod tables;
mod work;

use std::thread::{self, ScopedJoinHandle};

pub use error::SpeedError;
pub use live::LiveLine;
pub use result::SpeedResult;
pub use settings::Settings;
pub use subject::{Algorithm, Subject};

use brisk_keys::BatchChoice;

use cores::Cores;
use result::{Forecast, Row};
use settings::Pace;

/// Observes the progress of [`run`].
pub trait Observer: Send {
    /// Called on a measuring thread after each measurement; the next one starts its clock afterwards.
    fn step(&mut self, step: &Step<'_>);
}

/// The progress of a run after a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Measurements so far, including this one.
    pub done: u32,
    /// Total number of measurements: rounds times operations and kinds of [`Handshake`](result::Handshake).
    pub of: u32,
    /// The [`Operation`](result::Operation) or handshake that was measured, as in tables.
    pub what: &'a str,
    /// Operations per second.
    pub rate: f64,
}

/// Runs the measurements on its own threads, of which one at a time uses [`Settings::core`]. A run takes
/// [`Settings::time`] for each operation and each kind of handshake, and some seconds before that to generate keys.
pub fn run(settings: &Settings, observer: &mut dyn Observer) -> Result<SpeedResult, SpeedError> {
    let cores = Cores::choose(settings.core)?;
    let pace = settings.pace();
    let works = work::all(settings)?;
    let measured = works.iter().filter(|work| work.act.is_ok()).count();
    let kinds = if settings.forecasts() { handshakes::MEASURED } else { 0 };
    let of = pace.rounds * (measured + kinds) as u32;
    let mut progress = Progress { observer, done: 0, of };
    // The operations first: the forecast with batches needs the costs of both signatures.
    let rows = on_core(&cores, || measure::measure(works, pace, &mut progress))?;
    let handshakes =
        if settings.forecasts() { forecast(&cores, pace, &mut progress, &rows)? } else { Vec::new() };
    // After the measurements, which have made the choices: `measured` itself measures nothing.
    let choices = BatchChoice::measured().collect();
    Ok(SpeedResult {
        core: cores.measured(),
        time: settings.time,
        rounds: pace.rounds,
        rows,
        choices,
        handshakes,
    })
}

fn forecast(
    cores: &Cores,
    pace: Pace,
    progress: &mut Progress<'_>,
    rows: &[Row],
) -> Result<Vec<Forecast>, SpeedError> {
    let measured = handshakes::measure(cores, pace, progress)?;
    Ok(result::with_batches(measured, rows))
}

/// Runs `measure` on the measured core.
fn on_core<T: Send>(
    cores: &Cores,
    measure: impl FnOnce() -> Result<T, SpeedError> + Send,
) -> Result<T, SpeedError> {
    // A thread of its own, because the affinity must not stay with the thread of the caller.
    thread::scope(|scope| {
        join(scope.spawn(|| {
            cores.occupy()?;
            measure()
        }))
    })
}

/// The result of `thread`; propagates its panic.
fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Counts the [`Step`]s of a run.
struct Progress<'a> {
    observer: &'a mut dyn Observer,
    done: u32,
    of: u32,
}

impl Progress<'_> {
    fn step(&mut self, what: &str, rate: f64) {
        self.done += 1;
        self.observer.step(&Step { done: self.done, of: self.of, what, rate });
    }
}
