//! What a run came to.

use std::fmt;
use std::time::Duration;

use brisk_keys::BatchChoice;

use crate::subject::Algorithm;

/// A finished run.
#[derive(Clone, Debug)]
pub struct SpeedResult {
    /// The core that was measured.
    pub core: usize,
    /// Time for each operation, and for each kind of handshake.
    pub time: Duration,
    /// Rounds that this time was dealt out over; in each one all operations had their turn.
    pub rounds: u32,
    /// The operations, those of an algorithm together.
    pub rows: Vec<Row>,
    /// How `brisk serve` performs RSA on this machine, for each size that was measured.
    pub choices: Vec<BatchChoice>,
    /// The handshakes; none if they were not asked for.
    pub handshakes: Vec<Forecast>,
}

/// An operation, and how fast it is.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which.
    pub operation: Operation,
    /// How fast, or why it was not measured.
    pub figure: Result<Figure, Missing>,
}

/// What was performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// What was done with it.
    pub action: Action,
    /// How many operations were performed together; mostly one.
    pub batch: usize,
    /// Over how many bytes, where the time depends on it.
    pub bytes: Option<usize>,
}

/// What can be done with an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A signature, as in the server's `CertificateVerify`.
    Sign,
    /// A signature is checked.
    Verify,
    /// A key pair, as for the client's key share.
    Keygen,
    /// The server's part of a key exchange: its own share, and the secret. Of ML-KEM that is the encapsulation.
    Exchange,
    /// A record is encrypted.
    Seal,
    /// A digest.
    Hash,
}

impl Action {
    /// Its name, for people and programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sign => "sign",
            Self::Verify => "verify",
            Self::Keygen => "keygen",
            Self::Exchange => "exchange",
            Self::Seal => "seal",
            Self::Hash => "hash",
        }
    }
}

impl Operation {
    /// What is done, without the algorithm: `sign`, `sign, batches of 4`, `seal 1350 bytes`.
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
    /// `RSA-2048 sign`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.algorithm, self.description())
    }
}

/// How fast an operation is. Times are those of one operation, also where several were performed together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Operations that were measured.
    pub count: u64,
    /// Operations per second of processor time: the median of the rounds.
    pub rate: f64,
    /// Median of their times, in microseconds.
    pub median: f64,
    /// The time that one in a hundred exceeds, in microseconds.
    pub p99: f64,
}

impl Figure {
    /// Processor time of one operation, in microseconds.
    pub fn cpu(&self) -> f64 {
        1e6 / self.rate
    }
}

/// Why there is no figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The processor cannot compute RSA in batches.
    Lanes,
    /// Batches are slower on this machine than operations one by one.
    SlowLanes,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lanes => f.write_str("no AVX2 and FMA"),
            Self::SlowLanes => f.write_str("slower here"),
        }
    }
}

impl Row {
    /// Megabytes (10^6) per second, of operations over bytes.
    pub fn megabytes(&self) -> Option<f64> {
        let bytes = self.operation.bytes?;
        Some(self.figure.ok()?.rate * bytes as f64 / 1e6)
    }
}

/// A kind of handshake, and what it costs the server.
#[derive(Clone, Copy, Debug)]
pub struct Forecast {
    /// Which.
    pub handshake: Handshake,
    /// Its cost, or why that is not known.
    pub cost: Result<Cost, Missing>,
}

/// What a handshake costs the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Handshakes that were measured; none of a cost that was derived.
    pub count: u64,
    /// Processor time of one, in microseconds: the median of the rounds.
    pub cpu: f64,
}

impl Cost {
    /// Handshakes that one core performs in a second, if it does nothing else.
    pub fn rate(&self) -> f64 {
        1e6 / self.cpu
    }
}

/// Kinds of handshake, all of TLS 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// Full, with a certificate of ECDSA P-256, over X25519.
    EcdsaP256,
    /// The same over X25519MLKEM768.
    EcdsaP256MlKem768,
    /// Full, with a certificate of RSA-2048, over X25519; the signature is made by the thread that serves.
    Rsa2048,
    /// The same, with signatures in batches. Not measured: derived from the one before and the cost of both signatures.
    Rsa2048Batched,
    /// Resumed by ticket, over X25519.
    Resumed,
}

impl Handshake {
    /// Its name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EcdsaP256 => "full-ecdsa-p256",
            Self::EcdsaP256MlKem768 => "full-ecdsa-p256-mlkem768",
            Self::Rsa2048 => "full-rsa2048",
            Self::Rsa2048Batched => "full-rsa2048-batched",
            Self::Resumed => "resumed-ticket",
        }
    }

    /// Its name for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::EcdsaP256 => "full, ECDSA P-256, X25519",
            Self::EcdsaP256MlKem768 => "full, ECDSA P-256, X25519MLKEM768",
            Self::Rsa2048 => "full, RSA-2048, X25519",
            Self::Rsa2048Batched => "full, RSA-2048 in batches, X25519",
            Self::Resumed => "resumed by ticket, X25519",
        }
    }

    /// Whether its cost is derived from others, rather than measured.
    pub const fn is_derived(self) -> bool {
        matches!(self, Self::Rsa2048Batched)
    }
}

/// The measured handshakes, and after that with RSA the one with RSA in batches: it costs as much less as a signature
/// does.
pub(crate) fn with_batches(measured: Vec<Forecast>, rows: &[Row]) -> Vec<Forecast> {
    let signature = |batched: bool| {
        let is = |operation: &Operation| {
            operation.algorithm == Algorithm::Rsa2048 && (operation.batch > 1) == batched
        };
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
