//! Permanent DNS records that prove names (draft-ietf-acme-dns-persist). The gateway needs no access to the DNS server.

use std::fmt;

/// A `TXT` record that the operator sets once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistentRecord {
    /// `_validation-persist.` and the name of the host, without a wildcard label.
    pub name: String,
    /// Content of the record.
    pub value: String,
}

impl PersistentRecord {
    /// The records for `names`, for the authority named `issuer` and its account with the URI `account`. A name and its
    /// wildcard share one record.
    pub(crate) fn of(names: &[String], issuer: &str, account: &str) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        let is_wildcard = |base: &str| names.iter().any(|own| own.strip_prefix("*.") == Some(base));
        for name in names {
            let base = name.strip_prefix("*.").unwrap_or(name);
            let policy = if is_wildcard(base) { "; policy=wildcard" } else { "" };
            let record = Self {
                name: format!("_validation-persist.{base}"),
                value: format!("{issuer}; accounturi={account}{policy}"),
            };
            if !all.contains(&record) {
                all.push(record);
            }
        }
        all
    }

    /// Returns whether the record proves `name`, which may be a wildcard.
    pub(crate) fn is_for(&self, name: &str) -> bool {
        self.name.strip_prefix("_validation-persist.") == Some(name.strip_prefix("*.").unwrap_or(name))
    }
}

/// Formats the record for a zone file (RFC 1035 section 5.1).
impl fmt::Display for PersistentRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value.replace('\\', "\\\\").replace('"', "\\\"");
        write!(f, "{}. IN TXT \"{value}\"", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_record_is_enough_for_a_name_and_its_wildcard() {
        let names = ["a.test", "*.a.test", "b.test"].map(str::to_owned);
        let records = PersistentRecord::of(&names, "ca.test", "https://ca.test/acct/1");
        assert!(records[0].is_for("*.a.test") && records[0].is_for("a.test") && !records[0].is_for("b.test"));
        let all: Vec<_> = records.iter().map(ToString::to_string).collect();
        assert_eq!(
            all,
            [
                "_validation-persist.a.test. IN TXT \"ca.test; accounturi=https://ca.test/acct/1; policy=wildcard\"",
                "_validation-persist.b.test. IN TXT \"ca.test; accounturi=https://ca.test/acct/1\"",
            ]
        );
    }
}
