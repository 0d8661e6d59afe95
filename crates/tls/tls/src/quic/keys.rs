//! Keys that quinn-proto requests twice, or never uses: derived once, or at their first use.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::BytesMut;
use quinn_proto::ConnectionId;
use quinn_proto::crypto::{CryptoError, HeaderKey, KeyPair, Keys, PacketKey, UnsupportedVersion};
use rustls::quic::Secrets;

use super::{challenge, padding};

thread_local! {
    /// The keys of Initial packets that the thread has derived last, for the second request.
    static LAST: RefCell<Option<(u32, ConnectionId, Arc<Keys>)>> = const { RefCell::new(None) };
}

/// The keys of Initial packets of a connection (RFC 9001 section 5.2). quinn-proto requests the keys for the first packet,
/// and again for the connection that the packet opens: the second request gets the keys of the first.
pub(super) fn initial(
    version: u32,
    id: &ConnectionId,
    derive: impl FnOnce() -> Result<Keys, UnsupportedVersion>,
) -> Result<Keys, UnsupportedVersion> {
    // Taken: no third request follows, and the thread would otherwise keep keys of a past connection.
    let last = LAST.take().filter(|(of, own, _)| (*of, own) == (version, id));
    if let Some((_, _, keys)) = last {
        return Ok(shared(&keys));
    }
    let keys = Arc::new(padding::joining(derive()?, padding::Packets::Handshake));
    let own = shared(&keys);
    LAST.set(Some((version, *id, keys)));
    Ok(own)
}

fn shared(keys: &Arc<Keys>) -> Keys {
    let part = |is_local| Shared { keys: Arc::clone(keys), is_local };
    Keys {
        header: KeyPair { local: Box::new(part(true)), remote: Box::new(part(false)) },
        packet: KeyPair { local: Box::new(part(true)), remote: Box::new(part(false)) },
    }
}

/// One direction of keys that two parts of quinn-proto have.
struct Shared {
    keys: Arc<Keys>,
    is_local: bool,
}

impl Shared {
    fn header(&self) -> &dyn HeaderKey {
        let KeyPair { local, remote } = &self.keys.header;
        &**if self.is_local { local } else { remote }
    }

    fn packet(&self) -> &dyn PacketKey {
        let KeyPair { local, remote } = &self.keys.packet;
        &**if self.is_local { local } else { remote }
    }
}

impl HeaderKey for Shared {
    fn decrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        self.header().decrypt(pn_offset, packet);
    }

    fn encrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        self.header().encrypt(pn_offset, packet);
    }

    fn sample_size(&self) -> usize {
        self.header().sample_size()
    }
}

/// Implements [`PacketKey`] by the key that the method `$inner` returns.
macro_rules! packet_key {
    ($name:ty, $inner:ident) => {
        impl PacketKey for $name {
            fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
                self.$inner().encrypt(packet, buf, header_len);
            }

            fn decrypt(&self, packet: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
                self.$inner().decrypt(packet, header, payload)
            }

            fn tag_len(&self) -> usize {
                self.$inner().tag_len()
            }

            fn confidentiality_limit(&self) -> u64 {
                self.$inner().confidentiality_limit()
            }

            fn integrity_limit(&self) -> u64 {
                self.$inner().integrity_limit()
            }
        }
    };
}

packet_key!(Shared, packet);
packet_key!(Later, key);

/// The keys of the key phases after the first (RFC 9001 section 6). quinn-proto requests the keys of the next phase at the
/// end of each handshake, and short connections never use these keys.
pub(super) struct KeyPhases {
    secrets: Arc<Mutex<Secrets>>,
    last: Option<Arc<KeyPhase>>,
}

/// The keys of one key phase.
struct KeyPhase {
    // quinn-proto requires `PacketKey` to be `Sync`, so a `RefCell` does not suffice.
    secrets: Arc<Mutex<Secrets>>,
    keys: OnceLock<KeyPair<Box<dyn PacketKey>>>,
}

impl KeyPhases {
    pub(super) fn new(secrets: Secrets) -> Self {
        Self { secrets: Arc::new(Mutex::new(secrets)), last: None }
    }

    /// The keys of the next phase.
    pub(super) fn next(&mut self) -> KeyPair<Box<dyn PacketKey>> {
        if let Some(last) = &self.last {
            // The secrets of a phase follow from those of the phase before.
            last.keys();
        }
        let phase = Arc::new(KeyPhase { secrets: Arc::clone(&self.secrets), keys: OnceLock::new() });
        self.last = Some(Arc::clone(&phase));
        let later =
            |is_local| -> Box<dyn PacketKey> { Box::new(Later { phase: Arc::clone(&phase), is_local }) };
        KeyPair { local: later(true), remote: later(false) }
    }
}

impl KeyPhase {
    fn keys(&self) -> &KeyPair<Box<dyn PacketKey>> {
        self.keys.get_or_init(|| {
            let mut secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
            let keys = secrets.next_packet_keys();
            KeyPair {
                local: challenge::wrap(Box::new(keys.local)),
                remote: padding::wrap(Box::new(keys.remote), padding::Packets::Data),
            }
        })
    }
}

/// One direction of a [`KeyPhase`].
struct Later {
    phase: Arc<KeyPhase>,
    is_local: bool,
}

impl Later {
    fn key(&self) -> &dyn PacketKey {
        let KeyPair { local, remote } = self.phase.keys();
        &**if self.is_local { local } else { remote }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use quinn_proto::crypto::ServerConfig as _;

    use super::*;

    #[test]
    fn keys_of_initial_packets_are_derived_once_for_two_requests() {
        let config = crate::host_config::quic_initial().expect("a configuration");
        let derived = Cell::new(0);
        let request = |number: u8| {
            let id = ConnectionId::new(&[number; 8]);
            let keys = initial(1, &id, || {
                derived.set(derived.get() + 1);
                config.initial_keys(1, &id)
            });
            let keys = keys.unwrap_or_else(|_| panic!("version 1 is supported"));
            let mut packet = *b"header and payload and room for the tag----";
            keys.packet.local.encrypt(7, &mut packet, 6);
            packet
        };
        let first = request(1);
        assert_eq!((request(1), derived.get()), (first, 1));
        // Another connection in between takes the place.
        assert_ne!(request(2), first);
        assert_eq!((request(1), derived.get()), (first, 3));
    }
}
