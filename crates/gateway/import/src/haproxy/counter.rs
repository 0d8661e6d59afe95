//! Tests of counters and numbers: `http_req_rate` of a `stick-table`, `conn_cur` of clients, and `body_size`.

use std::sync::Arc;

use crate::haproxy::acl::Conditions;
use crate::haproxy::context::milliseconds;
use crate::haproxy::formula::{Formula, Kind, Rate};
use crate::haproxy::sample::Sample;
use crate::haproxy::template;

/// Beginnings of samples about the load of servers or of the process (`nbsrv`), chance (`rand`), and responses (`status`).
const LOADS: [&str; 21] = [
    "nbsrv",
    "srv_",
    "be_",
    "fe_",
    "avg_queue",
    "queue",
    "connslots",
    "act_conn",
    "rand",
    "res.",
    "status",
    "stopping",
    "date",
    "nbproc",
    "cpu_",
    "uptime",
    "http_first_req",
    "res_",
    "bytes",
    "thread",
    "wait_",
];

/// Beginnings of samples about counters of clients, such as `src_http_err_rate`.
const STATES: [&str; 6] = ["sc_", "sc0_", "sc1_", "sc2_", "src_", "table_"];

impl Conditions<'_, '_> {
    /// Rates as `Formula::Rate` and `Formula::Connections`; other counters are `Formula::Unknown` with their `Kind`.
    pub(crate) fn state(&self, name: &str, sample: &Sample, patterns: &[String]) -> Formula {
        if let Some(formula) = self.connections_of(name, sample, patterns) {
            return formula;
        }
        match self.rate(name, sample, patterns) {
            Some(Ok(formula)) => return formula,
            Some(Err(reason)) => return Formula::Unknown(Kind::State, reason),
            None => {}
        }
        let reason = format!("brisk has no test of {name}");
        let is_one = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
        if is_one(&LOADS) {
            Formula::Unknown(Kind::Load, reason)
        } else if is_one(&STATES) && !matches!(name, "src_is_local" | "src_port") {
            Formula::Unknown(Kind::State, reason)
        } else {
            Formula::unknown(reason)
        }
    }

    /// A rate of requests that exceeds a number: `sc_http_req_rate(0) gt 100`. `None` for other samples.
    fn rate(&self, name: &str, sample: &Sample, patterns: &[String]) -> Option<Result<Formula, String>> {
        let (slot, table) = match name.strip_suffix("http_req_rate")? {
            "src_" => (None, sample.fetch.arg(0)),
            "sc_" => (Some(sample.fetch.arg(0).to_owned()), sample.fetch.arg(1)),
            own => (Some(own.strip_prefix("sc")?.strip_suffix('_')?.to_owned()), sample.fetch.arg(0)),
        };
        let most = match patterns {
            [operator, number] => number.parse::<u64>().ok().and_then(|number| match operator.as_str() {
                "gt" => Some(number),
                "ge" => number.checked_sub(1),
                _ => None,
            }),
            _ => None,
        };
        let Some(requests) = most.filter(|most| *most > 0) else {
            return Some(Err("brisk refuses requests above a rate only".to_owned()));
        };
        Some(self.counted_rate(slot.as_deref(), table, requests))
    }

    /// Numbers and rates of the connections of a client: `src_conn_cur gt 10` is `Formula::Connections(10, None)`.
    fn connections_of(&self, name: &str, sample: &Sample, patterns: &[String]) -> Option<Formula> {
        let start = name.strip_suffix("conn_cur").or_else(|| name.strip_suffix("conn_rate"))?;
        let is_own = start == "src_" || start.starts_with("sc");
        let most = match patterns {
            [operator, number] => number.parse::<u64>().ok().and_then(|number| match operator.as_str() {
                "gt" => Some(number),
                "ge" => number.checked_sub(1),
                _ => None,
            }),
            _ => None,
        };
        let most = most.filter(|most| *most > 0 && is_own)?;
        if name.ends_with("cur") {
            return Some(Formula::Connections(most, None));
        }
        let table = sample.fetch.args.last().filter(|name| self.context.table_of(name).is_some());
        let line = self.stick_table(table.map_or("", String::as_str))?;
        let mut stored = line.args.iter().flat_map(|arg| arg.split(','));
        let period = stored.find_map(|part| part.strip_prefix("conn_rate(")?.strip_suffix(')'));
        Some(Formula::Connections(most, Some(milliseconds(period?)?)))
    }

    /// The `Formula::Rate` with the key of `track-sc0` for a `slot`, and the period of `store http_req_rate(10s)`.
    fn counted_rate(&self, slot: Option<&str>, table: &str, requests: u64) -> Result<Formula, String> {
        let (mut table, mut by, mut condition) =
            (table.to_owned(), "{client.address}".to_owned(), Formula::True);
        if let Some(slot) = slot {
            let word = format!("track-sc{slot}");
            let rules =
                self.proxy.lines().filter(|line| matches!(&*line.name, "http-request" | "tcp-request"));
            let mut tracked: Option<(String, String)> = None;
            condition = Formula::False;
            for line in rules {
                let Some(at) = line.args.iter().position(|arg| *arg == word) else { continue };
                if !self.context.step(100) {
                    return Err("the rules are too many".to_owned());
                }
                // The condition may test the counter itself.
                if self.is_tracking.replace(true) {
                    return Err("the rule that tracks a counter tests counters".to_owned());
                }
                let (words, own) = self.of_rule(&line.args);
                self.is_tracking.set(false);
                let key = words.get(at + 1).cloned().unwrap_or_default();
                let place = words.iter().position(|word| word == "table");
                let of =
                    place.map_or(table.clone(), |place| words.get(place + 1).cloned().unwrap_or_default());
                if tracked.as_ref().is_some_and(|known| *known != (key.clone(), of.clone())) {
                    return Err(format!("rules track the counter {slot} by different keys"));
                }
                tracked = Some((key, of));
                condition = Formula::any([condition, own]);
            }
            let (key, of) = tracked.ok_or(format!("no rule tracks the counter {slot}"))?;
            let sample = Sample::read(&key).ok_or("the key has no counterpart")?;
            by = template::variable(&self.resolved(sample)?).ok_or(format!("brisk has no key for {key}"))?;
            table = of;
        }
        let line = self.stick_table(&table).ok_or("there is no stick-table")?;
        let stored = line.args.iter().position(|arg| arg == "store").map_or("", |at| line.arg(at + 1));
        let stored =
            stored.split(',').find_map(|part| part.strip_prefix("http_req_rate(")?.strip_suffix(')'));
        let period = stored.and_then(milliseconds).filter(|period| *period > 0);
        let period = period.ok_or("the stick-table does not store http_req_rate")?;
        self.context.carried(line);
        let table = if table.is_empty() { self.proxy.name().to_owned() } else { table };
        let rate = Formula::Rate(Arc::new(Rate { requests, period, by, table }));
        Ok(Formula::all([condition, rate]))
    }
}

/// Sizes of bodies: `body_size gt 1000` is `Formula::Longer(1000)`.
pub(crate) fn size(sample: &Sample, patterns: &[String]) -> Formula {
    let is_length = sample.name() == "body_size"
        || (sample.name() == "hdr_val" && sample.fetch.arg(0).eq_ignore_ascii_case("content-length"));
    match patterns {
        [operator, number] if is_length => match (operator.as_str(), number.parse::<u64>()) {
            ("gt", Ok(most)) => Formula::Longer(most),
            ("ge", Ok(most)) if most > 0 => Formula::Longer(most - 1),
            _ => Formula::unknown("brisk limits the size of bodies from above only"),
        },
        _ => Formula::unknown("brisk does not compare numbers of headers"),
    }
}

/// Numbers and ranges with operators: `80:90` is `(80, 90)`, and `gt 5` is `(6, u64::MAX)`.
pub(crate) fn numbers(patterns: &[String]) -> Option<Vec<(u64, u64)>> {
    let mut ranges = Vec::new();
    let mut operator = "eq";
    for text in patterns {
        if matches!(&**text, "eq" | "ge" | "gt" | "le" | "lt") {
            operator = text;
            continue;
        }
        let (low, high) = match text.split_once(':') {
            Some((low, high)) => (low.parse().ok()?, high.parse().ok()?),
            None => (text.parse::<u64>().ok()?, text.parse().ok()?),
        };
        ranges.push(match operator {
            "ge" => (low, u64::MAX),
            "gt" => (low.checked_add(1)?, u64::MAX),
            "le" => (0, high),
            "lt" => (0, high.checked_sub(1)?),
            _ => (low, high),
        });
    }
    Some(ranges)
}
