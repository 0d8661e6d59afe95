//! The hosts of one configuration, found by the name that a request gives, and whether its connection may ask for them.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use brisk_certs::{CertError, HostMap, UnknownName};

use crate::answer::settings::{HostSettings, ServiceSettings};
use crate::validate::host_of;

/// Values by host, with what decides whether a connection made for one host may ask for another.
#[derive(Debug)]
pub(crate) struct Hosts<T> {
    map: HostMap<Rc<Host<T>>>,
    /// The last host found: most requests ask for it again.
    recent: RefCell<Option<Recent<T>>>,
}

#[derive(Debug)]
struct Recent<T> {
    server_name: Option<Box<str>>,
    authority: Box<str>,
    host: Rc<Host<T>>,
}

#[derive(Debug)]
pub(crate) struct Host<T> {
    /// The names in the host's certificates, with wildcards.
    covered: HostMap<()>,
    client_certificates: Option<String>,
    value: T,
}

impl<T> Host<T> {
    pub(crate) fn value(&self) -> &T {
        &self.value
    }
}

/// RFC 9110 section 15.5.20: this connection cannot answer for that host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Misdirected;

impl<T> Hosts<T> {
    /// The hosts of `settings`, each with the value that goes with it.
    pub(crate) fn new(
        settings: &ServiceSettings,
        values: impl IntoIterator<Item = T>,
    ) -> Result<Self, CertError> {
        let mut map = HostMap::new(settings.unknown_host);
        for (host, value) in settings.hosts.iter().zip(values) {
            let names = host.names.iter().map(String::as_str);
            map.add(names, Rc::new(Host::new(host, value)))?;
        }
        map.set_default(settings.default_host);
        Ok(Self { map, recent: RefCell::new(None) })
    }

    /// The host for a request's authority, which may be empty, on a connection with this server name. A connection
    /// without TLS may ask for every host.
    pub(crate) fn find(&self, authority: &str, connection: Origin<'_>) -> Result<Rc<Host<T>>, Misdirected> {
        if let Some(host) = self.recent(authority, connection) {
            return Ok(host);
        }
        let host = self.look_up(authority, connection)?;
        if let Origin::Tls { server_name } = connection {
            let recent = Recent {
                server_name: server_name.map(Into::into),
                authority: authority.into(),
                host: Rc::clone(&host),
            };
            *self.recent.borrow_mut() = Some(recent);
        }
        Ok(host)
    }

    fn recent(&self, authority: &str, connection: Origin<'_>) -> Option<Rc<Host<T>>> {
        let recent = self.recent.borrow();
        let recent = recent.as_ref()?;
        let Origin::Tls { server_name } = connection else { return None };
        let same = *recent.authority == *authority && recent.server_name.as_deref() == server_name;
        same.then(|| Rc::clone(&recent.host))
    }

    fn look_up(&self, authority: &str, connection: Origin<'_>) -> Result<Rc<Host<T>>, Misdirected> {
        let name = name_of(authority);
        let host = self.map.get(name.as_deref()).host().ok_or(Misdirected)?;
        let Origin::Tls { server_name } = connection else {
            return Ok(Rc::clone(host));
        };
        let own = self.map.get(server_name).host().ok_or(Misdirected)?;
        if Rc::ptr_eq(own, host) || own.may_ask_for(host, name.as_deref()) {
            Ok(Rc::clone(host))
        } else {
            Err(Misdirected)
        }
    }
}

/// The kind of connection that a request came over.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin<'a> {
    /// A connection without TLS.
    Plain,
    /// A connection over TLS, for this name.
    Tls { server_name: Option<&'a str> },
}

impl<T> Host<T> {
    fn new(settings: &HostSettings, value: T) -> Self {
        let mut covered = HostMap::new(UnknownName::Refuse);
        for name in &settings.certificate_names {
            // What is no host name, such as a mail address, covers no host.
            let mut with_name = covered.clone();
            if with_name.add([name.as_str()], ()).is_ok() {
                covered = with_name;
            }
        }
        Self { covered, client_certificates: settings.client_certificates.clone(), value }
    }

    fn may_ask_for(&self, other: &Self, name: Option<&str>) -> bool {
        let is_covered = name.is_some_and(|name| self.covered.get(Some(name)).host().is_some());
        is_covered && self.client_certificates == other.client_certificates
    }
}

/// The names of one host.
#[derive(Debug)]
pub(crate) struct Names(HostMap<()>);

impl Names {
    pub(crate) fn new(names: &[String]) -> Result<Self, CertError> {
        let mut map = HostMap::new(UnknownName::Refuse);
        map.add(names.iter().map(String::as_str), ())?;
        Ok(Self(map))
    }

    /// Whether this authority is one of the host's own, rather than a name that a client made up.
    pub(crate) fn include(&self, authority: &str) -> bool {
        name_of(authority).is_some_and(|name| self.0.get(Some(&name)).host().is_some())
    }
}

/// The name in an authority as the host map has it; `None` if there is none.
fn name_of(authority: &str) -> Option<Cow<'_, str>> {
    let host = host_of(authority)?;
    let host = host.strip_suffix('.').unwrap_or(host);
    Some(if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::settings::Underscores;

    fn host(names: &[&str], certificate: &[&str]) -> HostSettings {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        HostSettings { names: owned(names), certificate_names: owned(certificate), ..HostSettings::default() }
    }

    fn hosts(hosts: Vec<HostSettings>, unknown_host: UnknownName) -> Hosts<usize> {
        let count = hosts.len();
        let settings = ServiceSettings {
            hosts,
            default_host: 0,
            unknown_host,
            trusted_proxies: Vec::new(),
            underscores: Underscores::Drop,
        };
        Hosts::new(&settings, 0..count).expect("hosts")
    }

    fn find(hosts: &Hosts<usize>, server_name: Option<&str>, authority: &str) -> Option<usize> {
        hosts.find(authority, Origin::Tls { server_name }).ok().map(|host| *host.value())
    }

    #[test]
    fn the_name_decides_whatever_its_spelling() {
        let hosts = hosts(vec![host(&["a.example"], &[]), host(&["*.b.example"], &[])], UnknownName::Default);
        for authority in ["x.b.example", "X.B.example:8443", "x.b.example."] {
            assert_eq!(find(&hosts, Some("x.b.example"), authority), Some(1), "{authority}");
        }
        assert_eq!(find(&hosts, None, ""), Some(0));
    }

    #[test]
    fn a_host_knows_its_own_names() {
        let names = Names::new(&["a.example".to_owned(), "*.b.example".to_owned(), "::1".to_owned()]);
        let names = names.expect("names");
        for own in ["a.example", "A.example.:8443", "x.b.example", "[::1]:8443"] {
            assert!(names.include(own), "{own}");
        }
        for other in ["", "b.example", "x.a.example", "evil.example", "a.example:x"] {
            assert!(!names.include(other), "{other:?}");
        }
    }

    #[test]
    fn another_host_is_answered_only_where_the_certificate_covers_it() {
        let both = host(&["a.example"], &["a.example", "b.example", "user@example"]);
        let hosts = hosts(vec![both, host(&["b.example"], &["b.example"])], UnknownName::Default);
        assert_eq!(find(&hosts, Some("a.example"), "b.example"), Some(1));
        assert_eq!(find(&hosts, Some("b.example"), "a.example"), None);
    }

    #[test]
    fn a_demand_for_client_certificates_cannot_be_walked_around() {
        let open = host(&["a.example"], &["*.example"]);
        let mut closed = host(&["b.example"], &["*.example"]);
        closed.client_certificates = Some("required ca.pem".to_owned());
        let hosts = hosts(vec![open, closed], UnknownName::Default);
        assert_eq!(find(&hosts, Some("a.example"), "b.example"), None);
        assert_eq!(find(&hosts, None, "b.example"), None);
        assert_eq!(find(&hosts, Some("b.example"), "b.example"), Some(1));
    }

    #[test]
    fn unknown_names_get_the_default_host_or_none() {
        let two = || vec![host(&["a.example"], &[]), host(&["b.example"], &[])];
        let lenient = hosts(two(), UnknownName::Default);
        assert_eq!(find(&lenient, Some("a.example"), "other.example"), Some(0));
        assert_eq!(find(&lenient, Some("b.example"), "other.example"), None);
        assert_eq!(find(&hosts(two(), UnknownName::Refuse), Some("a.example"), "other.example"), None);
    }

    #[test]
    fn without_tls_every_host_is_answered() {
        let hosts = hosts(vec![host(&["a.example"], &[]), host(&["b.example"], &[])], UnknownName::Default);
        let found = hosts.find("b.example", Origin::Plain).expect("found");
        assert_eq!(*found.value(), 1);
    }

    #[test]
    fn the_last_answer_is_not_given_to_another_connection() {
        let hosts = hosts(vec![host(&["a.example"], &[]), host(&["b.example"], &[])], UnknownName::Default);
        assert_eq!(find(&hosts, Some("b.example"), "b.example"), Some(1));
        assert_eq!(find(&hosts, Some("a.example"), "b.example"), None);
    }
}
