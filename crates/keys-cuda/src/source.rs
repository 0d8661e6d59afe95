//! The text of the kernels, the options that the compiler gets with it, and how work is laid out on the GPU.

use brisk_keys::device::Width;

/// Blinding pairs of a key. Each is the square of the one before it, round in a ring.
pub(super) const SLOTS: u32 = 128;

/// Threads that run in lockstep, whatever the GPU.
const WARP: u32 = 32;

/// Words of a number that fit in the registers of a thread, with the sum and the modulus. More make the compiler take
/// minutes, for code that is slow.
const MOST_LIMBS: u32 = 32;

/// Shared memory that a block can have without asking for more.
const SHARED_BYTES: u32 = 48 * 1024;

/// The program for one width, for NVRTC with the options of a [`Geometry`].
///
/// Its functions are `rsa_private` and `advance_blinding`, both at the end of `rsa.cu`.
pub(super) const SOURCE: &str = concat!(
    include_str!("kernels/words.cuh"),
    include_str!("kernels/group.cuh"),
    include_str!("kernels/montgomery.cuh"),
    include_str!("kernels/exponentiation.cuh"),
    include_str!("kernels/rsa.cu"),
);

/// How the operations of one width are spread over the threads of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Geometry {
    width: Width,
    threads: u32,
    block: u32,
    window: u32,
}

impl Geometry {
    /// What is best, as far as known, where nothing else is asked for. `None` if it cannot be done.
    ///
    /// `threads` compute modulo one prime, twice as many an operation: a power of two up to 16 that leaves each of them an
    /// even number of words up to 32. `block` threads share a multiprocessor's memory; a multiple of 32. The window is as
    /// wide as is best, and narrower if the tables of powers would not find room.
    pub(super) fn new(width: Width, threads: Option<u32>, block: Option<u32>) -> Option<Self> {
        let best = Self::best(width);
        let geometry =
            Self { threads: threads.unwrap_or(best.threads), block: block.unwrap_or(best.block), ..best };
        (1..=best.window).rev().find_map(|window| geometry.with_window(window))
    }

    /// The same with another window: `window` bits of an exponent to one multiplication. `None` if it cannot be done.
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

    /// Of which keys.
    #[cfg(test)]
    pub(super) const fn width(&self) -> Width {
        self.width
    }

    /// Words of the modulus, of an input and of an output.
    pub(super) const fn words(&self) -> u32 {
        words(self.width)
    }

    /// Threads of the GPU for each half of an operation.
    pub(super) const fn threads(&self) -> u32 {
        self.threads
    }

    /// Bits of an exponent to one multiplication.
    pub(super) const fn window(&self) -> u32 {
        self.window
    }

    /// Threads to a block: how both kernels are to be launched.
    pub(super) const fn block(&self) -> u32 {
        self.block
    }

    /// Operations to a block.
    pub(super) const fn operations(&self) -> u32 {
        self.block / (2 * self.threads)
    }

    /// Shared memory to a block: the tables of powers. The kernel declares it; a launch asks for none.
    pub(super) const fn shared_bytes(&self) -> u32 {
        (self.block / self.threads) * (1 << self.window) * (self.words() / 2) * 4
    }

    /// Blocks of a launch of `rsa_private`.
    pub(super) fn blocks(&self, operations: usize) -> u32 {
        blocks(operations, self.operations())
    }

    /// Blocks of a launch of `advance_blinding`: one group of threads squares `u`, another `v`.
    pub(super) fn advance_blocks(&self, advances: usize) -> u32 {
        blocks(2 * advances, self.operations())
    }

    /// Options for the compiler of [`SOURCE`], NVRTC or another.
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

/// Words of 32 bits in the modulus of a key.
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
            // No launch has to ask the driver for it.
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
