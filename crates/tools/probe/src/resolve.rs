//! Name resolution: addresses and the HTTPS record.
//!
//! Addresses come from the system's resolver (`getaddrinfo`), as for other programs. The system's resolver has no HTTPS
//! records (RFC 9460), so the probe queries the first server of `/etc/resolv.conf` itself, over UDP and, if the
//! response is truncated, over TCP. hickory encodes and decodes the messages. The query runs concurrently and delays
//! nothing.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use brisk_report::text::printable;
use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::rdata::svcb::SvcParamValue;
use hickory_proto::rr::{Name, RData, RecordType};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket, lookup_host};
use tokio::time::timeout;

use crate::error::ProbeError;
use crate::url::Url;

/// Timeout of the query.
const WAIT: Duration = Duration::from_millis(800);

/// Largest response over UDP.
const ANSWER: usize = 4096;

/// Maximum number of addresses used.
const ADDRESSES: usize = 64;

/// An HTTPS record (RFC 9460 section 9).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HttpsRecord {
    /// `SvcPriority`; `0` for an alias.
    pub priority: u16,
    /// `TargetName` of the service; `.` for the queried name.
    pub target: String,
    /// ALPN protocols.
    pub alpn: Vec<String>,
    /// Whether the record contains keys for encrypted hellos (`ech`).
    pub has_ech: bool,
    /// Address hints (`ipv4hint`, `ipv6hint`).
    pub hints: Vec<IpAddr>,
    /// Alternative port.
    pub port: Option<u16>,
}

/// Result of the query for the HTTPS record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "value")]
pub enum HttpsAnswer {
    /// No query: the host is an address or this machine.
    NotAsked,
    /// The server has no such record.
    None,
    /// Records by priority.
    Found(Vec<HttpsRecord>),
    /// No response, for this reason.
    Failed(String),
}

/// Addresses of the host, at least one, in the resolver's order.
pub(crate) async fn addresses(url: &Url) -> Result<Vec<SocketAddr>, ProbeError> {
    if let Some(ip) = url.address() {
        return Ok(vec![SocketAddr::new(ip, url.port)]);
    }
    let failed = |reason: String| ProbeError::Unresolved { host: url.host.clone(), reason };
    let found =
        lookup_host((url.host.as_str(), url.port)).await.map_err(|error| failed(error.to_string()))?;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found {
        // The search is linear, and cheap because of the limit.
        if !addresses.contains(&address) && addresses.len() < ADDRESSES {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        return Err(failed("it has no address".to_owned()));
    }
    Ok(addresses)
}

/// HTTPS record of the host, from `server` or the first server of the system.
pub(crate) async fn https(url: &Url, server: Option<SocketAddr>) -> HttpsAnswer {
    // RFC 6761 section 6.3: these names never leave the machine.
    let is_local = url.host == "localhost" || url.host.ends_with(".localhost");
    if server.is_none() && (url.address().is_some() || is_local) {
        return HttpsAnswer::NotAsked;
    }
    let Some(server) = server.or_else(|| first_server(&fs::read_to_string("/etc/resolv.conf").ok()?)) else {
        return HttpsAnswer::Failed("/etc/resolv.conf names no server".to_owned());
    };
    match timeout(WAIT, ask(url, server)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(reason)) => HttpsAnswer::Failed(reason),
        Err(_) => HttpsAnswer::Failed(format!("{server} did not answer within {WAIT:?}")),
    }
}

fn first_server(text: &str) -> Option<SocketAddr> {
    let addresses = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    addresses.filter_map(|rest| rest.trim().parse().ok()).map(|ip: IpAddr| SocketAddr::new(ip, 53)).next()
}

async fn ask(url: &Url, server: SocketAddr) -> Result<HttpsAnswer, String> {
    // RFC 9460 section 9.1: other ports have a name of their own.
    let owner = match url.port {
        443 => format!("{}.", url.host),
        port => format!("_{port}._https.{}.", url.host),
    };
    let name = Name::from_ascii(&owner).map_err(|error| error.to_string())?;
    let mut query = Message::query();
    query.metadata.recursion_desired = true;
    query.add_query(Query::query(name, RecordType::HTTPS));
    let bytes = query.to_vec().map_err(|error| error.to_string())?;
    let local: SocketAddr = if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 8], 0).into() };
    let socket = UdpSocket::bind(local).await.map_err(|error| error.to_string())?;
    // On a connected socket the kernel drops datagrams of other hosts, which might be forged (RFC 5452
    // section 9).
    socket.connect(server).await.map_err(|error| error.to_string())?;
    socket.send(&bytes).await.map_err(|error| error.to_string())?;
    let mut answer = vec![0; ANSWER];
    loop {
        let len = socket.recv(&mut answer).await.map_err(|error| format!("{server}: {error}"))?;
        // A wrong ID is skipped, not an error: a forged datagram must not end the wait for the response.
        if answer[..len].first_chunk::<2>() != bytes.first_chunk::<2>() {
            continue;
        }
        // The query has no EDNS, so servers truncate at 512 bytes (RFC 1035 section 2.3.4) and this is
        // common.
        return if is_truncated(&answer[..len]) {
            let whole = over_tcp(&bytes, server).await;
            read(&whole.map_err(|error| format!("{server}, over TCP: {error}"))?)
        } else {
            read(&answer[..len])
        };
    }
}

/// Whether the response was truncated (`TC`, RFC 1035 section 4.1.1).
fn is_truncated(answer: &[u8]) -> bool {
    answer.get(2).is_some_and(|flags| flags & 2 != 0)
}

/// Repeats the query over TCP, where each message follows its length (RFC 7766 section 8).
async fn over_tcp(query: &[u8], server: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = (query.len() as u16).to_be_bytes();
    stream.write_all(&[&length[..], query].concat()).await?;
    let mut answer = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut answer).await?;
    if answer.first_chunk::<2>() != query.first_chunk::<2>() {
        return Err(io::Error::other("the answer is to another question"));
    }
    Ok(answer)
}

/// Parses a response.
pub(crate) fn read(bytes: &[u8]) -> Result<HttpsAnswer, String> {
    let message = Message::from_vec(bytes).map_err(|error| format!("the answer cannot be read: {error}"))?;
    match message.metadata.response_code {
        ResponseCode::NoError | ResponseCode::NXDomain => {}
        code => return Err(format!("the name server answered {code}")),
    }
    let mut records: Vec<HttpsRecord> = Vec::new();
    for record in &message.answers {
        if let RData::HTTPS(https) = &record.data {
            records.push(HttpsRecord::of(&https.0));
        }
    }
    records.sort_by_key(|record| record.priority);
    Ok(if records.is_empty() { HttpsAnswer::None } else { HttpsAnswer::Found(records) })
}

impl HttpsRecord {
    fn of(svcb: &hickory_proto::rr::rdata::SVCB) -> Self {
        let mut record = Self { priority: svcb.svc_priority, ..Self::default() };
        record.target = printable(&svcb.target_name.to_string());
        for (_, value) in &svcb.svc_params {
            match value {
                SvcParamValue::Alpn(names) => {
                    record.alpn = names.0.iter().map(|name| printable(name)).collect();
                }
                SvcParamValue::EchConfigList(_) => record.has_ech = true,
                SvcParamValue::Port(port) => record.port = Some(*port),
                SvcParamValue::Ipv4Hint(hint) => {
                    record.hints.extend(hint.0.iter().map(|ip| IpAddr::V4(ip.0)));
                }
                SvcParamValue::Ipv6Hint(hint) => {
                    record.hints.extend(hint.0.iter().map(|ip| IpAddr::V6(ip.0)));
                }
                _ => {}
            }
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_server_of_the_system_is_found() {
        let text = "# nameserver 9.9.9.9\nsearch a\n nameserver  192.0.2.1\nnameserver ::1\n";
        assert_eq!(first_server(text), Some("192.0.2.1:53".parse().expect("an address")));
        assert_eq!(first_server("search a"), None);
    }

    #[test]
    fn an_answer_with_alpn_ech_and_hints_is_read() {
        let mut answer = vec![0, 7, 0x81, 0x80, 0, 0, 0, 1, 0, 0, 0, 0];
        answer.extend(b"\x01a\x04test\0\0\x41\0\x01\0\0\0\x3c");
        let mut data = vec![0, 1, 0];
        data.extend(b"\0\x01\0\x06\x02h3\x02h2\0\x04\0\x04\xc0\0\x02\x01\0\x05\0\x02\0\0");
        answer.extend((data.len() as u16).to_be_bytes());
        answer.extend(data);
        let HttpsAnswer::Found(records) = read(&answer).expect("an answer") else { panic!("no record") };
        assert_eq!((records.len(), records[0].priority), (1, 1));
        assert_eq!(records[0].alpn, ["h3", "h2"]);
        assert_eq!(records[0].hints, ["192.0.2.1".parse::<IpAddr>().expect("an address")]);
    }

    /// Name server with a truncated response over UDP and a complete one over TCP.
    async fn cutting() -> SocketAddr {
        let (tcp, udp) = loop {
            let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = tcp.local_addr().expect("an address");
            // The port may be taken for UDP.
            if let Ok(udp) = UdpSocket::bind(address).await {
                break (tcp, udp);
            }
        };
        let address = tcp.local_addr().expect("an address");
        tokio::spawn(async move {
            let mut query = [0; 512];
            let (len, client) = udp.recv_from(&mut query).await.expect("a query");
            assert!(len > 12);
            let cut = [&query[..2], &[0x83, 0x80, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
            udp.send_to(&cut, client).await.expect("sent");
            let (mut stream, _) = tcp.accept().await.expect("a connection");
            let length = stream.read_u16().await.expect("a length");
            let mut query = vec![0; length.into()];
            stream.read_exact(&mut query).await.expect("a query");
            let mut answer = [&query[..2], &[0x81, 0x80, 0, 0, 0, 1, 0, 0, 0, 0]].concat();
            answer.extend(b"\x01a\x04test\0\0\x41\0\x01\0\0\0\x3c\0\x0a\0\x01\0\0\x01\0\x03\x02h3");
            stream.write_u16(answer.len() as u16).await.expect("sent");
            stream.write_all(&answer).await.expect("sent");
        });
        address
    }

    #[tokio::test]
    async fn an_answer_that_is_cut_is_asked_for_over_tcp() {
        let url: Url = "https://a.test/".parse().expect("a URL");
        let server = cutting().await;
        let answer =
            timeout(Duration::from_mins(1), ask(&url, server)).await.expect("in time").expect("an answer");
        let HttpsAnswer::Found(records) = answer else { panic!("{answer:?}") };
        assert_eq!(records[0].alpn, ["h3"]);
    }

    #[test]
    fn a_name_without_a_record_and_a_failure_differ() {
        assert_eq!(read(&[0, 7, 0x81, 0x83, 0, 0, 0, 0, 0, 0, 0, 0]), Ok(HttpsAnswer::None));
        assert!(read(&[0, 7, 0x81, 0x82, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(read(&[0, 7]).is_err());
    }
}
