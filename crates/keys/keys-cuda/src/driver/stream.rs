//! A stream of the GPU: copies and kernels in the order of their submission.

use std::{ffi::c_void, num::NonZeroUsize, sync::Arc};

use brisk_keys::device::Width;
use cudarc::driver::{
    result::{self, event, stream},
    sys::{CUdeviceptr, CUevent, CUevent_flags, CUfunction, CUstream},
};
use zeroize::Zeroize;

use super::{
    CudaError, Device, Kernels, failed,
    memory::{DeviceMemory, PinnedMemory},
};
use crate::{
    gpu_stream::{Buffers, GpuStream, Results},
    key::record_words,
    source::SLOTS,
    statistics::CudaLayout,
};

/// Maximum number of operations in a launch, which bounds the memory on both sides.
const MOST: usize = 1 << 16;

/// A [`GpuStream`] with all memory that its work uses.
pub(crate) struct Stream {
    handle: CUstream,
    /// Event after the copies of results, for which [`GpuStream::perform`] waits.
    results: CUevent,
    /// Configured number of operations in a launch, if any, and number of streams that share the GPU.
    wave: Option<NonZeroUsize>,
    streams: NonZeroUsize,
    widths: [Option<WidthBuffers>; Width::ALL.len()],
    device: Arc<Device>,
}

// SAFETY: a stream and an event may be used by any thread in which their context is current, one at a time. Every
// method makes it current, and the value has one owner.
unsafe impl Send for Stream {}

/// Memory for the operations of one [`Width`].
struct WidthBuffers {
    /// Number of keys that fit.
    places: usize,
    keys: DeviceMemory,
    blinding: DeviceMemory,
    advances: MirroredBuffer,
    requests: MirroredBuffer,
    inputs: MirroredBuffer,
    outputs: MirroredBuffer,
    verdicts: MirroredBuffer,
}

/// A buffer in pinned memory with its copy on the GPU.
struct MirroredBuffer {
    here: PinnedMemory,
    gpu: DeviceMemory,
}

impl Stream {
    /// Creates one of `streams` streams. A launch has at most `wave` operations; by default as many as let all
    /// streams except the collecting one fill the GPU.
    pub(crate) fn new(
        device: Arc<Device>,
        streams: NonZeroUsize,
        wave: Option<NonZeroUsize>,
    ) -> Result<Self, CudaError> {
        device.bind()?;
        let handle = stream::create(stream::StreamKind::NonBlocking).map_err(failed("open a stream"))?;
        // Blocking synchronization: the waiting thread sleeps.
        let results =
            event::create(CUevent_flags::CU_EVENT_BLOCKING_SYNC).map_err(failed("make an event"))?;
        Ok(Self { handle, results, wave, streams, widths: Default::default(), device })
    }

    fn wait(&self) -> Result<(), CudaError> {
        // SAFETY: the stream exists.
        unsafe { stream::synchronize(self.handle) }.map_err(failed("finish its work"))
    }

    /// The memory that `reserve` has allocated, and the [`Kernels`].
    fn of_width(&mut self, width: Width) -> (&mut WidthBuffers, &Kernels) {
        let buffers =
            self.widths[width as usize].as_mut().expect("there is room for a key before there is a key");
        (buffers, self.device.compiled(width).expect("they were compiled with the first key"))
    }
}

impl GpuStream for Stream {
    fn wave(&self, width: Width) -> usize {
        let Some(kernels) = self.device.compiled(width) else { return 1 };
        let share = kernels.layout.resident.div_ceil((self.streams.get() - 1).max(1));
        self.wave.map_or(share, NonZeroUsize::get).min(MOST)
    }

    fn layout(&self, width: Width) -> CudaLayout {
        self.device.compiled(width).map(|kernels| kernels.layout).unwrap_or_default()
    }

    fn reserve(&mut self, width: Width, places: usize) -> Result<(), CudaError> {
        self.device.bind()?;
        self.device.kernels(width)?;
        let (handle, wave) = (self.handle, self.wave(width));
        match &mut self.widths[width as usize] {
            Some(buffers) if buffers.places >= places => return Ok(()),
            Some(buffers) => buffers.grow(width, places.next_power_of_two(), handle)?,
            none => *none = Some(WidthBuffers::new(width, places.next_power_of_two(), wave, handle)?),
        }
        self.wait()
    }

    fn put_key(&mut self, width: Width, place: u32, record: &[u32], pair: &[u32]) -> Result<(), CudaError> {
        self.device.bind()?;
        let (buffers, _) = self.of_width(width);
        buffers.keys.fill(place as usize * record_words(width), record)?;
        buffers.blinding.fill(place as usize * ring_words(width), pair)?;
        self.wait()
    }

    fn wipe_key(&mut self, width: Width, place: u32) -> Result<(), CudaError> {
        self.device.bind()?;
        let (buffers, _) = self.of_width(width);
        let words = |size: usize| place as usize * size..(place as usize + 1) * size;
        buffers.keys.wipe(words(record_words(width)))?;
        buffers.blinding.wipe(words(ring_words(width)))?;
        self.wait()
    }

    fn advance(&mut self, width: Width, advances: &[u32]) -> Result<(), CudaError> {
        self.device.bind()?;
        let handle = self.handle;
        let (buffers, kernels) = self.of_width(width);
        // Each launch advances a key by at most one slot, so there are at most as many advances as keys.
        buffers.advances.put(advances)?;
        buffers.launch_advance(kernels, advances.len() / 2, handle)?;
        self.wait()
    }

    fn buffers(&mut self, width: Width) -> Buffers<'_> {
        let (buffers, _) = self.of_width(width);
        Buffers { requests: &mut buffers.requests.here, inputs: buffers.inputs.here.bytes_mut() }
    }

    fn perform(&mut self, width: Width, count: usize, advances: &[u32]) -> Result<Results<'_>, CudaError> {
        self.device.bind()?;
        let (handle, results, words) = (self.handle, self.results, width.bits() / 32);
        let (buffers, kernels) = self.of_width(width);
        buffers.requests.send(2 * count)?;
        buffers.inputs.send(words * count)?;
        buffers.advances.put(advances)?;
        buffers.verdicts.gpu.wipe(0..count)?;
        buffers.launch_private(kernels, count, handle)?;
        buffers.outputs.fetch(words * count)?;
        buffers.verdicts.fetch(count)?;
        // SAFETY: both exist.
        unsafe { event::record(results, handle) }.map_err(failed("record an event"))?;
        // Runs while the caller reads the results.
        buffers.launch_advance(kernels, advances.len() / 2, handle)?;
        buffers.inputs.gpu.wipe(0..words * count)?;
        buffers.outputs.gpu.wipe(0..words * count)?;
        // SAFETY: the event exists.
        unsafe { event::synchronize(results) }.map_err(failed("perform operations"))?;
        let outputs = &buffers.outputs.here.bytes()[..4 * words * count];
        Ok(Results { outputs, verdicts: &buffers.verdicts.here[..count] })
    }

    fn wipe_buffers(&mut self, width: Width, count: usize) {
        let (words, (buffers, _)) = (width.bits() / 32, self.of_width(width));
        for memory in [&mut buffers.inputs.here, &mut buffers.outputs.here] {
            memory[..words * count].zeroize();
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // A lost GPU frees its memory itself, and rejects all calls.
        if self.device.bind().is_err() {
            return;
        }
        drop(self.wait());
        // Dropped before the stream, which they need for wiping.
        self.widths = Default::default();
        // SAFETY: both exist, nothing is in progress, and they are destroyed once.
        unsafe {
            let _ = event::destroy(self.results);
            let _ = stream::destroy(self.handle);
        }
    }
}

/// Number of words of the blinding pairs of one key of this [`Width`].
const fn ring_words(width: Width) -> usize {
    SLOTS as usize * 2 * (width.bits() / 32)
}

impl WidthBuffers {
    fn new(width: Width, places: usize, wave: usize, stream: CUstream) -> Result<Self, CudaError> {
        let words = width.bits() / 32;
        let twice = |words| MirroredBuffer::zeroes(words, stream);
        Ok(Self {
            places,
            keys: DeviceMemory::zeroes(places * record_words(width), stream)?,
            blinding: DeviceMemory::zeroes(places * ring_words(width), stream)?,
            advances: twice(2 * places)?,
            requests: twice(2 * wave)?,
            inputs: twice(words * wave)?,
            outputs: twice(words * wave)?,
            verdicts: twice(wave)?,
        })
    }

    /// Increases the number of keys that fit.
    fn grow(&mut self, width: Width, places: usize, stream: CUstream) -> Result<(), CudaError> {
        for (memory, size) in [(&mut self.keys, record_words(width)), (&mut self.blinding, ring_words(width))]
        {
            let mut larger = DeviceMemory::zeroes(places * size, stream)?;
            larger.copy(memory)?;
            *memory = larger;
        }
        self.advances = MirroredBuffer::zeroes(2 * places, stream)?;
        self.places = places;
        Ok(())
    }

    fn launch_private(&self, kernels: &Kernels, count: usize, stream: CUstream) -> Result<(), CudaError> {
        let memory = [
            &self.keys,
            &self.blinding,
            &self.requests.gpu,
            &self.inputs.gpu,
            &self.outputs.gpu,
            &self.verdicts.gpu,
        ];
        let blocks = kernels.geometry.blocks(count);
        launch(kernels, kernels.private, memory.map(DeviceMemory::address), count, blocks, stream)
    }

    fn launch_advance(&self, kernels: &Kernels, count: usize, stream: CUstream) -> Result<(), CudaError> {
        let memory = [&self.keys, &self.blinding, &self.advances.gpu];
        let blocks = kernels.geometry.advance_blocks(count);
        launch(kernels, kernels.advance, memory.map(DeviceMemory::address), count, blocks, stream)
    }
}

/// Launches a kernel with these addresses and the number of operations.
fn launch<const N: usize>(
    kernels: &Kernels,
    function: CUfunction,
    mut memory: [CUdeviceptr; N],
    count: usize,
    blocks: u32,
    stream: CUstream,
) -> Result<(), CudaError> {
    let mut count = count as u32;
    if blocks == 0 {
        return Ok(());
    }
    let addresses = memory.iter_mut().map(|address| (&raw mut *address).cast::<c_void>());
    let mut parameters: Vec<_> = addresses.chain([(&raw mut count).cast()]).collect();
    let (grid, block) = ((blocks, 1, 1), (kernels.geometry.block(), 1, 1));
    // SAFETY: the parameters have the order and types of the kernel, and are copied before the call returns. The memory
    // is large enough for `count` operations, and its owner synchronizes the stream before freeing it.
    unsafe { result::launch_kernel(function, grid, block, 0, stream, &mut parameters) }
        .map_err(failed("start a kernel"))
}

impl MirroredBuffer {
    fn zeroes(words: usize, stream: CUstream) -> Result<Self, CudaError> {
        Ok(Self { here: PinnedMemory::zeroes(words)?, gpu: DeviceMemory::zeroes(words, stream)? })
    }

    /// Copies the first words to the GPU.
    fn send(&mut self, words: usize) -> Result<(), CudaError> {
        self.gpu.fill(0, &self.here[..words])
    }

    /// Copies `words` to the GPU. Earlier copies from this buffer must have ended.
    fn put(&mut self, words: &[u32]) -> Result<(), CudaError> {
        self.here[..words.len()].copy_from_slice(words);
        self.send(words.len())
    }

    /// Copies the first words from the GPU.
    fn fetch(&mut self, words: usize) -> Result<(), CudaError> {
        self.gpu.read(&mut self.here[..words])
    }
}
