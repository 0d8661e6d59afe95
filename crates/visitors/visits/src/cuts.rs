//! Visits by the values of each dimension.

use std::collections::HashMap;

use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion};
use serde::Serialize;

use crate::agent::{Browser, Device};
use crate::closed::closed;
use crate::kinds::{CertificateType, Connection, Navigation, Session, Window};
use crate::metric::Metric;
use crate::row;
use crate::sample::{Sample, Sampled};
use crate::statistics::{Estimate, median};
use crate::store::Kind;

/// Number of values shown per [`Dimension`]: those with the most visits.
const SHOWN: usize = 50;
/// Quantile of the normal distribution for an individual 95 % interval.
const Z: f64 = 1.96;

closed! {
    /// Property by which visits are grouped.
    Dimension {
        /// TLS version.
        Version = "version",
        /// Cipher suite.
        Suite = "suite",
        /// Key exchange group.
        Group = "group",
        /// Version of HTTP.
        Http = "http",
        /// Kind of the TLS session.
        Session = "session",
        /// Outcome of early data.
        EarlyData = "early-data",
        /// Whether the navigation opened the connection.
        Connection = "connection",
        /// Kind of the certificate.
        Certificate = "certificate",
        /// Initial congestion window.
        Window = "window",
        /// The client's network.
        Network = "network",
        /// Round-trip time.
        RoundTrip = "rtt",
        /// Browser family.
        Browser = "browser",
        /// Class of the device.
        Device = "device",
        /// How the visitor reached the page.
        Navigation = "navigation",
        /// Host.
        Host = "host",
        /// Route.
        Route = "route",
        /// Page: host and path.
        Page = "page",
    }
}

/// Upper bounds of the classes of round-trip times, in milliseconds.
const ROUND_TRIPS: [u16; 7] = [5, 10, 20, 40, 80, 160, 320];
const ROUND_TRIP_NAMES: [&str; 9] = [
    "unknown",
    "up-to-5-ms",
    "5-to-10-ms",
    "10-to-20-ms",
    "20-to-40-ms",
    "40-to-80-ms",
    "80-to-160-ms",
    "160-to-320-ms",
    "over-320-ms",
];

impl Dimension {
    /// The number of this dimension's value for `visit`; `0` is unknown.
    pub(crate) fn of(self, visit: &Sampled) -> u16 {
        let row = &visit.row;
        match self {
            Self::Version => row.version,
            Self::Suite => row.suite,
            Self::Group => row.group,
            Self::Http => row.http.into(),
            Self::Session => row.session.into(),
            Self::EarlyData => row.early_data.into(),
            Self::Connection => row.connection.into(),
            Self::Certificate => row.certificate.into(),
            Self::Window => row.window.into(),
            Self::Network => row.network,
            Self::RoundTrip => row.measures.get(Metric::RoundTrip).map_or(0, |rtt| {
                1 + ROUND_TRIPS.iter().take_while(|end| f64::from(**end) < rtt).count() as u16
            }),
            Self::Browser => row.browser.into(),
            Self::Device => row.device.into(),
            Self::Navigation => row.navigation.into(),
            Self::Host => visit.host,
            Self::Route => row.route,
            Self::Page => row.page,
        }
    }

    /// The name of the value with this `number`, as in `sample`.
    pub(crate) fn name_of(self, number: u16, sample: &Sample) -> String {
        fn closed<T: Copy>(all: &[T], number: u16, name: fn(T) -> &'static str) -> String {
            all.get(usize::from(number)).map_or("unknown", |value| name(*value)).to_owned()
        }
        let unknown = || "unknown".to_owned();
        match self {
            Self::Version if number != 0 => ProtocolVersion(number).to_string(),
            Self::Suite if number != 0 => CipherSuite(number).to_string(),
            Self::Group if number != 0 => NamedGroup(number).to_string(),
            Self::Group => "none".to_owned(),
            Self::Version | Self::Suite => unknown(),
            Self::Http => row::http(number as u8).map_or_else(unknown, |version| version.name().to_owned()),
            Self::Session => closed(Session::ALL, number, Session::name),
            Self::EarlyData => row::early_data(number as u8)
                .map_or_else(|| "none".to_owned(), |outcome| outcome.name().to_owned()),
            Self::Connection => closed(Connection::ALL, number, Connection::name),
            Self::Certificate => closed(CertificateType::ALL, number, CertificateType::name),
            Self::Window => closed(Window::ALL, number, Window::name),
            Self::Network if number == 0 => unknown(),
            Self::Network => sample.name(Kind::Network, number).to_owned(),
            Self::RoundTrip => ROUND_TRIP_NAMES.get(usize::from(number)).unwrap_or(&"unknown").to_string(),
            Self::Browser => closed(Browser::ALL, number, Browser::name),
            Self::Device => closed(Device::ALL, number, Device::name),
            Self::Navigation => closed(Navigation::ALL, number, Navigation::name),
            Self::Host => sample.name(Kind::Host, number).to_owned(),
            Self::Route => sample.name(Kind::Route, number).to_owned(),
            Self::Page => sample.name(Kind::Page, number).to_owned(),
        }
    }

    /// Whether the dimension concerns the handshake, which only visits that opened a connection waited for.
    pub(crate) const fn is_of_handshake(self) -> bool {
        matches!(
            self,
            Self::Version
                | Self::Suite
                | Self::Group
                | Self::Session
                | Self::EarlyData
                | Self::Certificate
                | Self::Window
        )
    }
}

/// Whether a visit waited for a new connection, or may have.
pub(crate) fn is_new(visit: &Sampled) -> bool {
    visit.row.connection != Connection::Reused as u8
}

/// Whether the visitor is human: the timing of robots is irrelevant.
pub(crate) fn is_person(visit: &Sampled) -> bool {
    visit.row.browser != Browser::Robot as u8
}

/// Visits by the values of every dimension.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cuts {
    /// The [name](Metric::name) of the metric.
    pub metric: &'static str,
    /// Start of the time span, in Unix seconds.
    pub start: i64,
    /// Total number of visits.
    pub visits: u64,
    /// Number of visits analysed, a random sample.
    pub sampled: usize,
    /// One [`Cut`] for each [`Dimension`]; experiments come last.
    pub dimensions: Vec<Cut>,
}

/// Visits by the values of one [`Dimension`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cut {
    /// Name of the dimension, such as `version`, or `experiment NAME`.
    pub dimension: String,
    /// Whether the dimension counts only visits that opened a connection, or may have.
    pub only_new_connections: bool,
    /// Values with the most visits, in descending order.
    pub values: Vec<CutValue>,
    /// Number of values omitted beyond the 50 with the most visits.
    pub left_out: usize,
}

/// The visits with one value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CutValue {
    /// The value.
    pub name: String,
    /// Estimated number of visits with this value.
    pub visits: u64,
    /// Share of the visits that count for this dimension, 0 to 1.
    pub share: f64,
    /// The median of the metric with its 95 % interval; `None` with fewer than six values in the sample.
    pub median: Option<Estimate>,
}

#[derive(Default)]
struct Group {
    weight: f64,
    /// Values, each with the [`Sampled::weight`] of its visit.
    values: Vec<(f64, f64)>,
}

impl Group {
    fn add(&mut self, visit: &Sampled, metric: Metric) {
        self.weight += visit.weight;
        self.values.extend(visit.row.measures.get(metric).map(|value| (value, visit.weight)));
    }
}

/// Groups `sample` by every [`Dimension`] and every experiment.
pub(crate) fn cuts(sample: &Sample, metric: Metric) -> Cuts {
    let dimensions = Dimension::ALL.iter().map(|dimension| {
        let only_new = dimension.is_of_handshake();
        let mut groups = HashMap::<u16, Group>::new();
        for visit in sample.rows.iter().filter(|visit| !only_new || is_new(visit)) {
            groups.entry(dimension.of(visit)).or_default().add(visit, metric);
        }
        cut(dimension.name().to_owned(), only_new, groups, |number| dimension.name_of(number, sample))
    });
    let mut dimensions: Vec<_> = dimensions.collect();
    dimensions.extend(experiments(sample, metric));
    let (metric, start, visits) = (metric.name(), sample.start, sample.visits);
    Cuts { metric, start, visits, sampled: sample.rows.len(), dimensions }
}

fn experiments(sample: &Sample, metric: Metric) -> Vec<Cut> {
    let mut groups = HashMap::<u16, HashMap<u16, Group>>::new();
    // As in `Gathered::add_to_arms`, so that these are the visits that decide.
    for visit in sample.rows.iter().filter(|visit| is_new(visit) && is_person(visit)) {
        for (experiment, arm) in visit.row.arms.iter().filter(|(experiment, _)| *experiment != 0) {
            groups.entry(*experiment).or_default().entry((*arm).into()).or_default().add(visit, metric);
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_unstable_by_key(|(experiment, _)| *experiment);
    let cuts = groups.into_iter().filter_map(|(experiment, groups)| {
        let (name, arms) = sample.experiments.get(&experiment)?;
        let name_of = |arm: u16| arms.get(usize::from(arm)).cloned().unwrap_or_else(|| "unknown".to_owned());
        Some(cut(format!("experiment {name}"), true, groups, name_of))
    });
    cuts.collect()
}

fn cut(
    dimension: String,
    only_new_connections: bool,
    groups: HashMap<u16, Group>,
    name_of: impl Fn(u16) -> String,
) -> Cut {
    let all: f64 = groups.values().map(|group| group.weight).sum();
    let mut groups: Vec<_> = groups.into_iter().collect();
    // Equal weights are ordered by number, so that the order is the same in each query.
    groups.sort_unstable_by(|a, b| b.1.weight.total_cmp(&a.1.weight).then(a.0.cmp(&b.0)));
    let left_out = groups.len().saturating_sub(SHOWN);
    let values = groups.into_iter().take(SHOWN).map(|(number, mut group)| CutValue {
        name: name_of(number),
        visits: group.weight.round() as u64,
        share: group.weight / all,
        median: median(&mut group.values, Z),
    });
    Cut { dimension, only_new_connections, values: values.collect(), left_out }
}

#[cfg(test)]
mod tests {
    use brisk_telemetry::EarlyData;
    use brisk_wire::HttpVersion;

    use super::*;
    use crate::row::{Numbers, Row};
    use crate::visit::Visit;

    fn sampled(weight: f64, ms: f64, fill: impl FnOnce(&mut Visit)) -> Sampled {
        let mut visit = Visit::new("example.com".into(), "/".into());
        visit.measures.set(Metric::FirstByte, ms);
        fill(&mut visit);
        let numbers = Numbers { route: 3, network: 2, page: 4, arms: [(7, 1), (0, 0), (0, 0), (0, 0)] };
        Sampled { weight, host: 1, period: 0, at: 0, row: Row::new(&visit, numbers) }
    }

    fn names(cuts: &Cuts, dimension: &str) -> Vec<(String, u64)> {
        let cut = cuts.dimensions.iter().find(|cut| cut.dimension == dimension).expect(dimension);
        cut.values.iter().map(|value| (value.name.clone(), value.visits)).collect()
    }

    #[test]
    fn visits_are_counted_by_the_values_of_every_dimension() {
        let mut sample = Sample { visits: 50, ..Sample::default() };
        sample.names =
            [((0, 1), "example.com"), ((1, 3), "/shop"), ((2, 2), "cable"), ((3, 4), "example.com/shop/*")]
                .map(|(key, name)| (key, name.to_owned()))
                .into();
        sample.experiments.insert(7, ("records".to_owned(), vec!["16 KiB".to_owned(), "4 KiB".to_owned()]));
        for number in 0..10 {
            sample.rows.push(sampled(4.0, 100.0 + f64::from(number), |visit| {
                visit.version = Some(ProtocolVersion::TLS1_3);
                visit.group = Some(NamedGroup::X25519);
                visit.http = Some(HttpVersion::Http2);
                visit.session = Session::Psk;
                visit.early_data = Some(EarlyData::Disabled);
                visit.measures.set(Metric::RoundTrip, 12.0);
            }));
            sample.rows.push(sampled(1.0, 300.0, |visit| {
                visit.session = Session::NewVisitor;
                visit.connection = Connection::Reused;
                visit.browser = Browser::Safari;
            }));
        }
        let cuts = cuts(&sample, Metric::FirstByte);
        assert_eq!((cuts.visits, cuts.sampled, cuts.metric), (50, 20, "ttfb"));
        let one = |name: &str, visits| (name.to_owned(), visits);
        for (dimension, expected) in [
            // Who found a connection open did not wait for the handshake.
            ("session", vec![one("resumed-psk", 40)]),
            ("version", vec![one("TLS 1.3", 40)]),
            ("early-data", vec![one("disabled", 40)]),
            ("group", vec![one("x25519", 40)]),
            ("http", vec![one("HTTP/2.0", 40), one("unknown", 10)]),
            ("connection", vec![one("unknown", 40), one("reused", 10)]),
            ("rtt", vec![one("10-to-20-ms", 40), one("unknown", 10)]),
            ("browser", vec![one("other", 40), one("safari", 10)]),
            ("host", vec![one("example.com", 50)]),
            ("route", vec![one("/shop", 50)]),
            ("network", vec![one("cable", 50)]),
            ("page", vec![one("example.com/shop/*", 50)]),
            ("experiment records", vec![one("4 KiB", 40)]),
        ] {
            assert_eq!(names(&cuts, dimension), expected, "{dimension}");
        }
        let cut = cuts.dimensions.iter().find(|cut| cut.dimension == "http").unwrap();
        let median = cut.values[0].median.unwrap();
        assert!((cut.values[0].share - 0.8).abs() < 1e-9);
        assert!(
            (103.0..107.0).contains(&median.value) && median.low < median.value && median.high > median.value
        );
    }

    #[test]
    fn numbers_that_no_version_of_brisk_wrote_have_a_name() {
        let sample = Sample::default();
        for dimension in Dimension::ALL {
            for number in [0, 9, 200, 60_000] {
                assert!(!dimension.name_of(number, &sample).is_empty(), "{dimension} {number}");
            }
        }
    }

    #[test]
    fn a_long_list_is_cut_short() {
        let mut sample = Sample { visits: 60, ..Sample::default() };
        sample.rows.extend((0..60).map(|host| Sampled { host, ..sampled(1.0, 1.0, |_| ()) }));
        let cuts = cuts(&sample, Metric::FirstByte);
        let hosts = cuts.dimensions.iter().find(|cut| cut.dimension == "host").unwrap();
        assert_eq!((hosts.values.len(), hosts.left_out), (SHOWN, 10));
    }
}
