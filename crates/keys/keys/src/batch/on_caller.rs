//! Batches of operations that the caller already has together, performed on its own thread.

use std::sync::Arc;

use super::{
    class::Class,
    perform::{Job, Performing, Transform},
};
use crate::{KeyError, KeyOperation, KeyResult, Keystore, PendingOperation};

/// Performs `operations` as a [`BatchEngine`](super::BatchEngine) would if all were waiting. Results are in the order
/// of `operations`.
pub(crate) fn perform(keystore: &Keystore, operations: Vec<KeyOperation>) -> Vec<KeyResult> {
    let transform = Transform::supported();
    let performing = Performing::new(transform, Arc::default());
    let mut gathered = Class::ALL.map(|_| Vec::new());
    let mut results = Vec::with_capacity(operations.len());
    for operation in operations {
        match prepare(keystore, operation, transform) {
            Ok((job, pending)) => {
                let class = job.class();
                let jobs = &mut gathered[class as usize];
                jobs.push(job);
                if jobs.len() == performing.together(class) {
                    performing.perform(class, jobs);
                }
                results.push(pending);
            }
            Err(error) => results.push(PendingOperation::refused(error)),
        }
    }
    for (class, jobs) in Class::ALL.into_iter().zip(&mut gathered) {
        performing.perform(class, jobs);
    }
    results.into_iter().map(|mut pending| pending.try_take().expect("all jobs were performed")).collect()
}

fn prepare(
    keystore: &Keystore,
    operation: KeyOperation,
    transform: Option<Transform>,
) -> Result<(Job, PendingOperation), KeyError> {
    let key = keystore.get(operation.key)?;
    key.check(&operation.kind)?;
    let class = transform.map_or(Class::Alone, |transform| transform.class(key));
    let (pending, completion) = PendingOperation::with_completion(operation.deadline);
    Ok((Job::new(key, operation.kind, class, completion), pending))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::runtime::Builder;

    use aws_lc_rs::signature::ParsedPublicKey;
    use brisk_wire::registry::SignatureScheme;

    use super::*;
    use crate::{
        KeyAlgorithm, KeyId,
        testing::{MESSAGE, key, keystore, sign, verification},
    };

    #[test]
    fn a_task_may_ask_for_many_at_once() {
        // More than a task may take from channels of tokio before it has to let others go on.
        let scheme = SignatureScheme::ECDSA_SECP256R1_SHA256;
        let operations = vec![sign(key(KeyAlgorithm::EcdsaP256), scheme); 200];
        let results = Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(async { perform(&keystore(), operations) });
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 200);
    }

    #[test]
    fn results_are_in_the_order_of_the_operations() {
        let (rsa, p256) = (SignatureScheme::RSA_PSS_RSAE_SHA256, SignatureScheme::ECDSA_SECP256R1_SHA256);
        let key = |scheme| {
            key(if scheme == rsa { KeyAlgorithm::Rsa { bits: 2048 } } else { KeyAlgorithm::EcdsaP256 })
        };
        // A batch of four RSA operations, and one that is left over.
        let schemes = [rsa, p256, rsa, rsa, rsa, rsa, p256];
        let mut operations = schemes.map(|scheme| sign(key(scheme), scheme)).to_vec();
        let unknown = KeyId([1; 32]);
        operations.insert(3, sign(unknown, rsa));
        operations.push(KeyOperation { deadline: Instant::now(), ..sign(key(rsa), rsa) });

        let mut results = perform(&keystore(), operations);
        assert_eq!(results.pop(), Some(Err(KeyError::DeadlinePassed)));
        assert_eq!(results.remove(3), Err(KeyError::UnknownKey(unknown)));
        assert_eq!(results.len(), schemes.len());
        for (scheme, result) in schemes.into_iter().zip(results) {
            let keystore = keystore();
            let public = keystore.public_key(key(scheme)).unwrap();
            let public = ParsedPublicKey::new(verification(scheme), public).unwrap();
            assert!(public.verify_sig(MESSAGE, &result.unwrap()).is_ok(), "{scheme}");
        }
    }
}
