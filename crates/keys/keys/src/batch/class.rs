//! Classes of operations that can share a batch.

use std::time::Duration;

use brisk_lanes::rsa_lanes::Width;

/// Property that operations of one batch share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Performed alone.
    Alone,
    /// RSA keys of 2048 bits that support batches.
    Rsa2048,
    /// RSA keys of 3072 bits that support batches.
    Rsa3072,
    /// RSA keys of 4096 bits that support batches.
    Rsa4096,
}

impl Class {
    pub(super) const ALL: [Self; 4] = [Self::Alone, Self::Rsa2048, Self::Rsa3072, Self::Rsa4096];

    /// The class of keys of `width`.
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

    /// Typical duration of a single operation on a recent processor, used until a measured one is available.
    pub(super) const fn usual_time(self) -> Duration {
        match self {
            Self::Alone | Self::Rsa2048 => Duration::from_micros(200),
            Self::Rsa3072 => Duration::from_micros(600),
            Self::Rsa4096 => Duration::from_micros(1300),
        }
    }
}
