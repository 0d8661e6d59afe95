//! Properties of a link as measured by ping, which uses the kernel's timestamps.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};

use brisk_link::{Direction, Link, SERVER, is_forbidden};
use brisk_testkit::process::wait_until;

/// One link at a time, because two would disturb each other's times.
static ALONE: Mutex<()> = Mutex::new(());

/// Starts a link; prints a note and returns `None` if this machine does not permit one.
fn link(to_client: &str, to_server: &str) -> Option<(Link, MutexGuard<'static, ()>)> {
    let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let direction = |text: &str| text.parse::<Direction>().expect("a direction");
    let helper = Path::new(env!("CARGO_BIN_EXE_brisk-link"));
    match Link::start(helper, direction(to_client), direction(to_server)) {
        Ok(link) => Some((link, alone)),
        Err(error) if is_forbidden(&error) => {
            eprintln!("skipped, since this machine allows no network namespaces or TUN devices: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Output of `ping OPTIONS SERVER` at the client's end.
fn ping(link: &Link, options: &str) -> String {
    brisk_testkit::programs::program("ping");
    let output =
        link.client("ping").args(options.split(' ')).arg(SERVER.to_string()).output().expect("ping starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The round-trip times in ms.
fn times(output: &str) -> Vec<f64> {
    let times = output.split("time=").skip(1).map(|rest| rest.split(' ').next().expect("a number"));
    times.map(|time| time.parse().expect("a number")).collect()
}

/// Pings until a round trip takes less than `most` ms; none may take less than `least`. Load and coarse timers of the
/// machine can only increase the times, so `most` excludes a wrong delay and not an imprecise one.
fn assert_round_trip(link: &Link, options: &str, least: f64, most: f64) {
    wait_until(&format!("a round trip of less than {most} ms"), || {
        let output = ping(link, options);
        let shortest = times(&output).into_iter().reduce(f64::min);
        let shortest = shortest.unwrap_or_else(|| panic!("no answers: {output}"));
        assert!(shortest >= least, "{shortest} ms");
        (shortest < most).then_some(())
    });
}

#[test]
fn a_round_trip_takes_the_delays_of_both_directions() {
    let Some((link, _alone)) = link("delay=30ms", "delay=20ms") else { return };
    assert_round_trip(&link, "-n -c 40 -i 0.02", 50.0, 65.0);
}

#[test]
fn a_link_without_delay_adds_none() {
    let Some((link, _alone)) = link("", "") else { return };
    assert_round_trip(&link, "-n -c 40 -i 0.02", 0.0, 5.0);
}

#[test]
fn a_packet_takes_the_time_that_its_bits_take() {
    // 1,250 bytes with their headers: 10 ms at 1 Mbit/s and 2 ms at 5 Mbit/s.
    let Some((link, _alone)) = link("delay=5ms,rate=5M", "delay=5ms,rate=1M") else { return };
    assert_round_trip(&link, "-n -c 20 -i 0.05 -s 1222", 22.0, 29.0);
}

#[test]
fn packets_are_lost_in_their_share_and_those_beyond_the_queue() {
    let Some((link, alone)) = link("loss=20%", "") else { return };
    // More are lost on a busy machine, on which ping ends before the last responses.
    wait_until("responses to 80 %", || {
        let answers = times(&ping(&link, "-n -c 500 -i 0.002 -W 1")).len();
        eprintln!("{answers} of 500");
        (350..450).contains(&answers).then_some(())
    });
    drop((link, alone));

    // Ten packets of 1,250 bytes at once; the queue has room for four.
    let Some((link, _alone)) = self::link("", "rate=1M,queue=5000") else { return };
    // More are answered if ping is delayed meanwhile.
    wait_until("responses to four to nine", || {
        let answers = times(&ping(&link, "-n -c 10 -l 10 -s 1222 -W 1")).len();
        eprintln!("{answers} of 10");
        (4..10).contains(&answers).then_some(())
    });
}

#[test]
fn ends_have_loopback_and_no_other_network() {
    let Some((link, _alone)) = link("", "") else { return };
    for mut end in [link.client("ip"), link.server("ip")] {
        let output = end.args(["-brief", "link"]).output().expect("ip starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("lo ") && text.contains("LOWER_UP"), "{text}");
    }
}

#[test]
fn the_helper_ends_with_the_process_that_started_it() {
    let Some((link, alone)) = link("", "") else { return };
    drop((link, alone));
    let mut helper = Command::new(env!("CARGO_BIN_EXE_brisk-link"));
    let helper = helper.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    // Its standard input is closed then, as if its parent had ended.
    let output = helper.and_then(std::process::Child::wait_with_output).expect("the helper starts");
    assert!(output.status.code().is_some(), "{output:?}");
}

#[test]
fn a_direction_that_is_none_is_named() {
    let mut helper = Command::new(env!("CARGO_BIN_EXE_brisk-link"));
    let output = helper.args(["--to-client", "delay=25"]).output().expect("the helper starts");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("delay=25: expected something like delay=25ms"), "{error}");
}
