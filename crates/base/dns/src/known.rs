//! [`Known`] addresses of earlier answers, which remain in use while DNS fails for them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::name_servers::Records;
use crate::{Addresses, DnsError};

/// Time for which the addresses of a family that fails remain in use beside those of the other family. RFC 8767 section 5
/// suggests one to three days.
const KEPT: Duration = Duration::from_hours(24);

/// Addresses of the earlier answers to one [`Question`](crate::Question), by host and family.
#[derive(Clone, Debug, Default)]
pub struct Known {
    hosts: HashMap<(String, Family), Earlier>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Family {
    V4,
    V6,
}

#[derive(Clone, Debug)]
struct Earlier {
    ips: Vec<IpAddr>,
    /// Time of the last response; the addresses are in use until [`KEPT`] after it.
    renewed: Instant,
}

/// One answer in the making. Only [`finish`](Self::finish) changes the known addresses.
pub(crate) struct Renewal<'a> {
    known: &'a mut Known,
    next: HashMap<(String, Family), Earlier>,
    now: Instant,
    max_addresses: usize,
    /// Whether a server has responded to one of the questions.
    is_renewed: bool,
    failure: Option<DnsError>,
}

impl Known {
    pub(crate) fn renew(&mut self, now: Instant, max_addresses: usize) -> Renewal<'_> {
        Renewal { known: self, next: HashMap::new(), now, max_addresses, is_renewed: false, failure: None }
    }
}

impl Renewal<'_> {
    /// The addresses of `host`, and their smallest TTL: those found, or the known ones of a family that failed.
    pub(crate) fn merge(&mut self, host: &str, found: Addresses) -> (Vec<IpAddr>, u32) {
        let (mut ips, v4) = self.family(host, Family::V4, found.v4);
        let Some(found) = found.v6 else { return (ips, v4) };
        let (more, v6) = self.family(host, Family::V6, found);
        ips.extend(more);
        (ips, v4.min(v6))
    }

    fn family(&mut self, host: &str, family: Family, found: Result<Records, DnsError>) -> (Vec<IpAddr>, u32) {
        let key = (host.to_owned(), family);
        let (earlier, ttl) = match found {
            Ok(records) => {
                self.is_renewed = true;
                let ips =
                    records.data.iter().filter_map(hickory_resolver::proto::rr::RData::ip_addr).collect();
                // Also without records: addresses of a family that the name no longer
                // has must not remain in use.
                (Earlier { ips, renewed: self.now }, records.ttl)
            }
            Err(error) => {
                self.failure.get_or_insert(error);
                let known = self.known.hosts.get(&key);
                let is_usable = |known: &&Earlier| self.now.duration_since(known.renewed) < KEPT;
                let Some(known) = known.filter(is_usable) else { return (Vec::new(), u32::MAX) };
                // No TTL, so that the family that was renewed determines when the next question is due.
                (known.clone(), u32::MAX)
            }
        };
        let ips = earlier.ips.clone();
        let mut kept = earlier;
        kept.ips.truncate(self.max_addresses);
        self.next.insert(key, kept);
        (ips, ttl)
    }

    /// Ends the answer and returns the first failure of a part. If all of it failed, or there is no address, the known ones remain
    /// for the next question.
    pub(crate) fn finish(
        self,
        has_addresses: bool,
        none: impl FnOnce() -> DnsError,
    ) -> Result<Option<DnsError>, DnsError> {
        if !self.is_renewed || !has_addresses {
            return Err(self.failure.unwrap_or_else(none));
        }
        // Replaced, not merged: hosts that are no longer targets of the service would never be removed.
        self.known.hosts = self.next;
        Ok(self.failure)
    }
}
