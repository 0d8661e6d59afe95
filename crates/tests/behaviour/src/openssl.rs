//! Connections with `openssl s_client`.

use std::process::Command;

use brisk_testkit::brisk::Brisk;
use brisk_testkit::ca::TestCa;
use brisk_testkit::process::{Finished, command, run};
use serde_json::Value;

use crate::site::{LIMIT, facts};

/// Command `openssl s_client` that verifies brisk's certificate; with a request as its input it ends after the response.
pub fn s_client(ca: &TestCa, brisk: &Brisk, options: &[&str]) -> Command {
    let mut openssl = command("openssl");
    openssl.args(["s_client", "-connect", &brisk.https().to_string(), "-CAfile"]).arg(ca.root_file());
    // Without `-ign_eof`, the end of the input would close the connection before the response.
    openssl.args(["-verify_return_error", "-ign_eof"]).args(options);
    openssl
}

/// Request for the facts of its connection, after which the connection closes.
pub const REQUEST: &[u8] = b"GET /connection.json HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\n\r\n";

/// Sends [`REQUEST`] with `openssl s_client`.
pub fn ask(ca: &TestCa, brisk: &Brisk, options: &[&str]) -> Finished {
    run(&mut s_client(ca, brisk, options), REQUEST, LIMIT)
}

/// Facts of the connection, from the output of `openssl s_client`.
#[track_caller]
pub fn facts_of(output: &Finished) -> Value {
    let json = output.stdout.find("\r\n\r\n{").map(|start| &output.stdout[start..]);
    let json = json.and_then(|rest| Some(&rest[..=rest.find("\n}\n")? + 2]));
    facts(json.unwrap_or_else(|| panic!("no facts: {}", output.text())))
}
