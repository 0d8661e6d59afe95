//! Audits as text, HTML pages, JSON, SARIF and `JUnit`.

mod ci;
mod page;

use brisk_report::figures::count;
use brisk_report::{Table, json};
use brisk_telemetry::changes_display;

pub use ci::{junit, sarif};
pub use page::html;

use crate::catalogue::Severity;
use crate::{Audit, Caa, Differences, PlainHttp};

/// The [`Audit`] as JSON.
pub fn json(audit: &Audit) -> String {
    json::document(audit)
}

/// The audit as text of at most `width` columns.
pub fn text(audit: &Audit, width: usize) -> String {
    let mut text = format!("{} ({}), {}\n\n", audit.host, audit.address, audit.time);
    for table in tables(audit) {
        text.push_str(&table.to_text(width));
        text.push('\n');
    }
    // Servers are quoted, and terminals obey such characters.
    text.retain(|letter| letter == '\n' || !changes_display(letter));
    text
}

/// [`Table`]s of grade, findings and results.
pub(crate) fn tables(audit: &Audit) -> Vec<Table> {
    let mut all = vec![grade(audit)];
    all.extend(audit.differences.as_ref().map(differences));
    all.extend([findings(audit), protocols(audit), keys(audit)]);
    all.extend(audit.certificates.iter().map(certificate));
    all.extend(audit.caa.iter().map(caa));
    all.extend([clients(audit), behaviour(audit)]);
    all
}

/// One line for each host: grade, number of findings by severity, the worst finding.
pub fn summary(audits: &[(String, Result<Audit, String>)], width: usize) -> String {
    let severities = [Severity::Critical, Severity::High, Severity::Medium, Severity::Low, Severity::Info];
    let mut table = Table::new(format!("Audits of {} hosts", audits.len())).text("host").text("grade");
    table = table.figures(severities.map(|severity| severity.to_string())).text("worst");
    for (host, audited) in audits {
        match audited {
            Err(reason) => {
                let none = severities.map(|_| String::new());
                let cells = [host.clone(), "none".to_owned()].into_iter().chain(none).chain([reason.clone()]);
                table.row(cells);
            }
            Ok(audit) => {
                let of = |severity| {
                    audit.findings.iter().filter(|finding| finding.kind.severity == severity).count()
                };
                let counts = severities.map(|severity| of(severity).to_string());
                let worst = audit.findings.first().map_or("", |finding| finding.kind.id).to_owned();
                table.row(
                    [host.clone(), audit.grade.letter.to_string()].into_iter().chain(counts).chain([worst]),
                );
            }
        }
    }
    let mut text = table.to_text(width);
    text.retain(|letter| letter == '\n' || !changes_display(letter));
    text
}

fn differences(differences: &Differences) -> Table {
    let mut table = Table::new(format!("Differences since {}", differences.since)).text("").text("");
    if differences.is_empty() {
        table.row(["none"]);
    }
    if let Some(grade) = &differences.grade {
        table.row(["grade before", grade]);
    }
    for (name, all) in [
        ("new finding", &differences.new_findings),
        ("gone finding", &differences.gone_findings),
        ("added", &differences.added),
        ("removed", &differences.removed),
    ] {
        for one in all {
            table.row([name, one]);
        }
    }
    table
}

fn clients(audit: &Audit) -> Table {
    let mut table = Table::new("Known clients").text("client").text("version").text("suite");
    for result in &audit.clients {
        let remark = match (result.forward_secrecy, result.post_quantum) {
            (Some(false), _) => ", no forward secrecy",
            (_, Some(true)) => ", post-quantum",
            _ => "",
        };
        let suite = format!("{}{remark}", result.suite.unwrap_or("nothing in common"));
        table.row([result.client, result.version.as_deref().unwrap_or("none"), &suite]);
    }
    table.note("Computed from the accepted versions and suites, without connections; certificates are not considered.");
    table
}

fn grade(audit: &Audit) -> Table {
    let grade = &audit.grade;
    let mut table = Table::new(format!("Grade {}", grade.letter)).text("").text("");
    if grade.if_trusted != grade.letter {
        table.row(["with a trusted certificate".to_owned(), grade.if_trusted.to_string()]);
    }
    table.row([
        "scores".to_owned(),
        format!(
            "{} of 100 (protocol {}, key exchange {}, cipher {})",
            grade.score, grade.protocol, grade.key_exchange, grade.cipher
        ),
    ]);
    for reason in &grade.reasons {
        table.row(["", reason]);
    }
    table.note(format!("By the {}.", grade.guide));
    table
}

fn findings(audit: &Audit) -> Table {
    if audit.findings.is_empty() {
        let mut table = Table::new("Findings").text("");
        table.row(["none"]);
        return table;
    }
    let mut table =
        Table::new(format!("Findings ({})", audit.findings.len())).text("severity").text("id").text("");
    for finding in &audit.findings {
        let kind = &finding.kind;
        table.row([kind.severity.to_string(), kind.id.to_owned(), kind.what.to_owned()]);
        table.row([String::new(), String::new(), format!("seen: {}", finding.evidence)]);
        // Nothing to do with brisk, which applies it by itself.
        if !kind.is_automatic() {
            table.row([String::new(), String::new(), format!("brisk: {}", kind.brisk)]);
        }
        table.row([String::new(), String::new(), format!("nginx: {}", kind.nginx)]);
    }
    table
}

fn protocols(audit: &Audit) -> Table {
    let mut table = Table::new("Versions and suites").text("version").text("suite").figure("bits").text("");
    if audit.protocols.sslv2 {
        table.row(["SSL 2.0"]);
    }
    for own in audit.protocols.versions.iter().rev() {
        if !own.offered {
            let verdict = if own.unanswered == 0 { "not spoken" } else { "not known: no answer" };
            table.row([own.name.as_str(), verdict]);
        } else if own.unanswered > 0 {
            table.row([own.name.as_str(), "perhaps more: hellos without an answer"]);
        }
        for (index, suite) in own.suites.iter().enumerate() {
            let name = if index == 0 { own.name.as_str() } else { "" };
            let remark = if suite.forward_secrecy { "" } else { "no forward secrecy" };
            table.row([name, suite.name, &suite.bits.to_string(), remark]);
        }
        if let Some(is_server) = own.server_order {
            table.row(["", if is_server { "order: the server's" } else { "order: the client's" }]);
        }
    }
    table
}

fn keys(audit: &Audit) -> Table {
    let groups = &audit.groups;
    let mut table = Table::new("Groups and signatures").text("").text("");
    let mut list = |name: &str, all: &[String]| {
        if !all.is_empty() {
            table.row([name.to_owned(), all.join(", ")]);
        }
    };
    list("groups, TLS 1.3", &groups.tls13);
    list("groups, TLS 1.2", &groups.tls12);
    list("schemes, TLS 1.3", &groups.schemes_tls13);
    list("schemes, TLS 1.2", &groups.schemes_tls12);
    if let Some(bits) = groups.dh_bits {
        table.row(["Diffie-Hellman".to_owned(), format!("{bits} bits")]);
    }
    if let Some(quantum) = groups.post_quantum {
        table.row(["post-quantum", yes(quantum)]);
    }
    if let Some(is_server) = groups.server_order {
        table.row(["order of groups", if is_server { "the server's" } else { "the client's" }]);
    }
    table
}

fn certificate(certificate: &crate::Certificate) -> Table {
    let title = format!("Certificate with {} of {} bits", certificate.key, certificate.key_bits);
    let mut table = Table::new(title).text("").text("");
    table.row(["subject", &certificate.subject]);
    table.row(["issuer", &certificate.issuer]);
    table.row(["names".to_owned(), certificate.names.join(", ")]);
    table.row(["ends".to_owned(), format!("{} ({} days)", certificate.not_after, certificate.days_left)]);
    let sent = if certificate.sent == 1 {
        "1 certificate".to_owned()
    } else {
        format!("{} certificates", certificate.sent)
    };
    table.row(["chain".to_owned(), format!("{sent}, {} bytes", count(certificate.bytes as u64))]);
    table.row(["staple", &certificate.staple]);
    table.row(["CT logs".to_owned(), certificate.sct_logs.to_string()]);
    for trust in &certificate.trust {
        let verdict = trust.distrust.as_deref().unwrap_or("trusted");
        table.row([format!("for {}", trust.authorities), verdict.to_owned()]);
    }
    table
}

fn caa(caa: &Caa) -> Table {
    let mut table = Table::new(format!("CAA records for {}", caa.subject)).text("").text("");
    if caa.is_missing() {
        table.row(["none"]);
    }
    if let Some(reason) = &caa.failure {
        table.row(["not known", reason]);
    }
    if let Some(name) = &caa.name {
        table.row(["of", name]);
    }
    for record in &caa.records {
        let critical = if record.critical { ", critical" } else { "" };
        table.row([format!("{}{critical}", record.tag), record.value.clone()]);
    }
    for issuer in &caa.issuers {
        let verdict = match issuer.permitted {
            Some(true) => "may issue",
            Some(false) => "may not issue",
            None if caa.failure.is_some() => continue,
            None => "not compared: the identifiers of this authority are not known here",
        };
        table.row([issuer.name.as_str(), verdict]);
    }
    for record in caa.unknown_critical() {
        table.note(format!(
            "Authorities that do not know the critical tag {} must not issue certificates.",
            record.tag
        ));
    }
    table
}

fn behaviour(audit: &Audit) -> Table {
    let mut table = Table::new("Behaviour").text("").text("");
    let mut row = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            table.row([name.to_owned(), value]);
        }
    };
    let yes = |value: Option<bool>| value.map(|value| yes(value).to_owned());
    let (weak, sessions) = (&audit.weaknesses, &audit.sessions);
    row("Heartbleed", yes(weak.heartbleed));
    row("CCS injection", yes(weak.early_ccs));
    row("ROBOT", yes(weak.robot));
    row("wrong CBC padding accepted", yes(weak.padding_accepted));
    row("oracle of CBC padding", yes(weak.padding_oracle));
    row("Ticketbleed", yes(weak.ticketbleed));
    row("secure renegotiation", yes(audit.protocols.secure_renegotiation));
    row("renegotiation by clients", yes(weak.client_renegotiation));
    row("fallback refused", yes(audit.protocols.fallback_signal));
    row("ALPN", audit.protocols.alpn.clone());
    row(
        "ticket lifetime",
        sessions.ticket_lifetime.or(weak.ticket_lifetime).map(|time| format!("{} s", count(time.into()))),
    );
    row("resumption", yes(sessions.resumed));
    row("early data", (sessions.early_data > 0).then(|| format!("up to {} bytes", sessions.early_data)));
    row("early data replayed", yes(sessions.early_data_replayed));
    for (address, resumed) in &sessions.addresses {
        row(&format!("resumption at {address}"), yes(Some(*resumed)));
    }
    if let Some(http) = &audit.http {
        let hsts = http.hsts.as_ref().and_then(|hsts| hsts.max_age).map(|age| format!("max-age={age}"));
        row("HSTS", Some(hsts.unwrap_or_else(|| "no".to_owned())));
        row("port 80", plain(&http.plain));
        row("Alt-Svc", http.headers.get("alt-svc").cloned());
        row("server", http.headers.get("server").cloned());
    }
    for reason in &audit.not_judged {
        table.note(format!("Not judged: {reason}."));
    }
    table.note(format!("{} connections.", audit.connections));
    table
}

fn plain(plain: &PlainHttp) -> Option<String> {
    Some(match plain {
        PlainHttp::Unasked => return None,
        PlainHttp::Closed => "closed".to_owned(),
        PlainHttp::Unjudged => "no answer of HTTP".to_owned(),
        PlainHttp::Redirects(hops) | PlainHttp::OtherHost(hops) => hops.join(" -> "),
        PlainHttp::Answers(status) => format!("answers {status}"),
    })
}

fn yes(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}
