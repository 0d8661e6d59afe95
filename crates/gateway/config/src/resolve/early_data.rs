//! The amount of early data (RFC 8470) of hosts, which depends on `[tls]` and `[sessions]`.

use brisk_answer::features::early_data::EarlyData;
use brisk_config_file::{KeyPath, Size};

use super::context::Context;
use crate::raw;

/// Early data accepted of one client unless another limit is written.
const USUAL: Size = Size(16 << 10);

/// Whether the host or one of its routes allows early data.
pub(super) fn is_allowed(host: &raw::Host) -> bool {
    let routes = host.routes().iter().map(|route| route.early_data.early_data.as_ref());
    routes.chain([host.features.early_data.early_data.as_ref()]).any(allows)
}

fn allows(written: Option<&EarlyData>) -> bool {
    !matches!(written, None | Some(EarlyData::No))
}

/// Maximum early data per connection of the host whose table is at `path`, in bytes: 0 unless the host or one of its
/// routes allows early data.
pub(super) fn limit(raw: &raw::Config, host: &raw::Host, path: &KeyPath, context: &mut Context<'_>) -> u32 {
    let route = host.routes().iter().position(|route| allows(route.early_data.early_data.as_ref()));
    let path = match route {
        // Blames the key that was written: the host has it for all routes, otherwise the first route with it.
        _ if allows(host.features.early_data.early_data.as_ref()) => path.key("early_data"),
        Some(index) => path.key("route").index(index).key("early_data"),
        None => return 0,
    };
    let findings = &mut context.shared.findings;
    // Early data may be replayed (RFC 8446 section 8): a copied flight would act in the name of a
    // certificate.
    if host.features.client_certificates.client_certificates.is_some() {
        let message = "not on a host with client_certificates: a request would be answered before its client has proved \
                       again who it is";
        findings.wrong(&path, message);
    }
    if raw.tls.session_cache.entries == Some(0) && !findings.written(&KeyPath::of("sessions").key("redis")) {
        let message = "nothing keeps the sessions that early data comes with: tls.session_cache.entries is 0, and there \
                       is no [sessions.redis]";
        findings.wrong(&path, message);
    }
    if raw.tls.tickets_per_handshake == Some(0) {
        findings.wrong(&path, "has no effect with tls.tickets_per_handshake = 0: no client can resume");
    }
    // The range is checked once, by `size`, and not for each host.
    raw.tls.early_data_size.unwrap_or(USUAL).0.try_into().unwrap_or(u32::MAX)
}

/// The limit that is written is one, and acts on something.
pub(super) fn size(raw: &raw::Config, context: &mut Context<'_>) {
    let path = KeyPath::of("tls").key("early_data_size");
    let sizes = Size(1 << 10)..=Size(1 << 20);
    context.shared.findings.within(&path, raw.tls.early_data_size, USUAL, &sizes);
    if raw.tls.early_data_size.is_some() && !raw.host.iter().any(is_allowed) {
        context.shared.findings.wrong(&path, "has no effect: no route has `early_data`");
    }
}
