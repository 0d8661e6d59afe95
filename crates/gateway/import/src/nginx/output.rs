//! The text of a configuration of brisk.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::Path;

use crate::directive::Directive;
use crate::nginx::context::Context;
use crate::nginx::host::Neighbours;
use crate::nginx::listen::{Server, scope};
use crate::report::Report;

/// The configuration for the servers of one process. `index` and `count` number the files.
pub(crate) fn file(
    http: &[Directive],
    report: &RefCell<Report>,
    servers: &[Server<'_>],
    folder: &Path,
    index: usize,
    count: usize,
) -> String {
    let context = Context::new(http, report, folder);
    let mut secure = servers.iter().filter(|server| server.has_tls());
    // brisk serves each host over HTTPS too. In nginx, a server without TLS needs no certificate.
    let certificates = secure.find_map(|server| context.certificates(&scope(&context.http, server)));
    let all = Neighbours { servers, certificates, has_tls: servers.iter().any(Server::has_tls) };
    let mut text = String::from("# Made by `brisk import nginx`. Comments name the lines of nginx.\n");
    if count > 1 {
        let _ = writeln!(
            text,
            "# File {} of {count}: each needs a process, because brisk serves all hosts at all addresses.",
            index + 1
        );
    }
    // Names of groups are unique in brisk.
    for stream in http.iter().filter(|line| line.name == "stream" && index == 0) {
        // In the first file only (`index`): two processes cannot listen at the same address.
        let own = Context::new(stream.inner(), report, folder);
        own.tables.replace(context.tables.take());
        own.stream(stream);
        context.tables.replace(own.tables.take());
    }
    let service = if servers.is_empty() { Vec::new() } else { context.service(servers) };
    for part in service {
        part.write(&mut text);
    }
    for server in servers {
        for host in context.hosts(server, &all) {
            host.table.write(&mut text);
            host.routes.into_iter().for_each(|own| own.table().write(&mut text));
        }
    }
    for part in context.tables.borrow().iter() {
        part.write(&mut text);
    }
    text
}
