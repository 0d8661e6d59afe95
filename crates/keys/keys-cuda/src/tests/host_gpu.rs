//! A simulated GPU: the processor runs the kernels, or AWS-LC replaces them for speed; with failures on demand.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use brisk_keys::device::Width;

use crate::{
    error::CudaError,
    gpu_stream::{Buffers, DONE, GpuStream, OUT_OF_RANGE, Results},
    host::{Fault, HostKernels},
    key::record_words,
    source::{Geometry, SLOTS},
    statistics::CudaLayout,
    testing::Reference,
};

/// Failure of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// One result is wrong.
    Fault(Fault),
    /// All results are wrong.
    Faults,
    /// The GPU is lost.
    Loss,
    /// The engine's own code panics.
    Panic,
}

/// Control and observation of the GPUs of a test.
#[derive(Default)]
pub(super) struct Script {
    /// Performs the operations of these keys instead of the kernels.
    stand_in: Vec<Reference>,
    /// Failures of the next launches.
    fates: Mutex<VecDeque<Fate>>,
    /// Widths and sizes of the launches so far.
    launches: Mutex<Vec<(Width, usize)>>,
    /// Slots that the last launch used, and advances after it.
    pub(super) last: Mutex<(Vec<u32>, Vec<u32>)>,
    /// Number of keys stored on a GPU, and of keys wiped individually.
    pub(super) uploads: AtomicUsize,
    pub(super) wiped: AtomicUsize,
    /// Number of dropped GPUs.
    pub(super) gone: AtomicUsize,
    /// Minimum duration of a launch.
    time: Mutex<Duration>,
    closed: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Script {
    /// Control of GPUs on which AWS-LC performs the operations of these keys.
    pub(super) fn with_stand_in(keys: Vec<Reference>) -> Arc<Self> {
        Arc::new(Self { stand_in: keys, ..Self::default() })
    }

    pub(super) fn then(&self, fate: Fate) {
        lock(&self.fates).push_back(fate);
    }

    pub(super) fn launches(&self) -> Vec<(Width, usize)> {
        lock(&self.launches).clone()
    }

    pub(super) fn count(counter: &AtomicUsize) -> usize {
        counter.load(Ordering::Relaxed)
    }

    /// Makes launches wait until they are permitted.
    pub(super) fn close(&self) {
        *lock(&self.closed) = true;
    }

    pub(super) fn open(&self) {
        *lock(&self.closed) = false;
        self.opened.notify_all();
    }

    /// Index of the replacement key with this record.
    fn key_of(&self, record: &[u32], width: Width) -> Option<&Reference> {
        let n: Vec<_> =
            record[4..][..width.bits() / 32].iter().rev().flat_map(|word| word.to_be_bytes()).collect();
        self.stand_in.iter().find(|key| key.modulus() == n)
    }

    /// Whether a launch is waiting.
    pub(super) fn is_waiting(&self) -> bool {
        Self::count(&self.waiting) > 0
    }

    /// Restarts the count of launches.
    pub(super) fn forget(&self) {
        lock(&self.launches).clear();
    }

    /// Makes launches take long.
    pub(super) fn slow_down(&self) {
        *lock(&self.time) = Duration::from_millis(100);
    }

    fn wait(&self) {
        thread::sleep(*lock(&self.time));
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let closed = self.opened.wait_while(lock(&self.closed), |closed| *closed);
        drop(closed.unwrap_or_else(PoisonError::into_inner));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One stream of the simulated GPU.
pub(super) struct HostGpu {
    wave: usize,
    lanes: [Lane; Width::ALL.len()],
    script: Arc<Script>,
}

#[derive(Default)]
struct Lane {
    keys: Vec<u32>,
    blinding: Vec<u32>,
    requests: Vec<u32>,
    inputs: Vec<u8>,
    outputs: Vec<u8>,
    verdicts: Vec<u32>,
}

impl HostGpu {
    pub(super) fn new(wave: usize, script: &Arc<Script>) -> Self {
        Self { wave, lanes: Default::default(), script: Arc::clone(script) }
    }
}

fn geometry(width: Width) -> Geometry {
    Geometry::new(width, None, None).unwrap()
}

fn ring(width: Width) -> usize {
    SLOTS as usize * 2 * (width.bits() / 32)
}

impl GpuStream for HostGpu {
    fn wave(&self, _: Width) -> usize {
        self.wave
    }

    fn layout(&self, width: Width) -> CudaLayout {
        CudaLayout { threads: geometry(width).threads(), ..CudaLayout::default() }
    }

    fn reserve(&mut self, width: Width, places: usize) -> Result<(), CudaError> {
        let (lane, size) = (&mut self.lanes[width as usize], self.wave * width.bits() / 8);
        // Not rounded up, so that accesses beyond the requested size are detected.
        let places = places.max(lane.keys.len() / record_words(width));
        lane.keys.resize(places * record_words(width), 0);
        lane.blinding.resize(places * ring(width), 0);
        lane.requests.resize(2 * self.wave, 0);
        lane.inputs.resize(size, 0);
        lane.outputs.resize(size, 0);
        lane.verdicts.resize(self.wave, 0);
        Ok(())
    }

    fn put_key(&mut self, width: Width, place: u32, record: &[u32], pair: &[u32]) -> Result<(), CudaError> {
        let (lane, place) = (&mut self.lanes[width as usize], place as usize);
        self.script.uploads.fetch_add(1, Ordering::Relaxed);
        lane.keys[place * record_words(width)..][..record.len()].copy_from_slice(record);
        lane.blinding[place * ring(width)..][..pair.len()].copy_from_slice(pair);
        Ok(())
    }

    fn wipe_key(&mut self, width: Width, place: u32) -> Result<(), CudaError> {
        let (lane, place) = (&mut self.lanes[width as usize], place as usize);
        self.script.wiped.fetch_add(1, Ordering::Relaxed);
        lane.keys[place * record_words(width)..][..record_words(width)].fill(0);
        lane.blinding[place * ring(width)..][..ring(width)].fill(0);
        Ok(())
    }

    fn advance(&mut self, width: Width, advances: &[u32]) -> Result<(), CudaError> {
        let Lane { keys, blinding, .. } = &mut self.lanes[width as usize];
        if self.script.stand_in.is_empty() {
            HostKernels::of(geometry(width)).advance(keys, blinding, advances);
        }
        Ok(())
    }

    fn buffers(&mut self, width: Width) -> Buffers<'_> {
        let lane = &mut self.lanes[width as usize];
        assert!(lane.inputs.iter().all(|byte| *byte == 0), "the buffers were wiped");
        Buffers { requests: &mut lane.requests, inputs: &mut lane.inputs }
    }

    fn perform(&mut self, width: Width, count: usize, advances: &[u32]) -> Result<Results<'_>, CudaError> {
        self.script.wait();
        lock(&self.script.launches).push((width, count));
        let (lane, size) = (&mut self.lanes[width as usize], count * width.bits() / 8);
        let Lane { keys, blinding, requests, inputs, outputs, verdicts } = lane;
        let (outputs, verdicts) = (&mut outputs[..size], &mut verdicts[..count]);
        let (requests, inputs) = (&requests[..2 * count], &inputs[..size]);
        verdicts.fill(0);
        let slots = requests.chunks(2).flat_map(|request| [request[1] & 0xffff, request[1] >> 16]);
        *lock(&self.script.last) = (slots.collect(), advances.to_vec());
        let fate = lock(&self.script.fates).pop_front();
        match fate {
            Some(Fate::Loss) => {
                return Err(CudaError::Driver {
                    action: "perform operations",
                    reason: "it was unplugged".into(),
                });
            }
            Some(Fate::Panic) => panic!("injected"),
            Some(Fate::Faults) => {}
            Some(Fate::Fault(fault)) => HostKernels::with_faults(geometry(width))
                .private_with_fault(keys, blinding, requests, inputs, outputs, verdicts, fault),
            None if self.script.stand_in.is_empty() => {
                HostKernels::of(geometry(width)).private(keys, blinding, requests, inputs, outputs, verdicts);
                HostKernels::of(geometry(width)).advance(keys, blinding, advances);
            }
            None => {
                let (keys, size) = (keys.chunks(record_words(width)), width.bits() / 8);
                let keys: Vec<_> = keys.map(|record| self.script.key_of(record, width)).collect();
                let numbers = inputs.chunks(size).zip(outputs.chunks_mut(size));
                for ((request, verdict), (input, output)) in
                    requests.chunks(2).zip(&mut *verdicts).zip(numbers)
                {
                    let key = keys[request[0] as usize].expect("the key is on the GPU");
                    *verdict = match key.transform(input) {
                        Ok(result) => {
                            output.copy_from_slice(&result);
                            DONE
                        }
                        Err(_) => OUT_OF_RANGE,
                    };
                }
            }
        }
        Ok(Results { outputs, verdicts })
    }

    fn wipe_buffers(&mut self, width: Width, count: usize) {
        let (lane, size) = (&mut self.lanes[width as usize], count * width.bits() / 8);
        lane.inputs[..size].fill(0);
        lane.outputs[..size].fill(0);
    }
}

impl Drop for HostGpu {
    fn drop(&mut self) {
        self.script.gone.fetch_add(1, Ordering::Relaxed);
    }
}
