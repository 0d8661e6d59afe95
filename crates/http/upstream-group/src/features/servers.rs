//! `servers` of groups.

mod keys;

use brisk_config_file::KeyPath;
use brisk_dns::Question;
use brisk_http::server_url::{ServerAddress, ServerUrl};

use super::{Context, GroupScope};
pub use keys::{ServersKeys, UpstreamServer};

/// One server of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSettings {
    /// The address of the server.
    pub url: ServerUrl,
    /// Share of the requests, in proportion to the other weights. At least 1; 0 counts as 1.
    pub weight: u32,
    /// Whether the server gets requests only while no other server of the group is available. Default: `false`.
    pub is_backup: bool,
    /// Whether each address of the host is a server of its own, and DNS is asked for them again when they expire. Otherwise
    /// every connection asks the system. Default: no. Only for TCP; a service ([`ServerAddress::Service`]) is always resolved.
    pub resolves: bool,
}

impl ServerSettings {
    /// A server with weight 1 that is no backup.
    pub fn new(url: ServerUrl) -> Self {
        Self { url, weight: 1, is_backup: false, resolves: false }
    }

    /// The question to DNS about the servers of this entry; `None` if DNS names none.
    pub(crate) fn question(&self) -> Option<Question<'_>> {
        match self.url.address() {
            ServerAddress::Service(name) => Some(Question::Service(name)),
            ServerAddress::Tcp(target) if self.resolves => {
                Some(Question::Host(self.url.authority().host(), target.port()))
            }
            ServerAddress::Tcp(_) | ServerAddress::Unix(_) => None,
        }
    }
}

/// Resolves the servers of a group.
pub(super) fn resolve(
    keys: &ServersKeys,
    group: &GroupScope<'_>,
    context: &mut Context<'_, '_>,
) -> Vec<ServerSettings> {
    let path = group.key("servers");
    if keys.servers.is_empty() {
        context.findings.wrong(&path, "no server: write at least one, as \"http://127.0.0.1:8080\"");
    } else if keys.servers.iter().all(|server| server.backup) {
        context.findings.wrong(
            &path,
            "every server is a backup: remove `backup` from those that should get requests at all times",
        );
    }
    let servers = keys.servers.iter().enumerate();
    let servers: Vec<_> =
        servers.map(|(index, server)| member(server, &path.index(index), context)).collect();
    check_alike(&servers, &path, context);
    servers
}

fn member(raw: &UpstreamServer, path: &KeyPath, context: &mut Context<'_, '_>) -> ServerSettings {
    let weight = context.findings.within(&path.key("weight"), raw.weight, 1, &(1..=1000));
    let is_service = matches!(raw.url.address(), ServerAddress::Service(_));
    if is_service && raw.weight.is_some() {
        context
            .findings
            .wrong(&path.key("weight"), "has no effect: the weights of a service come from its SRV records");
    }
    let has_name = match raw.url.address() {
        ServerAddress::Tcp(target) => target.address().is_none(),
        ServerAddress::Service(_) => true,
        ServerAddress::Unix(_) => false,
    };
    if raw.resolve && !has_name {
        let message = format!("has no effect: {} has no name that DNS could resolve", raw.url);
        context.findings.wrong(&path.key("resolve"), message);
    }
    ServerSettings {
        url: raw.url.clone(),
        weight: weight.into(),
        is_backup: raw.backup,
        resolves: raw.resolve,
    }
}

/// Checks that the servers of a group are alike: a request that is sent again to another server is the same there.
fn check_alike(servers: &[ServerSettings], path: &KeyPath, context: &mut Context<'_, '_>) {
    let Some(first) = servers.first().map(|server| &server.url) else { return };
    for (index, ServerSettings { url, .. }) in servers.iter().enumerate() {
        let message = if url.scheme().is_stream() != first.scheme().is_stream() {
            format!(
                "is not for the same connections as {first}: tcp:// and tls:// are for [[tcp]], all others for routes; write a \
                 second upstream"
            )
        } else if url.scheme().cgi() != first.scheme().cgi() {
            format!(
                "has another protocol than {first}: a server of FastCGI, uwsgi or SCGI has none of another protocol beside it; \
                 write a second upstream"
            )
        } else if url.path() != first.path() {
            format!(
                "has another path than {first}: all servers of an upstream have the same; write a second upstream"
            )
        } else {
            continue;
        };
        context.findings.wrong(&path.index(index), message);
    }
}
