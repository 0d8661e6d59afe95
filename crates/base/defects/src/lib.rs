//! Deliberate defects, with which the chaos tests prove that they find such defects.
//!
//! Without the feature `enabled`, [`strikes`] is the constant `false`, so that the compiler removes every [`Defect`]: no released
//! program has one. With the feature, a process has the [`Defect`] that the environment variable `BRISK_DEFECT` names, or none.

#[cfg(feature = "enabled")]
mod enabled;

#[cfg(feature = "enabled")]
pub use enabled::{reloaded, strikes};

/// A deliberate defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// After a reload, the first byte of some bodies from upstreams is wrong.
    WrongByte,
    /// Two streams of a connection over HTTP/2 get the responses of each other.
    OtherStream,
    /// The supervisor keeps a descriptor of each upgrade.
    LeakedDescriptor,
    /// A request whose upstream server ends before its response never ends.
    EndlessRequest,
    /// Some requests are missing in the metrics.
    LostCounter,
}

impl Defect {
    /// All defects.
    pub const ALL: [Self; 5] =
        [Self::WrongByte, Self::OtherStream, Self::LeakedDescriptor, Self::EndlessRequest, Self::LostCounter];

    /// Value of `BRISK_DEFECT` for the defect.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WrongByte => "wrong-byte",
            Self::OtherStream => "other-stream",
            Self::LeakedDescriptor => "leaked-descriptor",
            Self::EndlessRequest => "endless-request",
            Self::LostCounter => "lost-counter",
        }
    }
}

/// Whether the process has the defect, and it is due at this call. Always `false` without the feature `enabled`.
#[cfg(not(feature = "enabled"))]
#[inline]
pub const fn strikes(_defect: Defect) -> bool {
    false
}

/// Notes a reload, after which [`Defect::WrongByte`] begins. Does nothing without the feature `enabled`.
#[cfg(not(feature = "enabled"))]
#[inline]
pub const fn reloaded() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_the_variable_has_no_defect() {
        reloaded();
        for defect in Defect::ALL {
            assert!((0..100).all(|_| !strikes(defect)), "{}", defect.name());
        }
    }
}
