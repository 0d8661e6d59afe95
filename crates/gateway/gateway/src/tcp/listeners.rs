//! The listeners of `[[tcp]]`: which of them exist, and which settings they have after a reload.

use brisk_net::ListenerSettings;

use super::settings::TcpSettings;

/// A listener, with the indexes of its [`TcpSettings`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TcpListener {
    pub(crate) settings: ListenerSettings,
    pub(crate) services: Vec<usize>,
}

/// The listeners of `all`. Services with the same address share a listener, except with port 0, for which the system chooses a
/// free port.
pub(crate) fn of(all: &[TcpSettings]) -> Vec<TcpListener> {
    let mut found: Vec<TcpListener> = Vec::new();
    for (index, tcp) in all.iter().enumerate() {
        for settings in &tcp.listen {
            let is_same = |other: &&mut TcpListener| {
                settings.address.port() != 0 && other.settings.address == settings.address
            };
            match found.iter_mut().find(is_same) {
                Some(listener) => listener.services.push(index),
                None => found.push(TcpListener { settings: settings.clone(), services: vec![index] }),
            }
        }
    }
    found
}

/// The services in `new` of each listener in `fixed`, the listeners that exist since the start; none where `new` lacks it.
pub(crate) fn services(fixed: &[TcpListener], new: &[TcpListener]) -> Vec<Vec<usize>> {
    let mut left: Vec<_> = new.iter().collect();
    let mut take = |listener: &TcpListener| {
        let is_same = |other: &&TcpListener| other.settings.address == listener.settings.address;
        let place = left.iter().position(is_same)?;
        // Removed, so that two listeners with port 0 on one address get different services.
        Some(left.remove(place).services.clone())
    };
    fixed.iter().map(|listener| take(listener).unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tcp::settings::TcpTls;

    fn tcp(addresses: &[&str]) -> TcpSettings {
        let listener = |text: &&str| ListenerSettings::new(text.parse().expect("an address"));
        TcpSettings {
            name: "tcp".to_owned(),
            listen: addresses.iter().map(listener).collect(),
            names: Vec::new(),
            is_default: true,
            alpn: Vec::new(),
            tls: TcpTls::None,
            networks: brisk_access::NetworkRules::default(),
            upstream: "app".to_owned(),
            idle_timeout: Duration::from_secs(1),
        }
    }

    fn numbers(listeners: &[TcpListener]) -> Vec<Vec<usize>> {
        listeners.iter().map(|listener| listener.services.clone()).collect()
    }

    #[test]
    fn services_share_an_address_but_no_free_port() {
        let listeners = of(&[tcp(&["127.0.0.1:1", "127.0.0.1:0"]), tcp(&["127.0.0.1:0", "127.0.0.1:1"])]);
        assert_eq!(numbers(&listeners), [vec![0, 1], vec![0], vec![1]]);
    }

    #[test]
    fn a_listener_keeps_its_address_over_a_reload() {
        let fixed = of(&[tcp(&["127.0.0.1:1"]), tcp(&["127.0.0.1:0"]), tcp(&["127.0.0.1:0"])]);
        let new =
            of(&[tcp(&["127.0.0.1:0"]), tcp(&["127.0.0.1:2"]), tcp(&["127.0.0.1:1"]), tcp(&["127.0.0.1:0"])]);
        assert_eq!(services(&fixed, &new), [vec![2], vec![0], vec![3]]);
        assert_eq!(services(&fixed, &[]), [vec![], vec![], Vec::<usize>::new()]);
    }
}
