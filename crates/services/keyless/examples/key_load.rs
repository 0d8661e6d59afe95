//! Measures the rate of key operations and the duration of a single one:
//! `key_load MODE SECONDS CHAIN [SERVER CA CLIENT-CHAIN CLIENT-KEY]`, or `key_load local SECONDS CHAIN KEY`.
//!
//! Requests signatures from a key server, as a gateway does for TLS 1.3, with the key of the certificate in CHAIN.
//! Modes: `idle` for one operation at a time with pauses; a number for that many concurrent operations; `local` like
//! `idle`, but with the key in this process. Prints JSON with operations per second and the median duration in
//! microseconds.

#![expect(clippy::print_stdout, reason = "it prints what it measured")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_certs::{Chain, load};
use brisk_keyless::{RemoteEngine, RemoteSettings};
use brisk_keys::{BatchEngine, BatchSettings, KeyAlgorithm, KeyId, KeyOperation, Keystore, PrivateKeyEngine};
use brisk_tls::connector::{ConnectorSettings, Identity};
use bytes::Bytes;
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Pause between operations in mode `idle`, long enough for all threads to sleep.
const PAUSE: Duration = Duration::from_micros(500);

/// The message that a server signs in TLS 1.3 (RFC 8446 section 4.4.3).
fn message(number: u64) -> Bytes {
    let hash = [&number.to_be_bytes()[..], &[7; 24]].concat();
    [&[b' '; 64][..], b"TLS 1.3, server CertificateVerify\0", &hash].concat().into()
}

struct Key {
    id: KeyId,
    algorithm: KeyAlgorithm,
}

async fn sign(engine: &dyn PrivateKeyEngine, key: &Key, number: u64) -> Result<Duration, Box<dyn Error>> {
    let deadline = Instant::now() + Duration::from_secs(5);
    let started = Instant::now();
    engine.submit(KeyOperation::sign(key.id, key.algorithm.schemes()[0], message(number), deadline)).await?;
    Ok(started.elapsed())
}

/// Performs one operation at a time.
async fn idle(
    engine: &dyn PrivateKeyEngine,
    key: &Key,
    time: Duration,
) -> Result<Vec<Duration>, Box<dyn Error>> {
    let end = Instant::now() + time;
    let mut times = Vec::new();
    while Instant::now() < end {
        sleep(PAUSE).await;
        times.push(sign(engine, key, times.len() as u64).await?);
    }
    Ok(times)
}

/// Keeps `together` operations in progress.
async fn flood(
    engine: &Arc<RemoteEngine>,
    key: &Key,
    time: Duration,
    together: usize,
) -> Result<Vec<Duration>, Box<dyn Error>> {
    let end = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for place in 0..together {
        let (engine, key) = (Arc::clone(engine), Key { ..*key });
        tasks.spawn_local(async move {
            let mut times = Vec::new();
            while Instant::now() < end {
                let number = (place as u64) << 32 | times.len() as u64;
                times.push(sign(&*engine, &key, number).await.map_err(|error| error.to_string())?);
            }
            Ok::<_, String>(times)
        });
    }
    let mut all = Vec::new();
    while let Some(times) = tasks.join_next().await {
        all.extend(times??);
    }
    Ok(all)
}

async fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [mode, seconds, chain, rest @ ..] = arguments else { return Err("MODE SECONDS CHAIN ...".into()) };
    let time = Duration::from_secs_f64(seconds.parse()?);
    let public = Chain::read(Path::new(chain))?;
    let key = Key { id: KeyId::of_spki(public.public_key()), algorithm: public.algorithm() };
    let times = match (mode.as_str(), rest) {
        ("local", [file]) => {
            let mut keystore = Keystore::new();
            load(Path::new(chain), Path::new(file), &mut keystore, std::time::SystemTime::now())?;
            let engine = BatchEngine::new(Arc::new(keystore), &BatchSettings::default())?;
            idle(&engine, &key, time).await?
        }
        (mode, [server, ca, client, client_key]) => {
            let identity = Identity { chain: client.into(), key: client_key.into() };
            let tls = ConnectorSettings {
                authorities: Some(ca.into()),
                identity: Some(identity),
                ..ConnectorSettings::default()
            };
            let mut settings = RemoteSettings::new("load", vec![server.parse()?], tls);
            settings.deadline = Duration::from_secs(4);
            settings.hedge = settings.deadline;
            let engine = Arc::new(RemoteEngine::new(settings));
            engine.start()?;
            sign(&*engine, &key, 0).await?;
            match mode.parse() {
                Ok(together) => flood(&engine, &key, time, together).await?,
                Err(_) => idle(&*engine, &key, time).await?,
            }
        }
        _ => {
            return Err(
                "MODE SECONDS CHAIN SERVER CA CLIENT-CHAIN CLIENT-KEY, or local SECONDS CHAIN KEY".into()
            );
        }
    };
    let mut micros: Vec<_> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
    micros.sort_by(f64::total_cmp);
    let median = micros.get(micros.len() / 2).copied().unwrap_or_default();
    println!("{{\"per_s\": {:.1}, \"us\": {median:.1}}}", times.len() as f64 / time.as_secs_f64());
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(run(&arguments))
}
