//! The text of a configuration of brisk.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::Path;

use crate::context::{Context, Table};
use crate::grammar::Directive;
use crate::host::Neighbours;
use crate::listen::{Server, scope};
use crate::location::Route;
use crate::report::Report;
use crate::toml;

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
        table(&mut text, &format!("[{}]", part.header), &part);
    }
    for server in servers {
        for host in context.hosts(server, &all) {
            table(&mut text, "[[host]]", &host.table);
            host.routes.iter().for_each(|own| route(&mut text, own));
        }
    }
    for part in context.tables.borrow().iter() {
        table(&mut text, &format!("[{}]", part.header), part);
    }
    text
}

fn comment(text: &mut String, comment: &str) {
    if !comment.is_empty() {
        // A line break would end the comment, and the rest of a text of nginx would be read as TOML.
        let flat: String = comment.chars().map(|next| if next.is_control() { ' ' } else { next }).collect();
        let _ = writeln!(text, "# {}", flat.trim());
    }
}

fn table(text: &mut String, header: &str, part: &Table) {
    text.push('\n');
    comment(text, &part.comment);
    let _ = writeln!(text, "{header}");
    for (key, value) in &part.keys.0 {
        let _ = writeln!(text, "{} = {value}", toml::bare(key));
    }
}

fn route(text: &mut String, route: &Route) {
    text.push('\n');
    comment(text, &route.comment);
    let _ = writeln!(text, "[[host.route]]\npath = {}", toml::text(&route.path));
    if route.exact {
        text.push_str("exact = true\n");
    }
    if !route.when.is_empty() {
        let _ = writeln!(text, "when = {}", route.when.toml());
    }
    for (key, value) in &route.keys.0 {
        let _ = writeln!(text, "{key} = {value}");
    }
}
