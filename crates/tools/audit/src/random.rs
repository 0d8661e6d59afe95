//! Random bytes for hellos.

use aws_lc_rs::rand;

use crate::error::AuditError;

/// `N` random bytes.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], AuditError> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes)
        .map_err(|_| AuditError::System("the system gives no random numbers".to_owned()))?;
    Ok(bytes)
}
