//! Whether a client like Chrome gets what it should: a hello of the bytes that Chrome sends, and what the server chooses.
//!
//! The hello is our own, since a TLS library writes none with reserved values (RFC 8701) in these places. The handshake ends at
//! the server's hello, which is all that this needs; what is encrypted behind it comes from the report of a whole connection.

mod hello;

use brisk_wire::registry::{NamedGroup, ProtocolVersion};
use brisk_wire::server_flight::alert_name;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::prober::Prober;
use crate::records::{is_warning, server_hellos, split};
use crate::report::Report;
use crate::{ProbeError, Settings, block_on};

/// Bytes of the server that are looked at.
const ANSWER: usize = 64 * 1024;

/// Something that a browser should get.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What it is about.
    pub name: &'static str,
    /// What the browser gets.
    pub gets: String,
    /// Whether that is what it should.
    pub is_right: bool,
    /// What it should, and why.
    pub should: &'static str,
}

/// What a client like Chrome gets.
#[derive(Clone, Debug, Serialize)]
pub struct Browser {
    /// Bytes of the hello.
    pub hello_bytes: usize,
    /// The checks.
    pub checks: Vec<Check>,
    /// What of Chrome the probe does not do.
    pub differences: &'static [&'static str],
}

const DIFFERENCES: &[&str] = &[
    "the extensions have one order; Chrome's is another for each connection",
    "the handshake with this hello ends at the server's hello; what is encrypted was asked for with another one",
    "no encrypted hello (ECH) is sent, only the extension that looks like one",
    "QUIC is not tried",
];

/// What the server did with the hello.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Hello { version: ProtocolVersion, group: Option<NamedGroup>, is_retry: bool },
    Failed(String),
}

/// Sends such a hello to the server of a report, and judges both.
pub fn browser(settings: &Settings, report: &Report) -> Result<Browser, ProbeError> {
    let bytes = hello::chrome(&settings.url)?;
    let prober = Prober::new(settings)?;
    let outcome = block_on(async {
        let work = ask(&prober, &bytes);
        timeout(settings.timeout, work).await.unwrap_or_else(|_| Ok(Outcome::Failed("no answer".to_owned())))
    })??;
    Ok(Browser { hello_bytes: bytes.len(), checks: checks(&outcome, report), differences: DIFFERENCES })
}

async fn ask(prober: &Prober<'_>, hello: &[u8]) -> Result<Outcome, ProbeError> {
    let mut tcp = prober.dial().await?;
    let written = tcp.write_all(hello).await;
    let mut answer = Vec::new();
    loop {
        if let Some(outcome) = judge(&answer) {
            return Ok(outcome);
        }
        match tcp.read_buf(&mut answer).await {
            Ok(0) => return Ok(Outcome::Failed("the server closes the connection".to_owned())),
            Ok(_) if answer.len() > ANSWER => return Ok(Outcome::Failed("no server hello".to_owned())),
            Ok(_) => {}
            Err(error) => {
                let reason = written.as_ref().err().unwrap_or(&error);
                return Ok(Outcome::Failed(format!("the connection breaks: {reason}")));
            }
        }
    }
}

/// What the bytes of a server mean; `None` while it takes more of them.
fn judge(answer: &[u8]) -> Option<Outcome> {
    if let Some(hello) = server_hellos(answer).into_iter().next() {
        return Some(Outcome::Hello { version: hello.version, group: hello.group, is_retry: hello.is_retry });
    }
    let (mut header, mut payload, mut rest) = split(answer)?;
    while header[0] == 21 && is_warning(payload) {
        (header, payload, rest) = split(rest)?;
    }
    match (header[0], payload) {
        (21, [_, description, ..]) => {
            let name = alert_name(*description).map_or_else(|| description.to_string(), str::to_owned);
            Some(Outcome::Failed(format!("alert {name}")))
        }
        (22, _) => None,
        _ => Some(Outcome::Failed("not TLS".to_owned())),
    }
}

fn checks(outcome: &Outcome, report: &Report) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut add = |name, gets: String, is_right, should| checks.push(Check { name, gets, is_right, should });
    match outcome {
        Outcome::Failed(reason) => {
            add("hello", reason.clone(), false, "accepted: reserved values are to be ignored (RFC 8701)");
        }
        Outcome::Hello { version, group, is_retry } => {
            add(
                "hello",
                "accepted".to_owned(),
                true,
                "accepted: reserved values are to be ignored (RFC 8701)",
            );
            add("version", version.to_string(), *version == ProtocolVersion::TLS1_3, "TLS 1.3");
            let name = group.map_or_else(|| "none".to_owned(), |group| group.to_string());
            let is_right = *group == Some(NamedGroup::X25519MLKEM768) && !is_retry;
            add("group", name, is_right, "X25519MLKEM768, which resists quantum computers");
            let retry = if *is_retry { "HelloRetryRequest" } else { "none" };
            add("retry", retry.to_owned(), !is_retry, "none: it costs a round trip");
        }
    }
    if let Some(tls) = &report.tls {
        let protocol = tls.protocol.clone().unwrap_or_else(|| "none".to_owned());
        add("ALPN", protocol, tls.protocol.as_deref() == Some("h2"), "h2");
        if let Some(chain) = &tls.chain {
            add("certificate", tls.trust(), tls.is_trusted == Some(true), "trusted");
            let compressed = chain
                .compressed
                .as_ref()
                .map_or("no".to_owned(), |(bytes, name)| format!("{name}, {bytes} B"));
            add("compressed chain", compressed, chain.compressed.is_some(), "brotli (RFC 8879)");
        }
        add(
            "session",
            if tls.gives_session { "can be resumed" } else { "none" }.to_owned(),
            tls.gives_session,
            "one at least, or each connection is a full handshake",
        );
        if let Some(flight) = tls.flight_bytes {
            let is_right = flight <= tls.window_bytes;
            add("first flight", format!("{flight} B"), is_right, "not longer than ten segments");
        }
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_before_the_hello_is_no_refusal() {
        let warning = [21, 3, 3, 0, 2, 1, 112];
        assert_eq!(judge(&warning), None);
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0xc0, 0x2f, 0]);
        let mut answer = warning.to_vec();
        answer.extend([22, 3, 3, 0, body.len() as u8 + 4, 2, 0, 0, body.len() as u8]);
        answer.extend(body);
        let Some(Outcome::Hello { version, .. }) = judge(&answer) else { panic!("no hello") };
        assert_eq!(version, ProtocolVersion::TLS1_2);
        let refused = judge(&[21, 3, 3, 0, 2, 2, 40]);
        assert_eq!(refused, Some(Outcome::Failed("alert handshake_failure".to_owned())));
    }
}
