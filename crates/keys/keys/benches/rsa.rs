//! RSA signatures on one core: by aws-lc one by one, four at a time in lanes, and through the engine that gathers them.
//!
//! `cargo bench -p brisk-keys`. Pin it to a core (`taskset -c 1`); ratios within one run are what counts.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use aws_lc_rs::{
    encoding::{AsDer, Pkcs8V1Der},
    rsa::KeySize,
    signature::RsaKeyPair,
};
use brisk_keys::{BatchEngine, BatchSettings, KeyId, KeyOperation, Keystore, LocalEngine, PrivateKeyEngine};
use brisk_wire::registry::SignatureScheme;
use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::runtime::Builder;

const SIZES: [(&str, KeySize); 3] =
    [("RSA-2048", KeySize::Rsa2048), ("RSA-3072", KeySize::Rsa3072), ("RSA-4096", KeySize::Rsa4096)];

/// Operations under way at a time in the batched measurements.
const WAITING: usize = 16;

fn keystore(size: KeySize) -> (Arc<Keystore>, KeyId) {
    let pair = RsaKeyPair::generate(size).expect("aws-lc makes a key");
    let der: Pkcs8V1Der<'_> = pair.as_der().expect("a key has DER");
    let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(der.as_ref().to_vec()));
    let mut keystore = Keystore::new();
    let key = keystore.add_der(der).expect("the key is usable");
    (Arc::new(keystore), key)
}

fn operation(key: KeyId) -> KeyOperation {
    let message = Bytes::from_static(&[0x20; 130]);
    let deadline = Instant::now() + Duration::from_hours(1);
    KeyOperation::sign(key, SignatureScheme::RSA_PSS_RSAE_SHA256, message, deadline)
}

fn rsa(criterion: &mut Criterion) {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    for (name, size) in SIZES {
        let (keystore, key) = keystore(size);
        let local = LocalEngine::new(Arc::clone(&keystore));
        let batch =
            BatchEngine::new(Arc::clone(&keystore), &BatchSettings::default()).expect("a thread starts");
        let mut group = criterion.benchmark_group(name);
        group.bench_function("aws-lc, alone", |bencher| {
            bencher.iter(|| local.submit(operation(key)).try_take());
        });
        group.bench_function("engine, alone", |bencher| {
            bencher.iter(|| runtime.block_on(batch.submit(operation(key))));
        });
        group.throughput(Throughput::Elements(4));
        group.bench_function("lanes, 4", |bencher| {
            bencher.iter(|| black_box(local.perform_batch(vec![operation(key); 4])));
        });
        group.throughput(Throughput::Elements(WAITING as u64));
        group.bench_function("engine, 16 waiting", |bencher| {
            bencher.iter(|| {
                let pending: Vec<_> = (0..WAITING).map(|_| batch.submit(operation(key))).collect();
                for pending in pending {
                    runtime.block_on(pending).expect("a signature");
                }
            });
        });
        group.finish();
    }
}

criterion_group!(benches, rsa);
criterion_main!(benches);
