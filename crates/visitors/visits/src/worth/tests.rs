use brisk_telemetry::{Resumption, ResumptionFailure};
use brisk_wire::HttpVersion;
use brisk_wire::registry::ProtocolVersion;

use super::*;
use crate::random::Random;
use crate::row::{Numbers, Row};
use crate::visit::Visit;
use crate::{Browser, Connection, Device, Session};

/// Visits in which resumption saves `saved` ms. One browser is slow, and rarely resumes: that would be mistaken for an effect of
/// resumption.
fn visits(random: &mut Random, count: usize, saved: f64) -> Sample {
    let mut sample = Sample { visits: 10 * count as u64, ..Sample::default() };
    sample.rows.extend((0..count).map(|_| Sampled {
        weight: 10.0,
        host: 1,
        period: 0,
        at: 0,
        row: row(random, saved),
    }));
    sample
}

fn row(random: &mut Random, saved: f64) -> Row {
    let mut visit = Visit::new("example.com".into(), "/".into());
    let is_slow = random.unit() < 0.3;
    visit.browser = if is_slow { Browser::Firefox } else { Browser::Chrome };
    visit.device = if random.unit() < 0.5 { Device::Phone } else { Device::Desktop };
    let resumed = random.unit() < if is_slow { 0.3 } else { 0.7 };
    let is_new = random.unit() < 0.6;
    visit.session = if resumed {
        Session::Psk
    } else {
        Session::of_parts(Resumption::Full, (!is_new).then_some(ResumptionFailure::Expired))
    };
    visit.connection = Connection::New;
    visit.version = Some(if random.unit() < 0.9 { ProtocolVersion::TLS1_3 } else { ProtocolVersion::TLS1_2 });
    visit.http = Some(if random.unit() < 0.8 { HttpVersion::Http2 } else { HttpVersion::Http11 });
    let normal = (-2.0 * random.unit().ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos();
    let device = if visit.device == Device::Phone { 60.0 } else { 0.0 };
    let slow = if is_slow { 300.0 } else { 0.0 };
    let time = 100.0 * (0.5 * normal).exp() + device + slow + if resumed { 0.0 } else { saved };
    visit.measures.set(Metric::FirstByte, time);
    Row::new(&visit, Numbers { route: 1, ..Numbers::default() })
}

#[test]
fn a_hidden_effect_is_found_within_its_interval_in_spite_of_a_slow_browser() {
    let sample = visits(&mut Random::seeded(1), 20_000, 80.0);
    let found = worth(&sample, Metric::FirstByte);
    let [finding] = &found.findings[..] else { panic!("one finding: {found:#?}") };
    let difference = finding.difference;
    assert!(difference.low <= 80.0 && difference.high >= 80.0, "{difference:?}");
    assert!(difference.high - difference.low < 10.0, "{difference:?}");
    assert!(finding.unadjusted > 100.0, "without strata the browser counts too: {}", finding.unadjusted);
    assert_eq!((finding.dimension, finding.better.as_str()), ("session", "resumed"));
    assert!(finding.matched > 0.99);
    let [imbalance] = &finding.imbalances[..] else { panic!("one: {:?}", finding.imbalances) };
    assert_eq!((imbalance.dimension, imbalance.value.as_str()), ("browser", "chrome"));
    // 58 % resume.
    let reasons: Vec<_> = finding.reasons.iter().map(|reason| reason.name.as_str()).collect();
    assert_eq!(reasons, ["new visitors", "the ticket had expired"]);
    let sum: f64 = finding.reasons.iter().map(|reason| reason.share).sum();
    assert!((sum - finding.share).abs() < 1e-9 && (finding.share - 0.42).abs() < 0.02, "{}", finding.share);
    assert!(found.compared.len() >= 3, "{:?}", found.compared);
}

#[test]
fn a_finding_is_a_sentence() {
    let found = worth(&visits(&mut Random::seeded(1), 5_000, 80.0), Metric::FirstByte);
    let text = &found.findings[0].text;
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let finding = &found.findings[0];
    let start = format!(
        "{} of visits that opened a connection made a full handshake: {} new visitors, ",
        percent(finding.share),
        percent(finding.reasons[0].share)
    );
    assert!(text.starts_with(&start), "{text}");
    assert!(text.contains(" % the ticket had expired. Those that resumed had "), "{text}");
    assert!(
        text.contains(" less to first byte. Both differ in other things too: browser \"chrome\" ("),
        "{text}"
    );
}

#[test]
fn where_there_is_no_effect_none_is_claimed() {
    let mut random = Random::seeded(4);
    let claimed = (0..100).filter(|_| {
        let found = worth(&visits(&mut random, 2_000, 0.0), Metric::FirstByte);
        !found.findings.is_empty()
    });
    let claimed = claimed.count();
    assert!(claimed <= 5, "{claimed} of 100");
}

#[test]
fn an_empty_sample_has_no_findings() {
    assert_eq!(worth(&Sample::default(), Metric::FirstByte).findings, []);
    let few = visits(&mut Random::seeded(1), 40, 80.0);
    assert_eq!(worth(&few, Metric::FirstByte).compared.len(), 0);
}

#[test]
fn a_difference_is_an_average_over_visits() {
    let mut random = Random::seeded(7);
    // Small hosts are kept whole, and the large one is 99 % of the visits.
    let mut sample = Sample { visits: 200_000, ..Sample::default() };
    for host in 1..=20 {
        let row =
            |random: &mut Random| Sampled { weight: 1.0, host, period: 0, at: 0, row: row(random, 500.0) };
        sample.rows.extend((0..300).map(|_| row(&mut random)));
    }
    let row =
        |random: &mut Random| Sampled { weight: 600.0, host: 21, period: 0, at: 0, row: row(random, 80.0) };
    sample.rows.extend((0..1_000).map(|_| row(&mut random)));
    let found = worth(&sample, Metric::FirstByte);
    let finding = found.findings.iter().find(|finding| finding.dimension == "session").expect("one");
    assert!((finding.difference.value - 80.0).abs() < 25.0, "{:?}", finding.difference);
    assert!(finding.unadjusted < 250.0, "{}", finding.unadjusted);
}

#[test]
fn an_outage_is_no_effect_of_resumption() {
    let mut random = Random::seeded(9);
    let mut sample = visits(&mut random, 20_000, 0.0);
    // In one hour no client could resume, and upstreams were slow.
    for visit in sample.rows.iter_mut().take(4_000) {
        visit.period = 1;
        visit.row.session = Session::StoreDown as u8;
        let slow = visit.row.measures.get(Metric::FirstByte).unwrap() + 400.0;
        visit.row.measures.set(Metric::FirstByte, slow);
    }
    let found = worth(&sample, Metric::FirstByte);
    assert!(found.findings.iter().all(|finding| finding.dimension != "session"), "{:#?}", found.findings);
}

#[test]
fn time_is_named_where_both_sides_differ_in_it() {
    let mut random = Random::seeded(9);
    let mut sample = visits(&mut random, 20_000, 80.0);
    sample.step = 3_600;
    let is_resumed = |visit: &Sampled| visit.row.session == Session::Psk as u8;
    for visit in &mut sample.rows {
        let late = random.unit() < if is_resumed(visit) { 0.8 } else { 0.2 };
        visit.period = u16::from(late);
    }
    let found = worth(&sample, Metric::FirstByte);
    let finding = &found.findings[0];
    let time = finding.imbalances.iter().find(|imbalance| imbalance.dimension == "time").expect("time");
    assert_eq!(time.value, "1970-01-01 01:00 UTC");
}

#[test]
fn robots_are_not_compared() {
    let mut sample = visits(&mut Random::seeded(1), 5_000, 80.0);
    for visit in &mut sample.rows {
        visit.row.browser = Browser::Robot as u8;
    }
    assert_eq!(worth(&sample, Metric::FirstByte).compared.len(), 0);
}
