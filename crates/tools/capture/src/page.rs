//! Report as an HTML page that needs no other file: causes, connections, and packets over time.

use std::collections::BTreeMap;
use std::io;

use brisk_handshake_view::Party;
use brisk_report::html;
use serde::Serialize;

use crate::analysis::Output;
use crate::connection::Row;
use crate::ladder;
use crate::report::ConnectionReport;
use crate::summary::Summary;
use crate::terminal;
use crate::time::micros;

/// Maximum number of connections in the list: those with the most [lost time](crate::terminal::lost).
const LISTED: usize = 10_000;

/// Style of the page, in addition to that of all reports.
const STYLE: &str = include_str!("page/page.css");

/// Program of the page.
const SCRIPT: &str = include_str!("page/page.js");

/// [`Output`] that collects a page. Memory: a line of each of 10,000 connections, and the packets of some.
#[derive(Debug)]
pub struct Page {
    listed: Vec<(u128, Listed)>,
    /// Connections with packets, by lost time and number.
    detailed: BTreeMap<(u128, u64), Detail>,
    most: usize,
}

/// A connection in the list, as `page.js` reads it.
#[derive(Debug, Serialize)]
struct Listed(
    u64,
    String,
    String,
    Option<String>,
    u64,
    u64,
    Option<u64>,
    [u64; 4],
    u32,
    &'static str,
    String,
);

#[derive(Debug, Serialize)]
struct Detail {
    packets: Vec<Packet>,
    omitted: bool,
    requests: Vec<Request>,
    /// Records of the gateway, and their events among the packets.
    records: Vec<String>,
    events: Vec<(i64, String)>,
}

/// A packet, as `page.js` reads it.
#[derive(Debug, Serialize)]
struct Packet(u64, u64, u8, u32, u32, Option<u32>, Option<u32>, Option<u32>, Option<u64>, String, String);

/// A request, as `page.js` reads it.
#[derive(Debug, Serialize)]
struct Request(u32, String, String, u64, Option<u64>, Option<u64>, u64);

#[derive(Serialize)]
struct Data<'a> {
    connections: Vec<&'a Listed>,
    details: BTreeMap<u64, &'a Detail>,
}

impl Page {
    /// Keeps the packets of `most` connections, those with the most lost time.
    pub fn new(most: usize) -> Self {
        Self { listed: Vec::new(), detailed: BTreeMap::new(), most }
    }

    /// The page. `file` is the name of the capture.
    pub fn text(&self, file: &str, summary: &Summary) -> String {
        let mut listed: Vec<_> = self.listed.iter().collect();
        listed.sort_by_key(|(lost, listed)| (std::cmp::Reverse(*lost), listed.0));
        listed.truncate(LISTED);
        let connections = listed.into_iter().map(|(_, listed)| listed).collect();
        let details = self.detailed.iter().map(|((_, number), detail)| (*number, detail)).collect();
        let data = serde_json::to_string(&Data { connections, details });
        // Within a script element, only "<" could end the data.
        let data = data.expect("texts and numbers are JSON").replace('<', "\\u003c");
        let mut body =
            html::head(&format!("Packets of {file}"), &terminal::overview(summary).replace('\n', " "));
        body.push_str(&terminal::ranking(summary).to_html());
        body.push_str(BODY);
        body.extend(["<script id=\"data\" type=\"application/json\">", &data, "</script>\n"]);
        body.extend(["<script>\n", SCRIPT, "</script>\n"]);
        html::page(&format!("{file}: packets"), &format!("<style>\n{STYLE}</style>\n{body}"))
    }
}

const BODY: &str = "<section>\n<h2>Connections <span id=\"count\"></span></h2>\n\
    <input id=\"filter\" placeholder=\"address, name, cause, end\" aria-label=\"Filter\">\n\
    <p class=\"note key\"><i style=\"background:var(--c5)\"></i>network<i style=\"background:var(--c2)\"></i>server\
    <i style=\"background:var(--c3)\"></i>client<i style=\"background:var(--line)\"></i>waiting for a request</p>\n\
    <div class=\"heads\"><div class=\"row\" id=\"heads\"></div></div>\n<div id=\"list\"><div></div></div>\n</section>\n\
    <section id=\"detail\" hidden></section>\n";

impl Output for Page {
    fn connection(&mut self, report: &ConnectionReport) -> io::Result<()> {
        let lost = terminal::lost(report);
        self.listed.push((lost, Listed::new(report)));
        // Sorted only when the list has doubled, so that a connection costs logarithmic time on average.
        if self.listed.len() >= 2 * LISTED {
            self.listed.sort_by_key(|(lost, _)| std::cmp::Reverse(*lost));
            self.listed.truncate(LISTED);
        }
        if self.detailed.len() == self.most
            && self.detailed.first_key_value().is_some_and(|((least, _), _)| *least >= lost)
        {
            return Ok(());
        }
        if let Some(detail) = Detail::new(report) {
            self.detailed.insert((lost, report.connection), detail);
            if self.detailed.len() > self.most {
                // The key begins with the lost time, so the first entry has the least.
                self.detailed.pop_first();
            }
        }
        Ok(())
    }
}

impl Listed {
    fn new(report: &ConnectionReport) -> Self {
        let us = |ms: f64| (ms * 1000.0).round() as u64;
        let split = report.split_ms;
        Self(
            report.connection,
            format!("{}:{}", report.client, report.client_port),
            format!("{}:{}", report.server, report.server_port),
            report.tls.as_ref().and_then(|tls| tls.server_name.clone()),
            report.time.0 / 1000,
            report.duration_us,
            report.rtt_us,
            [us(split.network), us(split.server), us(split.client), us(split.waiting)],
            report.client_tcp.retransmissions() + report.server_tcp.retransmissions(),
            report.end,
            report.finding.clone(),
        )
    }
}

impl Detail {
    fn new(report: &ConnectionReport) -> Option<Self> {
        let rows = report.rows.as_ref()?;
        let packets: Vec<_> = rows.iter().map(|(row, messages)| Packet::new(report, row, messages)).collect();
        // Packets are missing beyond the limit of rows, and while too much memory was used.
        let omitted = (packets.len() as u64) < report.client_tcp.packets + report.server_tcp.packets;
        let request = |request: &crate::RequestReport| {
            let status = request.status.map_or("none".to_owned(), |status| status.to_string());
            let name = format!("{} {}", request.method, request.path);
            let times = (request.begin_us, request.response_us, request.end_us);
            Request(request.stream, name, status, times.0, times.1, times.2, request.bytes_sent)
        };
        let records = report.records.iter().map(crate::RecordReport::text).collect();
        let requests = report.requests.iter().map(request).collect();
        Some(Self { packets, omitted, requests, records, events: ladder::events(report) })
    }
}

impl Packet {
    fn new(report: &ConnectionReport, row: &Row, messages: &[String]) -> Self {
        Self(
            row.packet,
            micros(row.time.since(report.time)),
            u8::from(row.from == Party::Server),
            row.offset,
            row.len,
            row.ack,
            row.window,
            row.in_flight,
            row.round_trip.map(micros),
            row.flags.names().collect::<Vec<_>>().join(" "),
            ladder::label(row, messages),
        )
    }
}

#[cfg(test)]
mod tests {
    use brisk_handshake_view::Party::Client;

    use super::*;
    use crate::analysis::{Rows, Settings, analyse};
    use crate::testing::{Written, handshake, pcap};

    #[test]
    fn names_cannot_end_the_data_and_lists_are_bounded() {
        let packets = (0..30_000_u16).flat_map(|port| {
            let mut packets = handshake();
            let request = b"GET /</script><script>alert(1)</script> HTTP/1.1\r\n\r\n";
            packets.push(Written::new(40 + u64::from(port % 100), Client, 101, 501, request));
            packets.into_iter().map(move |mut packet| {
                packet.port = 10_000 + port;
                packet.micros += u64::from(port) * 10;
                packet
            })
        });
        let mut page = Page::new(3);
        let settings = Settings { rows: Rows::All, ..Settings::default() };
        let summary = analyse(&pcap(packets)[..], settings, &mut page).expect("a capture");
        let text = page.text("a<b.pcap", &summary);
        assert!(page.listed.len() < 2 * LISTED && page.detailed.len() == 3);
        let (_, rest) = text.split_once("<script id=\"data\" type=\"application/json\">").expect("data");
        let (data, _) = rest.split_once("</script>").expect("an end");
        let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(data["connections"].as_array().map(Vec::len), Some(LISTED));
        let details = data["details"].as_object().expect("details");
        assert!(
            details
                .values()
                .all(|detail| detail["requests"][0][1] == "GET /</script><script>alert(1)</script>")
        );
        assert!(text.contains("a&lt;b.pcap"));
    }
}
