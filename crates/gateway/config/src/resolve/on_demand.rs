//! `on_demand` of a host: names accepted at run time.

use std::sync::Arc;
use std::time::Duration;

use brisk_acme::{DemandSettings, KeyKind, OnDemandHost, OrderRate};
use brisk_answer::settings::HostSettings;
use brisk_certs::on_demand::NamePattern;
use brisk_certs::{OnDemand, OnDemandSettings};
use brisk_config_file::{KeyPath, Period};

use super::context::Context;
use crate::raw;

/// Orders unless others are written: a platform grows by some names a minute, and authorities limit the rest.
const ORDERS: OrderRate = OrderRate { interval: Duration::from_secs(6), burst: 10 };

/// Names unless others are written.
const MOST: u32 = 10_000;

/// Default and maximum wait of a handshake for its certificate; the rest of the handshake needs time too.
const WAIT: (Period, Period) = (Period(Duration::from_secs(5)), Period(Duration::from_mins(1)));

/// Names that a host serves on demand.
pub(super) fn names(host: &raw::Host, path: &KeyPath, context: &mut Context<'_>) -> Option<Arc<OnDemand>> {
    let own = host.own.on_demand.as_ref()?;
    let path = path.key("on_demand");
    let wait = context.shared.findings.within(
        &path.key("wait"),
        own.wait,
        WAIT.0,
        &(Period(Duration::ZERO)..=WAIT.1),
    );
    let names = patterns(own, &path.key("names"), context);
    let host = host.names().first().cloned().unwrap_or_default();
    // With equal settings, this is the object from before a reload, so certificates in memory stay.
    Some(context.running.on_demand.open(OnDemandSettings { host, names, wait: wait.0 }))
}

fn patterns(own: &raw::OnDemand, path: &KeyPath, context: &mut Context<'_>) -> Vec<NamePattern> {
    if own.names.is_empty() && !context.shared.findings.written(&path.index(0)) {
        let message = "no name that may be asked for: write [\"*.example.com\"], or [\"*\"] for every name that `ask` allows";
        context.shared.findings.wrong(path, message);
    }
    let mut patterns = Vec::new();
    for (index, text) in own.names.iter().enumerate() {
        match text.parse() {
            Ok(pattern) => patterns.push(pattern),
            Err(message) => context.shared.findings.wrong(&path.index(index), message),
        }
    }
    patterns
}

/// The check for the names of a host that are accepted at run time; `None` if there are none.
pub(super) fn decided(
    host: &raw::Host,
    resolved: &HostSettings,
    keys: &[KeyKind],
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<OnDemandHost> {
    let (own, names) = (host.own.on_demand.as_ref()?, resolved.tls.on_demand.clone()?);
    let path = path.key("on_demand");
    let most = context.shared.findings.within(&path.key("most"), own.most, MOST, &(1..=1_000_000));
    let settings = DemandSettings {
        ask: address(own, &path, context),
        orders: own.orders.map_or(ORDERS, |own| OrderRate { interval: own.0.interval, burst: own.0.burst }),
        most: most as usize,
        keys: keys.to_vec(),
        profile: None,
    };
    Some(OnDemandHost { names, settings })
}

/// Resolves `ask`, which is mandatory: without it any client could make brisk order certificates for any name.
fn address(own: &raw::OnDemand, path: &KeyPath, context: &mut Context<'_>) -> String {
    let example = "\"http://127.0.0.1:8000/may-have-certificate\"";
    let Some(ask) = &own.ask else {
        let message = format!(
            "needs `ask`, the address of a server that answers 200 for names that are served: {example}"
        );
        context.shared.findings.incomplete(path, &message);
        return String::new();
    };
    let is_url = ask.parse::<http::Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    });
    // `Uri` drops a fragment in silence, so the text is searched.
    if !is_url || ask.contains('#') {
        let message = format!("{ask:?} is no address that can be asked: write one as {example}");
        context.shared.findings.wrong(&path.key("ask"), message);
    }
    ask.clone()
}
