//! Instruction sets for lanes, and parameters that depend on the choice.

use std::fmt;

use super::{Width, digits::Radix};
#[cfg(target_arch = "x86_64")]
use crate::processor::{has_fma, has_fma_512, has_ifma};

/// Instruction set of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instructions {
    /// AVX-512 IFMA multiplies integers of 52 bits in eight lanes.
    Ifma,
    /// FMA multiplies floating-point numbers in eight lanes, which are digits of 51 bits. AVX-512 without IFMA does the rest.
    Fma512,
    /// The same in four lanes, with AVX2.
    Fma,
}

impl Instructions {
    /// Each instruction set of [`Instructions`].
    pub const ALL: [Self; 3] = [Self::Ifma, Self::Fma512, Self::Fma];

    /// Whether this processor has them.
    pub fn are_supported(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return match self {
            Self::Ifma => has_ifma(),
            Self::Fma512 => has_fma_512(),
            Self::Fma => has_fma(),
        };
        #[cfg(not(target_arch = "x86_64"))]
        return false;
    }

    /// Operations in a full batch, at most [`OPERATIONS`](super::OPERATIONS).
    pub const fn operations(self) -> usize {
        match self {
            Self::Ifma | Self::Fma512 => 4,
            Self::Fma => 2,
        }
    }

    pub(super) const fn radix(self) -> Radix {
        match self {
            Self::Ifma => Radix { bits: 52 },
            Self::Fma512 | Self::Fma => Radix { bits: 51 },
        }
    }

    /// Digits of a prime: as many as leave at least 16 bits free; with FMA, where products are modulo a multiple that is
    /// longer by a digit, 46 bits beside that digit.
    pub(super) const fn prime_digits(self, width: Width) -> usize {
        match (self, width) {
            (Self::Ifma, Width::Rsa2048) => 20,
            (Self::Ifma, Width::Rsa3072) => 30,
            (Self::Ifma, Width::Rsa4096) => 40,
            (Self::Fma512 | Self::Fma, Width::Rsa2048) => 22,
            (Self::Fma512 | Self::Fma, Width::Rsa3072) => 33,
            (Self::Fma512 | Self::Fma, Width::Rsa4096) => 44,
        }
    }

    /// Whether reduction uses a multiple of the modulus.
    pub(super) const fn reduce_by_multiple(self) -> bool {
        matches!(self, Self::Fma512 | Self::Fma)
    }
}

impl fmt::Display for Instructions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ifma => "batches of four with AVX-512 IFMA",
            Self::Fma512 => "batches of four with AVX-512 and FMA",
            Self::Fma => "batches of two with AVX2 and FMA",
        })
    }
}
