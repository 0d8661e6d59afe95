//! The outcome of early data, for which the `openssl` crate has no function.

use std::ffi::c_int;

use foreign_types::ForeignTypeRef;
use openssl::ssl::SslRef;

/// Outcome of early data (RFC 8446 section 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyData {
    /// Not sent: without a session, or the session does not permit it.
    NotSent,
    /// The server has accepted it.
    Accepted,
    /// The server has refused it; the client has sent the data again after the handshake.
    Rejected,
}

/// `SSL_EARLY_DATA_ACCEPTED` of `openssl/ssl.h`.
const ACCEPTED: c_int = 2;

unsafe extern "C" {
    fn SSL_get_early_data_status(ssl: *const openssl_sys::SSL) -> c_int;
}

/// Whether the server has accepted early data; final when the handshake is complete.
pub(crate) fn is_accepted(ssl: &SslRef) -> bool {
    // SAFETY: the pointer is valid for the life of the reference, and the function reads one field.
    let status = unsafe { SSL_get_early_data_status(ssl.as_ptr()) };
    status == ACCEPTED
}
