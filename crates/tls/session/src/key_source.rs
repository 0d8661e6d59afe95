//! [`KeySource`], the sources of ticket keys.

use std::time::Duration;

use crate::{FleetSecret, RotationSettings, TicketKeyFile};

/// Source of the ticket keys of a [`TicketKeyring`](crate::TicketKeyring).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum KeySource {
    /// Generated and rotated in this process, for a single machine. The keys leave its memory only for the process that takes over
    /// from it in an upgrade ([`export`](crate::TicketKeyring::export)), and a restart discards them.
    Generated(RotationSettings),
    /// Derived from a secret of the whole fleet, without communication between its gateways.
    ///
    /// Time is divided into periods of one rotation interval, equal on all gateways. Each period has a key that seals
    /// during the period, and opens tickets from the preceding period until its last ticket has expired. The clocks of
    /// two gateways may therefore differ by up to one interval. A gateway opens tickets that others sealed before it
    /// started.
    ///
    /// An attacker with the secret has the keys of all periods, past ones included. The lead of the rotation has no
    /// effect.
    Derived {
        /// The fleet's secret.
        secret: FleetSecret,
        /// Must be equal on all gateways: the interval is an input of the derivation.
        rotation: RotationSettings,
    },
    /// Files in nginx's format, which the operator creates, distributes and rotates.
    Files {
        /// The first key seals, all keys open. A key that a reload omits is removed at once. Without keys there are no
        /// tickets.
        keys: Vec<TicketKeyFile>,
        /// Lifetime of a ticket from its sealing.
        lifetime: Duration,
    },
    /// Random keys that gateways exchange through a store which all of them can reach; the first gateway creates each
    /// key. See [`TicketKeyring::install`](crate::TicketKeyring::install). The lead of the rotation has no effect.
    Shared {
        /// Must be equal on all gateways.
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

    /// The [`KeyOrigin`] of keys from this source.
    pub const fn origin(&self) -> KeyOrigin {
        match self {
            Self::Generated(_) => KeyOrigin::Generated,
            Self::Derived { .. } => KeyOrigin::Derived,
            Self::Files { .. } => KeyOrigin::File,
            Self::Shared { .. } => KeyOrigin::Shared,
        }
    }
}

/// Kind of [`KeySource`] of a key. After a reload a ring can contain keys of several sources.
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
    /// Name in metrics and logs; equal to the value in the configuration.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Generated => "memory",
            Self::Derived => "secret",
            Self::File => "file",
            Self::Shared => "redis",
        }
    }
}
