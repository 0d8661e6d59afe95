//! Properties of the answers formed of arbitrary DNS responses, for tests and libFuzzer.

use std::collections::HashSet;
use std::net::IpAddr;

use hickory_resolver::net::NetError;
use hickory_resolver::proto::op::Message;
use hickory_resolver::proto::rr::{RData, RecordType};

use crate::name_servers::Records;
use crate::{Addresses, Answer, DnsError, Known, Services, service_of};

const NAME: &str = "_http._tcp.app.test.";
const MAX_ADDRESSES: usize = 8;

/// Two rounds of the same question about a service. Responses follow each other, each with its length in two bytes: the SRV
/// records, then A and AAAA records of each target; a response that cannot be read is a failure.
///
/// Addresses occur once, those of the first priority before backups, and each is that of a response of this round or of the
/// round before. A failed family does not discard the other, and a failed round changes nothing.
pub fn dns_answers(bytes: &[u8]) {
    let mut responses = Responses(bytes);
    let mut known = Known::default();
    let mut earlier = HashSet::new();
    for _ in 0..2 {
        let Ok(found) = responses.next(RecordType::SRV) else { return };
        let all = found.data.into_iter().filter_map(service_of).collect();
        let services = Services::new(all, found.ttl, MAX_ADDRESSES);
        let addresses: Vec<_> = services.all.iter().map(|_| responses.addresses()).collect();
        let current: HashSet<_> = addresses.iter().flat_map(ips).collect();
        let before = format!("{known:?}");
        if let Ok(answer) = services.answer(NAME, addresses, &mut known, MAX_ADDRESSES) {
            check(&answer, &services, &current, &earlier);
        } else {
            assert!(current.is_empty(), "addresses were discarded: {current:?}");
            assert_eq!(format!("{known:?}"), before);
        }
        earlier.extend(current);
    }
}

fn check(answer: &Answer, services: &Services, current: &HashSet<IpAddr>, earlier: &HashSet<IpAddr>) {
    let endpoints = &answer.endpoints;
    assert!((1..=MAX_ADDRESSES).contains(&endpoints.len()));
    assert!(endpoints.is_sorted_by_key(|endpoint| (endpoint.is_backup, endpoint.address)));
    assert!(!endpoints[0].is_backup);
    let distinct: HashSet<_> = endpoints.iter().map(|endpoint| endpoint.address).collect();
    assert_eq!(distinct.len(), endpoints.len());
    for endpoint in endpoints {
        let ip = endpoint.address.ip();
        assert!(current.contains(&ip) || answer.failure.is_some() && earlier.contains(&ip), "{ip}");
        assert!(endpoint.weight.is_some_and(|weight| weight > 0));
        assert!(services.all.iter().any(|service| service.port == endpoint.address.port()));
    }
    assert!(answer.lifetime.as_secs() <= services.ttl.into());
}

fn ips(addresses: &Addresses) -> Vec<IpAddr> {
    let families = [Some(&addresses.v4), addresses.v6.as_ref()].into_iter().flatten().flatten();
    families.flat_map(|records| &records.data).filter_map(RData::ip_addr).collect()
}

struct Responses<'a>(&'a [u8]);

impl Responses<'_> {
    fn next(&mut self, kind: RecordType) -> Result<Records, DnsError> {
        let failed = || DnsError::Failed { name: NAME.to_owned(), source: NetError::Timeout };
        let (length, rest) = self.0.split_first_chunk().ok_or_else(failed)?;
        let (message, rest) = rest.split_at(rest.len().min(u16::from_be_bytes(*length).into()));
        self.0 = rest;
        let message = Message::from_vec(message).map_err(|_| failed())?;
        Ok(Records::of(kind, &message.answers))
    }

    fn addresses(&mut self) -> Addresses {
        Addresses { v4: self.next(RecordType::A), v6: Some(self.next(RecordType::AAAA)) }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_dns_answers() {
        let words: &[&[u8]] = &[
            &[0, 0],
            &[0xc0, 12],
            &[0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1],
            &[0, 33, 0, 1, 0, 0, 0, 60],
            &[0, 0, 0, 0, 0, 80, 1, b'a', 0],
        ];
        brisk_testkit::fuzz::drive("dns_answers", words, super::dns_answers);
    }
}
