//! Captures written by tests.

use std::io;

use brisk_handshake_view::Party;

use crate::analysis::{Output, PacketReport, Settings, analyse};
use crate::decode::Control;
use crate::report::ConnectionReport;
use crate::summary::Summary;

/// A TCP packet between 192.0.2.1 and 192.0.2.2.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) micros: u64,
    pub(crate) from: Party,
    pub(crate) port: u16,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) control: u8,
    pub(crate) window: u16,
    pub(crate) options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Written {
    /// A packet of the client's port 5000 with the window 1000 and an acknowledgement.
    pub(crate) fn new(millis: u64, from: Party, seq: u32, ack: u32, payload: &[u8]) -> Self {
        Self {
            micros: millis * 1000,
            from,
            port: 5000,
            seq,
            ack,
            control: Control::ACK,
            window: 1000,
            options: Vec::new(),
            payload: payload.to_vec(),
        }
    }

    pub(crate) fn control(mut self, control: u8) -> Self {
        self.control = control;
        self
    }

    pub(crate) fn window(mut self, window: u16) -> Self {
        self.window = window;
        self
    }

    /// The raw IP packet.
    pub(crate) fn ip(&self) -> Vec<u8> {
        let (client, server) = ([192, 0, 2, 1], [192, 0, 2, 2]);
        let (source, destination, ports) = match self.from {
            Party::Client => (client, server, [self.port, 443]),
            Party::Server => (server, client, [443, self.port]),
        };
        let total = (40 + self.options.len() + self.payload.len()) as u16;
        let mut bytes = vec![0x45, 0];
        bytes.extend(total.to_be_bytes());
        bytes.extend([0, 0, 0, 0, 64, 6, 0, 0]);
        bytes.extend(source);
        bytes.extend(destination);
        bytes.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        bytes.extend(self.seq.to_be_bytes());
        bytes.extend(self.ack.to_be_bytes());
        bytes.extend([((20 + self.options.len()) as u8 / 4) << 4, self.control]);
        bytes.extend(self.window.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(&self.options);
        bytes.extend(&self.payload);
        bytes
    }
}

/// The handshake of a connection with the sequence numbers 100 and 500: 20 ms to the server, 10 ms to the client.
pub(crate) fn handshake() -> Vec<Written> {
    vec![
        Written::new(0, Party::Client, 100, 0, b"").control(Control::SYN),
        Written::new(20, Party::Server, 500, 101, b"").control(Control::SYN | Control::ACK),
        Written::new(30, Party::Client, 101, 501, b""),
    ]
}

/// A pcap file with raw IP packets.
pub(crate) fn pcap(packets: impl IntoIterator<Item = Written>) -> Vec<u8> {
    let mut bytes =
        vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 101, 0, 0, 0];
    for packet in packets {
        let ip = packet.ip();
        let len = ip.len() as u32;
        for number in [(packet.micros / 1_000_000) as u32, (packet.micros % 1_000_000) as u32, len, len] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(ip);
    }
    bytes
}

/// All results of an analysis.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) packets: Vec<PacketReport>,
    pub(crate) connections: Vec<ConnectionReport>,
}

impl Output for Results {
    fn connection(&mut self, report: &ConnectionReport) -> io::Result<()> {
        self.connections.push(report.clone());
        Ok(())
    }

    fn packet(&mut self, report: &PacketReport) -> io::Result<()> {
        self.packets.push(report.clone());
        Ok(())
    }
}

/// Analyses a capture.
pub(crate) fn results(capture: &[u8], settings: Settings) -> (Results, Summary) {
    let mut results = Results::default();
    let summary = analyse(capture, settings, &mut results).expect("a capture");
    (results, summary)
}

/// Names of the results of each packet.
pub(crate) fn flags(packets: impl IntoIterator<Item = Written>) -> Vec<String> {
    let (results, _) = results(&pcap(packets), Settings::default());
    let names = |report: &PacketReport| report.flags.names().collect::<Vec<_>>().join(" ");
    results.packets.iter().map(names).collect()
}
