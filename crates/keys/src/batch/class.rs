//! Which operations can be performed together: what they are gathered by.

use std::time::Duration;

use brisk_lanes::rsa_lanes::Width;

/// What an operation must have in common with others to be performed together with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Nothing: it is performed alone.
    Alone,
    /// An RSA key of 2048 bits that has lanes.
    Rsa2048,
    /// An RSA key of 3072 bits that has lanes.
    Rsa3072,
    /// An RSA key of 4096 bits that has lanes.
    Rsa4096,
}

impl Class {
    pub(super) const ALL: [Self; 4] = [Self::Alone, Self::Rsa2048, Self::Rsa3072, Self::Rsa4096];

    /// The class of operations with keys of this width in batches.
    pub(super) const fn of_width(width: Width) -> Self {
        match width {
            Width::Rsa2048 => Self::Rsa2048,
            Width::Rsa3072 => Self::Rsa3072,
            Width::Rsa4096 => Self::Rsa4096,
        }
    }

    pub(super) const fn width(self) -> Option<Width> {
        match self {
            Self::Alone => None,
            Self::Rsa2048 => Some(Width::Rsa2048),
            Self::Rsa3072 => Some(Width::Rsa3072),
            Self::Rsa4096 => Some(Width::Rsa4096),
        }
    }

    /// What an operation alone costs on a recent processor: assumed until it was measured.
    pub(super) const fn usual_time(self) -> Duration {
        match self {
            Self::Alone | Self::Rsa2048 => Duration::from_micros(200),
            Self::Rsa3072 => Duration::from_micros(600),
            Self::Rsa4096 => Duration::from_micros(1300),
        }
    }
}
