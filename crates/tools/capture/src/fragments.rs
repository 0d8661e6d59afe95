//! Reassembly of fragmented IP packets, within a bound.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use etherparse::defrag::IpDefragBuf;

use crate::decode::{Fragment, FragmentKey};
use crate::time::Nanos;

/// Maximum number of packets of which [`Fragment`]s are kept, each of at most 64 KiB. Beyond this number, the oldest one is
/// given up.
const INCOMPLETE: usize = 64;

/// Time from the first fragment of a packet after which others have the same number by chance: that of Linux.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Fragments of incomplete packets.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    /// Time of the first fragment, and bytes.
    incomplete: HashMap<FragmentKey, (Nanos, IpDefragBuf)>,
    /// Keys by age.
    order: VecDeque<FragmentKey>,
}

impl Fragments {
    /// Adds a [`Fragment`]. Returns the payload of its packet if that is complete; `None` otherwise.
    pub(crate) fn add(&mut self, fragment: &Fragment<'_>, time: Nanos) -> Option<Vec<u8>> {
        // The missing bytes would never come.
        if fragment.is_truncated {
            return None;
        }
        let key = fragment.key;
        if self.incomplete.get(&key).is_some_and(|(first, _)| time.since(*first) > TIMEOUT) {
            self.remove(&key);
        }
        let (_, buffer) = self.incomplete.entry(key).or_insert_with(|| {
            self.order.push_back(key);
            (time, IpDefragBuf::new(key.number, Vec::new(), Vec::new()))
        });
        // A fragment that contradicts earlier ones ends the attempt.
        let is_valid = buffer.add(fragment.offset, fragment.has_more, fragment.payload).is_ok();
        if !is_valid || buffer.is_complete() {
            let buffer = self.remove(&key).filter(|_| is_valid);
            return buffer.map(|buffer| buffer.take_bufs().0);
        }
        if self.order.len() > INCOMPLETE
            && let Some(oldest) = self.order.pop_front()
        {
            self.incomplete.remove(&oldest);
        }
        None
    }

    fn remove(&mut self, key: &FragmentKey) -> Option<IpDefragBuf> {
        // Linear, over at most `INCOMPLETE` keys.
        self.order.retain(|other| other != key);
        self.incomplete.remove(key).map(|(_, buffer)| buffer)
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{IpFragOffset, IpNumber};

    use super::*;

    fn fragment(id: u32, offset: u16, has_more: bool, payload: &[u8]) -> Fragment<'_> {
        let address = [192, 0, 2, 1].into();
        let key = FragmentKey { source: address, destination: address, number: IpNumber::TCP, id };
        let offset = IpFragOffset::try_new(offset / 8).expect("an offset");
        Fragment { key, offset, has_more, payload, is_truncated: false }
    }

    #[test]
    fn fragments_in_any_order_are_a_packet() {
        let mut fragments = Fragments::default();
        assert_eq!(fragments.add(&fragment(1, 16, false, b"end"), Nanos(0)), None);
        assert_eq!(fragments.add(&fragment(2, 0, true, &[7; 8]), Nanos(0)), None);
        assert_eq!(fragments.add(&fragment(1, 0, true, &[1; 8]), Nanos(0)), None);
        assert_eq!(
            fragments.add(&fragment(1, 8, true, &[2; 8]), Nanos(0)),
            Some([&[1; 8][..], &[2; 8], b"end"].concat())
        );
        assert_eq!((fragments.incomplete.len(), fragments.order.len()), (1, 1));
        let cut = Fragment { is_truncated: true, ..fragment(2, 8, false, b"end") };
        assert_eq!(fragments.add(&cut, Nanos(0)), None);
        assert_eq!(
            fragments.add(&fragment(2, 8, false, b"end"), Nanos(0)).map(|packet| packet.len()),
            Some(11)
        );
    }

    #[test]
    fn fragments_after_the_timeout_belong_to_another_packet() {
        let (mut fragments, second) = (Fragments::default(), 1_000_000_000);
        assert_eq!(fragments.add(&fragment(1, 0, true, &[1; 8]), Nanos(0)), None);
        assert_eq!(fragments.add(&fragment(1, 8, true, &[2; 8]), Nanos(30 * second)), None);
        assert_eq!(fragments.add(&fragment(1, 16, false, b"end"), Nanos(31 * second)), None);
        assert_eq!(fragments.order.len(), 1);
        assert_eq!(fragments.add(&fragment(1, 8, true, &[3; 8]), Nanos(32 * second)), None);
        assert_eq!(
            fragments.add(&fragment(1, 0, true, &[4; 8]), Nanos(32 * second)),
            Some([&[4; 8][..], &[3; 8], b"end"].concat())
        );
    }

    #[test]
    fn incomplete_packets_are_bounded_and_contradictions_are_refused() {
        let mut fragments = Fragments::default();
        for id in 0..1000 {
            assert_eq!(fragments.add(&fragment(id, 65_000, true, &[1; 8]), Nanos(0)), None);
            assert!(fragments.incomplete.len() <= INCOMPLETE && fragments.order.len() <= INCOMPLETE);
        }
        assert_eq!(fragments.add(&fragment(1, 8, false, b"end"), Nanos(0)), None);
        assert_eq!(fragments.add(&fragment(1, 16, false, b"other end"), Nanos(0)), None);
        assert!(!fragments.incomplete.contains_key(&fragment(1, 0, true, b"").key));
    }
}
