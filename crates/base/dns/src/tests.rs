//! Tests with DNS servers on loopback that answer by a function.

use std::net::IpAddr;
use std::sync::Arc;

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME};
use hickory_resolver::proto::rr::{Name, Record};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

use super::*;

const V4: &str = "192.0.2.1";
const V6: &str = "2001:db8::1";

/// One question to a server.
#[derive(Clone)]
struct Asked {
    name: String,
    kind: RecordType,
    has_edns: bool,
    over_tcp: bool,
}

/// Response of a server.
#[derive(Clone)]
enum Reply {
    /// Records as owner and data; those with another owner are aliases on the way.
    Records(Vec<(String, RData)>),
    Code(ResponseCode),
    Truncated,
    Silence,
}

/// A DNS server over UDP and TCP. Dropping it ends its tasks.
struct Server {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

type Rule = Arc<dyn Fn(&Asked) -> Reply + Send + Sync>;

impl Server {
    async fn new(rule: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let rule: Rule = Arc::new(rule);
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
                break (udp, tcp);
            }
        };
        let address = udp.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        let own = Arc::clone(&rule);
        tasks.spawn(async move {
            let mut buffer = [0; 4096];
            loop {
                let (length, peer) = udp.recv_from(&mut buffer).await.unwrap();
                if let Some(reply) = respond(&own, &buffer[..length], false) {
                    udp.send_to(&reply, peer).await.unwrap();
                }
            }
        });
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = tcp.accept().await {
                let rule = Arc::clone(&rule);
                // A connection ends with its client.
                connections.spawn(async move { serve(stream, &rule).await });
            }
        });
        Self { address, _tasks: tasks }
    }
}

async fn serve(mut stream: TcpStream, rule: &Rule) -> std::io::Result<()> {
    loop {
        let mut question = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut question).await?;
        if let Some(reply) = respond(rule, &question, true) {
            stream.write_u16(u16::try_from(reply.len()).unwrap()).await?;
            stream.write_all(&reply).await?;
        }
    }
}

fn respond(rule: &Rule, question: &[u8], over_tcp: bool) -> Option<Vec<u8>> {
    let question = Message::from_vec(question).unwrap();
    let query = question.queries.first().unwrap().clone();
    let name = query.name().to_ascii();
    let asked = Asked { name, kind: query.query_type(), has_edns: question.edns.is_some(), over_tcp };
    let mut reply = Message::response(question.id, question.op_code);
    reply.add_query(query);
    match rule(&asked) {
        Reply::Silence => return None,
        Reply::Code(code) => reply.metadata.response_code = code,
        Reply::Truncated => reply.metadata.truncation = true,
        Reply::Records(records) => {
            for (owner, data) in records {
                reply.add_answer(Record::from_rdata(Name::from_ascii(owner).unwrap(), 60, data));
            }
        }
    }
    Some(reply.to_vec().unwrap())
}

fn data(address: &str) -> RData {
    match address.parse().unwrap() {
        IpAddr::V4(address) => RData::A(A(address)),
        IpAddr::V6(address) => RData::AAAA(AAAA(address)),
    }
}

/// Records of one host: [`V4`] and [`V6`].
fn both(asked: &Asked) -> Reply {
    let of = |address| Reply::Records(vec![(asked.name.clone(), data(address))]);
    match asked.kind {
        RecordType::A => of(V4),
        RecordType::AAAA => of(V6),
        _ => Reply::Records(Vec::new()),
    }
}

fn resolver(servers: &[&Server]) -> Resolver {
    let servers = servers.iter().map(|server| server.address).collect();
    Resolver::new(&ResolverSettings { servers, uses_ipv6: true, max_addresses: 64 }).unwrap()
}

fn ips(answer: &Answer) -> Vec<String> {
    answer.endpoints.iter().map(|endpoint| endpoint.address.ip().to_string()).collect()
}

/// The answer with these addresses. Repeats the question, since a pause of the machine may end an attempt.
async fn expect(resolver: &Resolver, question: Question<'_>, known: &mut Known, expected: &[&str]) -> Answer {
    let mut last = None;
    for _ in 0..20 {
        match resolver.ask(question, known).await {
            Ok(answer) if ips(&answer) == expected => return answer,
            other => last = Some(other),
        }
    }
    panic!("{last:?} instead of {expected:?}");
}

async fn expect_host(resolver: &Resolver, known: &mut Known, expected: &[&str]) -> Answer {
    expect(resolver, Question::Host("app.test", 80), known, expected).await
}

#[tokio::test]
async fn a_family_that_fails_in_any_way_leaves_the_other() {
    let codes = [ResponseCode::ServFail, ResponseCode::NotImp, ResponseCode::Refused, ResponseCode::FormErr];
    let mut faults: Vec<_> = codes.map(Reply::Code).into();
    faults.push(Reply::Code(ResponseCode::Unknown(3841)));
    faults.push(Reply::Silence);
    for faulty in [RecordType::A, RecordType::AAAA] {
        for fault in &faults {
            let fault = fault.clone();
            let rule = move |asked: &Asked| if asked.kind == faulty { fault.clone() } else { both(asked) };
            let server = Server::new(rule).await;
            let other = if faulty == RecordType::A { V6 } else { V4 };
            let answer = expect_host(&resolver(&[&server]), &mut Known::default(), &[other]).await;
            assert!(matches!(answer.failure, Some(DnsError::Failed { .. })), "{:?}", answer.failure);
        }
    }
}

#[tokio::test]
async fn a_family_without_records_is_no_failure() {
    for none in [Reply::Records(Vec::new()), Reply::Code(ResponseCode::NXDomain)] {
        let rule =
            move |asked: &Asked| if asked.kind == RecordType::AAAA { none.clone() } else { both(asked) };
        let server = Server::new(rule).await;
        expect_host(&resolver(&[&server]), &mut Known::default(), &[V4]).await;
    }
}

#[tokio::test]
async fn known_addresses_of_a_family_that_fails_are_kept_and_the_other_is_renewed() {
    let sound = Server::new(both).await;
    let moved = Server::new(|asked: &Asked| match asked.kind {
        RecordType::A => Reply::Records(vec![(asked.name.clone(), data("192.0.2.9"))]),
        _ => Reply::Code(ResponseCode::ServFail),
    })
    .await;
    let dead = Server::new(|_: &Asked| Reply::Code(ResponseCode::Refused)).await;
    let gone = Server::new(|asked: &Asked| match asked.kind {
        RecordType::A => Reply::Code(ResponseCode::ServFail),
        _ => Reply::Records(Vec::new()),
    })
    .await;
    let mut known = Known::default();
    expect_host(&resolver(&[&sound]), &mut known, &[V4, V6]).await;
    for _ in 0..2 {
        let answer = expect_host(&resolver(&[&moved]), &mut known, &["192.0.2.9", V6]).await;
        assert!(answer.failure.is_some());
    }
    let all_failed = resolver(&[&dead]).ask(Question::Host("app.test", 80), &mut known).await;
    assert!(matches!(all_failed, Err(DnsError::Failed { .. })), "{all_failed:?}");
    // There are no AAAA records any more.
    expect_host(&resolver(&[&gone]), &mut known, &["192.0.2.9"]).await;
}

#[tokio::test]
async fn a_name_server_that_refuses_or_is_silent_does_not_stop_the_next() {
    let codes = [ResponseCode::ServFail, ResponseCode::Refused, ResponseCode::NotImp];
    let mut faults: Vec<_> = codes.map(Reply::Code).into();
    faults.push(Reply::Silence);
    for fault in faults {
        let broken = Server::new(move |_: &Asked| fault.clone()).await;
        let sound = Server::new(both).await;
        expect_host(&resolver(&[&broken, &sound]), &mut Known::default(), &[V4, V6]).await;
    }
}

#[tokio::test]
async fn servers_without_edns_and_servers_without_tcp_are_understood() {
    for fault in [Reply::Code(ResponseCode::FormErr), Reply::Silence] {
        let old = Server::new(move |asked: &Asked| if asked.has_edns { fault.clone() } else { both(asked) });
        expect_host(&resolver(&[&old.await]), &mut Known::default(), &[V4, V6]).await;
    }
    let long = |asked: &Asked| if asked.over_tcp { both(asked) } else { Reply::Truncated };
    let long = Server::new(long).await;
    expect_host(&resolver(&[&long]), &mut Known::default(), &[V4, V6]).await;
    let blocked = Server::new(|asked: &Asked| match (asked.over_tcp, asked.has_edns) {
        (true, _) => Reply::Silence,
        (false, true) => both(asked),
        (false, false) => Reply::Truncated,
    })
    .await;
    expect_host(&resolver(&[&blocked]), &mut Known::default(), &[V4, V6]).await;
}

/// SRV records of two targets, of which the preferred one is answered by `preferred`.
async fn service(preferred: Reply) -> Server {
    Server::new(move |asked: &Asked| match (asked.kind, asked.name.as_str()) {
        (RecordType::SRV, "_http._tcp.alias.test.") => {
            let alias = CNAME(Name::from_ascii("_http._tcp.app.test.").unwrap());
            let mut all = vec![(asked.name.clone(), RData::CNAME(alias))];
            all.extend(targets("_http._tcp.app.test."));
            Reply::Records(all)
        }
        (RecordType::SRV, name) => Reply::Records(targets(name)),
        (RecordType::CNAME, "_http._tcp.alias.test.") => {
            let alias = CNAME(Name::from_ascii("_http._tcp.app.test.").unwrap());
            Reply::Records(vec![(asked.name.clone(), RData::CNAME(alias))])
        }
        (_, "a.test.") => preferred.clone(),
        _ => both(asked),
    })
    .await
}

fn targets(owner: &str) -> Vec<(String, RData)> {
    [(20, "b.test."), (10, "a.test.")]
        .map(|(priority, target)| {
            let target = Name::from_ascii(target).unwrap();
            (owner.to_owned(), RData::SRV(SRV::new(priority, 1, 8080, target)))
        })
        .into()
}

#[tokio::test]
async fn a_target_of_a_service_that_fails_leaves_the_others() {
    let server = service(Reply::Code(ResponseCode::ServFail)).await;
    let question = Question::Service("_http._tcp.app.test");
    let answer = expect(&resolver(&[&server]), question, &mut Known::default(), &[V4, V6]).await;
    assert!(answer.endpoints.iter().all(|endpoint| !endpoint.is_backup), "no other priority has addresses");
    assert!(answer.failure.is_some());
}

#[tokio::test]
async fn a_service_may_be_an_alias_of_another() {
    let records = vec![("a.test.".to_owned(), data("192.0.2.7"))];
    let server = service(Reply::Records(records)).await;
    for name in ["_http._tcp.app.test", "_http._tcp.alias.test"] {
        let expected = ["192.0.2.7", V4, V6];
        let answer =
            expect(&resolver(&[&server]), Question::Service(name), &mut Known::default(), &expected).await;
        assert_eq!(answer.endpoints[0].address.port(), 8080);
        assert!(answer.endpoints[1].is_backup);
    }
}

#[tokio::test]
async fn chains_of_aliases_are_followed_and_loops_end() {
    let server = Server::new(|asked: &Asked| {
        let alias = |to: &str| {
            let alias = RData::CNAME(CNAME(Name::from_ascii(to).unwrap()));
            Reply::Records(vec![(asked.name.clone(), alias)])
        };
        match asked.name.as_str() {
            "app.test." => alias("b.test."),
            "b.test." => alias("c.test."),
            "loop.test." => alias("pool.test."),
            "pool.test." => alias("loop.test."),
            _ => both(asked),
        }
    })
    .await;
    let resolver = resolver(&[&server]);
    expect_host(&resolver, &mut Known::default(), &[V4, V6]).await;
    let mut last = None;
    for _ in 0..20 {
        let endless = resolver.ask(Question::Host("loop.test", 80), &mut Known::default()).await;
        if matches!(endless, Err(DnsError::NoRecords { .. })) {
            return;
        }
        last = Some(endless);
    }
    panic!("{last:?}");
}

#[tokio::test]
async fn known_addresses_end_at_their_limit() {
    let records = |address: &str| Ok(Records { data: vec![data(address)], ttl: 60 });
    let failed = || Err(DnsError::Failed { name: "app.test".to_owned(), source: NetError::Timeout });
    let none = || DnsError::NoRecords { name: "app.test".to_owned(), records: "A or AAAA" };
    let (mut known, start) = (Known::default(), Instant::now());
    let mut found = |after: Duration, v6| {
        let mut renewal = known.renew(start + after, 64);
        let (ips, _) = renewal.merge("app.test", Addresses { v4: records(V4), v6: Some(v6) });
        renewal.finish(true, none).unwrap();
        ips.len()
    };
    assert_eq!(found(Duration::ZERO, records(V6)), 2);
    assert_eq!(found(Duration::from_hours(23), failed()), 2);
    assert_eq!(found(Duration::from_hours(25), failed()), 1);
}

fn endpoint(host: u8, weight: u16, is_backup: bool) -> Endpoint {
    let address = SocketAddr::from(([127, 0, 0, host], 80));
    Endpoint { address, weight: Some(weight), is_backup }
}

#[test]
fn an_address_of_two_priorities_is_a_server_of_the_smaller_one() {
    let (primary, other) = (endpoint(2, 3, false), endpoint(1, 1, false));
    let (again, backup) = (endpoint(2, 9, true), endpoint(3, 1, true));
    for endpoints in [[again, backup, primary, other], [primary, other, again, backup]] {
        assert_eq!(distinct(endpoints.to_vec()), [other, primary, backup]);
    }
}

#[test]
fn an_address_of_two_weights_has_the_larger_one_in_any_order_of_the_records() {
    let (light, heavy) = (endpoint(1, 1, false), endpoint(1, 5, false));
    for endpoints in [[light, heavy], [heavy, light]] {
        assert_eq!(distinct(endpoints.to_vec()), [heavy]);
    }
}
