//! Hosts whose certificates are obtained while they are served: what obtains them learns of the hosts here, and publishes.

use std::fmt;
use std::sync::Arc;

use brisk_certs::{Certificate, Publish};

/// A host whose certificates are obtained.
#[derive(Clone, Debug)]
pub struct ObtainedHost {
    /// Its names, as in its settings.
    pub names: Vec<String>,
    /// Shows its certificates. Good for as long as the host has these names, whatever reloads come.
    pub publish: Arc<dyn Publish>,
}

/// What obtains certificates for hosts.
pub trait Obtainer: fmt::Debug + Send + Sync + 'static {
    /// These are the hosts from now on: called at the start, and after each reload that is in force. Must not block.
    fn follow(&self, hosts: Vec<ObtainedHost>);

    /// This certificate, of whatever origin, is revoked: if it was obtained, another takes its place. Must not block.
    fn revoked(&self, certificate: &Certificate);
}
