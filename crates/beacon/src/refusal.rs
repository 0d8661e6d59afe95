//! Why a beacon is not kept.

/// Why a beacon is not kept. Each is counted under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The visitor asks for privacy (`Sec-GPC: 1`).
    Privacy,
    /// A page of another origin sent it.
    OtherSite,
    /// It is longer than [`LARGEST`](crate::LARGEST).
    TooLarge,
    /// Its client sends too many.
    ClientRate,
    /// All clients together send too many.
    Rate,
    /// Others that are arriving take the memory for them.
    Busy,
    /// Its end did not come, or not in time.
    CutOff,
    /// It is none.
    Malformed,
    /// Its id was never issued, joined a visit before, or is too old.
    UnknownId,
    /// Its id is that of a page of another host.
    OtherHost,
    /// It says what cannot be true.
    Implausible,
}

impl Refusal {
    /// All of them.
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

    /// Its name as a label of metrics.
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
