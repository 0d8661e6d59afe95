//! `server_timing` and `visits` of hosts: measurements exposed to pages and sent by them.

use brisk_rewrite::Origin;
use http::HeaderValue;

use super::keys::{self, ServerTimingKeys, VisitsKeys};
use crate::features::{Context, HostScope};
use crate::timing::ServerTiming;
use crate::visits::HostVisits;

/// Origins of other pages; each answer names all of them.
const MOST_ORIGINS: usize = 16;

/// Pages that may read the timing of responses of a host.
pub(super) fn server_timing(
    keys: &ServerTimingKeys,
    host: &HostScope<'_>,
    context: &mut Context<'_>,
) -> Option<ServerTiming> {
    let Some(keys::ServerTiming::On(table)) = &keys.server_timing else { return None };
    let path = host.key("server_timing").key("allow_origins");
    if table.allow_origins.len() > MOST_ORIGINS {
        let message =
            format!("{} origins: write at most {MOST_ORIGINS}, or \"*\"", table.allow_origins.len());
        context.findings.wrong(&path, message);
    }
    let mut origins = Vec::new();
    for (index, text) in table.allow_origins.iter().enumerate() {
        if text == "*" {
            origins.push(text.clone());
            continue;
        }
        match text.parse::<Origin>() {
            Ok(origin) => origins.push(origin.to_string()),
            Err(error) => {
                let message = format!("{text:?} is no origin: {error}; \"*\" is all of them");
                context.findings.wrong(&path.index(index), message);
            }
        }
    }
    if origins.len() > 1 && origins.iter().any(|origin| origin == "*") {
        context.findings.wrong(&path, "\"*\" is all of them: leave the others out");
    }
    let joined = (!origins.is_empty()).then(|| HeaderValue::try_from(origins.join(", ")));
    Some(ServerTiming { allowed: joined.transpose().expect("origins are ASCII") })
}

/// Measurements of visits to a host.
pub(super) fn of_host(
    keys: &VisitsKeys,
    host: &HostScope<'_>,
    context: &mut Context<'_>,
) -> Option<HostVisits> {
    let Some(keys::HostVisits::On(table)) = &keys.visits else { return None };
    let path = host.key("visits");
    if table.share.is_some() {
        // Only a check: without a share, that of all hosts counts.
        context.findings.within(&path.key("share"), table.share, 1.0, &(0.0..=1.0));
    }
    Some(HostVisits {
        share: table.share,
        insert: table.insert.unwrap_or(true),
        network_errors: table.network_errors,
    })
}
