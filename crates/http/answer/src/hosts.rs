//! The hosts of one configuration: lookup by the name in a request, and the check whether a connection may request the
//! host.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use brisk_certs::{CertError, HostMap, OnDemand, UnknownName};
use brisk_tls::Demands;
use brisk_transform::names::{Names, name_of};

use crate::settings::{HostSettings, ServiceSettings};

/// Values by host, with the conditions under which a connection for one host may request another.
#[derive(Debug)]
pub(crate) struct Hosts<T> {
    map: HostMap<Rc<Host<T>>>,
    /// The last host found. Most requests repeat the previous host, so this saves the lookup.
    recent: RefCell<Option<Recent<T>>>,
}

#[derive(Debug)]
struct Recent<T> {
    server_name: Option<Box<str>>,
    authority: Box<str>,
    host: Rc<Host<T>>,
    /// Whether the connection was established for this host.
    is_own: bool,
}

#[derive(Debug)]
pub(crate) struct Host<T> {
    /// Names in the host's certificates, including wildcards.
    covered: HostMap<()>,
    demands: Demands,
    /// Names that are decided at run time (on-demand certificates).
    on_demand: Option<Arc<OnDemand>>,
    /// Configured names.
    own: Names,
    catalogue: Option<Arc<dyn brisk_certs::Names>>,
    value: T,
}

impl<T> Host<T> {
    pub(crate) fn value(&self) -> &T {
        &self.value
    }

    /// Whether the name of `authority` needs no decision at run time, or has one.
    pub(crate) fn has_decided(&self, authority: &str) -> bool {
        name_of(authority).is_none_or(|name| !self.is_undecided(&name, None))
    }
}

/// The connection cannot be used for the requested host: `421` (RFC 9110 section 15.5.20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Misdirected;

impl<T> Hosts<T> {
    /// Builds the map from the hosts of `settings` and their values, in the same order.
    pub(crate) fn new(
        settings: &ServiceSettings,
        values: impl IntoIterator<Item = T>,
    ) -> Result<Self, CertError> {
        let mut map = HostMap::new(settings.unknown_host);
        for (host, value) in settings.hosts.iter().zip(values) {
            let names = host.tls.names.iter().map(String::as_str);
            let number = map.add(names, Rc::new(Host::new(host, value)?))?;
            if let Some(catalogue) = &host.tls.catalogue {
                map.add_further(number, Arc::clone(catalogue) as _);
            }
            if let Some(on_demand) = &host.tls.on_demand {
                map.add_remaining(number, Arc::clone(on_demand) as _);
            }
        }
        map.set_default(brisk_tls::HostSettings::default_of(settings.hosts.iter().map(|host| &host.tls)));
        Ok(Self { map, recent: RefCell::new(None) })
    }

    /// The host for the authority of a request, which may be empty, on a connection of kind `connection`.
    ///
    /// A connection without TLS may request every host; a TLS connection only hosts whose requirements its client met
    /// in the handshake.
    ///
    /// # Errors
    ///
    /// [`Misdirected`] if no host has the name or the connection must not be used for it.
    pub(crate) fn find(&self, authority: &str, connection: Origin<'_>) -> Result<Rc<Host<T>>, Misdirected> {
        if let Some(host) = self.recent(authority, connection) {
            return Ok(host);
        }
        let (host, is_own) = self.look_up(authority, connection)?;
        if let Origin::Tls { server_name, .. } = connection {
            let recent = Recent {
                server_name: server_name.map(Into::into),
                authority: authority.into(),
                host: Rc::clone(&host),
                is_own,
            };
            *self.recent.borrow_mut() = Some(recent);
        }
        Ok(host)
    }

    fn recent(&self, authority: &str, connection: Origin<'_>) -> Option<Rc<Host<T>>> {
        let recent = self.recent.borrow();
        let recent = recent.as_ref()?;
        let Origin::Tls { server_name, demands } = connection else { return None };
        let same = *recent.authority == *authority
            && recent.server_name.as_deref() == server_name
            // Equal names are not sufficient: the demands belong to the connection.
            && recent.host.admits(demands, recent.is_own);
        same.then(|| Rc::clone(&recent.host))
    }

    /// The host, and whether the connection was established for it.
    fn look_up(&self, authority: &str, connection: Origin<'_>) -> Result<(Rc<Host<T>>, bool), Misdirected> {
        let name = name_of(authority);
        let host = self.map.get(name.as_deref()).host().ok_or(Misdirected)?;
        let Origin::Tls { server_name, demands } = connection else {
            return Ok((Rc::clone(host), false));
        };
        // RFC 9110 section 7.4: the host of the handshake decides about requests for
        // others on its connection.
        let own = self.map.get(server_name).host().ok_or(Misdirected)?;
        if let Some(name) = &name
            && host.is_undecided(name, server_name)
        {
            // The client repeats the request on another connection, whose handshake decides about the name.
            return Err(Misdirected);
        }
        let is_own = Rc::ptr_eq(own, host);
        let may_ask = is_own || own.may_ask_for(host, name.as_deref());
        if may_ask && host.admits(demands, is_own) { Ok((Rc::clone(host), is_own)) } else { Err(Misdirected) }
    }
}

/// Transport of a request's connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin<'a> {
    /// A connection without TLS.
    Plain,
    /// A TLS connection with this server name, whose client met these requirements.
    Tls { server_name: Option<&'a str>, demands: &'a Demands },
}

impl<T> Host<T> {
    fn new(settings: &HostSettings, value: T) -> Result<Self, CertError> {
        let mut covered = HostMap::new(UnknownName::Refuse);
        let certificates = &settings.tls.certificates;
        // A set, because the certificates of a host may have equal names.
        let names: BTreeSet<_> = certificates.iter().flat_map(|certificate| &certificate.names).collect();
        for name in names {
            // Entries that are not host names, such as mail addresses, cover no host.
            let mut with_name = covered.clone();
            if with_name.add([name.as_str()], ()).is_ok() {
                covered = with_name;
            }
        }
        Ok(Self {
            covered,
            demands: settings.tls.demands.clone(),
            on_demand: settings.tls.on_demand.clone(),
            own: Names::new(&settings.tls.names)?,
            catalogue: settings.tls.catalogue.clone().map(|catalogue| catalogue as _),
            value,
        })
    }

    /// Whether `name` is an on-demand name without a decision: the connection was not established for it, and its
    /// certificate is not in memory.
    fn is_undecided(&self, name: &str, server_name: Option<&str>) -> bool {
        let Some(on_demand) = self.on_demand.as_ref().filter(|_| server_name != Some(name)) else {
            return false;
        };
        let is_own = || self.own.include(name) || self.catalogue.as_ref().is_some_and(|own| own.has(name));
        on_demand.peek(name).is_none() && brisk_certs::Names::has(&**on_demand, name) && !is_own()
    }

    /// Whether the client of a connection established under `demands` meets the requirements of this host. The host's
    /// own requirements may have changed through newer revocation lists; those of another host must be equal.
    fn admits(&self, demands: &Demands, is_own: bool) -> bool {
        if is_own { self.demands.are_met_under(demands) } else { self.demands == *demands }
    }

    fn may_ask_for(&self, other: &Self, name: Option<&str>) -> bool {
        let is_covered = name.is_some_and(|name| self.covered.get(Some(name)).host().is_some());
        is_covered && self.demands == other.demands
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::{Duration, SystemTime};

    use brisk_certs::{Certificate, Fingerprint, OnDemandHosts, OnDemandSettings, Services};
    use brisk_keys::{KeyAlgorithm, KeyId};
    use brisk_tls::{ClientCertificates, Revocation, UnknownRevocation};

    use super::*;

    use crate::settings::{HttpsRedirect, Underscores, Variants};

    fn host(names: &[&str], certificate: &[&str]) -> HostSettings {
        let certificate = Certificate {
            chain: Vec::new(),
            key: KeyId([0; 32]),
            algorithm: KeyAlgorithm::EcdsaP256,
            names: certificate.iter().map(ToString::to_string).collect(),
            not_before: SystemTime::UNIX_EPOCH,
            not_after: SystemTime::UNIX_EPOCH,
            source: PathBuf::new(),
            fingerprint: Fingerprint::of(&[]),
            issuer: None,
            is_complete: true,
            services: Services::default(),
            staple: None,
        };
        HostSettings::new(brisk_tls::HostSettings {
            certificates: vec![Arc::new(certificate)],
            ..brisk_tls::HostSettings::new(names.iter().copied())
        })
    }

    fn hosts(hosts: Vec<HostSettings>, unknown_host: UnknownName) -> Hosts<usize> {
        let count = hosts.len();
        let settings = ServiceSettings {
            hosts,
            unknown_host,
            trusted_proxies: Vec::new(),
            client_header: None,
            underscores: Underscores::Drop,
            variants: Variants::default(),
            beacons: None,
            redirect: HttpsRedirect::new(443),
            challenges: None,
        };
        Hosts::new(&settings, 0..count).expect("hosts")
    }

    fn find(hosts: &Hosts<usize>, server_name: Option<&str>, authority: &str) -> Option<usize> {
        find_under(hosts, server_name, authority, &Demands::default())
    }

    fn find_under(
        hosts: &Hosts<usize>,
        server_name: Option<&str>,
        authority: &str,
        demands: &Demands,
    ) -> Option<usize> {
        hosts.find(authority, Origin::Tls { server_name, demands }).ok().map(|host| *host.value())
    }

    fn demands(required: bool, keep: bool) -> Demands {
        Demands::new(ClientCertificates { required, roots: Vec::new(), revocation: None, keep })
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
    fn a_name_on_demand_is_answered_on_a_connection_for_it_alone() {
        let names = vec!["*".parse().expect("a pattern")];
        let settings = OnDemandSettings { host: "platform.example".to_owned(), names, wait: Duration::ZERO };
        let mut platform = host(&["platform.example", "*.platform.example"], &[]);
        platform.tls.on_demand = Some(OnDemandHosts::default().open(settings));
        let hosts = hosts(vec![platform, host(&["b.example"], &[])], UnknownName::Default);
        assert_eq!(find(&hosts, Some("shop.example"), "Shop.example.:443"), Some(0));
        assert_eq!(find(&hosts, Some("shop.example"), "platform.example"), Some(0));
        assert_eq!(find(&hosts, Some("shop.example"), "a.platform.example"), Some(0));
        for made_up in ["refused.example", "a.refused.example:443"] {
            assert_eq!(find(&hosts, Some("platform.example"), made_up), None);
            assert_eq!(find(&hosts, Some("shop.example"), made_up), None);
            assert_eq!(find(&hosts, None, made_up), None);
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
        closed.tls.demands = demands(true, false);
        let hosts = hosts(vec![open, closed], UnknownName::Default);
        assert_eq!(find(&hosts, Some("a.example"), "b.example"), None);
        assert_eq!(find(&hosts, None, "b.example"), None);
        assert_eq!(find_under(&hosts, Some("b.example"), "b.example", &demands(true, false)), Some(1));
        assert_eq!(find_under(&hosts, Some("b.example"), "a.example", &demands(true, false)), None);
    }

    #[test]
    fn a_host_that_forwards_certificates_is_not_asked_on_a_connection_that_keeps_none() {
        let (mut one, mut other) =
            (host(&["a.example"], &["*.example"]), host(&["b.example"], &["*.example"]));
        (one.tls.demands, other.tls.demands) = (demands(false, false), demands(false, true));
        let hosts = hosts(vec![one, other], UnknownName::Default);
        assert_eq!(find_under(&hosts, Some("a.example"), "a.example", &demands(false, false)), Some(0));
        assert_eq!(find_under(&hosts, Some("a.example"), "b.example", &demands(false, false)), None);
        assert_eq!(find_under(&hosts, Some("b.example"), "b.example", &demands(false, true)), Some(1));
    }

    #[test]
    fn a_connection_from_before_a_demand_is_not_let_in_after_it_not_even_as_the_last_one_was() {
        let mut closed = host(&["a.example"], &["a.example"]);
        closed.tls.demands = demands(true, false);
        let hosts = hosts(vec![closed], UnknownName::Default);
        assert_eq!(find(&hosts, Some("a.example"), "a.example"), None);
        assert_eq!(find_under(&hosts, Some("a.example"), "a.example", &demands(true, false)), Some(0));
        assert_eq!(find(&hosts, Some("a.example"), "a.example"), None);
    }

    #[test]
    fn other_revocation_lists_end_no_connection_but_its_client_was_not_looked_up_in_those_of_another_host() {
        let listed = |unknown| {
            let revocation = Some(Revocation { lists: Vec::new(), unknown });
            Demands::new(ClientCertificates { required: true, roots: Vec::new(), revocation, keep: false })
        };
        let (before, after) = (listed(UnknownRevocation::Accept), listed(UnknownRevocation::Refuse));
        let (mut one, mut other) =
            (host(&["a.example"], &["*.example"]), host(&["b.example"], &["*.example"]));
        one.tls.demands = after.clone();
        other.tls.demands = after.clone();
        let hosts = hosts(vec![one, other], UnknownName::Default);
        for _ in 0..2 {
            assert_eq!(find_under(&hosts, Some("a.example"), "b.example", &after), Some(1));
            assert_eq!(find_under(&hosts, Some("a.example"), "b.example", &before), None);
        }
        assert_eq!(find_under(&hosts, Some("a.example"), "a.example", &before), Some(0));
        assert_eq!(find_under(&hosts, Some("a.example"), "a.example", &before), Some(0));
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
