//! Choice of a server: round robin, least connections or consistent hash. Each worker chooses independently.
//!
//! Unhealthy servers are skipped, and backups while another server is healthy. If none is healthy, all are candidates: a
//! health check may be wrong, and for the client a refused connection is no worse than a `503` response.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brisk_http::message::RequestParts;
use http::header::COOKIE;

use super::{Balance, HashKey};

/// A candidate for the choice of [`Members::choose`](crate::Members::choose).
pub trait Member {
    /// Name of the candidate, from which consistent hashing derives its share of the keys.
    fn name(&self) -> &str;
    /// Weight of the candidate, at least 1.
    fn weight(&self) -> u32;
    /// Number of requests in flight.
    fn active(&self) -> u32;
    /// Whether the candidate gets requests at present.
    fn is_available(&self) -> bool;
    /// Whether the candidate is chosen only if no other is available.
    fn is_backup(&self) -> bool;
}

impl<M: Member> Member for Rc<M> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn weight(&self) -> u32 {
        (**self).weight()
    }

    fn active(&self) -> u32 {
        (**self).active()
    }

    fn is_available(&self) -> bool {
        (**self).is_available()
    }

    fn is_backup(&self) -> bool {
        (**self).is_backup()
    }
}

/// The algorithm and its state.
#[derive(Debug)]
pub(crate) enum Balancer {
    /// Smooth weighted round robin: each choice adds to every member its weight, and subtracts the total from the
    /// chosen member.
    RoundRobin { credits: RefCell<Vec<i64>> },
    /// Least connections. The start of the search advances, so that equal members take turns.
    LeastConnections { start: Cell<usize> },
    /// Weighted rendezvous hashing: the member with the highest score for the key, so that a missing member moves only
    /// its own keys. Seeds depend on the names alone, so every worker and every process of a fleet chooses alike.
    ConsistentHash { by: HashKey, seeds: Vec<u64> },
}

impl Balancer {
    pub(crate) fn new<M: Member>(balance: &Balance, members: &[M]) -> Self {
        match balance {
            Balance::RoundRobin => Self::round_robin(members),
            Balance::LeastConnections => Self::LeastConnections { start: Cell::new(worker_number()) },
            Balance::ConsistentHash { by } => {
                let seeds = members.iter().map(|member| hash(member.name().as_bytes())).collect();
                Self::ConsistentHash { by: by.clone(), seeds }
            }
        }
    }

    fn round_robin<M: Member>(members: &[M]) -> Self {
        let balancer = Self::RoundRobin { credits: RefCell::new(vec![0; members.len()]) };
        // Workers start at different members; otherwise the first member would get the first request of each worker.
        for _ in 0..worker_number() % members.len().max(1) {
            balancer.choose_among(members, 0, |_| true);
        }
        balancer
    }

    /// The index of the member for `key`, except `avoid`; `None` if there is no other member.
    pub(crate) fn choose<M: Member>(&self, members: &[M], key: u64, avoid: Option<usize>) -> Option<usize> {
        // The usual group. Each of the searches below would end with this member, also if it is unavailable.
        if members.len() == 1 {
            return if avoid == Some(0) { None } else { Some(0) };
        }
        let allowed = |index| avoid != Some(index);
        let usable = |index| allowed(index) && members[index].is_available();
        self.choose_among(members, key, |index| usable(index) && !members[index].is_backup())
            .or_else(|| self.choose_among(members, key, usable))
            // Unavailable members too, and backups among them: see the top of this file.
            .or_else(|| self.choose_among(members, key, allowed))
    }

    /// The key of a request, by the [`HashKey`]; 0 for algorithms without a key.
    pub(crate) fn key(&self, head: &RequestParts, client: impl FnOnce() -> IpAddr) -> u64 {
        let Self::ConsistentHash { by, .. } = self else {
            return 0;
        };
        let found = match by {
            HashKey::ClientAddress => None,
            HashKey::Path => Some(head.uri.path().as_bytes()),
            HashKey::Header(name) => head.headers.get(name).map(http::HeaderValue::as_bytes),
            HashKey::Cookie(name) => cookie(head, name.as_bytes()),
        };
        match (found, client) {
            (Some(bytes), _) => hash(bytes),
            (None, client) => hash_of(client()),
        }
    }

    /// The key of a client; 0 for algorithms without a key.
    pub(crate) fn client_key(&self, client: IpAddr) -> u64 {
        if let Self::ConsistentHash { .. } = self { hash_of(client) } else { 0 }
    }

    fn choose_among<M: Member>(
        &self,
        members: &[M],
        key: u64,
        eligible: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let eligible = (0..members.len()).filter(|&index| eligible(index));
        match self {
            Self::RoundRobin { credits } => next_in_turn(&mut credits.borrow_mut(), members, eligible),
            Self::LeastConnections { start } => least_loaded(start, members, eligible),
            Self::ConsistentHash { seeds, .. } => {
                // Without `mix`, a single bit of the key would decide between two members: the highest in
                // which their seeds differ.
                let score = |&index: &usize| score(mix(key ^ seeds[index]), members[index].weight());
                eligible.max_by(|left, right| score(left).total_cmp(&score(right)))
            }
        }
    }
}

fn next_in_turn<M: Member>(
    credits: &mut [i64],
    members: &[M],
    eligible: impl Iterator<Item = usize>,
) -> Option<usize> {
    // The total of the eligible members: the credits of the others stay, so that an excluded member collects
    // no credit and gets no burst of requests when it returns.
    let mut total = 0;
    let mut best: Option<usize> = None;
    for index in eligible {
        let weight = i64::from(members[index].weight());
        total += weight;
        credits[index] += weight;
        if best.is_none_or(|best| credits[index] > credits[best]) {
            best = Some(index);
        }
    }
    if let Some(best) = best {
        credits[best] -= total;
    }
    best
}

fn least_loaded<M: Member>(
    start: &Cell<usize>,
    members: &[M],
    eligible: impl Iterator<Item = usize>,
) -> Option<usize> {
    let first = start.get();
    // Loads are compared as fractions by cross multiplication; equal ones by their distance from the start.
    let chosen = eligible.min_by(|&left, &right| {
        let (a, b) = (&members[left], &members[right]);
        let by_load = (u64::from(a.active()) * u64::from(b.weight()))
            .cmp(&(u64::from(b.active()) * u64::from(a.weight())));
        let distance = |index: usize| (index + members.len() - first % members.len()) % members.len();
        by_load.then_with(|| distance(left).cmp(&distance(right)))
    });
    // A search without a result must not advance the start: several searches per request would skip members.
    if chosen.is_some() {
        start.set(first.wrapping_add(1));
    }
    chosen
}

/// The score of a member, the winner having the highest. Over uniform hashes, members win in proportion to their
/// weights.
fn score(hash: u64, weight: u32) -> f64 {
    // 52 bits fill the open interval (0, 1) uniformly: with 53, the sum would round the highest value to 1, whose logarithm is 0,
    // and the member with the best hash would have the lowest score.
    let uniform = ((hash >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
    -f64::from(weight) / uniform.ln()
}

/// FNV-1a: suitable for short keys, without a secret, and equal in every process and version.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

fn hash_of(client: IpAddr) -> u64 {
    match client {
        IpAddr::V4(address) => hash(&address.octets()),
        IpAddr::V6(address) => hash(&address.octets()),
    }
}

/// The finaliser of `SplitMix64`: every input bit affects every output bit.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

fn cookie<'a>(head: &'a RequestParts, name: &[u8]) -> Option<&'a [u8]> {
    // RFC 9113 section 8.2.3: over HTTP/2 and HTTP/3, each cookie may be in a field of its own.
    let pairs = head.headers.get_all(COOKIE).flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
    pairs.map(<[u8]>::trim_ascii).find_map(|pair| pair.strip_prefix(name)?.strip_prefix(b"="))
}

fn worker_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // A number for each balancer rather than for each worker, so that the groups of a
    // worker begin differently too.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use brisk_http::message::Request;

    use super::*;

    struct Fake {
        name: String,
        weight: u32,
        active: u32,
        available: bool,
        backup: bool,
    }

    impl Member for Fake {
        fn name(&self) -> &str {
            &self.name
        }

        fn weight(&self) -> u32 {
            self.weight
        }

        fn active(&self) -> u32 {
            self.active
        }

        fn is_available(&self) -> bool {
            self.available
        }

        fn is_backup(&self) -> bool {
            self.backup
        }
    }

    fn fakes(weights: &[u32]) -> Vec<Fake> {
        let fake = |(index, weight): (usize, &u32)| Fake {
            name: format!("10.0.0.{index}:80"),
            weight: *weight,
            active: 0,
            available: true,
            backup: false,
        };
        weights.iter().enumerate().map(fake).collect()
    }

    fn counts(balancer: &Balancer, members: &[Fake], keys: u64) -> HashMap<usize, usize> {
        let mut counts = HashMap::new();
        for key in 0..keys {
            let chosen = balancer.choose(members, mix(key), None).expect("a member");
            *counts.entry(chosen).or_insert(0) += 1;
        }
        counts
    }

    fn by_path() -> Balance {
        Balance::ConsistentHash { by: HashKey::Path }
    }

    #[test]
    fn round_robin_shares_by_weight_and_spreads_the_heavy_one() {
        let members = fakes(&[5, 1, 1]);
        let balancer = Balancer::new(&Balance::RoundRobin, &members);
        let order: Vec<_> = (0..70).map(|_| balancer.choose(&members, 0, None).expect("a member")).collect();
        let share = |index| order.iter().filter(|chosen| **chosen == index).count();
        assert_eq!((share(0), share(1), share(2)), (50, 10, 10));
        let longest = order.chunk_by(|left, right| left == right).map(<[_]>::len).max();
        assert!(longest <= Some(5), "{order:?}");
    }

    #[test]
    fn the_unhealthy_are_passed_over_unless_all_are() {
        for balance in [Balance::RoundRobin, Balance::LeastConnections, by_path()] {
            let mut members = fakes(&[1, 1, 1]);
            let balancer = Balancer::new(&balance, &members);
            members[1].available = false;
            let counted = counts(&balancer, &members, 300);
            assert!(!counted.contains_key(&1), "{balance:?}: {counted:?}");
            for member in &mut members {
                member.available = false;
            }
            assert_eq!(counts(&balancer, &members, 300).len(), 3, "{balance:?}");
        }
    }

    #[test]
    fn a_backup_is_chosen_only_if_no_other_is_available() {
        for balance in [Balance::RoundRobin, Balance::LeastConnections, by_path()] {
            let mut members = fakes(&[1, 1, 1, 1]);
            members[2].backup = true;
            members[3].backup = true;
            let balancer = Balancer::new(&balance, &members);
            let mut chosen = |available: [bool; 4]| {
                for (member, available) in members.iter_mut().zip(available) {
                    member.available = available;
                }
                let mut chosen: Vec<_> = counts(&balancer, &members, 300).into_keys().collect();
                chosen.sort_unstable();
                chosen
            };
            assert_eq!(chosen([true, true, true, true]), [0, 1], "{balance:?}");
            assert_eq!(chosen([false, true, true, true]), [1], "{balance:?}");
            assert_eq!(chosen([false, false, true, true]), [2, 3], "{balance:?}");
            assert_eq!(chosen([false, false, false, true]), [3], "{balance:?}");
            assert_eq!(chosen([false, false, false, false]), [0, 1, 2, 3], "{balance:?}");
            members[0].available = true;
            members[3].available = true;
            assert_eq!(balancer.choose(&members, 0, Some(0)), Some(3), "{balance:?}");
        }
    }

    #[test]
    fn the_one_that_failed_is_avoided() {
        for balance in [Balance::RoundRobin, Balance::LeastConnections, by_path()] {
            let members = fakes(&[1, 1]);
            let balancer = Balancer::new(&balance, &members);
            for key in 0..100 {
                assert_eq!(balancer.choose(&members, mix(key), Some(0)), Some(1), "{balance:?}");
            }
            assert_eq!(balancer.choose(&members[..1], 0, Some(0)), None, "{balance:?}");
        }
    }

    #[test]
    fn least_connections_weighs_the_load() {
        let mut members = fakes(&[1, 4]);
        members[0].active = 1;
        members[1].active = 3;
        let balancer = Balancer::new(&Balance::LeastConnections, &members);
        assert_eq!(balancer.choose(&members, 0, None), Some(1));
        members[1].active = 5;
        assert_eq!(balancer.choose(&members, 0, None), Some(0));
    }

    #[test]
    fn least_connections_lets_equals_take_turns() {
        let members = fakes(&[1, 1, 1]);
        let balancer = Balancer::new(&Balance::LeastConnections, &members);
        let counted = counts(&balancer, &members, 30);
        assert!(counted.values().all(|count| *count == 10), "{counted:?}");
    }

    #[test]
    fn a_hash_shares_by_weight() {
        let members = fakes(&[1, 1, 2]);
        let counted = counts(&Balancer::new(&by_path(), &members), &members, 40_000);
        for (index, expected) in [(0, 10_000), (1, 10_000), (2, 20_000)] {
            assert!(counted[&index].abs_diff(expected) < 500, "{counted:?}");
        }
    }

    #[test]
    fn a_higher_hash_never_has_a_lower_score() {
        let scores = [0, 1 << 12, 1 << 63, u64::MAX - (1 << 12), u64::MAX].map(|hash| score(hash, 1));
        assert!(
            scores.is_sorted() && scores.iter().all(|score| *score > 0.0 && score.is_finite()),
            "{scores:?}"
        );
    }

    #[test]
    fn a_missing_member_moves_only_its_own_keys() {
        let mut members = fakes(&[1, 1, 1, 1]);
        let balancer = Balancer::new(&by_path(), &members);
        let choose = |members: &[Fake]| {
            (0..1000).map(|key| balancer.choose(members, mix(key), None)).collect::<Vec<_>>()
        };
        let before = choose(&members);
        members[2].available = false;
        let after = choose(&members);
        for (before, after) in before.into_iter().zip(after) {
            assert!(before == after || before == Some(2));
        }
    }

    #[test]
    fn a_key_is_what_requests_have_in_common() {
        let key = |by: HashKey, path: &str, cookies: &str, client: [u8; 4]| {
            let balancer = Balancer::new::<Fake>(&Balance::ConsistentHash { by }, &[]);
            let request = Request::get(path).header(COOKIE, cookies).body(()).expect("a request");
            balancer.key(&request.into_parts().0, || IpAddr::from(client))
        };
        let (one, two) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        assert_eq!(key(HashKey::Path, "/a?x", "", one), key(HashKey::Path, "/a?y", "", two));
        assert_ne!(key(HashKey::Path, "/a", "", one), key(HashKey::Path, "/b", "", one));
        assert_eq!(key(HashKey::ClientAddress, "/a", "", one), key(HashKey::ClientAddress, "/b", "", one));
        assert_ne!(key(HashKey::ClientAddress, "/a", "", one), key(HashKey::ClientAddress, "/a", "", two));
        let sid = || HashKey::Cookie("sid".to_owned());
        assert_eq!(key(sid(), "/", "a=1; sid=x", one), key(sid(), "/", "sid=x;b=2", two));
        assert_ne!(key(sid(), "/", "sid=x", one), key(sid(), "/", "sid=y", one));
        assert_eq!(key(sid(), "/", "xsid=x", one), key(HashKey::ClientAddress, "/", "", one));
    }
}
