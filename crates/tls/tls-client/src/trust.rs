//! [`Judge`], which evaluates whether clients with a given set of authorities would trust a chain.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use brisk_tls_base::{file_roots, system_roots};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, Error, RootCertStore};

use super::error::ClientError;

/// A set of authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorities {
    /// Mozilla's set, as in Firefox, at the time of the build.
    Mozilla,
    /// The system's set, from its files.
    System,
    /// The authorities in these PEM files.
    Files(Vec<PathBuf>),
}

/// Why a chain is not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Distrust {
    /// The chain leads to no authority of the set.
    UnknownIssuer,
    /// A certificate is expired, or not valid yet.
    Time,
    /// The certificate is valid for other names only.
    Name,
    /// Another reason, as text.
    Other(String),
}

/// A loaded set of [`Authorities`].
#[derive(Clone, Debug)]
pub struct Judge(Arc<WebPkiServerVerifier>);

impl Judge {
    /// Reads the authorities. Blocks on files. [`ClientError::Settings`] if they cannot be used.
    pub fn new(authorities: &Authorities) -> Result<Self, ClientError> {
        static MOZILLA: LazyLock<RootCertStore> = LazyLock::new(|| {
            let mut roots = RootCertStore::empty();
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            roots
        });
        let mut roots = RootCertStore::empty();
        match authorities {
            Authorities::Mozilla => roots = MOZILLA.clone(),
            Authorities::System => roots = system_roots().map_err(ClientError::settings)?,
            Authorities::Files(files) => {
                for file in files {
                    roots.roots.extend(file_roots(file).map_err(ClientError::settings)?.roots);
                }
            }
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        Ok(Self(verifier.map_err(ClientError::settings)?))
    }

    /// Whether `chain` (DER, the server's own certificate first) is trusted now for `name`, a host name or an address.
    pub fn judge(&self, chain: &[Vec<u8>], name: &str) -> Result<(), Distrust> {
        self.judge_at(chain, name, SystemTime::now())
    }

    /// Like [`judge`](Self::judge), at the time `at`. A chain that is expired then is [`Distrust::Time`], even if its
    /// authority is not in the set.
    pub fn judge_at(&self, chain: &[Vec<u8>], name: &str, at: SystemTime) -> Result<(), Distrust> {
        let at = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        let name =
            ServerName::try_from(bare.to_owned()).map_err(|error| Distrust::Other(error.to_string()))?;
        let chain: Vec<_> = chain.iter().map(|der| CertificateDer::from(der.as_slice())).collect();
        let Some((own, others)) = chain.split_first() else {
            return Err(Distrust::Other("no certificate".to_owned()));
        };
        let verified = self.0.verify_server_cert(own, others, &name, &[], UnixTime::since_unix_epoch(at));
        verified.map(|_| ()).map_err(|error| match error {
            Error::InvalidCertificate(error) => distrust(&error),
            other => Distrust::Other(other.to_string()),
        })
    }
}

fn distrust(error: &CertificateError) -> Distrust {
    match error {
        // An authority with the name of a trusted one, but another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Distrust::UnknownIssuer,
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => Distrust::Time,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Distrust::Name,
        other => Distrust::Other(Error::InvalidCertificate(other.clone()).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use brisk_testkit::ca::{Leaf, TestCa};
    use rustls::pki_types::pem::PemObject;

    use super::*;

    fn chain(leaf: &Leaf) -> Vec<Vec<u8>> {
        let chain = CertificateDer::pem_slice_iter(leaf.chain_pem.as_bytes());
        chain.map(|der| der.expect("a certificate").to_vec()).collect()
    }

    #[test]
    fn a_chain_is_judged_by_authority_time_and_name() {
        let ca = TestCa::new();
        let own = Judge::new(&Authorities::Files(vec![ca.root_file()])).expect("a CA");
        let right = chain(&ca.server(&["a.test"]).issue());
        assert_eq!(own.judge(&right, "a.test"), Ok(()));
        assert_eq!(own.judge(&right, "b.test"), Err(Distrust::Name));
        assert_eq!(own.judge(&right[..1], "a.test"), Err(Distrust::UnknownIssuer));
        let expired = chain(&ca.server(&["a.test"]).expired().issue());
        assert_eq!(own.judge(&expired, "a.test"), Err(Distrust::Time));
        let never = SystemTime::UNIX_EPOCH;
        assert_eq!(own.judge_at(&right, "a.test", never), Err(Distrust::Time));
        let mozilla = Judge::new(&Authorities::Mozilla).expect("authorities");
        assert_eq!(mozilla.judge(&right, "a.test"), Err(Distrust::UnknownIssuer));
        assert!(matches!(own.judge(&[], "a.test"), Err(Distrust::Other(_))));
    }
}
