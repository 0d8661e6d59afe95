//! Why there is no GPU to work with, or no longer.

/// Why RSA is not performed on a GPU. One line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The driver's library is not on this machine.
    #[error("no NVIDIA driver: libcuda.so.1 is not where the loader looks; the driver's package installs it")]
    NoDriver,
    /// The compiler of the kernels is not on this machine.
    #[error(
        "no NVRTC: libnvrtc.so is not where the loader looks; the CUDA toolkit has it, or set LD_LIBRARY_PATH to its folder"
    )]
    NoCompiler,
    /// The driver is there and finds no device with this number.
    #[error("no NVIDIA GPU {device}: the driver finds {found}")]
    NoDevice {
        /// The number that was asked for, from 0 on.
        device: usize,
        /// How many there are.
        found: usize,
    },
    /// The device has an instruction set that the kernels are not written for.
    #[error("the {name} has compute capability {major}.{minor}, and 7.0 is the least that will do")]
    TooOld {
        /// What the device calls itself.
        name: String,
        /// Its compute capability, before the dot.
        major: i32,
        /// After the dot.
        minor: i32,
    },
    /// Threads, block and window of the settings do not go together.
    #[error(
        "operations of {bits} bits cannot be laid out with these numbers of threads, block size and window"
    )]
    Geometry {
        /// Of which keys.
        bits: usize,
    },
    /// NVRTC refuses the kernels.
    #[error("NVRTC cannot compile the kernels: {0}")]
    Compilation(String),
    /// The driver refuses something.
    #[error("the GPU cannot {action}: {reason}")]
    Driver {
        /// What it was to do, as a verb and its object.
        action: &'static str,
        /// What the driver says.
        reason: String,
    },
    /// Most results of a launch did not stand their check.
    #[error("{wrong} of {of} results of the GPU did not stand their check")]
    Untrustworthy {
        /// How many did not.
        wrong: usize,
        /// How many there were.
        of: usize,
    },
    /// A thread of the engine panicked, which is a fault of brisk.
    #[error("the thread of the GPU panicked")]
    Panicked,
    /// A key cannot be made ready.
    #[error("cannot make a key ready for the GPU: {0}")]
    Key(#[from] brisk_keys::KeyError),
    /// The system refuses a thread.
    #[error("cannot start a thread for the GPU: {0}")]
    Thread(String),
}
