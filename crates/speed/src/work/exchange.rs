//! Key exchange: what each side computes of it.

use std::hint::black_box;

use aws_lc_rs::agreement::{EphemeralPrivateKey, PublicKey, UnparsedPublicKey, X25519, agree_ephemeral};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::kem::{DecapsulationKey, EncapsulationKey, ML_KEM_768};
use aws_lc_rs::rand::SystemRandom;

use super::Work;
use crate::SpeedError;
use crate::result::Action;
use crate::subject::Algorithm;

/// A key pair; and the server's part of the exchange.
pub(super) fn x25519() -> Result<Vec<Work>, SpeedError> {
    let peer = own_share()?.1;
    Ok(vec![
        Work::new(Algorithm::X25519, Action::Keygen, || {
            black_box(own_share()?);
            Ok(())
        }),
        Work::new(Algorithm::X25519, Action::Exchange, move || Ok(answer(&peer)?)),
    ])
}

/// The same with ML-KEM. Here the two sides differ: the client makes the pair, the server encapsulates.
pub(super) fn x25519_mlkem768() -> Result<Vec<Work>, SpeedError> {
    let peer = own_share()?.1;
    let encapsulation = encapsulation_key()?;
    Ok(vec![
        Work::new(Algorithm::X25519MlKem768, Action::Keygen, || {
            black_box((own_share()?, encapsulation_key()?));
            Ok(())
        }),
        Work::new(Algorithm::X25519MlKem768, Action::Exchange, move || {
            answer(&peer)?;
            let key = EncapsulationKey::new(&ML_KEM_768, black_box(&encapsulation))?;
            black_box(key.encapsulate()?);
            Ok(())
        }),
    ])
}

/// A private key, and what is sent of it.
fn own_share() -> Result<(EphemeralPrivateKey, PublicKey), Unspecified> {
    let private = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new())?;
    let public = private.compute_public_key()?;
    Ok((private, public))
}

/// Our share for theirs, and the secret of both.
fn answer(peer: &PublicKey) -> Result<(), Unspecified> {
    let (private, public) = own_share()?;
    black_box(public);
    agree_ephemeral(private, UnparsedPublicKey::new(&X25519, black_box(peer)), Unspecified, |secret| {
        black_box(secret);
        Ok(())
    })
}

/// What the client sends of a new pair. The private half is needed no more here.
fn encapsulation_key() -> Result<Vec<u8>, Unspecified> {
    let key = DecapsulationKey::generate(&ML_KEM_768)?.encapsulation_key()?;
    Ok(key.key_bytes()?.as_ref().to_vec())
}
