//! OCSP responses and SCTs of a chain.

use std::time::SystemTime;

use brisk_certs::ocsp::{CertId, OcspError};
use brisk_report::json::timestamp;
use brisk_wire::server_flight;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Certificate, SentChain};

/// Whether the certificate has `id-pe-tlsfeature` with `status_request` (RFC 7633).
pub(super) fn must_staple(certificate: &X509Certificate<'_>) -> bool {
    let mut all = certificate.extensions().iter();
    all.any(|extension| {
        extension.oid.to_id_string() == "1.3.6.1.5.5.7.1.24"
            && extension.value.windows(3).any(|window| window == [2, 1, 5])
    })
}

/// Verifies the OCSP response that was sent with the chain.
pub(super) fn staple(shown: &SentChain, now: SystemTime, found: &mut Certificate) {
    let Some(staple) = shown.staple.as_deref().filter(|staple| !staple.is_empty()) else {
        "none".clone_into(&mut found.staple);
        return;
    };
    found.is_stapled = true;
    let own = &shown.chain[0];
    let issuer = X509Certificate::from_der(own).ok().map(|(_, own)| own.issuer().as_raw().to_vec());
    // Several certificates may have the issuer's name: which one has its key, the staple shows.
    let verdicts = shown.chain.iter().filter(|der| {
        X509Certificate::from_der(der)
            .is_ok_and(|(_, other)| issuer.as_ref().is_some_and(|issuer| other.subject().as_raw() == issuer))
    });
    let verdicts = verdicts.filter_map(|issuer| Some(CertId::new(own, issuer)?.verify(staple, now)));
    let verdict = verdicts.min_by_key(|verdict| match verdict {
        Ok(_) => 0,
        Err(OcspError::OtherCertificate) => 2,
        Err(_) => 1,
    });
    found.staple = match verdict {
        Some(Ok(staple)) => format!("good until {}", timestamp(staple.next_update)),
        Some(Err(error)) => {
            found.staple_is_wrong = true;
            error.to_string()
        }
        None => "not verified: the issuer's certificate was not sent".to_owned(),
    };
}

/// Logs that signed SCTs. Signatures are not verified, since the keys of logs change with lists that are not bundled.
pub(super) fn logs(certificate: &X509Certificate<'_>, shown: &SentChain, found: &Certificate) -> usize {
    const EMBEDDED: &str = "1.3.6.1.4.1.11129.2.4.2";
    let embedded = certificate.extensions().iter().filter(|one| one.oid.to_id_string() == EMBEDDED);
    let mut lists: Vec<&[u8]> = embedded.filter_map(|one| octets(one.value)).collect();
    lists.extend(shown.scts.as_deref());
    // Clients reject a wrong staple together with its SCTs.
    if found.is_stapled && !found.staple_is_wrong {
        lists.extend(shown.staple.as_deref().and_then(stapled_scts));
    }
    let scts = lists.into_iter().filter_map(|list| server_flight::scts(list).ok());
    let mut logs: Vec<[u8; 32]> = scts.flatten().collect();
    logs.sort_unstable();
    logs.dedup();
    logs.len()
}

/// List of SCTs of an OCSP response: `1.3.6.1.4.1.11129.2.4.5` (RFC 6962 section 3.3).
fn stapled_scts(response: &[u8]) -> Option<&[u8]> {
    const NUMBER: &[u8] = &[6, 10, 0x2b, 6, 1, 4, 1, 0xd6, 0x79, 2, 4, 5];
    let begin = response.windows(NUMBER.len()).position(|window| window == NUMBER)?;
    let mut value = &response[begin + NUMBER.len()..];
    // Critical or not.
    if let [1, 1, _, rest @ ..] = value {
        value = rest;
    }
    octets(octets(value)?)
}

/// Content of the OCTET STRING at the beginning of these bytes.
fn octets(der: &[u8]) -> Option<&[u8]> {
    let (length, content) = match der {
        [4, 0x82, high, low, rest @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        [4, 0x81, length, rest @ ..] | [4, length @ 0..=0x7f, rest @ ..] => (usize::from(*length), rest),
        _ => return None,
    };
    content.get(..length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scts_of_a_staple_are_found() {
        let list = [0, 3, 0, 1, 7];
        let number = [6, 10, 0x2b, 6, 1, 4, 1, 0xd6, 0x79, 2, 4, 5];
        let value = [&[4, 7, 4, 5][..], &list].concat();
        let plain = [&[0x30, 9][..], &number, &value].concat();
        assert_eq!(stapled_scts(&plain), Some(&list[..]));
        let critical = [&[0x30, 9][..], &number, &[1, 1, 0xff], &value].concat();
        assert_eq!(stapled_scts(&critical), Some(&list[..]));
        assert_eq!(stapled_scts(&plain[..plain.len() - 1]), None);
        assert_eq!(stapled_scts(&[4, 1, 0]), None);
    }
}
