//! Invariants of schedules.

use super::*;

const S: Duration = Duration::from_secs(1);

fn fixed(rate: Steps, warmup: Duration, time: Option<Duration>, count: Option<u64>) -> Schedule {
    Schedule::new(Pace::Fixed { rate, concurrency: 8 }, warmup, time, count)
}

fn starts(schedule: &Schedule) -> Vec<Duration> {
    (0..).map_while(|index| schedule.start_of(index)).collect()
}

fn steps(text: &str) -> Steps {
    text.parse().expect(text)
}

#[test]
fn a_fixed_rate_is_even_and_starts_at_once() {
    for rate in [0.5, 1.0, 7.0, 1000.0, 33_333.0] {
        let all = starts(&fixed(Steps::constant(rate), Duration::ZERO, Some(S * 10), None));
        assert_eq!(all[0], Duration::ZERO);
        assert!((all.len() as f64 - rate * 10.0).abs() <= 1.0, "{} at {rate}", all.len());
        for (index, start) in all.iter().enumerate() {
            assert!((start.as_secs_f64() - index as f64 / rate).abs() < 1e-6, "{index} at {rate}");
        }
    }
}

#[test]
fn each_step_of_a_ramp_has_its_rate() {
    for warmup in [Duration::ZERO, S * 3] {
        let schedule = fixed(steps("50:200:50/60s"), warmup, None, None);
        assert_eq!(schedule.end(), Some(warmup + S * 240));
        let all = starts(&schedule);
        assert!(all.is_sorted());
        for (step, rate) in [50.0, 100.0, 150.0, 200.0].into_iter().enumerate() {
            let from = warmup + S * 60 * step as u32;
            let within = all.iter().filter(|start| **start >= from && **start < from + S * 60).count();
            assert!((within as f64 - rate * 60.0).abs() <= 1.0, "{within} at {rate}");
            for at in [from, from + S * 59] {
                assert_eq!(schedule.offered(at), Some(rate));
            }
        }
    }
}

#[test]
fn the_last_step_is_never_above_the_last_value() {
    let uneven = steps("10:25:10/1s");
    assert_eq!(uneven.count(), 3);
    let values: Vec<_> = (0..5).map(|at| uneven.at(S * at)).collect();
    assert_eq!(values, [10.0, 20.0, 25.0, 25.0, 25.0]);
    let longer = fixed(uneven, Duration::ZERO, Some(S * 10), None);
    assert_eq!(starts(&longer).len(), 10 + 20 + 25 * 8);
}

#[test]
fn a_count_counts_what_is_measured() {
    for (warmup, rate) in [(Duration::ZERO, 100.0), (S, 100.0), (Duration::from_millis(333), 77.0)] {
        let schedule = fixed(Steps::constant(rate), warmup, None, Some(50));
        let measured = starts(&schedule).into_iter().filter(|start| *start >= warmup).count();
        assert_eq!(measured, 50, "{warmup:?} {rate}");
    }
}

#[test]
fn time_or_count_whichever_comes_first() {
    let rate = Steps::constant(10.0);
    assert_eq!(starts(&fixed(rate, Duration::ZERO, Some(S), Some(100))).len(), 10);
    assert_eq!(starts(&fixed(rate, Duration::ZERO, Some(S * 100), Some(15))).len(), 15);
}

#[test]
fn only_a_schedule_without_any_end_is_endless() {
    assert!(fixed(Steps::constant(1.0), S, None, None).is_endless());
    assert!(!fixed(steps("1:2:1/1s"), S, None, None).is_endless());
    assert!(!fixed(steps("1:2:1/1s"), S, None, Some(1)).is_endless());
}

#[test]
fn a_closed_loop_opens_its_slots_when_their_step_comes() {
    let schedule = Schedule::new(Pace::Closed(steps("5:20:5/60s")), S * 2, None, None);
    assert_eq!(schedule.most(), 20);
    assert_eq!(schedule.end(), Some(S * 242));
    for second in [0, 1, 2, 61, 62, 63, 121, 122, 200, 241] {
        let open = (0..schedule.most()).filter(|slot| schedule.opening(*slot) <= S * second).count();
        assert_eq!(open, schedule.concurrency(S * second), "after {second} s");
    }
    assert_eq!(schedule.start_of(0), None);
    assert_eq!(schedule.offered(S), None);
}

#[test]
fn a_constant_closed_loop_opens_all_slots_at_once() {
    let schedule = Schedule::new(Pace::Closed(Steps::constant(24.0)), S, Some(S), None);
    assert_eq!(schedule.most(), 24);
    assert!((0..24).all(|slot| schedule.opening(slot) == Duration::ZERO));
}

#[test]
fn steps_are_read_and_written_alike() {
    for text in ["50:200:50/60s", "1:2:0.5/1s", "10:25:10/200ms"] {
        assert_eq!(steps(text).to_string(), text);
    }
    for text in
        ["", "50", "50:200", "50:200:50", "200:50:50/60s", "0:5:1/1s", "1:5:0/1s", "1:5:1/0s", "1:2:1:3/1s"]
    {
        assert!(text.parse::<Steps>().is_err(), "{text:?}");
    }
}
