//! Experiments on visitors: messages about `[experiment.NAME]`.

use brisk_trials::Values;
use brisk_visits::Metric;

use super::*;

const MEASURED: &str = "[[host]]\nnames = [\"localhost\"]\nvisits = true\n";
const ROUTES: &str = "compression = true\n[[host.route]]\npath = \"/\"\nstatic = \".\"\n";
const STORE: &str = "[visits]\nenabled = true\nfolder = \"v\"\n";

/// The keys are from line 10 on.
fn with(keys: &str) -> String {
    format!("{LISTENER}{MEASURED}{STORE}[experiment.one]\n{keys}\n")
}

/// The keys are from line 14 on.
fn with_routes(keys: &str) -> String {
    format!("{LISTENER}{MEASURED}{ROUTES}{STORE}[experiment.one]\n{keys}\n")
}

#[test]
fn an_experiment_has_a_control_and_other_arms() {
    let one = |text: &str| {
        let resolved = accepted(text);
        assert_eq!(resolved.warnings, [""; 0]);
        resolved.settings.variation.0.all()[0].clone()
    };
    let found = one(&with("setting = \"tls.growing_records\"\nvalues = [false]"));
    let arms: Vec<_> = found.experiment.arms.iter().map(AsRef::as_ref).collect();
    assert_eq!(arms, ["tls.growing_records = true", "tls.growing_records = false"]);
    assert_eq!(found.values, Values::Records(vec![Records::Full]));
    assert_eq!((found.experiment.share.to_bits(), &*found.hosts), (1.0_f64.to_bits(), &[0][..]));
    assert_eq!((found.experiment.metric, &*found.experiment.name), (Metric::FirstByte, "one"));
    let keys = "setting = \"compression.zstd_level\"\nvalues = [1, 9]\nshare = 0.5\nhosts = [\"LOCALHOST\"]\nmetric = \"lcp\"\n\
                margin = 0.01";
    let found = one(&with_routes(keys));
    let arms: Vec<_> = found.experiment.arms.iter().map(AsRef::as_ref).collect();
    assert_eq!(arms, [3, 1, 9].map(|level| format!("compression.zstd_level = {level}")));
    assert_eq!(
        (found.experiment.share.to_bits(), found.experiment.metric),
        (0.5_f64.to_bits(), Metric::LargestPaint)
    );
}

#[test]
fn each_arm_has_its_advice_and_each_setting_a_metric_that_it_can_change() {
    let one = |text: &str| accepted(text).settings.variation.0.all()[0].experiment.clone();
    let found = one(&with("setting = \"tls.tickets_per_handshake\"\nvalues = [2]"));
    assert!(found.advice.iter().all(|advice| advice.starts_with("That is what sending the tickets costs; ")));
    let found = one(&with_routes("setting = \"compression.zstd_level\"\nvalues = [9]"));
    assert_eq!((found.metric, found.advice.len()), (Metric::Load, 2));
    assert_eq!(&*found.advice[0], "Keep what is configured, and remove the experiment.");
    assert_eq!(
        &*found.advice[1],
        "Write compression.zstd_level = 9 to the routes of its hosts and remove the experiment."
    );
    let upstream = "[[host.route]]\npath = \"/\"\nupstream = \"app\"\n[upstream.app]\nservers = [\"http://127.0.0.1:1\"]\n";
    let hints = |metric: &str| {
        let keys = "setting = \"early_hints\"\nvalues = [true]";
        format!("{LISTENER}{MEASURED}{upstream}{STORE}[experiment.one]\n{keys}\n{metric}")
    };
    assert_eq!(one(&hints("")).metric, Metric::LargestPaint);
    for blind in ["ttfb", "wait", "handshake"] {
        let message = checked(folder().path(), &hints(&format!("metric = \"{blind}\"\n"))).expect_err(blind);
        let expected = format!(
            "experiment.one.metric: \"{blind}\" is over when early_hints takes effect, and is the same in all arms: write one of \
             \"load\", \"fcp\", \"lcp\", \"inp\""
        );
        assert!(message.ends_with(&expected), "{message}");
    }
}

#[test]
fn wrong_values_of_settings_are_named() {
    for (setting, values, message) in [
        ("tls.growing_records", "1", "1 is no value of tls.growing_records: write true or false"),
        (
            "tls.growing_records",
            "true",
            "true is what is configured, which the control has: write another value",
        ),
        ("tls.tickets_per_handshake", "9", "9 is out of range: write 1 to 8"),
        (
            "tls.tickets_per_handshake",
            "\"2\"",
            "\"2\" is no value of tls.tickets_per_handshake: write a number from 1 to 8",
        ),
        (
            "net.ipv4.tcp_congestion_control",
            "7",
            "7 is no value of net.ipv4.tcp_congestion_control: write \"bbr\"",
        ),
    ] {
        refused(
            &with(&format!("setting = \"{setting}\"\nvalues = [{values}]")),
            &format!("brisk.toml:11:11: experiment.one.values[0]: {message}"),
        );
    }
    refused(
        &with("setting = \"tls.tickets_per_handshake\"\nvalues = [0]"),
        "brisk.toml:11:11: experiment.one.values[0]: 0 is out of range: write 1 to 8",
    );
    let usual = brisk_net::Congestion::usual().expect("a congestion control");
    refused(
        &with(&format!("setting = \"net.ipv4.tcp_congestion_control\"\nvalues = [{usual:?}]")),
        &format!(
            "brisk.toml:11:11: experiment.one.values[0]: {usual:?} is what is configured, which the control has: write another \
             value"
        ),
    );
    refused(
        &with("setting = \"tls.tickets_per_handshake\"\nvalues = [2, 2]"),
        "brisk.toml:11:14: experiment.one.values[1]: 2 is in the list already",
    );
    refused(
        &with("setting = \"tls.tickets_per_handshake\"\nvalues = []"),
        "brisk.toml:11:10: experiment.one.values: no value: write what is to be tried beside what is configured",
    );
    let message = checked(
        folder().path(),
        &with("setting = \"net.ipv4.tcp_congestion_control\"\nvalues = [\"nosuch\"]"),
    )
    .expect_err("no such module");
    let start = "brisk.toml:11:11: experiment.one.values[0]: the kernel has no congestion control \"nosuch\": it has ";
    assert!(message.starts_with(start) && message.ends_with("`modprobe tcp_nosuch` may add it"), "{message}");
}

#[test]
fn what_an_experiment_cannot_change_is_said() {
    for (setting, value, message) in [
        ("early_hints", "true", "no route of its hosts has an `upstream`, and other answers come at once"),
        ("compression.gzip_level", "9", "no route of its hosts is compressed with it: write `compression`"),
    ] {
        refused(
            &with(&format!("setting = \"{setting}\"\nvalues = [{value}]")),
            &format!("brisk.toml:10:11: experiment.one.setting: has no effect: {message}"),
        );
    }
}

#[test]
fn wrong_keys_of_an_experiment_are_named() {
    let right = "setting = \"tls.growing_records\"\nvalues = [false]";
    for (line, message) in [
        ("share = 0", "12:9: experiment.one.share: 0 is out of range: write 0.001 to 1"),
        ("share = 1.5", "12:9: experiment.one.share: 1.5 is out of range: write 0.001 to 1"),
        ("margin = 2", "12:10: experiment.one.margin: 2 is out of range: write 0 to 1"),
        (
            "hosts = [\"other.test\"]",
            "12:10: experiment.one.hosts[0]: \"other.test\" is not known here; known here: `localhost`",
        ),
        (
            "metric = \"cls\"",
            "12:10: experiment.one.metric: \"cls\" is not known here; known here: `wait`, `ttfb`, `load`, `fcp`, `lcp`, \
             `inp`",
        ),
        (
            "metric = \"handshake\"",
            "12:10: experiment.one.metric: \"handshake\" is over when tls.growing_records takes effect, and is the same in all \
             arms: write one of \"wait\", \"ttfb\", \"load\", \"fcp\", \"lcp\", \"inp\"",
        ),
    ] {
        refused(&with(&format!("{right}\n{line}")), &format!("brisk.toml:{message}"));
    }
    refused(
        &with("setting = \"tls.growing_record\"\nvalues = [false]"),
        "brisk.toml:10:11: experiment.one.setting: \"tls.growing_record\" is not known here; did you mean \
         `tls.growing_records`?",
    );
    refused(&with("values = [false]"), "brisk.toml:9:1: experiment.one: the key `setting` is missing");
}

#[test]
fn an_experiment_needs_visits() {
    let table = "[experiment.one]\nsetting = \"tls.growing_records\"\nvalues = [false]\n";
    refused(
        &format!("{LISTENER}{MEASURED}{table}"),
        "brisk.toml:6:1: experiment.one: needs the store of visits, which compares: write [visits] with enabled = true",
    );
    refused(
        &format!("{LISTENER}{HOST}{STORE}{table}"),
        "brisk.toml:8:1: experiment.one: no host has its visits measured: write `visits = true` under a [[host]]",
    );
    refused(
        &format!("{LISTENER}{HOST}{STORE}{table}hosts = [\"localhost\"]\n"),
        "brisk.toml:11:10: experiment.one.hosts[0]: \"localhost\" is not measured: write `visits = true` under its \
         [[host]]",
    );
}

#[test]
fn an_experiment_needs_page_views_that_are_measured() {
    let table = "[experiment.one]\nsetting = \"tls.growing_records\"\nvalues = [false]\n";
    let ca = TestCa::new();
    let leaf = ca.server(&["*.test"]).issue();
    // Of five lines.
    let host = |name: &str, visits: &str| {
        brisk_testkit::brisk::host(&[name], &[&leaf]) + &format!("visits = {visits}\n")
    };
    let (none, some) = (host("a.test", "{ share = 0 }"), host("b.test", "true"));
    refused(
        &format!("{LISTENER}{none}{STORE}{table}"),
        "brisk.toml:11:1: experiment.one: no page view is measured, as `share` of all hosts with `visits` is 0: write a greater \
         one",
    );
    refused(
        &format!("{LISTENER}{some}{STORE}share = 0\n{table}"),
        "brisk.toml:12:1: experiment.one: no page view is measured, as `share` of all hosts with `visits` is 0: write a \
         greater one",
    );
    refused(
        &format!("{LISTENER}{none}{some}{STORE}{table}hosts = [\"b.test\", \"a.test\"]\n"),
        "brisk.toml:19:20: experiment.one.hosts[1]: no page view of \"a.test\" is measured, as `share` of its visits is \
         0: write a greater one",
    );
    let found = accepted(&format!("{LISTENER}{none}{some}{STORE}{table}"));
    let found = &found.settings.variation.0.all()[0];
    assert_eq!((&*found.hosts, &*found.experiment.hosts), (&[1][..], &["b.test".into()][..]));
    let redirect = "[[host.route]]\npath = \"/\"\nredirect = \"https://a.test/\"\n";
    refused(
        &format!("{LISTENER}{some}{redirect}{STORE}{table}"),
        "brisk.toml:14:1: experiment.one: no route of its hosts answers with a page, and pages measure: name hosts that have \
         some",
    );
}

#[test]
fn a_setting_of_a_host_is_in_one_experiment() {
    let table =
        |name: &str| format!("[experiment.{name}]\nsetting = \"tls.tickets_per_handshake\"\nvalues = [2]\n");
    refused(
        &format!("{LISTENER}{MEASURED}{STORE}{}{}", table("a"), table("b")),
        "brisk.toml:13:11: experiment.b.setting: [experiment.a] has tls.tickets_per_handshake of \"localhost\" already: let \
         one end, or write other `hosts`",
    );
    let settings = [
        ("a", "tls.growing_records", "false"),
        ("b", "tls.tickets_per_handshake", "2"),
        ("c", "compression.zstd_level", "1"),
        ("d", "compression.gzip_level", "1"),
        ("e", "compression.br_quality", "1"),
    ];
    let all = settings.map(|(name, setting, value)| {
        format!("[experiment.{name}]\nsetting = \"{setting}\"\nvalues = [{value}]\n")
    });
    refused(
        &format!("{LISTENER}{MEASURED}{ROUTES}{STORE}{}", all.concat()),
        "brisk.toml:25:1: experiment.e: \"localhost\" takes part in 4 already: a visit has no more; let one end",
    );
}
