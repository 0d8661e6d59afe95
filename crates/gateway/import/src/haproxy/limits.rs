//! Limits of requests: `[limit.NAME]` for the rate of a `stick-table`.

use crate::directive::Directive;
use crate::haproxy::context::Context;
use crate::haproxy::formula::Rate;
use crate::toml::{self, Keys};

/// A rate of brisk for `requests` in a `period` of milliseconds: `20/m` for 20 and 60,000.
pub(crate) fn rate(requests: u64, period: u64) -> String {
    let units = [("s", 1000_u64), ("m", 60_000), ("h", 3_600_000)];
    let exact = units.iter().find(|(_, unit)| {
        requests.checked_mul(*unit).is_some_and(|product| product % period == 0 && product / period > 0)
    });
    // Without an exact unit, the number is rounded up: the rate is never lower than that of HAProxy.
    let (unit, length) = exact.copied().unwrap_or(("h", 3_600_000));
    let number = (u128::from(requests) * u128::from(length)).div_ceil(u128::from(period));
    let number = number.clamp(1, 1_000_000_000);
    if number == u128::from(requests) {
        return format!("{number}/{unit}");
    }
    format!("{number}/{unit} burst {}", requests.min(1_000_000_000))
}

impl Context<'_> {
    /// The name of a `[limit.NAME]` for a `Rate`, with `status` unless it is 429.
    pub(crate) fn limit(&self, rate_of: &Rate, status: u16, line: &Directive) -> String {
        let mut keys = Keys::of("rate", toml::text(&rate(rate_of.requests, rate_of.period)));
        if rate_of.by != "{client.address}" {
            keys.set("by", toml::text(&rate_of.by));
        }
        if status != 429 {
            keys.set("status", status.to_string());
        }
        let detail = "brisk refills the rate evenly, and refused requests do not count; without `track` of other keys, an IPv6 /64 is one client";
        self.different(line, detail);
        self.named("limit", &toml::name(&rate_of.table), &keys, line)
    }
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn rates_have_the_smallest_exact_unit() {
        for (requests, period, expected) in [
            (100, 10_000, "10/s burst 100"),
            (20, 60_000, "20/m"),
            (10, 1000, "10/s"),
            (100, 15_000, "400/m burst 100"),
            (7, 86_400_000, "1/h burst 7"),
        ] {
            assert_eq!(rate(requests, period), expected);
        }
    }
}
