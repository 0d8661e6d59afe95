//! Responses to operations on a connection, and the trouble that they show.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{ServerLink, invalid};
use crate::client::pool::Pool;
use crate::code::ErrorCode;

/// Number of consecutive operations that the server could not perform, after which other servers are preferred for
/// [`REST`].
const TROUBLES: u32 = 8;
const REST: Duration = Duration::from_secs(1);

impl ServerLink {
    /// Has another server perform an operation whose signature is wrong. The returned error ends this [`ServerLink`]:
    /// the server has a damaged key, faulty hardware or an attacker, and its next connection waits for the pause.
    fn reject(&self, pool: &Pool, number: u32) -> io::Error {
        self.is_wrong.set(true);
        pool.statistics.servers[self.server].wrong.fetch_add(1, Ordering::Relaxed);
        pool.answered(number, Err(ErrorCode::Failed));
        invalid("it returned a signature that the certificate's public key does not verify".to_owned())
    }

    /// Processes a response. Ignores that of an operation that this server does not have.
    ///
    /// # Errors
    ///
    /// A wrong signature, which ends the [`ServerLink`].
    pub(in crate::client) fn answered(
        &self,
        pool: &Pool,
        number: u32,
        result: Result<Bytes, ErrorCode>,
    ) -> Result<(), io::Error> {
        let sent = self.connected.borrow_mut().as_mut().and_then(|own| own.under_way.remove(&number));
        // A response to an unknown operation, for example to one that was cancelled, is ignored.
        let Some(sent) = sent else { return Ok(()) };
        let figures = &pool.statistics.servers[self.server];
        match &result {
            Ok(signature) if !pool.verifies(number, signature) => return Err(self.reject(pool, number)),
            Ok(_) => {
                figures.answered(sent.elapsed());
                self.troubles.set(0);
            }
            Err(ErrorCode::Cancelled) => {}
            Err(code) => {
                figures.refused.fetch_add(1, Ordering::Relaxed);
                self.note_trouble(*code);
            }
        }
        pool.answered(number, result.map(|bytes| bytes.to_vec()));
        pool.has_room();
        Ok(())
    }

    /// Counts operations that the server could not perform, and avoids the server for a while if there are too many in
    /// a row.
    fn note_trouble(&self, code: ErrorCode) {
        if !code.is_trouble() {
            return;
        }
        self.troubles.update(|troubles| troubles + 1);
        if self.troubles.get() >= TROUBLES {
            self.troubles.set(0);
            self.rests_until.set(Some(Instant::now() + REST));
        }
    }
}
