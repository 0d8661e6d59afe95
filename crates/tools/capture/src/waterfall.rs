//! Requests of one connection as text, each with a bar over time.

use std::fmt::Write;
use std::time::Duration;

use brisk_report::figures::{bytes, shortened};

use crate::http::RequestReport;
use crate::report::ConnectionReport;
use crate::time::text;

/// Width of a bar.
const BAR: usize = 24;

/// Width of the name of a request.
const NAME: usize = 31;

/// Maximum number of requests shown.
const ROWS: usize = 100;

/// A line of 80 columns for each request; empty without requests.
pub(crate) fn waterfall(report: &ConnectionReport) -> String {
    let requests = &report.requests;
    let Some(first) = requests.iter().map(|request| request.begin_us).min() else { return String::new() };
    let ends =
        requests.iter().map(|request| request.end_us.or(request.response_us).max(Some(request.begin_us)));
    // At least a microsecond later, because bars are divided by the difference.
    let last = ends.max().flatten().unwrap_or(first).max(first + 1);
    let span = text(Duration::from_micros(last - first));
    let axis = format!("0{span:>0$}", BAR - 1);
    let mut all = format!("{:>6} {:NAME$} {:>6} {:>9} {axis}\n", "stream", "request", "status", "bytes");
    for request in requests.iter().take(ROWS) {
        let name = shortened(&format!("{} {}", request.method, request.path), NAME);
        let status = match request.status {
            _ if request.is_reset => "reset".to_owned(),
            Some(status) => status.to_string(),
            None => "none".to_owned(),
        };
        let (stream, sent) = (request.stream, bytes(request.bytes_sent as f64));
        let bar = bar(request, first, last);
        // Writing to a string cannot fail.
        let _ = writeln!(all, "{stream:>6} {name:NAME$} {status:>6} {sent:>9} {bar}");
    }
    if let Some(more) = requests.len().checked_sub(ROWS).filter(|more| *more > 0) {
        let _ = writeln!(all, "{more} more requests: see --json");
    }
    all.push_str("bar: ░ until the head of the response, █ until the response's end\n");
    all
}

/// Time of a request between `first` and `last`, without spaces at the end.
fn bar(request: &RequestReport, first: u64, last: u64) -> String {
    let column = |at: u64| ((at - first) as f64 / (last - first) as f64 * (BAR - 1) as f64).round() as usize;
    let begin = column(request.begin_us);
    let end = request.end_us.or(request.response_us).map_or(BAR - 1, |at| column(at.max(request.begin_us)));
    let response = request.response_us.map_or(end, |at| column(at.max(request.begin_us)).min(end));
    format!("{}{}{}", " ".repeat(begin), "░".repeat(response - begin), "█".repeat(end - response + 1))
}

#[cfg(test)]
mod tests {
    use brisk_handshake_view::Party::{Client, Server};

    use super::*;
    use crate::analysis::Settings;
    use crate::testing::{Written, handshake, pcap, results};

    #[test]
    fn requests_without_encryption_are_drawn_in_their_order() {
        let mut packets = handshake();
        let requests = b"GET /first HTTP/1.1\r\nHost: a\r\n\r\nGET /second HTTP/1.1\r\nHost: a\r\n\r\n";
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        packets.push(Written::new(100, Client, 101, 501, requests));
        packets.push(Written::new(200, Server, 501, 201, &response[..20]));
        packets.push(Written::new(300, Server, 521, 201, &response[20..]));
        packets.push(Written::new(500, Server, 501 + response.len() as u32, 201, response));
        // The last request has no response.
        packets.push(Written::new(900, Client, 101 + requests.len() as u32, 501, &requests[..32]));
        let (results, _) = results(&pcap(packets), Settings::default());
        let drawn = waterfall(&results.connections[0]);
        let lines: Vec<_> = drawn.lines().collect();
        assert_eq!(lines[0].chars().count(), 80, "{drawn}");
        assert!(lines[1].ends_with(" B ░░░████"), "{drawn}");
        assert!(lines[2].ends_with(" B ░░░░░░░░░░░░█"), "{drawn}");
        assert!(lines[3].ends_with("none       0 B                        █"), "{drawn}");
        let server = results.connections[0].causes.iter().find(|cause| cause.packet == 7);
        assert_eq!(server.and_then(|cause| cause.message.as_deref()), Some("200 for /second"));
    }
}
