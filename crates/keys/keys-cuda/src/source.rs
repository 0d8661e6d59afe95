//! Source text of the kernels, compiler options, and layout of operations on the GPU.

use brisk_keys::device::Width;

/// Number of blinding pairs of a key: a ring in which each pair is the square of its predecessor.
pub(super) const SLOTS: u32 = 128;

/// Threads of a warp, which is 32 on all GPUs.
const WARP: u32 = 32;

/// Maximum number of words per thread. A number, the sum and the modulus must fit in registers; more words make the
/// compiler take minutes and produce slow code.
const MOST_LIMBS: u32 = 32;

/// Shared memory that a block can have without a request to the driver.
const SHARED_BYTES: u32 = 48 * 1024;

/// Source text of all kernels, for NVRTC with the options of a [`Geometry`].
///
/// The kernels are `rsa_private` and `advance_blinding`, at the end of `rsa.cu`.
pub(super) const SOURCE: &str = concat!(
    include_str!("kernels/words.cuh"),
    include_str!("kernels/group.cuh"),
    include_str!("kernels/montgomery.cuh"),
    include_str!("kernels/exponentiation.cuh"),
    include_str!("kernels/rsa.cu"),
);

/// Distribution of the operations of one width over GPU threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Geometry {
    width: Width,
    threads: u32,
    block: u32,
    window: u32,
}

impl Geometry {
    /// A [`Geometry`] with the fastest known values where none is given. `None` if the values are impossible.
    ///
    /// `threads` compute modulo one prime, twice as many an operation: a power of two up to 16 that leaves an even
    /// number of words up to 32 to each. `block` threads share the memory of a multiprocessor; a multiple of 32. The
    /// window is the widest useful one for which the tables of powers fit.
    pub(super) fn new(width: Width, threads: Option<u32>, block: Option<u32>) -> Option<Self> {
        let best = Self::best(width);
        let geometry =
            Self { threads: threads.unwrap_or(best.threads), block: block.unwrap_or(best.block), ..best };
        (1..=best.window).rev().find_map(|window| geometry.with_window(window))
    }

    /// The [`Geometry`] with `window` bits of the exponent per multiplication. `None` if that is impossible.
    pub(super) fn with_window(self, window: u32) -> Option<Self> {
        let geometry = Self { window, ..self };
        geometry.is_possible().then_some(geometry)
    }

    const fn best(width: Width) -> Self {
        let threads = match width {
            Width::Rsa2048 => 4,
            Width::Rsa3072 | Width::Rsa4096 => 8,
        };
        Self { width, threads, block: WARP, window: 4 }
    }

    fn is_possible(&self) -> bool {
        let half = self.words() / 2;
        self.threads.is_power_of_two()
            && self.threads <= WARP / 2
            && half.is_multiple_of(2 * self.threads)
            && half / self.threads <= MOST_LIMBS
            && (WARP..=1024).contains(&self.block)
            && self.block.is_multiple_of(WARP)
            && (1..=6).contains(&self.window)
            && self.shared_bytes() <= SHARED_BYTES
    }

    /// Width of the keys.
    #[cfg(test)]
    pub(super) const fn width(&self) -> Width {
        self.width
    }

    /// Number of words of modulus, input and output.
    pub(super) const fn words(&self) -> u32 {
        words(self.width)
    }

    /// GPU threads for each half of an operation.
    pub(super) const fn threads(&self) -> u32 {
        self.threads
    }

    /// Bits of the exponent per multiplication.
    pub(super) const fn window(&self) -> u32 {
        self.window
    }

    /// Threads per block, for both kernels.
    pub(super) const fn block(&self) -> u32 {
        self.block
    }

    /// Operations per block.
    pub(super) const fn operations(&self) -> u32 {
        self.block / (2 * self.threads)
    }

    /// Shared memory per block, in bytes, for the tables of powers. The kernel declares it statically.
    pub(super) const fn shared_bytes(&self) -> u32 {
        (self.block / self.threads) * (1 << self.window) * (self.words() / 2) * 4
    }

    /// Number of blocks of a launch of `rsa_private`.
    pub(super) fn blocks(&self, operations: usize) -> u32 {
        blocks(operations, self.operations())
    }

    /// Number of blocks of a launch of `advance_blinding`: one group of threads squares `u`, another `v`.
    pub(super) fn advance_blocks(&self, advances: usize) -> u32 {
        blocks(2 * advances, self.operations())
    }

    /// Compiler options for [`SOURCE`], for NVRTC or a C++ compiler.
    pub(super) fn options(&self) -> Vec<String> {
        let Self { threads, block, window, .. } = self;
        let words = self.words();
        [("WORDS", words), ("THREADS", *threads), ("BLOCK", *block), ("WINDOW", *window), ("SLOTS", SLOTS)]
            .map(|(name, value)| format!("-D{name}={value}"))
            .into_iter()
            .chain(["-std=c++17".into()])
            .collect()
    }
}

/// Number of 32-bit words in the modulus of a key.
pub(super) const fn words(width: Width) -> u32 {
    width.bits() as u32 / 32
}

fn blocks(work: usize, per_block: u32) -> u32 {
    u32::try_from(work).expect("a launch is of thousands").div_ceil(per_block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_geometry_of_each_width_is_possible() {
        for width in Width::ALL {
            let geometry = Geometry::new(width, None, None).unwrap();
            assert_eq!(geometry, Geometry::best(width));
            // No launch needs a request to the driver.
            assert!(geometry.shared_bytes() <= SHARED_BYTES);
        }
    }

    #[test]
    fn what_cannot_be_laid_out_is_refused() {
        let new = |threads, block| Geometry::new(Width::Rsa3072, Some(threads), Some(block));
        assert!(new(1, 32).is_none(), "more words than registers");
        assert!(new(8, 32).is_some());
        assert!(new(16, 32).is_none(), "three words to a thread");
        assert!(new(32, 32).is_none(), "an operation on more threads than run in lockstep");
        assert!(new(3, 32).is_none());
        assert!(new(8, 48).is_none(), "half a warp");
        assert!(new(2, 1024).is_none(), "more shared memory than there is");
        let windows = [0, 3, 4, 7].map(|window| new(8, 32).unwrap().with_window(window).is_some());
        assert_eq!(windows, [false, true, true, false]);
    }

    #[test]
    fn the_window_is_as_wide_as_memory_allows() {
        let window =
            |threads, block| Geometry::new(Width::Rsa2048, Some(threads), Some(block)).unwrap().window;
        assert_eq!((window(4, 32), window(1, 32), window(1, 128)), (4, 3, 1));
    }

    #[test]
    fn every_operation_has_its_threads() {
        let geometry = Geometry::new(Width::Rsa2048, Some(4), Some(32)).unwrap();
        assert_eq!(geometry.operations(), 4);
        assert_eq!([0, 1, 4, 5].map(|operations| geometry.blocks(operations)), [0, 1, 1, 2]);
        assert_eq!([1, 2, 3].map(|advances| geometry.advance_blocks(advances)), [1, 1, 2]);
    }
}
