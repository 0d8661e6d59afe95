use super::*;
use crate::trace::Refused;

fn report(trace: &Trace, error: Option<&ProbeError>) -> Report {
    let settings = Settings::new("https://example.test/".parse().expect("a URL"));
    let resolved =
        Resolved { addresses: Vec::new(), took: Duration::from_millis(1), https: HttpsAnswer::NotAsked };
    Report::of(&settings, resolved, trace, error)
}

#[test]
fn an_address_that_does_not_connect_costs_its_time_and_is_found_only_beside_one_that_does() {
    let (began, ms) = (Instant::now(), Duration::from_millis);
    let mut trace = Trace::default();
    let address = "192.0.2.1:443".parse().expect("an address");
    trace.refused.push(Refused { address, began, why: "no answer".to_owned() });
    (trace.milestones.began, trace.milestones.dialled) = (Some(began), Some(began + ms(5000)));
    assert!(report(&trace, None).findings.is_empty());
    trace.milestones.connected = Some(began + ms(5020));
    (trace.milestones.asked, trace.milestones.first_byte) = (Some(began + ms(5060)), Some(began + ms(5080)));
    trace.milestones.done = Some(began + ms(5090));
    let report = report(&trace, None);
    let finding = report.findings.iter().find(|finding| finding.id == "dead-address").expect("a finding");
    assert_eq!((finding.ms, finding.round_trips), (5000.0, 0));
    assert_eq!((report.phases.refused_ms, report.phases.connect_ms), (Some(5000.0), Some(20.0)));
    let first_byte = report.first_byte_ms().expect("an answer");
    assert!((first_byte - 5081.0).abs() < 0.01, "{first_byte}");
}

#[test]
fn a_failure_has_the_step_that_its_message_names() {
    let limit = Duration::from_secs(1);
    let late = ProbeError::Timeout { limit, step: Step::Resolve, detail: String::new() };
    let failure = report(&Trace::default(), Some(&late)).failure.expect("a failure");
    assert_eq!(failure.step, Step::Resolve);
}
