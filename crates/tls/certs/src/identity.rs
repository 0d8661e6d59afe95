//! The identity of a client: the names in its certificate, and the fingerprint.

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::certificate::Fingerprint;

/// Names and fingerprint of the certificate of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Common names of the subject, and e-mail addresses among the alternative names.
    names: Vec<String>,
    /// Host names among the alternative names.
    hosts: Vec<String>,
    fingerprint: Fingerprint,
}

impl Identity {
    /// Reads a verified certificate in DER. A certificate that cannot be parsed has a fingerprint only.
    pub fn read(der: &[u8]) -> Self {
        let mut identity = Self { names: Vec::new(), hosts: Vec::new(), fingerprint: Fingerprint::of(der) };
        // The handshake verified the certificate with another parser. A disagreement of the parsers costs
        // the names only.
        let Ok((_, certificate)) = X509Certificate::from_der(der) else { return identity };
        let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
        identity.names.extend(common.map(str::to_owned));
        let alternatives = certificate.subject_alternative_name().ok().flatten();
        for name in alternatives.into_iter().flat_map(|extension| &extension.value.general_names) {
            match name {
                GeneralName::DNSName(host) => identity.hosts.push((*host).to_owned()),
                GeneralName::RFC822Name(address) => identity.names.push((*address).to_owned()),
                _ => {}
            }
        }
        identity
    }

    /// Whether the certificate is for `name`: a common name or an e-mail address of the same spelling, or a host name in
    /// any case. A wildcard in the certificate stands for itself only.
    pub fn is_named(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
            || self.hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
    }

    /// SHA-256 of the certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

#[cfg(test)]
mod tests {
    use brisk_testkit::ca::TestCa;
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;

    use super::*;

    #[test]
    fn a_certificate_has_its_common_name_and_its_host_names() {
        let leaf = TestCa::new().server(&["Site.test", "*.a.test"]).issue();
        let der = CertificateDer::from_pem_slice(leaf.certificate_pem.as_bytes()).expect("a certificate");
        let identity = Identity::read(&der);
        assert!(identity.is_named("site.TEST") && identity.is_named("*.a.test"), "{identity:?}");
        assert!(!identity.is_named("b.a.test") && !identity.is_named(""), "{identity:?}");
        assert_eq!(identity.fingerprint(), Fingerprint::of(&der));
        let alice = TestCa::new().client("alice").issue();
        let der = CertificateDer::from_pem_slice(alice.certificate_pem.as_bytes()).expect("a certificate");
        assert!(Identity::read(&der).is_named("alice") && !Identity::read(&der).is_named("Alice"));
        assert!(!Identity::read(b"no certificate").is_named(""));
    }
}
