//! The result of a run.

use std::fmt;
use std::time::Duration;

use brisk_keys::BatchChoice;

use crate::subject::Algorithm;

/// A finished run.
#[derive(Clone, Debug)]
pub struct SpeedResult {
    /// Number of the measured core.
    pub core: usize,
    /// Time spent on each operation and each kind of handshake.
    pub time: Duration,
    /// Number of rounds. Each round measured every operation once.
    pub rounds: u32,
    /// The operations, grouped by algorithm.
    pub rows: Vec<Row>,
    /// How `brisk serve` performs RSA on this machine, for each measured size.
    pub choices: Vec<BatchChoice>,
    /// The forecasts; empty if they were not requested.
    pub handshakes: Vec<Forecast>,
}

/// An operation with its figures.
#[derive(Clone, Debug)]
pub struct Row {
    /// The operation.
    pub operation: Operation,
    /// The figures, or the reason why there are none.
    pub figure: Result<Figure, Missing>,
}

/// A measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The action.
    pub action: Action,
    /// Number of operations performed together: 1, or the size of a batch.
    pub batch: usize,
    /// Bytes processed; `None` if the time does not depend on them.
    pub bytes: Option<usize>,
}

/// Actions of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A signature, as in the server's `CertificateVerify` (RFC 8446 section 4.4.3).
    Sign,
    /// Verification of a signature.
    Verify,
    /// Generation of a key pair, as for the client's `key_share`.
    Keygen,
    /// The server's part of a key exchange: `key_share` and secret. For X25519MLKEM768 with [`Self::Encapsulate`].
    Exchange,
    /// The server's part of ML-KEM.
    Encapsulate,
    /// Encryption of a record.
    Seal,
    /// A digest.
    Hash,
}

impl Action {
    /// Name in tables and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sign => "sign",
            Self::Verify => "verify",
            Self::Keygen => "keygen",
            Self::Exchange => "exchange",
            Self::Encapsulate => "encapsulate",
            Self::Seal => "seal",
            Self::Hash => "hash",
        }
    }
}

impl Operation {
    /// The action without the algorithm: `sign`, `sign, batches of 4`, `seal 1350 bytes`.
    pub fn description(&self) -> String {
        let action = self.action.name();
        match self.bytes {
            Some(bytes) if bytes.is_multiple_of(1024) => format!("{action} {} KiB", bytes / 1024),
            Some(bytes) => format!("{action} {bytes} bytes"),
            None if self.batch > 1 => format!("{action}, batches of {}", self.batch),
            None => action.to_owned(),
        }
    }
}

impl fmt::Display for Operation {
    /// Formats as `RSA-2048 sign`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.algorithm, self.description())
    }
}

/// Figures of an operation. Times are per operation, also in batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Number of measured operations.
    pub count: u64,
    /// Operations per second of processor time: median over the rounds.
    pub rate: f64,
    /// Median duration in microseconds.
    pub median: f64,
    /// 99th percentile of the duration in microseconds.
    pub p99: f64,
}

impl Figure {
    /// Processor time per operation in microseconds.
    pub fn cpu(&self) -> f64 {
        1e6 / self.rate
    }
}

/// Why an operation was not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The processor does not support RSA in batches: AVX2 or FMA is absent.
    Lanes,
    /// The processor does not support AVX-512 as batches of key exchanges, ECDSA or ML-KEM require it.
    Avx512,
    /// Batches are slower than single operations on this machine, so `brisk serve` does not use them.
    SlowLanes,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lanes => f.write_str("no AVX2 and FMA"),
            Self::Avx512 => f.write_str("no AVX-512"),
            Self::SlowLanes => f.write_str("slower here"),
        }
    }
}

impl Row {
    /// Megabytes (10^6 bytes) per second; `None` without [`Operation::bytes`].
    pub fn megabytes(&self) -> Option<f64> {
        let bytes = self.operation.bytes?;
        Some(self.figure.ok()?.rate * bytes as f64 / 1e6)
    }
}

/// A kind of handshake with its cost for the server.
#[derive(Clone, Copy, Debug)]
pub struct Forecast {
    /// The kind.
    pub handshake: Handshake,
    /// The cost, or the reason why it is unknown.
    pub cost: Result<Cost, Missing>,
}

/// The cost of a handshake for the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Number of measured handshakes; 0 for a derived cost.
    pub count: u64,
    /// Processor time of the server's thread per handshake in microseconds: median over [`SpeedResult::rounds`].
    pub cpu: f64,
}

impl Cost {
    /// Handshakes per second on one fully used core.
    pub fn rate(&self) -> f64 {
        1e6 / self.cpu
    }
}

/// Kinds of handshake, all of TLS 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// Full, with an ECDSA P-256 certificate and X25519.
    EcdsaP256,
    /// Full, with an ECDSA P-256 certificate and X25519MLKEM768.
    EcdsaP256MlKem768,
    /// Full, with an RSA-2048 certificate and X25519. The serving thread signs.
    Rsa2048,
    /// Full, with an RSA-2048 certificate, X25519, and signatures in batches. Derived from [`Rsa2048`](Self::Rsa2048)
    /// and the costs of both signatures ([`is_derived`](Self::is_derived)), on the condition that batches are full.
    Rsa2048Batched,
    /// Resumed by ticket, with X25519.
    Resumed,
}

impl Handshake {
    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EcdsaP256 => "full-ecdsa-p256",
            Self::EcdsaP256MlKem768 => "full-ecdsa-p256-mlkem768",
            Self::Rsa2048 => "full-rsa2048",
            Self::Rsa2048Batched => "full-rsa2048-batched",
            Self::Resumed => "resumed-ticket",
        }
    }

    /// Name in tables.
    pub const fn title(self) -> &'static str {
        match self {
            Self::EcdsaP256 => "full, ECDSA P-256, X25519",
            Self::EcdsaP256MlKem768 => "full, ECDSA P-256, X25519MLKEM768",
            Self::Rsa2048 => "full, RSA-2048, X25519",
            Self::Rsa2048Batched => "full, RSA-2048 in batches, X25519",
            Self::Resumed => "resumed by ticket, X25519",
        }
    }

    /// Whether the cost is derived from others instead of measured.
    pub const fn is_derived(self) -> bool {
        matches!(self, Self::Rsa2048Batched)
    }
}

/// Adds [`Handshake::Rsa2048Batched`] after [`Handshake::Rsa2048`]: its cost is lower by the difference of the
/// signatures.
pub(crate) fn with_batches(measured: Vec<Forecast>, rows: &[Row]) -> Vec<Forecast> {
    let signature = |batched: bool| {
        let is = |operation: &Operation| {
            operation.algorithm == Algorithm::Rsa2048 && (operation.batch > 1) == batched
        };
        // The first such row is the signature: the verification, which is no batch either, follows it.
        rows.iter().find(|row| is(&row.operation)).map(|row| row.figure)
    };
    let derive = |whole: Result<Cost, Missing>| {
        let (alone, together) = signature(false).zip(signature(true))?;
        let cost = || Ok(Cost { count: 0, cpu: whole?.cpu - alone?.cpu() + together?.cpu() });
        Some(Forecast { handshake: Handshake::Rsa2048Batched, cost: cost() })
    };
    measured
        .into_iter()
        .flat_map(|forecast| {
            let derived = if forecast.handshake == Handshake::Rsa2048 { derive(forecast.cost) } else { None };
            [Some(forecast), derived]
        })
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(batch: usize, figure: Result<f64, Missing>) -> Row {
        let operation = Operation { algorithm: Algorithm::Rsa2048, action: Action::Sign, batch, bytes: None };
        let figure = figure.map(|median| Figure { count: 9, rate: 1e6 / median, median, p99: median });
        Row { operation, figure }
    }

    fn measured() -> Vec<Forecast> {
        let cost = |cpu| Ok(Cost { count: 10, cpu });
        vec![
            Forecast { handshake: Handshake::EcdsaP256, cost: cost(100.0) },
            Forecast { handshake: Handshake::Rsa2048, cost: cost(400.0) },
            Forecast { handshake: Handshake::Resumed, cost: cost(80.0) },
        ]
    }

    #[test]
    fn batches_save_what_the_signature_saves() {
        let all = with_batches(measured(), &[row(1, Ok(300.0)), row(4, Ok(90.0))]);
        let kinds: Vec<_> = all.iter().map(|forecast| forecast.handshake).collect();
        let wanted =
            [Handshake::EcdsaP256, Handshake::Rsa2048, Handshake::Rsa2048Batched, Handshake::Resumed];
        assert_eq!(kinds, wanted);
        let batched = all[2].cost.unwrap();
        assert_eq!(batched.count, 0);
        assert!((batched.cpu - 190.0).abs() < 1e-9 && (batched.rate() - 1e6 / 190.0).abs() < 1e-6);
    }

    #[test]
    fn without_batches_the_forecast_says_why() {
        let all = with_batches(measured(), &[row(1, Ok(300.0)), row(4, Err(Missing::Lanes))]);
        assert_eq!(all[2].handshake, Handshake::Rsa2048Batched);
        assert_eq!(all[2].cost, Err(Missing::Lanes));
    }

    #[test]
    fn operations_say_what_they_are() {
        let sign = row(4, Ok(1.0)).operation;
        assert_eq!(sign.to_string(), "RSA-2048 sign, batches of 4");
        let seal = |bytes| Operation {
            algorithm: Algorithm::Aes128Gcm,
            action: Action::Seal,
            batch: 1,
            bytes: Some(bytes),
        };
        assert_eq!(seal(16384).to_string(), "AES-128-GCM seal 16 KiB");
        assert_eq!(seal(1350).description(), "seal 1350 bytes");
        let row =
            Row { operation: seal(1000), figure: Ok(Figure { count: 1, rate: 5e6, median: 0.2, p99: 0.3 }) };
        assert_eq!(row.megabytes(), Some(5000.0));
    }
}
