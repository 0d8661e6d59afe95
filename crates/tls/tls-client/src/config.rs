//! Builds the [`rustls`] configuration for [`ClientSettings`].

use std::sync::Arc;

use brisk_keys::pem_certificates;
use brisk_wire::registry::{CipherSuite, ProtocolVersion, SignatureScheme};
use rustls::client::{Resumption, Tls12Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, SupportedCipherSuite, SupportedProtocolVersion, version};

use super::error::ClientError;
use super::notes::{CallersSessions, NotedClock, NotedKeyLog};
use super::settings::{ClientIdentity, ClientSettings, SessionUse, StapleRequest, Tls12Sessions};
use super::verify::Verifier;
use super::{groups, staple};

/// The [`ClientConfig`] for `settings`. Reads files, so it blocks.
pub(super) fn config(settings: &ClientSettings) -> Result<ClientConfig, ClientError> {
    let versions = versions(&settings.versions)?;
    let provider = Arc::new(provider(settings, &versions)?);
    let schemes = settings.schemes.iter().map(|scheme| scheme.0.into()).collect();
    let verifier = Verifier::new(&settings.verification, schemes, &provider)?;
    let builder = ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(NotedClock))
        .with_protocol_versions(&versions)
        .map_err(ClientError::settings)?
        // A verifier of this crate: that of rustls caches no chains, and cannot accept and report an
        // untrusted server.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match &settings.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = read(identity)?;
            builder.with_client_auth_cert(chain, key).map_err(|error| {
                ClientError::Settings(format!("client certificate {}: {error}", identity.chain.display()))
            })?
        }
    };
    config.alpn_protocols = settings.protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    config.key_log = Arc::new(NotedKeyLog);
    config.enable_sni = settings.send_server_name;
    // `Records` takes over the traffic secrets, which rustls refuses without this permission.
    config.enable_secret_extraction = settings.session_use == SessionUse::Many;
    config.resumption =
        Resumption::store(Arc::new(CallersSessions)).tls12_resumption(match settings.tls12_sessions {
            Tls12Sessions::Tickets => Tls12Resumption::SessionIdOrTickets,
            Tls12Sessions::Ids => Tls12Resumption::SessionIdOnly,
        });
    if !settings.certificate_compression {
        // rustls offers compression (RFC 8879) exactly if it has decompressors.
        config.cert_decompressors.clear();
    }
    Ok(config)
}

fn versions(offered: &[ProtocolVersion]) -> Result<Vec<&'static SupportedProtocolVersion>, ClientError> {
    if offered.is_empty() {
        return Ok(vec![&version::TLS13, &version::TLS12]);
    }
    let version = |offered: &ProtocolVersion| match *offered {
        ProtocolVersion::TLS1_3 => Ok(&version::TLS13),
        ProtocolVersion::TLS1_2 => Ok(&version::TLS12),
        other => Err(ClientError::Settings(format!("{other} is not supported: offer TLS 1.2 or TLS 1.3"))),
    };
    offered.iter().map(version).collect()
}

fn provider(
    settings: &ClientSettings,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<CryptoProvider, ClientError> {
    let names: Vec<u16> = settings.groups.iter().map(|group| group.0).collect();
    let kx_groups = groups::groups(&names, settings.key_shares).ok_or_else(|| {
        let names: Vec<String> = settings.groups.iter().map(ToString::to_string).collect();
        ClientError::Settings(format!("not all groups are supported: {}", names.join(", ")))
    })?;
    let offered = |suite: &SupportedCipherSuite| versions.contains(&suite.version());
    let mut cipher_suites: Vec<SupportedCipherSuite> = suites(settings)?;
    cipher_suites.retain(offered);
    if settings.staple_request == StapleRequest::Omitted {
        let tls12 = cipher_suites.iter().any(|suite| suite.tls13().is_none());
        // RFC 5246 section 7.4.8: the client signs the handshake messages themselves. rustls collects their
        // original bytes, with the request, apart from the transcript that `staple` changes.
        if tls12 && settings.identity.is_some() {
            return Err(ClientError::Settings(
                "a client with a certificate that offers TLS 1.2 cannot leave out the request for a staple"
                    .to_owned(),
            ));
        }
        cipher_suites = cipher_suites.into_iter().map(staple::without_request).collect();
    }
    Ok(CryptoProvider { cipher_suites, kx_groups, ..aws_lc_rs::default_provider() })
}

fn suites(settings: &ClientSettings) -> Result<Vec<SupportedCipherSuite>, ClientError> {
    let known = brisk_tls_base::suites();
    if settings.suites.is_empty() {
        let fits = |suite: &&SupportedCipherSuite| fits_schemes(**suite, &settings.schemes);
        return Ok(known.iter().filter(fits).copied().collect());
    }
    let suite = |name: &CipherSuite| {
        let found = known.iter().find(|suite| u16::from(suite.suite()) == name.0);
        found.copied().ok_or_else(|| ClientError::Settings(format!("suite {name} is not supported")))
    };
    settings.suites.iter().map(suite).collect()
}

/// Whether a suite can be used with `schemes`. A TLS 1.2 suite determines the type of the server's key, so a suite that
/// matches no scheme would offer a key that is not accepted.
fn fits_schemes(suite: SupportedCipherSuite, schemes: &[SignatureScheme]) -> bool {
    match suite {
        SupportedCipherSuite::Tls12(suite) if !schemes.is_empty() => {
            schemes.iter().any(|scheme| suite.sign.contains(&scheme.0.into()))
        }
        _ => true,
    }
}

type ChainAndKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn read(identity: &ClientIdentity) -> Result<ChainAndKey, ClientError> {
    let wrong = |file: &std::path::Path, error: &dyn std::fmt::Display| {
        ClientError::Settings(format!("cannot read {}: {error}", file.display()))
    };
    let pem = std::fs::read(&identity.chain).map_err(|error| wrong(&identity.chain, &error))?;
    // Unlike the parser of rustls, `pem_certificates` skips no certificate without an error.
    let chain = pem_certificates(&pem).map_err(|fault| wrong(&identity.chain, &fault))?;
    let key = PrivateKeyDer::from_pem_file(&identity.key).map_err(|error| wrong(&identity.key, &error))?;
    Ok((chain, key))
}

#[cfg(test)]
mod tests {
    use brisk_testkit::ca::TestCa;

    use super::*;

    /// The parser of rustls skips the label `X509 CERTIFICATE`.
    #[test]
    fn a_chain_with_the_older_label_is_read_as_a_whole() {
        let ca = TestCa::new();
        let leaf = ca.client("alice").issue();
        let chain = ca.folder().join("older.pem");
        let pem = leaf.chain_pem.replace("CERTIFICATE-----", "X509 CERTIFICATE-----");
        std::fs::write(&chain, pem).expect("a file");
        let (certificates, _) = read(&ClientIdentity { chain, key: leaf.key }).expect("a chain and a key");
        assert_eq!(certificates.len(), leaf.chain_pem.matches("-----BEGIN CERTIFICATE").count());
    }
}
