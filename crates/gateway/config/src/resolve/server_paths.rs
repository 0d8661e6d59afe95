//! The paths of the servers of an upstream.

use brisk_config_file::KeyPath;
use brisk_upstream_group::settings::ServerSettings;

use super::context::Context;

/// Checks that the servers of a group have the same path: a request that is sent again to another server has one path.
pub(super) fn check_servers(servers: &[ServerSettings], path: &KeyPath, context: &mut Context<'_>) {
    let Some(first) = servers.first() else { return };
    for (index, server) in servers.iter().enumerate() {
        if server.url.path() != first.url.path() {
            let message = format!(
                "has another path than {}: all servers of an upstream have the same; write a second upstream",
                first.url
            );
            context.shared.findings.wrong(&path.index(index), message);
        }
    }
}
