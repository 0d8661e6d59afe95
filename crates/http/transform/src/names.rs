//! The names of a host, as requests state them.

use std::borrow::Cow;
use std::sync::Arc;

use brisk_certs::{CertError, HostMap, OnDemand, UnknownName};
use brisk_http::validate::host_of;

/// The names of one host.
#[derive(Debug)]
pub struct Names {
    map: HostMap<()>,
    on_demand: Option<Arc<OnDemand>>,
}

impl Names {
    /// The names of a host.
    ///
    /// # Errors
    ///
    /// [`CertError`] if two names are equal or one is no name.
    pub fn new(names: &[String]) -> Result<Self, CertError> {
        let mut map = HostMap::new(UnknownName::Refuse);
        map.add(names.iter().map(String::as_str), ())?;
        Ok(Self { map, on_demand: None })
    }

    /// Adds names that are decided at run time, by [`OnDemand`].
    #[must_use]
    pub fn with(self, on_demand: Option<&Arc<OnDemand>>) -> Self {
        Self { on_demand: on_demand.cloned(), ..self }
    }

    /// Whether `authority` is a name of the host, as opposed to an arbitrary name from a client. An on-demand name
    /// counts while its certificate is in memory.
    pub fn include(&self, authority: &str) -> bool {
        // `peek` is no use of the certificate, so requests with a name do not keep it in memory.
        let is_shown = |name: &str| self.on_demand.as_ref().is_some_and(|own| own.peek(name).is_some());
        name_of(authority).is_some_and(|name| self.map.get(Some(&name)).host().is_some() || is_shown(&name))
    }
}

/// The host name in an authority, in the form of [`HostMap`] keys: lower case, without trailing dot. `None` if there is
/// none.
pub fn name_of(authority: &str) -> Option<Cow<'_, str>> {
    let host = host_of(authority)?;
    let host = host.strip_suffix('.').unwrap_or(host);
    Some(if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    })
}
