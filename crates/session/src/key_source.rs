//! Where ticket keys come from.

use std::time::Duration;

use crate::{FleetSecret, RotationSettings, TicketKeyFile};

/// Where the ticket keys of a [`TicketKeyring`](crate::TicketKeyring) come from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum KeySource {
    /// Generated and rotated in this process: for one machine. The keys never leave its memory, and a restart discards
    /// them.
    Generated(RotationSettings),
    /// Derived from a secret that the whole fleet has, without communication between its gateways.
    ///
    /// Time is cut into periods of one rotation interval, the same for all, and each period has a key: it seals during
    /// its period, and opens from the period before until the last ticket it sealed is too old. So the clocks of two
    /// gateways may differ by up to an interval. A gateway that starts opens what others sealed before, at once.
    ///
    /// Who has the secret has the keys of all periods, past ones too. The lead of the rotation has no effect.
    Derived {
        /// The secret.
        secret: FleetSecret,
        /// The same on all gateways: a key of another interval is another key.
        rotation: RotationSettings,
    },
    /// From files that the operator makes, distributes and rotates, in nginx's form.
    Files {
        /// The first seals, all open. A key that is left out at a reload is gone at once. None: no tickets.
        keys: Vec<TicketKeyFile>,
        /// Lifetime of a ticket from its sealing.
        lifetime: Duration,
    },
    /// Made at random by whichever gateway is first, and exchanged through a store that all of them reach: see
    /// [`TicketKeyring::install`](crate::TicketKeyring::install). The lead of the rotation has no effect.
    Shared {
        /// The same on all gateways.
        rotation: RotationSettings,
    },
}

impl KeySource {
    /// Lifetime of a ticket from its sealing.
    pub const fn lifetime(&self) -> Duration {
        match self {
            Self::Generated(rotation) | Self::Derived { rotation, .. } | Self::Shared { rotation } => {
                rotation.lifetime()
            }
            Self::Files { lifetime, .. } => *lifetime,
        }
    }

    /// The origin of keys from this source.
    pub const fn origin(&self) -> KeyOrigin {
        match self {
            Self::Generated(_) => KeyOrigin::Generated,
            Self::Derived { .. } => KeyOrigin::Derived,
            Self::Files { .. } => KeyOrigin::File,
            Self::Shared { .. } => KeyOrigin::Shared,
        }
    }
}

/// The kind of source of a key. After a reload a ring can hold keys of several sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyOrigin {
    /// [`KeySource::Generated`].
    Generated,
    /// [`KeySource::Derived`].
    Derived,
    /// [`KeySource::Files`].
    File,
    /// [`KeySource::Shared`].
    Shared,
}

impl KeyOrigin {
    /// The name in metrics and logs, which is the value in the configuration.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Generated => "memory",
            Self::Derived => "secret",
            Self::File => "file",
            Self::Shared => "redis",
        }
    }
}
