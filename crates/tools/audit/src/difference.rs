//! Differences between an audit and an earlier one, which was written with `--json`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::Audit;

/// Largest file of an earlier audit in bytes.
const LARGEST: u64 = 16 << 20;

/// An earlier audit.
#[derive(Clone, Debug)]
pub struct EarlierAudit(Value);

/// The file of an earlier audit cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EarlierError {
    /// The file cannot be read.
    #[error("{}: {error}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Cause.
        error: io::Error,
    },
    /// The file contains no audit.
    #[error("{} is no audit: write one with brisk probe HOST --audit --json", file.display())]
    NoAudit {
        /// The file.
        file: PathBuf,
    },
}

/// Differences to an earlier audit. Findings and features are names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Differences {
    /// Time of the earlier audit.
    pub since: String,
    /// Earlier grade; `None` if it was the same one.
    pub grade: Option<String>,
    /// Findings that the earlier audit did not have.
    pub new_findings: Vec<String>,
    /// Findings that only the earlier audit had.
    pub gone_findings: Vec<String>,
    /// Versions, suites, groups and certificates that are new.
    pub added: Vec<String>,
    /// Versions, suites, groups and certificates that are gone.
    pub removed: Vec<String>,
}

impl EarlierAudit {
    /// Reads the file of an audit with `--json`.
    ///
    /// # Errors
    ///
    /// [`EarlierError`] if the file cannot be read, has more than 16 MiB, or contains no audit.
    pub fn read(file: &Path) -> Result<Self, EarlierError> {
        let unreadable = |error| EarlierError::Unreadable { file: file.to_owned(), error };
        let length = fs::metadata(file).map_err(unreadable)?.len();
        let no_audit = || EarlierError::NoAudit { file: file.to_owned() };
        if length > LARGEST {
            return Err(no_audit());
        }
        let text = fs::read(file).map_err(unreadable)?;
        let document: Value = serde_json::from_slice(&text).map_err(|_| no_audit())?;
        let is_audit = document["findings"].is_array() && document["grade"]["letter"].is_string();
        if is_audit { Ok(Self(document)) } else { Err(no_audit()) }
    }

    /// Differences between this audit and the later `audit`.
    pub fn differences(&self, audit: &Audit) -> Differences {
        // Both audits as JSON: the earlier one may come from another version of the program, with other
        // fields.
        let later = serde_json::to_value(audit).unwrap_or_default();
        let (before, after) = (findings(&self.0), findings(&later));
        let (had, has) = (features(&self.0), features(&later));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let grade = |document: &Value| text(&document["grade"]["letter"]);
        let only =
            |one: &BTreeSet<String>, other: &BTreeSet<String>| one.difference(other).cloned().collect();
        Differences {
            since: text(&self.0["time"]),
            grade: Some(grade(&self.0)).filter(|earlier| *earlier != grade(&later)),
            new_findings: only(&after, &before),
            gone_findings: only(&before, &after),
            added: only(&has, &had),
            removed: only(&had, &has),
        }
    }
}

impl Differences {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        let lists = [&self.new_findings, &self.gone_findings, &self.added, &self.removed];
        self.grade.is_none() && lists.iter().all(|list| list.is_empty())
    }
}

fn findings(document: &Value) -> BTreeSet<String> {
    let all = document["findings"].as_array().into_iter().flatten();
    all.filter_map(|finding| finding["id"].as_str()).map(str::to_owned).collect()
}

/// Versions with their suites, groups, and certificates by subject and issuer.
fn features(document: &Value) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for version in document["protocols"]["versions"].as_array().into_iter().flatten() {
        let name = version["name"].as_str().unwrap_or_default();
        for suite in version["suites"].as_array().into_iter().flatten() {
            all.insert(format!("{name} with {}", suite["name"].as_str().unwrap_or_default()));
        }
    }
    for list in ["tls13", "tls12"] {
        for group in document["groups"][list].as_array().into_iter().flatten().filter_map(Value::as_str) {
            all.insert(format!("group {group}"));
        }
    }
    for certificate in document["certificates"].as_array().into_iter().flatten() {
        let text = |name: &str| certificate[name].as_str().unwrap_or_default().to_owned();
        all.insert(format!(
            "certificate {} ({}) by {}, until {}",
            text("subject"),
            text("key"),
            text("issuer"),
            text("not_after")
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn features_are_versions_with_suites_groups_and_certificates() {
        let document = json!({
            "protocols": { "versions": [{ "name": "TLS 1.2", "suites": [{ "name": "A" }, { "name": "B" }] }, { "name": "TLS 1.1", "suites": [] }] },
            "groups": { "tls13": ["x25519"], "tls12": ["x25519", "secp256r1"] },
            "certificates": [{ "subject": "a.test", "key": "RSA", "issuer": "CA", "not_after": "2027-01-01" }],
        });
        let found: Vec<_> = features(&document).into_iter().collect();
        assert_eq!(
            found,
            [
                "TLS 1.2 with A",
                "TLS 1.2 with B",
                "certificate a.test (RSA) by CA, until 2027-01-01",
                "group secp256r1",
                "group x25519"
            ]
        );
    }
}
