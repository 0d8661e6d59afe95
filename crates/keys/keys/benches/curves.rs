//! X25519 and ECDSA with P-256 on one core: by aws-lc one by one, and in lanes 1, 2, 4, 8 and 64 at a time.
//!
//! `cargo bench -p brisk-keys --bench curves`. Pin it to a core (`taskset -c 1`); ratios within one run are what counts.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use brisk_keys::{
    Exchange, KeyId, KeyOperation, KeyPair, Keystore, LanesUse, LocalEngine, PrivateKeyEngine, turn,
};
use brisk_wire::registry::SignatureScheme;
use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

const FILLS: [usize; 5] = [1, 2, 4, 8, 64];

fn exchanges(count: usize) -> Vec<Exchange> {
    let pair = || KeyPair::generate().expect("randomness");
    (0..count).map(|_| pair().exchange(pair().public())).collect()
}

fn exchange(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("X25519");
    group.bench_function("key pair, aws-lc", |bencher| bencher.iter(KeyPair::generate));
    let mut one = exchanges(1);
    group.bench_function("exchange, aws-lc", |bencher| bencher.iter(|| one[0].perform()));
    if LanesUse::of_this_processor().is_some() {
        group.throughput(Throughput::Elements(8));
        group.bench_function("key pairs, lanes, 8", |bencher| bencher.iter(KeyPair::generate_eight));
        for fill in FILLS {
            let mut exchanges = exchanges(fill);
            group.throughput(Throughput::Elements(fill as u64));
            group.bench_function(format!("exchange, lanes, {fill}"), |bencher| {
                bencher.iter(|| Exchange::perform_together(&mut exchanges));
            });
        }
    }
    group.finish();
}

fn keystore() -> (Keystore, KeyId) {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("aws-lc makes a key");
    let der = pair.to_pkcs8v1().expect("a key has DER");
    let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(der.as_ref().to_vec()));
    let mut keystore = Keystore::new();
    let key = keystore.add_der(der).expect("the key is usable");
    (keystore, key)
}

fn signatures(criterion: &mut Criterion) {
    let (keystore, key) = keystore();
    let local = LocalEngine::new(keystore.into());
    let operation = || {
        let deadline = Instant::now() + Duration::from_hours(1);
        let message = Bytes::from_static(&[0x20; 130]);
        KeyOperation::sign(key, SignatureScheme::ECDSA_SECP256R1_SHA256, message, deadline)
    };
    let mut group = criterion.benchmark_group("ECDSA P-256");
    group.bench_function("aws-lc", |bencher| bencher.iter(|| local.submit(operation()).try_take()));
    if let Some(gathering) = turn::Gathering::begin(|| {}) {
        for fill in FILLS {
            group.throughput(Throughput::Elements(fill as u64));
            group.bench_function(format!("a turn of {fill}"), |bencher| {
                bencher.iter(|| {
                    let mut pending: Vec<_> = (0..fill).map(|_| local.submit(operation())).collect();
                    turn::perform();
                    for pending in &mut pending {
                        drop(black_box(pending.try_take()));
                    }
                });
            });
        }
        drop(gathering);
    }
    group.finish();
}

criterion_group!(benches, exchange, signatures);
criterion_main!(benches);
