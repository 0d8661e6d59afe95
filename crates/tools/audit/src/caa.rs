//! CAA records (RFC 8659): whether they permit the authorities of the served certificates.

use std::net::SocketAddr;
use std::time::Duration;

use brisk_dns::{Properties, Property, Resolver, ResolverSettings};
use serde::Serialize;
use tokio::time::timeout;

use crate::certificate::{Certificate, matches};
use crate::contact::is_address;

/// Timeout of all lookups for one name.
const LIMIT: Duration = Duration::from_secs(10);

/// Maximum number of records of a name.
const MOST: usize = 50;

/// Tags of RFC 8659, RFC 9495 and the CA/Browser Forum.
const TAGS: [&str; 6] = ["issue", "issuewild", "iodef", "issuemail", "contactemail", "contactphone"];

/// Begins of organisations in issuers of certificates, and the identifiers of these authorities in CAA records, as their
/// certification practice statements list them.
const AUTHORITIES: &[(&str, &[&str])] = &[
    ("Actalis", &["actalis.it"]),
    ("Amazon", &["amazon.com", "amazontrust.com", "awstrust.com", "amazonaws.com"]),
    ("Apple", &["pki.apple.com"]),
    ("Asseco Data Systems", CERTUM),
    ("Buypass", &["buypass.com", "buypass.no"]),
    ("Certigna", &["certigna.fr"]),
    ("COMODO", SECTIGO),
    ("D-Trust", &["d-trust.net", "d-trust.de", "dtrust.net", "dtrust.de"]),
    ("Deutsche Telekom Security", &["telesec.de"]),
    ("DHIMYOTIS", &["certigna.fr"]),
    (
        "DigiCert",
        &[
            "digicert.com",
            "www.digicert.com",
            "digicert.ne.jp",
            "cybertrust.ne.jp",
            "symantec.com",
            "thawte.com",
            "geotrust.com",
            "rapidssl.com",
        ],
    ),
    ("Entrust", &["entrust.net", "affirmtrust.com"]),
    ("GlobalSign", &["globalsign.com"]),
    ("GoDaddy", GO_DADDY),
    ("Google Trust Services", &["pki.goog"]),
    ("Hellenic Academic and Research Institutions", &["harica.gr"]),
    ("IdenTrust", &["identrust.com"]),
    ("Internet Security Research Group", &["letsencrypt.org"]),
    ("Let's Encrypt", &["letsencrypt.org"]),
    ("Microsoft", &["microsoft.com"]),
    ("Sectigo", SECTIGO),
    ("SSL Corp", &["ssl.com"]),
    ("Starfield", GO_DADDY),
    ("SwissSign", &["swisssign.com", "swisssign.net", "swissign.com"]),
    ("TrustAsia", &["trustasia.com"]),
    ("Unizeto", CERTUM),
    ("ZeroSSL", SECTIGO),
];

const CERTUM: &[&str] = &["certum.pl", "certum.eu"];
const GO_DADDY: &[&str] = &["godaddy.com", "starfieldtech.com"];
const SECTIGO: &[&str] =
    &["sectigo.com", "comodo.com", "comodoca.com", "usertrust.com", "trust-provider.com"];

/// CAA records for a name of certificates, and the verdicts about the authorities of these certificates.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Caa {
    /// The name in the certificates: the host, or a wildcard that matches it.
    pub subject: String,
    /// Name whose records apply: that of `subject` without the wildcard, or a parent. `None` if there are none.
    pub name: Option<String>,
    /// The records.
    pub records: Vec<CaaRecord>,
    /// Reason for which the records are not known.
    pub failure: Option<String>,
    /// Authorities of the certificates.
    pub issuers: Vec<CaaIssuer>,
}

/// A CAA record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CaaRecord {
    /// Whether authorities that do not know the tag must not issue (`critical`, RFC 8659 section 4.1).
    pub critical: bool,
    /// Tag, in lower case.
    pub tag: String,
    /// Value.
    pub value: String,
}

/// An authority that has issued a served certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CaaIssuer {
    /// Organisation in the issuer, or the issuer without one.
    pub name: String,
    /// Identifiers of the authority in CAA records; none if they are not known here.
    pub identifiers: &'static [&'static str],
    /// Whether the authority may issue another certificate; `None` if records or identifiers are not known.
    pub permitted: Option<bool>,
}

impl Caa {
    /// Critical properties that authorities may not know, so that they must not issue.
    pub(crate) fn unknown_critical(&self) -> impl Iterator<Item = &CaaRecord> {
        self.records.iter().filter(|record| record.critical && !TAGS.contains(&record.tag.as_str()))
    }

    /// Whether no record restricts authorities.
    pub(crate) fn is_missing(&self) -> bool {
        self.name.is_none() && self.failure.is_none()
    }

    fn judge(&mut self, certificate: &Certificate) {
        let organization = certificate.issuer_organization.as_deref();
        // Prefixes, because the legal forms at the ends of organisations differ.
        let begins = |begin: &str| organization.is_some_and(|own| own.starts_with(begin));
        let known = AUTHORITIES.iter().find(|(begin, _)| begins(begin));
        let identifiers = known.map_or(&[][..], |(_, identifiers)| *identifiers);
        let issuer = CaaIssuer {
            name: organization.unwrap_or(&certificate.issuer).to_owned(),
            identifiers,
            permitted: (self.failure.is_none() && !identifiers.is_empty()).then(|| self.permits(identifiers)),
        };
        if !self.issuers.contains(&issuer) {
            self.issuers.push(issuer);
        }
    }

    /// RFC 8659 sections 4.2 and 4.3: without a record that applies, every authority may issue. For wildcards, `issuewild`
    /// precedes `issue`.
    fn permits(&self, identifiers: &[&str]) -> bool {
        let has = |tag: &str| self.records.iter().any(|record| record.tag == tag);
        let tag = if self.subject.starts_with("*.") && has("issuewild") { "issuewild" } else { "issue" };
        let mut applied = self.records.iter().filter(|record| record.tag == tag).peekable();
        // Parameters after the first semicolon restrict accounts and methods, which a certificate does not show.
        let domain =
            |record: &CaaRecord| record.value.split(';').next().unwrap_or_default().trim().to_lowercase();
        applied.peek().is_none() || applied.any(|record| identifiers.contains(&domain(record).as_str()))
    }
}

/// Whether the records are known, so that their absence is meaningful.
pub(crate) fn are_known(all: &[Caa]) -> bool {
    !all.is_empty() && all.iter().all(|caa| caa.failure.is_none())
}

/// Whether an authority could be compared with the records.
pub(crate) fn are_compared(all: &[Caa]) -> bool {
    all.iter().flat_map(|caa| &caa.issuers).any(|issuer| issuer.permitted.is_some())
}

/// Looks up the records for the names by which `certificates` match `host`. Empty for addresses and names without a domain,
/// for which public authorities issue nothing by CAA. `servers`: DNS servers; empty for those of the system.
pub(crate) async fn find(host: &str, servers: &[SocketAddr], certificates: &[Certificate]) -> Vec<Caa> {
    let host = host.trim_end_matches('.').to_lowercase();
    if is_address(&host) || !host.contains('.') {
        return Vec::new();
    }
    let mut all: Vec<Caa> = Vec::new();
    for certificate in certificates {
        let Some(subject) = subject(certificate, &host) else { continue };
        // Certificates for ECDSA and RSA usually have the same name.
        let index = if let Some(known) = all.iter().position(|caa| caa.subject == subject) {
            known
        } else {
            all.push(look_up(subject, servers).await);
            all.len() - 1
        };
        all[index].judge(certificate);
    }
    all
}

/// The name of a certificate that matches the host; the host itself if the certificate has it.
fn subject<'a>(certificate: &'a Certificate, host: &str) -> Option<&'a str> {
    let mut names = certificate.names.iter().map(String::as_str).filter(|name| matches(name, host));
    names.clone().find(|name| *name == host).or_else(|| names.next())
}

async fn look_up(subject: &str, servers: &[SocketAddr]) -> Caa {
    let name = subject.trim_start_matches("*.");
    // Addresses are not resolved, so `uses_ipv6` has no effect, and `max_addresses` bounds the records.
    let settings = ResolverSettings { servers: servers.to_vec(), uses_ipv6: false, max_addresses: MOST };
    let asked = async { Resolver::new(&settings)?.properties(name).await };
    // The resolver queries every parent in turn; the timeout bounds the sum.
    let found = match timeout(LIMIT, asked).await {
        Ok(found) => found.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer in {} s", LIMIT.as_secs())),
    };
    let caa = Caa { subject: subject.to_owned(), ..Caa::default() };
    match found {
        Err(reason) => Caa { failure: Some(reason), ..caa },
        Ok(None) => caa,
        Ok(Some(Properties { name, all })) => {
            Caa { name: Some(name), records: all.into_iter().map(CaaRecord::from).collect(), ..caa }
        }
    }
}

impl From<Property> for CaaRecord {
    fn from(property: Property) -> Self {
        Self { critical: property.is_critical, tag: property.tag, value: property.value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issued_by(organization: &str) -> Certificate {
        Certificate { issuer_organization: Some(organization.to_owned()), ..Certificate::default() }
    }

    fn judged(subject: &str, records: &[(&str, &str)], organization: &str) -> Option<bool> {
        let record = |(tag, value): &(&str, &str)| CaaRecord {
            critical: false,
            tag: (*tag).to_owned(),
            value: (*value).to_owned(),
        };
        let records = records.iter().map(record).collect();
        let mut caa =
            Caa { subject: subject.to_owned(), name: Some("a.test".to_owned()), records, ..Caa::default() };
        caa.judge(&issued_by(organization));
        caa.issuers[0].permitted
    }

    #[test]
    fn an_authority_is_permitted_by_any_of_its_identifiers() {
        let sectigo = [("issue", "letsencrypt.org"), ("issue", " ComodoCA.com ; account=1")];
        assert_eq!(judged("a.test", &sectigo, "Sectigo Limited"), Some(true));
        assert_eq!(judged("a.test", &sectigo, "Let's Encrypt"), Some(true));
        assert_eq!(judged("a.test", &sectigo, "DigiCert Inc"), Some(false));
        assert_eq!(judged("a.test", &sectigo, "An unknown authority"), None);
    }

    #[test]
    fn wildcards_have_a_property_of_their_own() {
        let records = [("issue", "letsencrypt.org"), ("issuewild", ";")];
        assert_eq!(judged("a.test", &records, "Let's Encrypt"), Some(true));
        assert_eq!(judged("*.a.test", &records, "Let's Encrypt"), Some(false));
        assert_eq!(judged("*.a.test", &records[..1], "Let's Encrypt"), Some(true));
        assert_eq!(judged("a.test", &records[1..], "Let's Encrypt"), Some(true), "no record restricts it");
    }

    #[test]
    fn an_empty_value_permits_no_authority() {
        assert_eq!(judged("a.test", &[("issue", ";")], "Let's Encrypt"), Some(false));
        assert_eq!(judged("a.test", &[("issue", "")], "Let's Encrypt"), Some(false));
        assert_eq!(judged("a.test", &[("iodef", "mailto:a@a.test")], "Let's Encrypt"), Some(true));
    }

    #[test]
    fn the_host_precedes_a_wildcard_as_subject() {
        let names = ["*.a.test", "www.a.test", "b.test"].map(str::to_owned).to_vec();
        let certificate = Certificate { names, ..Certificate::default() };
        assert_eq!(subject(&certificate, "www.a.test"), Some("www.a.test"));
        assert_eq!(subject(&certificate, "c.a.test"), Some("*.a.test"));
        assert_eq!(subject(&certificate, "c.test"), None);
    }
}
