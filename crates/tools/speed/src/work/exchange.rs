//! Key exchange: the operations of each side.

use std::hint::black_box;

use aws_lc_rs::agreement::{EphemeralPrivateKey, PublicKey, UnparsedPublicKey, X25519, agree_ephemeral};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::kem::{DecapsulationKey, EncapsulationKey, ML_KEM_768};
use aws_lc_rs::rand::SystemRandom;
use brisk_keys::{Encapsulation, Exchange, KeyPair, LanesUse};

use super::{LANES, Work};
use crate::SpeedError;
use crate::result::Action;
use crate::subject::Algorithm;

/// Key generation and the server's part of X25519, each single and in lanes.
pub(super) fn x25519() -> Result<Vec<Work>, SpeedError> {
    // One share of a client for all calls: its generation is no cost of the server.
    let peer = own_share()?.1;
    let peer_in_lanes = peer_in_lanes()?;
    let are_there = LanesUse::of_this_processor().is_some();
    Ok(vec![
        Work::new(Algorithm::X25519, Action::Keygen, || {
            black_box(own_share()?);
            Ok(())
        }),
        Work::in_lanes(Algorithm::X25519, Action::Keygen, are_there, || {
            black_box(KeyPair::generate_eight().ok_or(Unspecified)?);
            Ok(())
        }),
        Work::new(Algorithm::X25519, Action::Exchange, move || Ok(answer(&peer)?)),
        Work::in_lanes(Algorithm::X25519, Action::Exchange, are_there, move || {
            Ok(answer_in_lanes(&peer_in_lanes)?)
        }),
    ])
}

/// Like [`x25519`], with ML-KEM-768. Here the sides differ: the client generates the pair, the server encapsulates.
pub(super) fn x25519_mlkem768() -> Result<Vec<Work>, SpeedError> {
    let peer = own_share()?.1;
    let peer_in_lanes = peer_in_lanes()?;
    let encapsulation = encapsulation_key()?;
    let key = encapsulation.clone();
    let are_there = LanesUse::of_this_processor().is_some() && Encapsulation::break_even().is_some();
    Ok(vec![
        Work::new(Algorithm::X25519MlKem768, Action::Keygen, || {
            black_box((own_share()?, encapsulation_key()?));
            Ok(())
        }),
        Work::new(Algorithm::X25519MlKem768, Action::Exchange, move || {
            answer(&peer)?;
            Ok(encapsulate(&encapsulation)?)
        }),
        Work::in_lanes(Algorithm::X25519MlKem768, Action::Exchange, are_there, move || {
            answer_in_lanes(&peer_in_lanes)?;
            Ok(encapsulate_in_lanes(&key)?)
        }),
    ])
}

/// The server's part of ML-KEM-768: `ML-KEM.Encaps` (FIPS 203), including the import of the client's key.
pub(super) fn mlkem768() -> Result<Vec<Work>, SpeedError> {
    let alone = encapsulation_key()?;
    let together = alone.clone();
    let are_there = Encapsulation::break_even().is_some();
    Ok(vec![
        Work::new(Algorithm::MlKem768, Action::Encapsulate, move || Ok(encapsulate(&alone)?)),
        Work::in_lanes(Algorithm::MlKem768, Action::Encapsulate, are_there, move || {
            Ok(encapsulate_in_lanes(&together)?)
        }),
    ])
}

fn encapsulate(key: &[u8]) -> Result<(), Unspecified> {
    let key = EncapsulationKey::new(&ML_KEM_768, black_box(key)).map_err(|_| Unspecified)?;
    // `black_box`: the compiler must neither drop an unused result nor compute a constant one once.
    black_box(key.encapsulate()?);
    Ok(())
}

fn encapsulate_in_lanes(key: &[u8]) -> Result<(), Unspecified> {
    let new = || Encapsulation::new(black_box(key)).ok_or(Unspecified);
    // The import of the keys belongs to the cost, as in single operations.
    let mut all = (0..LANES).map(|_| new()).collect::<Result<Vec<_>, _>>()?;
    Encapsulation::perform_together(&mut all);
    black_box(all[0].shared()).map(drop).ok_or(Unspecified)
}

/// The public key of a client.
fn peer_in_lanes() -> Result<[u8; 32], Unspecified> {
    KeyPair::generate().map(|pair| *pair.public()).ok_or(Unspecified)
}

/// [`LANES`] key pairs, and their shared secrets with a client.
fn answer_in_lanes(peer: &[u8; 32]) -> Result<(), Unspecified> {
    let pairs = KeyPair::generate_eight().ok_or(Unspecified)?;
    let mut exchanges = pairs.map(|pair| pair.exchange(black_box(peer)));
    Exchange::perform_together(&mut exchanges);
    black_box(exchanges[0].shared()).map(drop).ok_or(Unspecified)
}

/// A private key and its public key share.
fn own_share() -> Result<(EphemeralPrivateKey, PublicKey), Unspecified> {
    let private = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new())?;
    let public = private.compute_public_key()?;
    Ok((private, public))
}

/// The server's share for that of the client, and the shared secret.
fn answer(peer: &PublicKey) -> Result<(), Unspecified> {
    let (private, public) = own_share()?;
    black_box(public);
    agree_ephemeral(private, UnparsedPublicKey::new(&X25519, black_box(peer)), Unspecified, |secret| {
        black_box(secret);
        Ok(())
    })
}

/// The client's share from a new [`DecapsulationKey`], which is not needed here.
fn encapsulation_key() -> Result<Vec<u8>, Unspecified> {
    let key = DecapsulationKey::generate(&ML_KEM_768)?.encapsulation_key()?;
    Ok(key.key_bytes()?.as_ref().to_vec())
}
