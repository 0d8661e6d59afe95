//! [`HostVariants`], the varied settings of hosts, prepared for their requests.

use std::sync::{Arc, OnceLock};

use brisk_coding::Coding;

use crate::assigned::{AssignedValues, VariedId};

/// Varied settings of all hosts of one configuration. There are none before they are [set](Self::set).
#[derive(Clone, Debug, Default)]
pub struct Variants(OnceLock<Vec<Arc<HostVariants>>>);

impl Variants {
    /// Sets the varied settings, one entry per host, in the order of the hosts. A second call has no effect.
    pub fn set(&self, hosts: Vec<HostVariants>) {
        // Set once: they belong to one configuration, which does not change while it is in force.
        self.0.get_or_init(|| hosts.into_iter().map(Arc::new).collect());
    }

    /// The varied settings of the host at `index`.
    pub fn of_host(&self, index: usize) -> Arc<HostVariants> {
        self.0.get().and_then(|hosts| hosts.get(index)).map(Arc::clone).unwrap_or_default()
    }
}

/// Varied settings of one host: each is a [`VariedSetting`].
#[derive(Debug, Default)]
pub struct HostVariants {
    ids: Vec<VariedId>,
    settings: Vec<VariedSetting>,
    /// Field of the access log with the values of a connection.
    field: &'static str,
}

/// A setting of a host that has different values on different connections.
#[derive(Clone, Debug)]
pub struct VariedSetting {
    /// Identifier.
    pub id: VariedId,
    /// Name, for the access log.
    pub name: Arc<str>,
    /// Values in text, for the access log. The first is the configured value.
    pub texts: Vec<Arc<str>>,
    /// Values that are looked up for each request.
    pub values: RequestValues,
}

/// Values of a varied setting that are looked up for each request, without the configured value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestValues {
    /// None: the setting is applied to the connection before its first request.
    None,
    /// Whether pages get early hints.
    EarlyHints(Vec<bool>),
    /// Level of a coding, where responses are compressed.
    Level(Coding, Vec<u8>),
}

/// Names of the varied settings of a connection with their values, as a field of the access log.
#[derive(Debug, Default)]
pub struct Labels {
    /// Name of the field.
    pub field: &'static str,
    /// Name and value of each setting.
    pub pairs: Vec<(Arc<str>, Arc<str>)>,
}

impl HostVariants {
    /// The varied `settings` of a host, at most one of early hints. The access log has the values of connections in
    /// `field`.
    pub fn new(field: &'static str, settings: Vec<VariedSetting>) -> Self {
        Self { ids: settings.iter().map(|one| one.id).collect(), settings, field }
    }

    /// Whether no setting varies.
    pub fn is_empty(&self) -> bool {
        self.settings.is_empty()
    }

    /// Whether early hints vary.
    pub fn varies_early_hints(&self) -> bool {
        self.settings.iter().any(|one| matches!(one.values, RequestValues::EarlyHints(_)))
    }

    /// Whether pages get early hints on a connection with these values; `None` for the configured value.
    pub fn early_hints(&self, assigned: Option<&AssignedValues>) -> Option<bool> {
        self.find(assigned?, |values, place| match values {
            RequestValues::EarlyHints(values) => values.get(place).copied(),
            _ => None,
        })
    }

    /// Level of `coding` on a connection with these values; `None` for the configured level.
    pub fn level(&self, coding: Coding, assigned: Option<&AssignedValues>) -> Option<u8> {
        self.find(assigned?, |values, place| match values {
            RequestValues::Level(of, levels) if *of == coding => levels.get(place).copied(),
            _ => None,
        })
    }

    /// The first value that `read` returns for a setting and the place of its value among those beside the configured one.
    fn find<T>(
        &self,
        assigned: &AssignedValues,
        read: impl Fn(&RequestValues, usize) -> Option<T>,
    ) -> Option<T> {
        // A search and no hash table: a connection has at most `MOST_ASSIGNED` values.
        self.settings.iter().find_map(|one| {
            // Index 0 is the configured value, which `values` omits: `None` leaves the choice to the configuration.
            let place = usize::from(assigned.get(one.id)?).checked_sub(1)?;
            read(&one.values, place)
        })
    }

    /// The values of a connection that belong to settings of this host.
    pub fn within(&self, assigned: Option<&AssignedValues>) -> AssignedValues {
        assigned.map(|assigned| assigned.within(&self.ids)).unwrap_or_default()
    }

    /// Names of the settings and values of a connection.
    pub fn labels(&self, assigned: &AssignedValues) -> Labels {
        let pairs = self.settings.iter().filter_map(|one| {
            let text = one.texts.get(usize::from(assigned.get(one.id)?))?;
            Some((Arc::clone(&one.name), Arc::clone(text)))
        });
        Labels { field: self.field, pairs: pairs.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assigned::Assigned;

    fn setting(id: u16, values: RequestValues) -> VariedSetting {
        let texts = ["configured", "other"].map(Arc::from).into();
        VariedSetting { id: VariedId(id), name: format!("s{id}").into(), texts, values }
    }

    #[test]
    fn the_first_value_is_the_configured_one() {
        let host = HostVariants::new(
            "varied",
            vec![
                setting(1, RequestValues::EarlyHints(vec![true])),
                setting(2, RequestValues::Level(Coding::Zstd, vec![7])),
                setting(3, RequestValues::None),
            ],
        );
        let with = |value| {
            let mut assigned = AssignedValues::default();
            assert!((1..=4).all(|id| assigned.push(Assigned { setting: VariedId(id), value })));
            assigned
        };
        let (configured, other, missing) = (with(0), with(1), with(2));
        for none in [None, Some(&configured), Some(&missing)] {
            assert_eq!((host.early_hints(none), host.level(Coding::Zstd, none)), (None, None));
        }
        assert_eq!(
            (host.early_hints(Some(&other)), host.level(Coding::Zstd, Some(&other))),
            (Some(true), Some(7))
        );
        assert_eq!(host.level(Coding::Gzip, Some(&other)), None);
        let labels = host.labels(&configured);
        assert_eq!((labels.field, labels.pairs.len()), ("varied", 3));
        assert_eq!(labels.pairs[0], ("s1".into(), "configured".into()));
        assert!(host.labels(&missing).pairs.is_empty());
        assert_eq!(host.within(Some(&other)).iter().count(), 3, "the fourth is a setting of another host");
        assert!(host.within(None).is_empty());
    }

    #[test]
    fn nothing_varies_before_it_is_set() {
        let variants = Variants::default();
        assert!(variants.of_host(0).is_empty());
        variants
            .set(vec![HostVariants::new("varied", vec![setting(1, RequestValues::EarlyHints(vec![true]))])]);
        assert!(variants.of_host(0).varies_early_hints() && variants.of_host(1).is_empty());
    }
}
