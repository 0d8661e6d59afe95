//! RSA on a GPU: how fast it is, how long an operation takes at each load, beside the processor; and whether it is right.

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
pub use self::verify::Verified;
use crate::{CudaEngine, CudaError, CudaLayout, CudaSettings, CudaTimes, Tiered};

/// Keys of each size that speed is measured with.
const KEYS: usize = 16;

/// What all is measured at, of what can be done at most.
const SHARE: f64 = 0.8;

/// Layouts that are tried: threads for each half of an operation and bits of a window, threads to a block. A thread alone
/// has no room for the table of a wider window, and comes last since it takes the compiler half a minute.
const THREADS: [(u32, u32); 9] = [(4, 4), (4, 5), (8, 4), (8, 5), (16, 4), (16, 5), (2, 4), (2, 5), (1, 3)];
const BLOCKS: [u32; 3] = [32, 64, 128];

/// What a run is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaPlan {
    /// The sizes; nothing stands for all three.
    pub widths: Vec<Width>,
    /// The GPU, and how it is used.
    pub settings: CudaSettings,
    /// For each load.
    pub time: Duration,
    /// Whether other layouts of operations on the GPU are measured too: minutes, since each is compiled.
    pub variants: bool,
    /// How much is compared with AWS-LC; `None` is nothing.
    pub verify: Option<Verification>,
}

/// How much is compared with AWS-LC, for each size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verification {
    /// Keys, made for it.
    pub keys: NonZeroUsize,
    /// Operations, of random keys on random numbers, the edges among them.
    pub operations: usize,
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct CudaResult {
    /// The GPU.
    pub gpu: String,
    /// Threads of the processor's engine.
    pub processor_threads: usize,
    /// What the GPU was used with.
    pub settings: CudaSettings,
    /// For each load.
    pub time: Duration,
    /// The speed of each size.
    pub rows: Vec<CudaRow>,
    /// The speed of other layouts.
    pub variants: Vec<Variant>,
    /// What was compared.
    pub verified: Vec<Verified>,
}

/// How fast operations of one size are.
#[derive(Clone, Debug)]
pub struct CudaRow {
    /// The size.
    pub width: Width,
    /// Single launches, and how they lie on the GPU.
    pub times: CudaTimes,
    /// From how many operations under way on they would go to the GPU, by default.
    pub threshold: Option<usize>,
    /// The processor with more and more operations under way.
    pub processor: Vec<Point>,
    /// The GPU likewise.
    pub gpu: Vec<Point>,
    /// The GPU with 80 % of the most it did, at a fixed rate.
    pub paced: Point,
}

impl CudaRow {
    /// Most operations per second on the GPU.
    pub fn rate(&self) -> f64 {
        most(&self.gpu)
    }

    /// Most operations per second on all cores.
    pub fn processor_rate(&self) -> f64 {
        most(&self.processor)
    }
}

fn most(points: &[Point]) -> f64 {
    points.iter().map(|point| point.rate).fold(0.0, f64::max)
}

/// A layout, and how fast it is.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The size.
    pub width: Width,
    /// Threads, block and window that were asked for; once it was compiled, all of it.
    pub layout: CudaLayout,
    /// Operations per second, and the time of one with the GPU full; or why there is none, in a line.
    pub outcome: Result<Point, String>,
}

/// Why nothing could be measured. One line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// The cryptographic library does not say why.
    #[error("the cryptographic library refuses to work")]
    Library,
    /// An operation was not performed.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// RSA is not to be performed on a GPU.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The system has no threads left.
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

/// One measurement of many.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Measurements so far, this one included.
    pub done: u32,
    /// Measurements in all.
    pub of: u32,
    /// What was measured.
    pub what: &'a str,
    /// Operations per second.
    pub rate: f64,
}

/// Measures all that the plan asks for. `observe` is called after each measurement. `done` learns what was found after each size and layout, so that a run that is cut short
/// leaves something behind.
pub fn run(
    plan: &CudaPlan,
    observe: &mut dyn FnMut(&Step<'_>),
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
    // Before keys are made: without a GPU they would not be used.
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

/// A GPU beside as many threads as there are cores, with a queue that has room for all that a run has under way.
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

/// An error if the GPU was given up: figures would be those of the processor.
fn still_there(cuda: &CudaEngine) -> Result<(), MeasureError> {
    cuda.statistics().loss().map_or(Ok(()), |loss| Err(MeasureError::Cuda(loss.clone())))
}

/// As many operations under way as keep all streams busy while as many are gathered.
fn full(settings: &CudaSettings, times: &CudaTimes) -> usize {
    (2 * settings.streams.get() * times.wave_operations).min(settings.queue.get())
}

/// 1, 4, 16 and so on, and the most.
fn levels(most: usize) -> Vec<usize> {
    let quarters = (0..).map(|power| 1 << (2 * power)).take_while(|level| *level < most);
    quarters.chain([most]).collect()
}

/// The layouts to be tried.
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

/// One layout. Those that cannot be, or that the GPU fails at, are no error.
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

/// The result of the thread; its panic is resumed here.
fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// As many as a run is likely to have: the curves of GPUs have about eight loads.
fn steps(plan: &CudaPlan) -> u32 {
    let each = 14
        + if plan.variants { THREADS.len() * BLOCKS.len() } else { 0 }
        + usize::from(plan.verify.is_some());
    (plan.widths().len() * each) as u32
}

/// Counts the steps of a run.
struct Progress<'a> {
    observe: &'a mut dyn FnMut(&Step<'_>),
    done: u32,
    of: u32,
}

impl Progress<'_> {
    fn step(&mut self, what: &str, rate: f64) {
        self.done += 1;
        self.of = self.of.max(self.done);
        (self.observe)(&Step { done: self.done, of: self.of, what, rate });
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
