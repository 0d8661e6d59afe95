//! [`CudaError`], the errors of the GPU and its libraries.

/// Reasons for which RSA is not performed on a GPU, each in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The driver's library is not installed.
    #[error("no NVIDIA driver: libcuda.so.1 is not where the loader looks; the driver's package installs it")]
    NoDriver,
    /// The compiler NVRTC is not installed.
    #[error(
        "no NVRTC: libnvrtc.so is not where the loader looks; the CUDA toolkit has it, or set LD_LIBRARY_PATH to its folder"
    )]
    NoCompiler,
    /// The driver has no device with this index.
    #[error("no NVIDIA GPU {device}: the driver finds {found}")]
    NoDevice {
        /// The index, from 0 on.
        device: usize,
        /// Number of devices.
        found: usize,
    },
    /// The kernels do not support the instruction set of the device.
    #[error("the {name} has compute capability {major}.{minor}, the minimum is 7.0")]
    TooOld {
        /// Name of the device.
        name: String,
        /// Major part of its compute capability.
        major: i32,
        /// Minor part of its compute capability.
        minor: i32,
    },
    /// `threads`, `block` and `window` of the settings are not compatible.
    #[error(
        "operations of {bits} bits cannot be laid out with these numbers of threads, block size and window"
    )]
    Geometry {
        /// Size of the keys in bits.
        bits: usize,
    },
    /// NVRTC cannot compile the kernels.
    #[error("NVRTC cannot compile the kernels: {0}")]
    Compilation(String),
    /// A call of the driver failed.
    #[error("the GPU cannot {action}: {reason}")]
    Driver {
        /// The action, as verb and object.
        action: &'static str,
        /// The driver's error text.
        reason: String,
    },
    /// Most results of a launch failed their check.
    #[error("{wrong} of {of} results of the GPU failed their check")]
    Untrustworthy {
        /// Number of wrong results.
        wrong: usize,
        /// Number of operations in the launch.
        of: usize,
    },
    /// A thread of the engine panicked, which is a defect of brisk.
    #[error("the thread of the GPU panicked")]
    Panicked,
    /// A key cannot be converted.
    #[error("cannot make a key ready for the GPU: {0}")]
    Key(#[from] brisk_keys::KeyError),
    /// A thread cannot be started.
    #[error("cannot start a thread for the GPU: {0}")]
    Thread(String),
}
