//! The connection [`Ids`] that a driver has issued, and the slots that they lead to.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::rand;
use quinn_proto::{ConnectionId, ConnectionIdGenerator};

/// Length of each [`Id`] that this server issues, in bytes.
pub(crate) const LENGTH: usize = 8;

/// Random bytes drawn at a time: 64 IDs.
const RANDOM_BYTES: usize = 512;

/// An issued ID.
pub(crate) type Id = [u8; LENGTH];

/// The place of a driver among the sockets of its [`Group`](crate::Group); it determines the first byte of each [`Id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Index of the socket, below `group`.
    pub(crate) index: u8,
    /// Number of sockets, from 1 to 256.
    pub(crate) group: u16,
    /// Distinguishes a process from its predecessor, which still drains. Not encoded if `group` is above 128.
    pub(crate) generation: bool,
}

impl Place {
    /// A byte that equals `index` modulo `group`, chosen by `random`. The parity of the quotient is the
    /// generation.
    fn first_byte(self, random: u8) -> u8 {
        let (index, group) = (u16::from(self.index), self.group);
        let quotients = (u16::from(u8::MAX) - index) / group + 1;
        let parity = u16::from(self.generation);
        let of_generation = (quotients + 1 - parity) / 2;
        let quotient = match of_generation {
            _ if group > 128 => u16::from(random) % quotients,
            _ => u16::from(random) % of_generation * 2 + parity,
        };
        // At most 255 by the number of quotients.
        (index + group * quotient) as u8
    }

    /// Index of the socket that receives IDs with this first byte.
    pub(crate) fn index_of(self, first: u8) -> usize {
        usize::from(u16::from(first) % self.group)
    }
}

/// The IDs issued by one driver. Clones share the [`Table`].
#[derive(Clone)]
pub(crate) struct Ids(Arc<Mutex<Table>>);

struct Table {
    place: Place,
    slots: HashMap<u64, u32, BuildHasherDefault<IdHasher>>,
    of_slot: Vec<Vec<Id>>,
    /// The slot of the next [`Generator`], inside of [`Ids::with_slot`].
    next: Option<u32>,
    random: [u8; RANDOM_BYTES],
    used: usize,
}

impl Ids {
    pub(crate) fn new(place: Place) -> Self {
        Self(Arc::new(Mutex::new(Table {
            place,
            slots: HashMap::default(),
            of_slot: Vec::new(),
            next: None,
            random: [0; RANDOM_BYTES],
            used: RANDOM_BYTES,
        })))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Never contended: the trait of generators requires `Sync`, but a driver and its endpoints are on one thread.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The [`Generator`] for an endpoint that is created now: inside of [`with_slot`](Self::with_slot), its IDs lead to that
    /// slot. Other IDs are not entered.
    pub(crate) fn generator(&self) -> Box<dyn ConnectionIdGenerator> {
        Box::new(Generator { ids: self.clone(), slot: self.table().next })
    }

    /// Creates an endpoint whose IDs lead to `slot`.
    pub(crate) fn with_slot<T>(&self, slot: u32, create: impl FnOnce() -> T) -> T {
        let mut table = self.table();
        let slots = slot as usize + 1;
        if table.of_slot.len() < slots {
            table.of_slot.resize_with(slots, Vec::new);
        }
        table.next = Some(slot);
        // `create` calls `generator`, which takes the lock.
        drop(table);
        let created = create();
        self.table().next = None;
        created
    }

    /// The slot that `id` leads to; `None` if this driver has not issued it.
    pub(crate) fn find(&self, id: &[u8]) -> Option<u32> {
        let id = Id::try_from(id).ok()?;
        self.table().slots.get(&u64::from_le_bytes(id)).copied()
    }

    /// Number of IDs that lead to `slot`.
    pub(crate) fn issued(&self, slot: u32) -> usize {
        self.table().of_slot[slot as usize].len()
    }

    /// Number of IDs in the table.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.table().slots.len()
    }

    /// Forgets all IDs of a slot: packets with a short header and such an ID are then answered by a stateless reset.
    pub(crate) fn forget(&self, slot: u32) {
        let mut table = self.table();
        let mut ids = std::mem::take(&mut table.of_slot[slot as usize]);
        for id in ids.drain(..) {
            table.slots.remove(&u64::from_le_bytes(id));
        }
        table.of_slot[slot as usize] = ids;
    }

    /// Forgets the IDs of a slot for which `lives` returns `false`.
    pub(crate) fn retain(&self, slot: u32, mut lives: impl FnMut(&Id) -> bool) {
        // Not locked while it is asked: the endpoint may issue IDs.
        let mut ids = std::mem::take(&mut self.table().of_slot[slot as usize]);
        ids.retain(|id| {
            let lives = lives(id);
            if !lives {
                self.table().slots.remove(&u64::from_le_bytes(*id));
            }
            lives
        });
        self.table().of_slot[slot as usize].append(&mut ids);
    }
}

impl Table {
    fn draw(&mut self) -> Id {
        if self.used == self.random.len() {
            rand::fill(&mut self.random).expect("the system has randomness");
            self.used = 0;
        }
        let mut id = Id::default();
        id.copy_from_slice(&self.random[self.used..self.used + LENGTH]);
        self.used += LENGTH;
        id[0] = self.place.first_byte(id[0]);
        id
    }
}

struct Generator {
    ids: Ids,
    slot: Option<u32>,
}

impl ConnectionIdGenerator for Generator {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut table = self.ids.table();
        let id = table.draw();
        if let Some(slot) = self.slot {
            table.slots.insert(u64::from_le_bytes(id), slot);
            table.of_slot[slot as usize].push(id);
        }
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        LENGTH
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Hasher of issued [`Id`]s. The IDs are random; clients can look up any ID but insert none, so no secret is needed.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        // The multiplication mixes the first byte, which says little, into the others.
        self.0 = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The kind of header and the connection ID of the first packet of a datagram (RFC 8999 section 5). `None` if there is no
/// whole ID.
pub(crate) fn destination(datagram: &[u8]) -> Option<(Header, &[u8])> {
    if datagram.first()? & 0x80 == 0 {
        return Some((Header::Short, datagram.get(1..=LENGTH)?));
    }
    let length = usize::from(*datagram.get(5)?);
    // RFC 9000 section 17.2: 20 bytes at most in version 1. Longer ones are no concern of other versions either.
    if length > 20 {
        return None;
    }
    Some((Header::Long, datagram.get(6..6 + length)?))
}

/// The [`Id`] to which a datagram with a short header was sent; `None` for [`Header::Long`].
pub(crate) fn issued(datagram: &[u8]) -> Option<Id> {
    let (header, id) = destination(datagram)?;
    if header == Header::Short { id.try_into().ok() } else { None }
}

/// The kind of a packet's header (RFC 9000 section 17).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    Long,
    Short,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_names_the_socket_and_the_generation() {
        for group in [1, 2, 3, 7, 64, 127, 128, 129, 256] {
            for (index, generation) in [(0, false), (0, true), (group - 1, false), (group - 1, true)] {
                let place = Place { index: index as u8, group, generation };
                for random in 0..=u8::MAX {
                    let first = u16::from(place.first_byte(random));
                    assert_eq!(first % group, index, "{place:?}");
                    if group <= 128 {
                        assert_eq!(first / group % 2, u16::from(generation), "{place:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn ids_lead_to_their_slot_until_they_are_forgotten() {
        let ids = Ids::new(Place { index: 1, group: 4, generation: false });
        let mut of_seven = ids.with_slot(7, || ids.generator());
        let mut of_none = ids.generator();
        let (first, second) = (of_seven.generate_cid(), of_seven.generate_cid());
        let other = of_none.generate_cid();
        assert_eq!((ids.find(&first), ids.find(&second), ids.find(&other)), (Some(7), Some(7), None));
        assert_eq!((first[0] % 4, other[0] % 4, ids.issued(7)), (1, 1, 2));
        ids.retain(7, |id| id[..] == second[..]);
        assert_eq!((ids.find(&first), ids.find(&second)), (None, Some(7)));
        ids.forget(7);
        assert_eq!((ids.find(&second), ids.len()), (None, 0));
    }

    #[test]
    fn a_datagram_has_a_destination_if_its_id_is_whole() {
        assert_eq!(destination(&[]), None);
        assert_eq!(destination(&[0x40, 1, 2, 3, 4, 5, 6, 7]), None);
        let short = [0x40, 1, 2, 3, 4, 5, 6, 7, 8, 9];
        assert_eq!(destination(&short), Some((Header::Short, &short[1..9])));
        let long = [0xc0, 0, 0, 0, 1, 2, 7, 8, 0];
        assert_eq!(destination(&long), Some((Header::Long, &[7, 8][..])));
        assert_eq!(destination(&long[..7]), None);
        assert_eq!(destination(&[&[0xc0, 0, 0, 0, 1, 21][..], &[0; 40]].concat()), None);
    }
}
