//! Measurements of `brisk probe` with real round trip times, over a link between two network namespaces.

use std::process::Command;

use brisk_behaviour::linked::{link, words_before};
use brisk_behaviour::program::brisk_program;
use brisk_behaviour::site::{NAME, Site};
use brisk_link::{Link, SERVER};
use serde_json::Value;

use crate::probe::report;

/// Milliseconds of a round trip.
const RTT: f64 = 200.0;
const HALF: &str = "delay=100ms";

/// On a busy machine a single measurement is late now and then.
const TRIES: usize = 10;

/// A brisk at the far end, whose host has these keys.
fn far(link: &Link, host: &str) -> Site {
    let keys = format!("server.https = [\"{SERVER}:0\"]");
    Site::custom(&keys, host, |setup| setup.behind(&words_before(&link.server(""))))
}

fn probe(link: &Link, site: &Site, options: &str) -> Command {
    let mut command = link.client(brisk_program());
    command.arg("probe").arg(format!("https://{NAME}:{}/", site.brisk.https().port()));
    command.arg("--connect").arg(SERVER.to_string()).arg("--ca").arg(site.ca.root_file());
    // A machine that stands still for some seconds ends no probe.
    command.args(["--timeout", "50"]).args(options.split_whitespace());
    command
}

fn is_near(value: &Value, wanted: f64, part: f64) -> bool {
    value.as_f64().is_some_and(|value| (value - wanted).abs() <= wanted * part)
}

#[test]
fn the_round_trip_is_that_of_the_link_and_steps_are_in_the_right_one() {
    let Some(link) = link(HALF) else { return };
    let site = far(&link, "");
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let report = report(&mut probe(&link, &site, ""));
        let rounds = |name: &str| {
            let steps = report["steps"].as_array().expect("steps");
            steps.iter().find(|step| step["name"] == name).and_then(|step| step["round"].as_u64())
        };
        let rounds = ["ClientHello", "CertificateVerify", "NewSessionTicket"].map(rounds);
        let (rtt, connect) = (report["tcp"]["rtt_ms"].clone(), report["phases"]["connect_ms"].clone());
        let is_right = rounds == [Some(2), Some(2), Some(3)];
        if is_right && is_near(&rtt, RTT, 0.1) && is_near(&connect, RTT, 0.1) {
            return;
        }
        seen.push((rounds, rtt, connect));
    }
    panic!("rounds, round trips and times to connect: {seen:?}");
}

#[test]
fn times_of_the_four_kinds_differ_by_their_round_trips() {
    let Some(link) = link(HALF) else { return };
    let site = far(&link, "early_data = \"safe\"\n");
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let timing = report(&mut probe(&link, &site, "--timing -n 3"));
        // Round trips to the first byte: TCP, TLS and the request; with early data one less; alone the request.
        let trips = [3.0, 3.0, 2.0, 1.0];
        let columns = timing["columns"].as_array().expect("columns");
        assert_eq!(columns.len(), trips.len());
        let is_right =
            |(column, trips): (&Value, f64)| is_near(&column["times"][4]["median"], RTT * trips, 0.25);
        if columns.iter().zip(trips).all(is_right) {
            return;
        }
        seen.push(timing);
    }
    panic!("{seen:#?}");
}

#[test]
fn what_early_data_saves_is_a_round_trip_of_the_comparison() {
    let Some(link) = link(HALF) else { return };
    let site = far(&link, "early_data = \"safe\"\n");
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let compared = report(&mut probe(&link, &site, "--compare --0rtt -n 3"));
        let steps = compared["steps"].as_array().expect("steps");
        let step = |name: &str| steps.iter().find(|step| step["name"] == name).expect("a step");
        assert!(
            step("← CompressedCertificate")["times"][1].is_null(),
            "a resumed handshake sends none: {compared}"
        );
        let total = step("total")["difference"]["median"].clone();
        if total.as_f64().is_some_and(|total| (total + RTT).abs() < RTT * 0.25) {
            return;
        }
        seen.push(total);
    }
    panic!("{seen:?}");
}
