//! GPU driver: opens the device and compiles the kernels for it. The libraries of driver and NVRTC (`libcuda`, `libnvrtc`) are
//! loaded at their first use, so that machines without a GPU do not need them.
#![expect(unsafe_code, reason = "the driver's interface is C")]

mod compiler;
mod memory;
mod stream;

use std::{
    ffi::CStr,
    fmt,
    sync::{Arc, OnceLock},
};

use brisk_keys::device::Width;
use cudarc::driver::{
    CudaContext, DriverError,
    result::{function, module, occupancy},
    sys::{self, CUdevice_attribute, CUfunction, CUfunction_attribute_enum, CUmodule},
};

pub(super) use self::stream::Stream;
use super::{engine::CudaSettings, error::CudaError, source::Geometry, statistics::CudaLayout};

/// Minimum compute capability. Before 7.0, the threads of a warp cannot diverge independently.
const LEAST_CAPABILITY: (i32, i32) = (7, 0);

/// A GPU with the [`Kernels`] for each width.
pub(super) struct Device {
    context: Arc<CudaContext>,
    name: String,
    multiprocessors: usize,
    capability: (i32, i32),
    geometries: [Result<Geometry, CudaError>; Width::ALL.len()],
    /// Compiled with the first key of a [`Width`].
    kernels: [OnceLock<Result<Kernels, CudaError>>; Width::ALL.len()],
}

/// Kernels of one [`Width`].
struct Kernels {
    module: CUmodule,
    private: CUfunction,
    advance: CUfunction,
    geometry: Geometry,
    layout: CudaLayout,
}

// SAFETY: handles of modules and functions may be used by any thread in which their context is current (CUDA driver
// API, section "Context Management"), and are not modified after their creation.
unsafe impl Send for Kernels {}
// SAFETY: as for `Send`.
unsafe impl Sync for Kernels {}

impl Device {
    /// Opens the GPU of the [`CudaSettings`].
    ///
    /// # Errors
    ///
    /// [`CudaError`] if driver, device or compiler are missing or unsuitable.
    pub(super) fn open(settings: &CudaSettings) -> Result<Self, CudaError> {
        let geometries = Width::ALL.map(|width| settings.geometry(width));
        let ordinal = settings.device;
        // SAFETY: loading the driver's library only runs its own initialization.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver);
        }
        let found = match CudaContext::device_count() {
            Ok(count) => count as usize,
            Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => 0,
            Err(error) => return Err(failed("be counted")(error)),
        };
        if ordinal >= found {
            return Err(CudaError::NoDevice { device: ordinal, found });
        }
        compiler::find()?;
        let context = CudaContext::new(ordinal).map_err(failed("be opened"))?;
        let name = context.name().map_err(failed("report its name"))?;
        let (major, minor) = context.compute_capability().map_err(failed("report its compute capability"))?;
        if (major, minor) < LEAST_CAPABILITY {
            return Err(CudaError::TooOld { name, major, minor });
        }
        let multiprocessors = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let multiprocessors = context.attribute(multiprocessors).map_err(failed("report its size"))?;
        Ok(Self {
            context,
            name,
            multiprocessors: multiprocessors as usize,
            capability: (major, minor),
            geometries,
            kernels: Default::default(),
        })
    }

    /// Makes the context of the GPU current for this thread.
    fn bind(&self) -> Result<(), CudaError> {
        self.context.bind_to_thread().map_err(failed("be bound to a thread"))
    }

    /// The [`Kernels`] of a [`Width`]. The first call compiles them, which takes seconds.
    fn kernels(&self, width: Width) -> Result<&Kernels, CudaError> {
        let kernels = self.kernels[width as usize].get_or_init(|| self.compile(width));
        kernels.as_ref().map_err(CudaError::clone)
    }

    /// The [`Kernels`] of a [`Width`], if they have been compiled.
    fn compiled(&self, width: Width) -> Option<&Kernels> {
        self.kernels[width as usize].get()?.as_ref().ok()
    }

    fn compile(&self, width: Width) -> Result<Kernels, CudaError> {
        let geometry = self.geometries[width as usize].clone()?;
        let code = compiler::compile(&geometry, self.capability)?;
        self.bind()?;
        // SAFETY: `code` is a complete image that NVRTC created for this device, and stays in memory until the call
        // returns.
        let module =
            unsafe { module::load_data(code.as_ptr().cast()) }.map_err(failed("load the kernels"))?;
        let find = |name: &CStr| {
            // SAFETY: the module has just been loaded.
            unsafe { module::get_function(module, name.to_owned()) }.map_err(failed("find a kernel"))
        };
        let (private, advance) = (find(c"rsa_private")?, find(c"advance_blinding")?);
        let carve_out = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        // Maximum shared memory: the tables of powers limit the number of resident operations.
        // SAFETY: the function exists while its module is loaded.
        unsafe { function::set_function_attribute(private, carve_out, 100) }
            .map_err(failed("set its shared memory"))?;
        let block = geometry.block().cast_signed();
        // SAFETY: the function exists; it declares its shared memory statically.
        let blocks = unsafe { occupancy::max_active_block_per_multiprocessor(private, block, 0) };
        let blocks = blocks.map_err(failed("report its occupancy"))?.max(1) as usize;
        let attribute = |attribute| {
            // SAFETY: the function exists.
            unsafe { function::get_function_attribute(private, attribute) }
                .map_err(failed("report the resources of a kernel"))
        };
        let layout = CudaLayout {
            threads: geometry.threads(),
            block: geometry.block(),
            window: geometry.window(),
            registers: attribute(CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_NUM_REGS)? as u32,
            spilled: attribute(CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)? as u32,
            resident: self.multiprocessors * blocks * geometry.operations() as usize,
        };
        Ok(Kernels { module, private, advance, geometry, layout })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let bound = self.bind().is_ok();
        for kernels in Width::ALL.iter().filter_map(|width| self.compiled(*width)).filter(|_| bound) {
            // SAFETY: the module was loaded in this context, and no stream can run it, because each stream has a
            // reference to `self`. After an error the context frees it.
            let _ = unsafe { module::unload(kernels.module) };
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} multiprocessors", self.name, self.multiprocessors)
    }
}

/// Converts an error of the driver: `action` failed, for the driver's reason.
fn failed(action: &'static str) -> impl Fn(DriverError) -> CudaError {
    move |error| {
        let reason = match error.error_string() {
            Ok(text) => text.to_string_lossy().into_owned(),
            Err(_) => format!("error {}", error.0 as u32),
        };
        CudaError::Driver { action, reason }
    }
}
