//! [`Refusal`], the reason for which a beacon is discarded.

/// Reason for which a beacon is discarded. Each is counted under [`name`](Self::name).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The visitor requests privacy (`Sec-GPC: 1`).
    Privacy,
    /// A page of another origin sent it.
    OtherSite,
    /// The beacon is longer than [`LARGEST`](crate::LARGEST).
    TooLarge,
    /// The client exceeds its rate.
    ClientRate,
    /// All clients together exceed their rate.
    Rate,
    /// Other beacons that are arriving take all memory that is reserved for beacons.
    Busy,
    /// The beacon is incomplete, or was not complete in time.
    CutOff,
    /// The beacon is malformed.
    Malformed,
    /// The id was never issued, has been used, or has expired.
    UnknownId,
    /// The id belongs to a page of another host.
    OtherHost,
    /// The measurements are impossible.
    Implausible,
}

impl Refusal {
    /// All reasons.
    pub const ALL: [Self; 11] = [
        Self::Privacy,
        Self::OtherSite,
        Self::TooLarge,
        Self::ClientRate,
        Self::Rate,
        Self::Busy,
        Self::CutOff,
        Self::Malformed,
        Self::UnknownId,
        Self::OtherHost,
        Self::Implausible,
    ];

    /// Name of the reason as a metric label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Privacy => "privacy",
            Self::OtherSite => "other-site",
            Self::TooLarge => "too-large",
            Self::ClientRate => "client-rate",
            Self::Rate => "rate",
            Self::Busy => "busy",
            Self::CutOff => "cut-off",
            Self::Malformed => "malformed",
            Self::UnknownId => "unknown-id",
            Self::OtherHost => "other-host",
            Self::Implausible => "implausible",
        }
    }
}
