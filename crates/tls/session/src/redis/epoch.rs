//! [`Epoch`] of a server's data: from one start or promotion to the next.

use aws_lc_rs::digest::{SHA256, digest};

/// Identity of one epoch of a server's data, unique in time and among servers.
///
/// A server that starts reads old data from disk, and a promoted replica has the data that had reached it: both may
/// contain sessions that have been taken since. Each start gives the process a new random `run_id`, and each promotion
/// a new random `master_replid`; neither ever returns. In a cluster, a node that imports a slot also takes a new
/// `cluster_my_epoch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch([u8; Self::LEN]);

impl Epoch {
    pub(super) const LEN: usize = 16;

    /// Unknown epoch: it never satisfies [`Claim::Everywhere`](crate::Claim::Everywhere).
    pub(super) const UNKNOWN: Self = Self([0; Self::LEN]);

    /// The epoch of a server with this `run_id`, from its replies to `INFO replication` and, in a cluster, to `CLUSTER
    /// INFO`. Unknown unless the server is a primary and reports all fields.
    pub(super) fn of(run_id: &str, replication: &str, cluster: Option<&str>) -> Self {
        let replid = field(replication, "master_replid").filter(|id| is_random(id));
        let is_primary = field(replication, "role") == Some("master");
        let config = match cluster {
            None => Some(""),
            Some(info) => field(info, "cluster_my_epoch"),
        };
        let (Some(replid), Some(config), true) = (replid, config, is_primary && is_random(run_id)) else {
            return Self::UNKNOWN;
        };
        // Of a fixed length, so that `Sealer::open` can separate it from the session.
        let hash = digest(&SHA256, format!("{run_id} {replid} {config}").as_bytes());
        Self(*hash.as_ref().first_chunk().expect("SHA-256 has 32 bytes"))
    }

    pub(super) fn is_known(self) -> bool {
        self != Self::UNKNOWN
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<[u8; Self::LEN]> for Epoch {
    fn from(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }
}

/// Returns a field of a reply in the format of `INFO`: lines of `name:value`.
pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Whether `id` has 40 hexadecimal digits that are not all equal. Services that imitate Redis report constants.
fn is_random(id: &str) -> bool {
    let first = id.bytes().next();
    id.len() == 40
        && id.bytes().all(|byte| byte.is_ascii_hexdigit())
        && id.bytes().any(|byte| Some(byte) != first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "0123456789abcdef0123456789abcdef01234567";
    const OTHER: &str = "76543210fedcba9876543210fedcba9876543210";

    fn replication(role: &str, replid: &str) -> String {
        format!("# Replication\r\nrole:{role}\r\nconnected_slaves:0\r\nmaster_replid:{replid}\r\n")
    }

    #[test]
    fn each_start_promotion_and_import_is_another_epoch() {
        let epochs = [
            Epoch::of(RUN, &replication("master", RUN), None),
            Epoch::of(OTHER, &replication("master", RUN), None),
            Epoch::of(RUN, &replication("master", OTHER), None),
            Epoch::of(RUN, &replication("master", RUN), Some("cluster_my_epoch:1\r\n")),
            Epoch::of(RUN, &replication("master", RUN), Some("cluster_my_epoch:2\r\n")),
        ];
        for (index, epoch) in epochs.iter().enumerate() {
            assert!(epoch.is_known());
            assert!(!epochs[..index].contains(epoch), "epoch {index} is there twice");
        }
        assert_eq!(epochs[0], Epoch::of(RUN, &replication("master", RUN), None));
    }

    #[test]
    fn a_server_that_does_not_report_all_fields_has_no_epoch() {
        let whole = replication("master", RUN);
        let zeros = "0".repeat(40);
        assert_eq!(Epoch::of("", &whole, None), Epoch::UNKNOWN);
        assert_eq!(Epoch::of(&zeros, &whole, None), Epoch::UNKNOWN);
        assert_eq!(Epoch::of(RUN, &replication("slave", RUN), None), Epoch::UNKNOWN);
        assert_eq!(Epoch::of(RUN, &replication("master", &zeros), None), Epoch::UNKNOWN);
        assert_eq!(Epoch::of(RUN, "role:master\r\n", None), Epoch::UNKNOWN);
        assert_eq!(Epoch::of(RUN, &whole, Some("cluster_enabled:0\r\n")), Epoch::UNKNOWN);
    }
}
