//! Outputs of the access log for the requests of a host or route; none for requests such as checks of load balancers.

mod keys;

use brisk_config_file::KeyPath;
use brisk_telemetry::LogOutputs;

use super::{Context, HostFeature, HostScope, RouteFeature, RouteScope};
use crate::exchange::Exchange;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};
pub use keys::{AccessLogKeys, LoggedTo};

/// `access_log` of hosts and routes.
#[derive(Debug)]
pub struct AccessLogFeature;

impl HostFeature for AccessLogFeature {
    type Keys = AccessLogKeys;
    type Settings = LogOutputs;

    fn resolve(keys: &AccessLogKeys, host: &HostScope<'_>, context: &mut Context<'_>) -> LogOutputs {
        outputs(keys, &host.key("access_log"), context).unwrap_or_default()
    }
}

impl RouteFeature for AccessLogFeature {
    type Keys = AccessLogKeys;
    type Settings = LogOutputs;

    fn resolve(keys: &AccessLogKeys, route: &RouteScope<'_>, context: &mut Context<'_>) -> LogOutputs {
        let own = outputs(keys, &route.key("access_log"), context);
        own.unwrap_or(route.host.settings.log_outputs)
    }
}

fn outputs(keys: &AccessLogKeys, path: &KeyPath, context: &mut Context<'_>) -> Option<LogOutputs> {
    let names = match keys.access_log.as_ref()? {
        LoggedTo::All(true) => return Some(LogOutputs::All),
        LoggedTo::All(false) => return Some(LogOutputs::NONE),
        LoggedTo::Outputs(names) => names,
    };
    if names.is_empty() {
        context.findings.wrong(path, "an empty list: write false for requests without lines");
    }
    let mut bits = 0;
    for (number, name) in names.iter().enumerate() {
        // A bit for each output: there are at most 62 of them.
        let found = context.log_outputs.iter().enumerate().filter(|(_, own)| own.as_deref() == Some(name));
        let found = found.fold(0, |bits, (index, _)| bits | 1 << index);
        if found == 0 {
            let message = format!(
                "no output of the access log has the name {name:?}: write [[access_log.output]] with name = {name:?}"
            );
            context.findings.wrong(&path.index(number), message);
        }
        bits |= found;
    }
    Some(LogOutputs::Listed(bits))
}

/// Selects the outputs for the line of a request. Compiled if the route has the setting, or, for requests without a route, the host.
#[derive(Debug)]
pub(crate) struct LogOutputsStage(LogOutputs);

impl Stage for LogOutputsStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        // An internal route keeps the outputs of the route that the client has requested.
        let outputs = match context.first_route() {
            Some(route) => route.log_outputs,
            None => context.unrouted_host()?.log_outputs,
        };
        (outputs != LogOutputs::All).then_some(Self(outputs))
    }

    fn request(&self, exchange: &mut Exchange, _: &mut ClientRequest, _: &mut RequestState) -> Flow {
        exchange.log_to(self.0);
        Flow::Continue
    }
}
