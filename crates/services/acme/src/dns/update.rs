//! Provider for dynamic updates at the primary server of a zone (RFC 2136), over TCP.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::message::{Change, Reply, change, question};
use super::{DnsError, Txt, UpdateSettings};

/// Timeout of one exchange with the server.
const LIMIT: Duration = Duration::from_secs(20);

pub(super) async fn put(settings: &UpdateSettings, record: &Txt) -> Result<(), DnsError> {
    run(settings, Change::Add, record).await
}

pub(super) async fn remove(settings: &UpdateSettings, record: &Txt) -> Result<(), DnsError> {
    run(settings, Change::Remove, record).await
}

async fn run(settings: &UpdateSettings, kind: Change, record: &Txt) -> Result<(), DnsError> {
    let failed = |reason: String| DnsError { by: format!("DNS server {}", settings.server), reason };
    let zone = match &settings.zone {
        Some(zone) => zone.clone(),
        None => zone_of(settings, &record.name).await.map_err(failed)?,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let message = change(kind, record, &zone, &settings.key, now).map_err(failed)?;
    let reply = ask(&settings.server, &message).await.map_err(failed)?;
    if reply.is_done() { Ok(()) } else { Err(failed(format!("zone {zone}: {}", reply.refusal()))) }
}

/// Finds the zone of `name`: the longest parent with a `SOA` record.
async fn zone_of(settings: &UpdateSettings, name: &str) -> Result<String, String> {
    let mut rest = name;
    while let Some((_, parent)) = rest.split_once('.') {
        if ask(&settings.server, &question(parent)?).await?.is_apex_of(parent) {
            return Ok(parent.to_owned());
        }
        rest = parent;
    }
    Err(format!("it serves no zone of {name}; set `zone`, or name the server of the zone"))
}

/// Sends one message and reads one reply.
async fn ask(server: &str, message: &[u8]) -> Result<Reply, String> {
    let exchange = async {
        let mut tcp = TcpStream::connect(server).await?;
        // RFC 1035 section 4.2.2: a message over TCP has a length prefix of two bytes.
        let length = u16::try_from(message.len()).expect("a message of a few hundred bytes");
        let framed = [&length.to_be_bytes()[..], message].concat();
        tcp.write_all(&framed).await?;
        let length = tcp.read_u16().await?;
        let mut reply = vec![0; length.into()];
        tcp.read_exact(&mut reply).await?;
        Ok::<_, std::io::Error>(reply)
    };
    match timeout(LIMIT, exchange).await {
        Ok(Ok(reply)) => Reply::read(message, &reply),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no response within {} s", LIMIT.as_secs())),
    }
}
