//! Negotiation of content codings by `Accept-Encoding` (RFC 9110 section 12.5.3).

use http::HeaderValue;

use crate::Coding;

/// Weight of a coding without a `q` parameter. All weights are in thousandths.
const FULL: u16 = 1000;

/// Maximum number of list members that are parsed. Browsers send five; the limit bounds the cost of hostile headers.
const MEMBERS: usize = 64;

/// The codings that a client accepts, with their weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptedCodings {
    codings: [Option<u16>; Coding::ALL.len()],
    identity: Option<u16>,
    others: Option<u16>,
    dictionary: Option<u16>,
}

impl AcceptedCodings {
    /// Parses the values of `Accept-Encoding` of a request. Malformed members are skipped.
    ///
    /// Without the header, only `identity` is accepted. RFC 9110 would allow any coding, but a client without the
    /// header may be too old to support one.
    pub fn of<'v>(values: impl IntoIterator<Item = &'v HeaderValue>) -> Self {
        let mut accepted = Self::default();
        // A member contains no quoted string (RFC 9110 section 12.5.3), so each comma ends one.
        let members = values.into_iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        let members = members.take(MEMBERS).filter_map(|member| std::str::from_utf8(member).ok());
        for member in members {
            accepted.read(member);
        }
        accepted
    }

    /// The coding of `offered` with the highest weight; the first of equal ones. `None` if the client prefers
    /// `identity`.
    pub fn best(&self, offered: &[Coding]) -> Option<Coding> {
        let mut best: Option<(u16, Coding)> = None;
        for coding in offered {
            let weight = self.weight(*coding);
            if weight > 0 && best.is_none_or(|(highest, _)| weight > highest) {
                best = Some((weight, *coding));
            }
        }
        // An unlisted coding is the least preferred, and so is `identity` unless the client lists it.
        best.filter(|(weight, _)| self.identity.is_none_or(|identity| *weight >= identity))
            .map(|(_, coding)| coding)
    }

    /// The weight of a coding in thousandths; 0 if the client does not accept it.
    pub fn weight(&self, coding: Coding) -> u16 {
        self.codings[coding.index()].or(self.others).unwrap_or(0)
    }

    /// Returns whether the client accepts `dcz` (RFC 9842) and prefers no coding of `offered` to it. The wildcard `*`
    /// does not include `dcz`.
    pub fn takes_dictionaries(&self, offered: &[Coding]) -> bool {
        let weight = self.dictionary.unwrap_or(0);
        weight > 0
            && offered.iter().all(|coding| self.weight(*coding) <= weight)
            && self.identity.is_none_or(|identity| identity <= weight)
    }

    /// An `Accept-Encoding` value for an upstream: the accepted codings of `offered`, in the client's order of
    /// preference. `None` if the client accepts none of them or prefers `identity`.
    pub fn narrowed(&self, offered: &[Coding]) -> Option<HeaderValue> {
        self.best(offered)?;
        let mut taken: Vec<_> = offered.iter().filter(|coding| self.weight(**coding) > 0).collect();
        taken.sort_by_key(|coding| FULL.saturating_sub(self.weight(**coding)));
        // Descending weights, so that the choice of the upstream follows the order of the client.
        let weighed =
            |(place, coding): (usize, &&Coding)| format!("{};q=0.{}", coding.name(), 9 - place.min(8));
        let members: Vec<_> = taken.iter().enumerate().map(weighed).collect();
        HeaderValue::try_from(members.join(", ")).ok()
    }

    fn read(&mut self, member: &str) {
        let (name, parameter) = match member.split_once(';') {
            Some((name, parameter)) => (name.trim(), Some(parameter.trim())),
            None => (member.trim(), None),
        };
        // A malformed weight drops its member only: the client stated no usable preference for it.
        let Some(weight) = parameter.map_or(Some(FULL), weight) else { return };
        let place = match Coding::named(name) {
            Some(coding) => &mut self.codings[coding.index()],
            None if name.eq_ignore_ascii_case("identity") => &mut self.identity,
            None if name.eq_ignore_ascii_case("dcz") => &mut self.dictionary,
            None if name == "*" => &mut self.others,
            None => return,
        };
        // For a duplicate, as in `gzip, x-gzip;q=0`, the first member wins.
        place.get_or_insert(weight);
    }
}

/// Parses a weight such as `q=0.5`, with at most three digits after the point (RFC 9110 section 12.4.2).
fn weight(parameter: &str) -> Option<u16> {
    let digits = parameter.strip_prefix("q=").or_else(|| parameter.strip_prefix("Q="))?;
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if part.len() > 3 || !part.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let thousandths = format!("{part:0<3}").parse::<u16>().ok()?;
    match whole {
        "0" => Some(thousandths),
        "1" if thousandths == 0 => Some(FULL),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Coding; 3] = Coding::ALL;

    fn accepted(value: &str) -> AcceptedCodings {
        AcceptedCodings::of([&HeaderValue::from_str(value).expect("a value")])
    }

    #[test]
    fn the_highest_weight_decides_and_then_the_order_of_the_server() {
        for (value, best) in [
            ("gzip, deflate, br, zstd", Some(Coding::Zstd)),
            ("gzip, br", Some(Coding::Brotli)),
            ("gzip;q=1.0, br;q=0.9", Some(Coding::Gzip)),
            ("zstd;q=0.5, br;q=0.8, gzip;q=0.799", Some(Coding::Brotli)),
            ("GZIP ; Q=0.1", Some(Coding::Gzip)),
            ("x-gzip", Some(Coding::Gzip)),
            ("*", Some(Coding::Zstd)),
            ("*;q=0.5, zstd;q=0", Some(Coding::Brotli)),
            ("identity;q=0.5, gzip;q=0.5", Some(Coding::Gzip)),
            ("*;q=0, identity, gzip", Some(Coding::Gzip)),
        ] {
            assert_eq!(accepted(value).best(&ALL), best, "{value}");
        }
    }

    #[test]
    fn what_a_client_does_not_take_is_not_made() {
        for value in [
            "",
            "identity",
            "deflate",
            "gzip;q=0",
            "gzip;q=0.000",
            "*;q=0",
            "identity, gzip;q=0.5",
            "gzip;q=2",
            "gzip;q=0.1234",
            "gzip;q=-1",
            "gzip;level=1",
            "gzipped",
            ",,;q=1,;",
        ] {
            assert_eq!(accepted(value).best(&ALL), None, "{value}");
        }
        assert_eq!(AcceptedCodings::of([]).best(&ALL), None);
        assert_eq!(accepted("br, gzip").best(&[Coding::Zstd]), None, "not offered");
    }

    #[test]
    fn dictionaries_are_for_clients_that_name_them() {
        for (value, taken) in [
            ("gzip, br, zstd, dcb, dcz", true),
            ("dcz;q=0.5, gzip;q=0.5", true),
            ("dcz;q=0.5, gzip", false),
            ("dcz;q=0", false),
            ("*", false),
            ("dcz;q=0.5, identity", false),
        ] {
            assert_eq!(accepted(value).takes_dictionaries(&ALL), taken, "{value}");
        }
    }

    #[test]
    fn several_lines_are_one_list() {
        let lines = [&HeaderValue::from_static("gzip;q=0.5"), &HeaderValue::from_static("br")];
        assert_eq!(AcceptedCodings::of(lines).best(&ALL), Some(Coding::Brotli));
    }

    #[test]
    fn a_narrowed_list_has_what_both_know_in_their_order() {
        let narrowed = |value: &str| accepted(value).narrowed(&[Coding::Brotli, Coding::Zstd, Coding::Gzip]);
        assert_eq!(narrowed("gzip, deflate, br, zstd").expect("some"), "br;q=0.9, zstd;q=0.8, gzip;q=0.7");
        assert_eq!(narrowed("gzip, br;q=0.1").expect("some"), "gzip;q=0.9, br;q=0.8");
        assert_eq!(narrowed("identity, gzip;q=0.1"), None);
    }
}
