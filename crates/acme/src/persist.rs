//! Records that stand in the DNS and prove names as long as they do (draft-ietf-acme-dns-persist): no key of the DNS is needed here.

use std::fmt;

/// A TXT record that the operator sets once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its name: `_validation-persist.` and that of the host, without a wildcard.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl Standing {
    /// Those for `names`, for the authority that goes by `issuer` and its account with this URI. One of a name and its wildcard is
    /// enough for both.
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

    /// Whether it proves `name`, which may be a wildcard.
    pub(crate) fn is_for(&self, name: &str) -> bool {
        self.name.strip_prefix("_validation-persist.") == Some(name.strip_prefix("*.").unwrap_or(name))
    }
}

/// As in the file of a zone (RFC 1035 section 5.1).
impl fmt::Display for Standing {
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
        let records = Standing::of(&names, "ca.test", "https://ca.test/acct/1");
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
