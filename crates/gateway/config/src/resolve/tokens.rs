//! Keys in tokens: certificates with only the chain in a file.

use std::path::Path;
use std::time::SystemTime;

use brisk_certs::{Chain, Loaded};
use brisk_keys::KeyId;
use brisk_keys_pkcs11::{CertificateKey, KeyUri, PinSource};

use super::context::Context;

/// Loads the certificate in `chain`, whose private key is in a token. The error names the one at fault.
pub(super) fn load(
    chain: &Path,
    uri: &KeyUri,
    context: &mut Context<'_>,
) -> Result<Loaded, (&'static str, String)> {
    attach(chain, uri, context).map(|(_, chain)| Loaded::of_chain(chain, SystemTime::now()))
}

/// Finds the private key of the certificate in `chain` in its token. The error names the one at fault.
pub(super) fn attach(
    chain: &Path,
    uri: &KeyUri,
    context: &mut Context<'_>,
) -> Result<(KeyId, Chain), (&'static str, String)> {
    let wrong = |message: String| ("key", message);
    // The chain first: a token is searched for the public key of the certificate.
    let chain = Chain::read(chain).map_err(|error| ("chain", error.to_string()))?;
    let module = uri
        .module_path()
        .map(|path| context.shared.base.join(path))
        .or_else(|| context.files.tokens.module.clone());
    let module = module.ok_or_else(|| {
        wrong(
            "which PKCS #11 module? write pkcs11_module = \"/PATH.so\" in [keys], or append module-path=/PATH.so to the URI"
                .to_owned(),
        )
    })?;
    let pin = uri.pin_source().map(|source| pin_file(source, context));
    let certified = CertificateKey {
        public_key: chain.public_key().to_vec(),
        algorithm: chain.algorithm(),
        subject: chain.subject().to_owned(),
    };
    let attached =
        context.running.tokens.attach(context.files.tokens.settings, uri, &module, pin.as_ref(), &certified);
    let engine = attached.map_err(|error| wrong(error.to_string()))?;
    let CertificateKey { public_key, algorithm, .. } = certified;
    Ok((context.keystore.add_known_elsewhere(&public_key, algorithm, engine), chain))
}

/// The file of a PIN as it is opened. Several keys may have it in common.
fn pin_file(source: &PinSource, context: &mut Context<'_>) -> PinSource {
    let file = context.file(source.path());
    context.shared.warn_of_access(&file);
    PinSource::file(file)
}
