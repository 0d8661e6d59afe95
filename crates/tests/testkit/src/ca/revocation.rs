//! Revocation lists of a [`TestCa`], and OCSP responses that no program would generate.

use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateRevocationListParams, CrlDistributionPoint, CrlIssuingDistributionPoint, CrlScope, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, SigningKey,
};

use super::{DAY, Leaf, TestCa, element};

impl TestCa {
    /// Revocation lists of intermediate and root, issued now with a `nextUpdate` after `lifetime`. `revoked` are on the
    /// list of the intermediate.
    pub fn crls(&self, revoked: &[&Leaf], lifetime: Duration) -> Crls {
        self.crls_until(revoked, SystemTime::now() + lifetime)
    }

    /// Like [`crls`](Self::crls), expired since yesterday.
    pub fn expired_crls(&self, revoked: &[&Leaf]) -> Crls {
        self.crls_until(revoked, SystemTime::now() - DAY)
    }

    /// A list (DER) of the intermediate for the partition of its certificates with the distribution point `url`.
    pub fn crl_at(&self, url: &str, revoked: &[&Leaf]) -> Vec<u8> {
        let distribution_point = CrlDistributionPoint { uris: vec![url.to_owned()] };
        let scope = Some(CrlScope::UserCertsOnly);
        let next_update = SystemTime::now() + Duration::from_hours(1);
        let params = CertificateRevocationListParams {
            issuing_distribution_point: Some(CrlIssuingDistributionPoint { distribution_point, scope }),
            ..list(revoked, next_update)
        };
        params.signed_by(&self.intermediate).expect("a revocation list").der().to_vec()
    }

    fn crls_until(&self, revoked: &[&Leaf], next_update: SystemTime) -> Crls {
        let list = |issuer: &Issuer<'_, KeyPair>, revoked: &[&Leaf]| {
            list(revoked, next_update).signed_by(issuer).expect("a revocation list")
        };
        // Both, because a verifier may demand a list for each certificate of the chain.
        let (intermediate, root) = (list(&self.intermediate, revoked), list(&self.root, &[]));
        Crls {
            intermediate_der: intermediate.der().to_vec(),
            intermediate_pem: intermediate.pem().expect("PEM"),
            root_pem: root.pem().expect("PEM"),
        }
    }

    /// An OCSP response of the intermediate with the status good for the certificate in `request`, a request of
    /// `openssl ocsp`. Times are written as `20200102030405Z`.
    pub fn ocsp_response(&self, request: &[u8], this_update: &str, next_update: Option<&str>) -> Vec<u8> {
        self.ocsp_response_after(&[], request, this_update, next_update)
    }

    /// Like [`ocsp_response`](Self::ocsp_response), with `first`, further `SingleResponse`s in DER, before that of the
    /// certificate.
    pub fn ocsp_response_after(
        &self,
        first: &[u8],
        request: &[u8],
        this_update: &str,
        next_update: Option<&str>,
    ) -> Vec<u8> {
        let time = |at: &str| element(0x18, &[at.as_bytes()]);
        // OCSPRequest { TBSRequest { requestList { Request { CertID, each shorter than 128 bytes.
        let next = next_update.map(|next| element(0xa0, &[&time(next)])).unwrap_or_default();
        // RFC 6960 section 4.2.1: `[0] NULL` is the status good.
        let answer = [&request[8..], &[0x80, 0], &time(this_update), &next];
        let common = element(0x0c, &[b"brisk test intermediate"]);
        let name =
            element(0x30, &[&element(0x31, &[&element(0x30, &[&element(6, &[&[0x55, 4, 3]]), &common])])]);
        let answers = element(0x30, &[first, &element(0x30, &answer)]);
        let data = [element(0xa1, &[&name]), time(this_update), answers].concat();
        let data = element(0x30, &[&data]);
        // ecdsa-with-SHA256.
        let algorithm = element(0x30, &[&element(6, &[&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]])]);
        let signature = self.intermediate.key().sign(&data).expect("a signature");
        let basic = element(0x30, &[&data, &algorithm, &element(3, &[&[0], &signature])]);
        let kind = element(6, &[&[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1]]);
        let typed = element(0x30, &[&kind, &element(4, &[&basic])]);
        element(0x30, &[&element(0x0a, &[&[0]]), &element(0xa0, &[&typed])])
    }
}

/// A list issued the day before yesterday, with these certificates revoked since yesterday.
fn list(revoked: &[&Leaf], next_update: SystemTime) -> CertificateRevocationListParams {
    let yesterday = SystemTime::now() - DAY;
    let revoked_certs = revoked.iter().map(|leaf| RevokedCertParams {
        serial_number: SerialNumber::from(leaf.serial),
        revocation_time: yesterday.into(),
        reason_code: None,
        invalidity_date: None,
    });
    CertificateRevocationListParams {
        this_update: (yesterday - DAY).into(),
        next_update: next_update.into(),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: revoked_certs.collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    }
}

/// The revocation lists of a CA.
#[derive(Debug, Clone)]
pub struct Crls {
    /// List of the intermediate, which issues all leaves except those below the root, in DER.
    pub intermediate_der: Vec<u8>,
    /// List of the intermediate, PEM.
    pub intermediate_pem: String,
    /// List of the root, without entries, PEM.
    pub root_pem: String,
}

impl Crls {
    /// Both lists.
    pub fn pem(&self) -> String {
        self.intermediate_pem.clone() + &self.root_pem
    }
}
