//! The page of `brisk capture --html` in Chromium: ten thousand connections, plots, and resistance to script injection.

use std::fs;
use std::process::Command;

use brisk_behaviour::program::brisk_program;
use brisk_behaviour::site::{LIMIT, Site};
use brisk_testkit::process::run;

use crate::chromium::Chromium;
use crate::devtools::Page;

/// Connections of the capture.
const CONNECTIONS: u32 = 10_000;

/// A request that would run a script in several ways.
const REQUEST: &[u8] = b"GET /</script><img/src=x/onerror=globalThis.owned=1> HTTP/1.1\r\nHost: a\r\n\r\n";

/// A TCP packet as a record of a pcap file, from the client's port or to it.
fn packet(at: u32, port: u16, is_client: bool, seq: u32, ack: u32, control: u8, payload: &[u8]) -> Vec<u8> {
    let (client, server) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    let (addresses, ports) =
        if is_client { ([client, server], [port, 80]) } else { ([server, client], [80, port]) };
    let length = 40 + payload.len() as u32;
    let mut bytes = Vec::new();
    for number in [at / 1_000_000, at % 1_000_000, length, length] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend([0x45, 0]);
    bytes.extend((length as u16).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, 6, 0, 0]);
    bytes.extend(addresses.concat());
    bytes.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    bytes.extend(seq.to_be_bytes().into_iter().chain(ack.to_be_bytes()));
    bytes.extend([0x50, control, 0xff, 0, 0, 0, 0, 0]);
    bytes.extend(payload);
    bytes
}

/// Connections with a round trip of 20 ms and a request that takes as many microseconds more as the connection's number.
fn capture() -> Vec<u8> {
    let mut bytes =
        vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 101, 0, 0, 0];
    let end = 1 + REQUEST.len() as u32;
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    for number in 0..CONNECTIONS {
        let (begin, port) = (number * 100_000, 10_000 + number as u16);
        bytes.extend(packet(begin, port, true, 0, 0, 2, b""));
        bytes.extend(packet(begin + 20_000, port, false, 0, 1, 18, b""));
        bytes.extend(packet(begin + 20_010, port, true, 1, 1, 16, b""));
        bytes.extend(packet(begin + 20_020, port, true, 1, 1, 24, REQUEST));
        bytes.extend(packet(begin + 40_020 + number, port, false, 1, end, 24, response));
    }
    bytes
}

#[test]
fn ten_thousand_connections_are_listed_and_the_slowest_are_drawn() {
    let site = Site::custom("", "", |setup| setup);
    let folder = site.brisk.folder();
    let (file, html) = (folder.join("recorded.pcap"), folder.join("report.html"));
    fs::write(&file, capture()).expect("a file");
    let mut brisk = Command::new(brisk_program());
    run(brisk.arg("capture").arg(&file).arg("--html").arg(&html), b"", LIMIT).success();
    let browser = Chromium::new(folder, &site.brisk).start(&[], "about:blank");
    let mut page = Page::of(browser, &folder.join("profile"));
    page.open(&format!("file://{}", html.display()));
    page.wait_for("document.getElementById('count').textContent === '10,000 of 10,000'");
    // Only visible rows are elements.
    assert_eq!(page.script("document.querySelectorAll('#list .row').length < 50"), true);
    // The slowest connection is drawn at once.
    page.wait_for("document.querySelector('#detail h2').textContent.startsWith('Connection 9999:')");
    page.wait_for("document.querySelectorAll('#detail canvas').length === 4");
    page.wait_for("document.getElementById('ladder').textContent.includes('200 for /</script>')");
    let drawn = "[...document.querySelectorAll('#detail canvas')].every(canvas => new Uint32Array(canvas.getContext('2d')\
                 .getImageData(0, 0, canvas.width, canvas.height).data.buffer).some(pixel => pixel !== 0))";
    assert_eq!(page.script(drawn), true);
    page.script(
        "filter = document.getElementById('filter'); filter.value = '192.0.2.1:10005'; filter.oninput()",
    );
    page.wait_for("document.getElementById('count').textContent === '1 of 10,000'");
    page.script("document.querySelector('#list .row').click()");
    page.wait_for("document.querySelector('#detail h2').textContent.startsWith('Connection 5:')");
    page.wait_for("document.querySelector('#detail .note').textContent.includes('--connections')");
    assert_eq!(page.script("typeof globalThis.owned"), "undefined");
    assert_eq!(page.script("performance.getEntriesByType('resource').length"), 0);
}
