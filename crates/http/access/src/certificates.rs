//! Certificates whose owners may use a route.

use brisk_certs::{Fingerprint, Identity};

/// The client certificates of a route. They are verified already, with the authorities of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateRules {
    /// Names, one of which a certificate has (see [`Identity::is_named`]).
    pub names: Vec<String>,
    /// SHA-256 fingerprints of further certificates.
    pub fingerprints: Vec<Fingerprint>,
}

impl CertificateRules {
    /// Whether the client with this certificate is permitted. Without names and fingerprints, every verified certificate
    /// is.
    pub fn permit(&self, identity: &Identity) -> bool {
        let is_any = self.names.is_empty() && self.fingerprints.is_empty();
        is_any
            || self.fingerprints.contains(&identity.fingerprint())
            || self.names.iter().any(|name| identity.is_named(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_or_a_fingerprint_is_sufficient() {
        let identity = Identity::read(b"not a certificate, so without a name");
        let fingerprint = identity.fingerprint();
        let rules = |names: &[&str], fingerprints: &[Fingerprint]| CertificateRules {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            fingerprints: fingerprints.to_vec(),
        };
        let other = Fingerprint::of(b"other");
        assert!(rules(&[], &[]).permit(&identity) && rules(&["a"], &[other, fingerprint]).permit(&identity));
        assert!(!rules(&["a"], &[]).permit(&identity) && !rules(&[], &[other]).permit(&identity));
    }
}
