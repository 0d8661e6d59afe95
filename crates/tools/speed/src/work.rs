//! The measured operations, ready for repeated execution.

mod exchange;
mod records;
mod signing;

use crate::SpeedError;
use crate::result::{Action, Missing, Operation};
use crate::settings::Settings;
use crate::subject::Algorithm;

/// Operations in a full batch of key exchanges, ECDSA and ML-KEM.
const LANES: usize = 8;

/// Performs an [`Operation`], or a batch of them, once.
pub(crate) type Call = Box<dyn FnMut() -> Result<(), SpeedError> + Send>;

/// An [`Operation`], and the function that performs it, or the reason why this processor cannot.
pub(crate) struct Work {
    pub(crate) operation: Operation,
    pub(crate) act: Result<Call, Missing>,
}

impl Work {
    fn new(
        algorithm: Algorithm,
        action: Action,
        act: impl FnMut() -> Result<(), SpeedError> + Send + 'static,
    ) -> Self {
        let operation = Operation { algorithm, action, batch: 1, bytes: None };
        Self { operation, act: Ok(Box::new(act)) }
    }

    /// A batch of [`LANES`] operations in vector lanes; [`Missing::Avx512`] unless `are_there`.
    fn in_lanes(
        algorithm: Algorithm,
        action: Action,
        are_there: bool,
        act: impl FnMut() -> Result<(), SpeedError> + Send + 'static,
    ) -> Self {
        let operation = Operation { algorithm, action, batch: LANES, bytes: None };
        // A missing instruction set leaves a row with the reason, not a gap in the table.
        let act = if are_there { Ok(Box::new(act) as Call) } else { Err(Missing::Avx512) };
        Self { operation, act }
    }

    fn with_bytes(mut self, bytes: usize) -> Self {
        self.operation.bytes = Some(bytes);
        self
    }
}

/// All operations of the algorithms that [`Settings::measures`] selects. Generates keys: an RSA-4096 key takes about a
/// second.
pub(crate) fn all(settings: &Settings) -> Result<Vec<Work>, SpeedError> {
    let wanted = Algorithm::ALL.into_iter().filter(|algorithm| settings.measures(*algorithm));
    let works = wanted.map(of).collect::<Result<Vec<_>, _>>()?;
    Ok(works.into_iter().flatten().collect())
}

fn of(algorithm: Algorithm) -> Result<Vec<Work>, SpeedError> {
    match algorithm {
        Algorithm::Rsa2048 | Algorithm::Rsa3072 | Algorithm::Rsa4096 => signing::rsa(algorithm),
        Algorithm::P256 | Algorithm::P384 | Algorithm::Ed25519 => signing::others(algorithm),
        Algorithm::X25519 => exchange::x25519(),
        Algorithm::X25519MlKem768 => exchange::x25519_mlkem768(),
        Algorithm::MlKem768 => exchange::mlkem768(),
        Algorithm::Aes128Gcm | Algorithm::Aes256Gcm | Algorithm::ChaCha20Poly1305 => records::seal(algorithm),
        Algorithm::Sha256 => Ok(records::hash()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Subject;

    #[test]
    fn every_operation_of_the_quick_algorithms_succeeds() {
        let slow = [Algorithm::Rsa3072, Algorithm::Rsa4096];
        let quick = Algorithm::ALL.into_iter().filter(|algorithm| !slow.contains(algorithm));
        let settings = Settings { subjects: quick.map(Subject::Algorithm).collect(), ..Settings::default() };
        for work in all(&settings).unwrap() {
            if let Ok(mut act) = work.act {
                // Sealing twice shows that nonces are incremented.
                assert!(act().is_ok() && act().is_ok(), "{}", work.operation);
            }
        }
    }
}
