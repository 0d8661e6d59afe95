//! Encoding of a visit as a row of fixed length. Names are replaced by their numbers in the database.

use brisk_telemetry::EarlyData;
use brisk_wire::HttpVersion;

use crate::metric::{METRICS, Measures};
use crate::visit::Visit;

/// Maximum number of arms in a [`Row`]; further ones of a visit are not stored.
pub(crate) const ARMS: usize = 4;
/// Kinds with fewer than 16 values, in whose upper halves a row has the number of its page. Rows of earlier versions
/// have zeros there, which is no page, so that databases keep their rows.
const HALVES: usize = 4;
/// Length of a row in bytes.
pub(crate) const LENGTH: usize = 2 * (3 + 2) + 9 + 3 * ARMS + 2 * METRICS;

/// A [`Visit`] with a number for each value; `0` is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) version: u16,
    pub(crate) suite: u16,
    pub(crate) group: u16,
    pub(crate) route: u16,
    pub(crate) network: u16,
    pub(crate) page: u16,
    pub(crate) http: u8,
    pub(crate) session: u8,
    pub(crate) early_data: u8,
    pub(crate) connection: u8,
    pub(crate) certificate: u8,
    pub(crate) window: u8,
    pub(crate) browser: u8,
    pub(crate) device: u8,
    pub(crate) navigation: u8,
    /// Numbers of experiments, 0 for none, with their arms.
    pub(crate) arms: [(u16, u8); ARMS],
    pub(crate) measures: Measures,
}

/// Numbers of a visit's names.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Numbers {
    pub(crate) route: u16,
    pub(crate) network: u16,
    pub(crate) page: u16,
    pub(crate) arms: [(u16, u8); ARMS],
}

impl Row {
    pub(crate) fn new(visit: &Visit, numbers: Numbers) -> Self {
        Self {
            version: visit.version.map_or(0, Into::into),
            suite: visit.suite.map_or(0, Into::into),
            group: visit.group.map_or(0, Into::into),
            route: numbers.route,
            network: numbers.network,
            page: numbers.page,
            http: visit.http.map_or(0, http_number),
            session: visit.session as u8,
            early_data: visit.early_data.map_or(0, early_data_number),
            connection: visit.connection as u8,
            certificate: visit.certificate as u8,
            window: visit.window as u8,
            browser: visit.browser as u8,
            device: visit.device as u8,
            navigation: visit.navigation as u8,
            arms: numbers.arms,
            measures: visit.measures,
        }
    }

    /// Appends the row to `bytes`.
    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        for number in [self.version, self.suite, self.group, self.route, self.network] {
            bytes.extend(number.to_le_bytes());
        }
        let mut halves: [u8; HALVES] = [self.http, self.early_data, self.connection, self.certificate];
        for (place, half) in halves.iter_mut().enumerate() {
            *half = *half & 0xf | (self.page >> (4 * place) << 4) as u8;
        }
        let [http, early_data, connection, certificate] = halves;
        bytes.extend([http, self.session, early_data, connection, certificate]);
        bytes.extend([self.window, self.browser, self.device, self.navigation]);
        for (experiment, arm) in self.arms {
            bytes.extend(experiment.to_le_bytes());
            bytes.push(arm);
        }
        bytes.extend(self.measures.codes().iter().flat_map(|code| code.to_le_bytes()));
    }

    /// Decodes a row written by [`write`](Self::write).
    pub(crate) fn read(bytes: &[u8; LENGTH]) -> Self {
        let mut reader = Bytes(bytes);
        let [version, suite, group, route, network] = std::array::from_fn(|_| reader.u16());
        let kinds: [u8; 9] = std::array::from_fn(|_| reader.u8());
        let [
            mut http,
            session,
            mut early_data,
            mut connection,
            mut certificate,
            window,
            browser,
            device,
            navigation,
        ] = kinds;
        let halves: [&mut u8; HALVES] = [&mut http, &mut early_data, &mut connection, &mut certificate];
        let page = halves.into_iter().rev().fold(0, |page, half| {
            let upper = *half >> 4;
            *half &= 0xf;
            page << 4 | u16::from(upper)
        });
        Self {
            version,
            suite,
            group,
            route,
            network,
            page,
            http,
            session,
            early_data,
            connection,
            certificate,
            window,
            browser,
            device,
            navigation,
            arms: std::array::from_fn(|_| (reader.u16(), reader.u8())),
            measures: Measures::of_codes(std::array::from_fn(|_| reader.u16())),
        }
    }
}

/// Remaining bytes of a row. Reading past the end returns 0, which [`LENGTH`] prevents.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u8(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }
}

const HTTP: [HttpVersion; 4] =
    [HttpVersion::Http10, HttpVersion::Http11, HttpVersion::Http2, HttpVersion::Http3];
const EARLY_DATA: [EarlyData; 4] =
    [EarlyData::Accepted, EarlyData::Disabled, EarlyData::NotResumed, EarlyData::Unsuitable];

fn http_number(version: HttpVersion) -> u8 {
    // The numbers are stored in databases: a new version gets a new number, and none is ever changed.
    match version {
        HttpVersion::Http10 => 1,
        HttpVersion::Http11 => 2,
        HttpVersion::Http2 => 3,
        HttpVersion::Http3 => 4,
    }
}

fn early_data_number(outcome: EarlyData) -> u8 {
    // Stored in databases, as those of versions.
    match outcome {
        EarlyData::Accepted => 1,
        EarlyData::Disabled => 2,
        EarlyData::NotResumed => 3,
        EarlyData::Unsuitable => 4,
    }
}

/// The HTTP version with this number.
pub(crate) fn http(number: u8) -> Option<HttpVersion> {
    HTTP.get(usize::from(number).checked_sub(1)?).copied()
}

/// The outcome of early data with this number.
pub(crate) fn early_data(number: u8) -> Option<EarlyData> {
    EARLY_DATA.get(usize::from(number).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion};

    use super::*;
    use crate::metric::Metric;
    use crate::{Browser, CertificateType, Connection, Device, Navigation, Session, Window};

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let mut visit = Visit::new("example.com".into(), "/".into());
        visit.version = Some(ProtocolVersion::TLS1_3);
        visit.suite = Some(CipherSuite::TLS_AES_128_GCM_SHA256);
        visit.group = Some(NamedGroup::X25519MLKEM768);
        visit.http = Some(HttpVersion::Http2);
        visit.session = Session::EarlyData;
        visit.early_data = Some(EarlyData::Accepted);
        visit.connection = Connection::New;
        visit.certificate = CertificateType::Ecdsa;
        visit.window = Window::UpTo10;
        visit.browser = Browser::Robot;
        visit.device = Device::Desktop;
        visit.navigation = Navigation::Restore;
        for (number, metric) in Metric::ALL.iter().enumerate() {
            visit.measures.set(*metric, number as f64 * 1.5);
        }
        let numbers =
            Numbers { route: 300, network: 2, page: 0xfedc, arms: [(1, 0), (700, 7), (0, 0), (0, 0)] };
        let row = Row::new(&visit, numbers);
        let mut bytes = Vec::new();
        row.write(&mut bytes);
        assert_eq!(Row::read(bytes[..].try_into().unwrap()), row);
        assert_eq!((http(row.http), early_data(row.early_data)), (visit.http, visit.early_data));
    }

    #[test]
    fn a_row_without_a_page_is_as_before_pages_were_stored() {
        let mut visit = Visit::new("example.com".into(), "/".into());
        (visit.http, visit.connection) = (Some(HttpVersion::Http3), Connection::Reused);
        let mut bytes = Vec::new();
        Row::new(&visit, Numbers::default()).write(&mut bytes);
        assert_eq!((bytes.len(), &bytes[10..15]), (LENGTH, &[4, 0, 0, 2, 0][..]));
        assert_eq!(Row::read(bytes[..].try_into().unwrap()).page, 0);
        assert!(HTTP.len() < 16 && EARLY_DATA.len() < 16);
        assert!(Connection::ALL.len() <= 16 && CertificateType::ALL.len() <= 16);
    }

    #[test]
    fn numbers_are_those_of_their_values() {
        for version in HttpVersion::ALL {
            assert_eq!(http(http_number(version)), Some(version));
        }
        for outcome in EarlyData::ALL {
            assert_eq!(early_data(early_data_number(*outcome)), Some(*outcome));
        }
        assert_eq!((http(0), early_data(0), http(5), early_data(9)), (None, None, None, None));
    }
}
