//! Hosts with automatically obtained certificates: interface to the component that obtains and publishes them.

use std::fmt;
use std::sync::Arc;

use brisk_certs::{Certificate, Publish};

/// A host whose certificates an [`Obtainer`] obtains.
#[derive(Clone, Debug)]
pub struct ObtainedHost {
    /// Names of the host, as in its [`HostSettings`](brisk_tls::HostSettings).
    pub names: Vec<String>,
    /// Publishes certificates of the host. Valid across reloads as long as the host has these `names`.
    pub publish: Arc<dyn Publish>,
}

/// Component that obtains certificates for hosts.
pub trait Obtainer: fmt::Debug + Send + Sync + 'static {
    /// Replaces the hosts by `hosts`: called at the start, and after each reload that is in force. Must not block.
    fn follow(&self, hosts: Vec<ObtainedHost>);

    /// Reports that `certificate` is revoked. Certificates of every origin are reported; a replacement is ordered only
    /// for a certificate that was obtained automatically. Must not block.
    fn revoked(&self, certificate: &Certificate);
}
