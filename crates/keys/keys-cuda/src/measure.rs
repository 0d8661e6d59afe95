//! Measurement of RSA on a GPU: throughput and latency at each load beside those of the processor, and correctness of
//! results.

pub mod html;
pub mod json;
mod keys;
mod load;
pub mod markdown;
mod verify;

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use aws_lc_rs::error::{KeyRejected, Unspecified};
pub use brisk_keys::device::Width;
use brisk_keys::{BatchEngine, BatchSettings, KeyError, Keystore, PrivateKeyEngine, Threads};

use self::keys::Pool;
use self::load::Loader;
pub use self::load::Point;
pub use self::verify::Comparison;
use crate::{CudaEngine, CudaError, CudaLayout, CudaSettings, CudaTimes, Tiered};

/// Number of keys of each size in measurements of speed.
const KEYS: usize = 16;

/// Load of the latency measurement, as a share of maximum throughput.
const SHARE: f64 = 0.8;

/// Measured layouts: threads for each half of an operation with bits of a window, and threads per block. A single
/// thread has no room for the table of a wider window, and is last because it takes the compiler half a minute.
const THREADS: [(u32, u32); 9] = [(4, 4), (4, 5), (8, 4), (8, 5), (16, 4), (16, 5), (2, 4), (2, 5), (1, 3)];
const BLOCKS: [u32; 3] = [32, 64, 128];

/// Parameters of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaPlan {
    /// The sizes; empty for all three.
    pub widths: Vec<Width>,
    /// GPU and its settings.
    pub settings: CudaSettings,
    /// Duration of the measurement at each load.
    pub time: Duration,
    /// Whether to measure other layouts. Takes minutes, because each is compiled.
    pub variants: bool,
    /// Comparison with AWS-LC; `None` for no comparison.
    pub verify: Option<Verification>,
}

/// Extent of the comparison with AWS-LC, for each size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verification {
    /// Number of generated keys.
    pub keys: NonZeroUsize,
    /// Number of operations with random keys on random numbers, edge cases included.
    pub operations: usize,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct CudaResult {
    /// Name of the GPU.
    pub gpu: String,
    /// Number of threads of the processor's engine.
    pub processor_threads: usize,
    /// Settings of the GPU.
    pub settings: CudaSettings,
    /// Duration of the measurement at each load.
    pub time: Duration,
    /// Speed of each size.
    pub rows: Vec<CudaRow>,
    /// Speed of other layouts.
    pub variants: Vec<Variant>,
    /// Results of the comparison.
    pub verified: Vec<Comparison>,
}

/// Speed of operations of one size.
#[derive(Clone, Debug)]
pub struct CudaRow {
    /// The size.
    pub width: Width,
    /// Duration and layout of single launches.
    pub times: CudaTimes,
    /// Default number of operations in progress from which they are sent to the GPU.
    pub threshold: Option<usize>,
    /// The processor with increasing numbers of operations in progress.
    pub processor: Vec<Point>,
    /// The GPU with increasing numbers of operations in progress.
    pub gpu: Vec<Point>,
    /// The GPU at a fixed rate of 80 % of its maximum throughput.
    pub paced: Point,
}

impl CudaRow {
    /// Maximum throughput of the GPU, in operations per second.
    pub fn rate(&self) -> f64 {
        most(&self.gpu)
    }

    /// Maximum throughput of all cores, in operations per second.
    pub fn processor_rate(&self) -> f64 {
        most(&self.processor)
    }
}

fn most(points: &[Point]) -> f64 {
    points.iter().map(|point| point.rate).fold(0.0, f64::max)
}

/// A `CudaLayout` with its speed.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The size.
    pub width: Width,
    /// Requested threads, block and window; complete after a successful compilation.
    pub layout: CudaLayout,
    /// Throughput and latency with a full GPU, or the reason of a failure in one line.
    pub outcome: Result<Point, String>,
}

/// Reasons for which nothing could be measured, each in one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// The cryptographic library failed without a reason.
    #[error("the cryptographic library failed")]
    Library,
    /// An operation failed.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The GPU cannot be used.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// A thread cannot be started.
    #[error("cannot measure: {0}")]
    System(#[from] io::Error),
}

impl From<Unspecified> for MeasureError {
    fn from(_: Unspecified) -> Self {
        Self::Library
    }
}

impl From<KeyRejected> for MeasureError {
    fn from(_: KeyRejected) -> Self {
        Self::Library
    }
}

/// Progress of a run: one measurement.
#[derive(Clone, Copy, Debug)]
pub struct MeasureStep<'a> {
    /// Number of measurements so far, this one included.
    pub done: u32,
    /// Total number of measurements.
    pub of: u32,
    /// Description of the measurement.
    pub what: &'a str,
    /// Operations per second.
    pub rate: f64,
}

/// Runs all measurements of the plan. `observe` is called after each measurement, `done` with the results so far after
/// each size and layout, so that an interrupted run leaves results.
pub fn run(
    plan: &CudaPlan,
    observe: &mut dyn FnMut(&MeasureStep<'_>),
    mut done: impl FnMut(&CudaResult),
) -> Result<CudaResult, MeasureError> {
    let cores = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let mut progress = Progress { observe, done: 0, of: steps(plan) };
    let mut result = CudaResult {
        gpu: String::new(),
        processor_threads: cores.get(),
        settings: plan.settings.clone(),
        time: plan.time,
        rows: Vec::new(),
        variants: Vec::new(),
        verified: Vec::new(),
    };
    // Opened before keys are generated, which would be useless without a GPU.
    result.gpu = engine(Arc::default(), cores, &plan.settings)?.to_string();
    let mut pools = Vec::new();
    for width in plan.widths() {
        let pool = Pool::new(width, KEYS, cores)?;
        result.rows.push(row(plan, &pool, cores, &mut progress)?);
        pools.push(pool);
        done(&result);
    }
    if let Some(wanted) = plan.verify {
        for width in plan.widths() {
            let verified =
                verify::verify(width, wanted, cores, |keystore| engine(keystore, cores, &plan.settings))?;
            progress.step(&format!("{width} compared with AWS-LC"), 0.0);
            result.verified.push(verified);
            done(&result);
        }
    }
    for pool in pools.iter().filter(|_| plan.variants) {
        for settings in layouts(&plan.settings) {
            result.variants.push(variant(plan, pool, cores, &settings, &mut progress)?);
            done(&result);
        }
    }
    Ok(result)
}

impl CudaPlan {
    fn widths(&self) -> Vec<Width> {
        let all = [Width::Rsa2048, Width::Rsa3072, Width::Rsa4096];
        all.into_iter().filter(|width| self.widths.is_empty() || self.widths.contains(width)).collect()
    }
}

/// A [`CudaEngine`] with as many threads as cores, and a queue for all operations of a run.
fn engine(
    keystore: Arc<Keystore>,
    cores: NonZeroUsize,
    settings: &CudaSettings,
) -> Result<CudaEngine, MeasureError> {
    let (threads, queue) = (Threads::Exactly(cores), settings.queue);
    let processor =
        BatchEngine::new(keystore, &BatchSettings { threads, queue, ..BatchSettings::default() })?;
    Ok(CudaEngine::new(processor, settings)?)
}

fn row(
    plan: &CudaPlan,
    pool: &Pool,
    cores: NonZeroUsize,
    progress: &mut Progress<'_>,
) -> Result<CudaRow, MeasureError> {
    let (width, bits) = (pool.width(), pool.bits());
    let cuda = engine(Arc::clone(pool.keystore()), cores, &plan.settings)?;
    let times = cuda.statistics().times(bits).expect("there are keys of this size");
    let threshold = Tiered::new(cuda.with_keystore(Arc::clone(pool.keystore())), plan.settings.wait);
    let threshold = threshold.threshold(bits);
    let mut loader = Loader::new(pool, cores, plan.time);
    let mut curve = |name: &str, engine: &dyn PrivateKeyEngine, most: usize| {
        let levels = levels(most).into_iter();
        let points = levels.map(|under_way| {
            let point = loader.closed(engine, under_way)?;
            still_there(&cuda)?;
            progress.step(&format!("{width} on the {name}, {under_way} under way"), point.rate);
            Ok(point)
        });
        points.collect::<Result<Vec<_>, MeasureError>>()
    };
    let processor = curve("processor", cuda.processor(), 16 * cores.get())?;
    let gpu = curve("GPU", &cuda, full(&plan.settings, &times))?;
    let paced = loader.paced(&cuda, SHARE * most(&gpu))?;
    still_there(&cuda)?;
    progress.step(&format!("{width} on the GPU, at a fixed rate"), paced.rate);
    Ok(CudaRow { width, times, threshold, processor, gpu, paced })
}

/// Returns an error if the GPU was lost: the figures would be those of the processor.
fn still_there(cuda: &CudaEngine) -> Result<(), MeasureError> {
    cuda.statistics().loss().map_or(Ok(()), |loss| Err(MeasureError::Cuda(loss.clone())))
}

/// Number of operations in progress that keeps all streams busy while as many are collected.
fn full(settings: &CudaSettings, times: &CudaTimes) -> usize {
    (2 * settings.streams.get() * times.wave_operations).min(settings.queue.get())
}

/// 1, 4, 16 and so on, and `most`.
fn levels(most: usize) -> Vec<usize> {
    let quarters = (0..).map(|power| 1 << (2 * power)).take_while(|level| *level < most);
    quarters.chain([most]).collect()
}

/// Settings of all measured layouts.
fn layouts(settings: &CudaSettings) -> Vec<CudaSettings> {
    let layout = |threads, window, block| CudaSettings {
        threads: Some(threads),
        block: Some(block),
        window: Some(window),
        ..settings.clone()
    };
    let all =
        THREADS.into_iter().flat_map(|(threads, window)| BLOCKS.map(|block| layout(threads, window, block)));
    all.collect()
}

/// Measures one layout. Impossible layouts and failures of the GPU are results, not errors.
fn variant(
    plan: &CudaPlan,
    pool: &Pool,
    cores: NonZeroUsize,
    settings: &CudaSettings,
    progress: &mut Progress<'_>,
) -> Result<Variant, MeasureError> {
    let number = |number: Option<u32>| number.unwrap_or_default();
    let asked = CudaLayout {
        threads: number(settings.threads),
        block: number(settings.block),
        window: number(settings.window),
        ..CudaLayout::default()
    };
    let width = pool.width();
    let measured = engine(Arc::clone(pool.keystore()), cores, settings).and_then(|cuda| {
        let times = cuda.statistics().times(pool.bits()).expect("there are keys of this size");
        let mut loader = Loader::new(pool, cores, plan.time / 2);
        let point = loader.closed(&cuda, full(settings, &times))?;
        still_there(&cuda).map(|()| (times.layout, point))
    });
    let (layout, outcome) = match measured {
        Ok((layout, point)) => (layout, Ok(point)),
        Err(MeasureError::Cuda(error)) => (asked, Err(error.to_string())),
        Err(error) => return Err(error),
    };
    let what = format!(
        "{width} with {} threads, blocks of {}, windows of {}",
        asked.threads, asked.block, asked.window
    );
    progress.step(&what, outcome.as_ref().map_or(0.0, |point| point.rate));
    Ok(Variant { width, layout, outcome })
}

/// The result of the thread; a panic is resumed.
fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Expected number of measurements: the curve of a GPU has about eight loads.
fn steps(plan: &CudaPlan) -> u32 {
    let each = 14
        + if plan.variants { THREADS.len() * BLOCKS.len() } else { 0 }
        + usize::from(plan.verify.is_some());
    (plan.widths().len() * each) as u32
}

/// Counts the measurements of a run.
struct Progress<'a> {
    observe: &'a mut dyn FnMut(&MeasureStep<'_>),
    done: u32,
    of: u32,
}

impl Progress<'_> {
    fn step(&mut self, what: &str, rate: f64) {
        self.done += 1;
        self.of = self.of.max(self.done);
        (self.observe)(&MeasureStep { done: self.done, of: self.of, what, rate });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_rise_from_one_to_the_most() {
        assert_eq!(levels(1), [1]);
        assert_eq!(levels(64), [1, 4, 16, 64]);
        assert_eq!(levels(100), [1, 4, 16, 64, 100]);
    }

    #[test]
    fn nothing_named_is_all_sizes_and_they_have_an_order() {
        let plan = |widths| CudaPlan {
            widths,
            settings: CudaSettings::default(),
            time: Duration::from_secs(1),
            variants: true,
            verify: None,
        };
        let all = [Width::Rsa2048, Width::Rsa3072, Width::Rsa4096];
        assert_eq!(plan(Vec::new()).widths(), all);
        assert_eq!(plan(vec![all[2], all[0]]).widths(), [all[0], all[2]]);
        assert_eq!(steps(&plan(vec![all[0]])), 14 + 27);
    }

    #[test]
    fn without_a_gpu_a_run_ends_before_keys_are_made() {
        let settings = CudaSettings { device: 999, ..CudaSettings::default() };
        let verify = Some(Verification { keys: NonZeroUsize::MAX, operations: usize::MAX });
        let plan =
            CudaPlan { widths: Vec::new(), settings, time: Duration::from_secs(1), variants: true, verify };
        let refused = run(&plan, &mut |_| {}, |_| panic!("there is nothing to report")).unwrap_err();
        assert!(matches!(refused, MeasureError::Cuda(_)), "{refused}");
    }
}
