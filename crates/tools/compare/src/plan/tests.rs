use super::*;

const PLAN: &str = r#"
title = "Resumption"
about = """
Two
lines."""
options = "--connections 24"
cores = [1]
[compare]
mode = "full"
measures = ["rate", "p99"]
precision = 0.05
rounds = [3, 9]
time = "90s"
[[service]]
name = "upstream"
start = "run upstream {upstream}"
ports = ["upstream"]
ready = "127.0.0.1:{upstream}"
[[target]]
name = "nginx"
start = "run nginx {port}"
ports = ["port"]
variables = { rsa = "{port}" }
ready = "127.0.0.1:{port}"
options = "--connect 127.0.0.1:{port}"
[[target]]
name = "there"
pid_file = "there.pid"
[[mode]]
name = "full"
[[mode]]
name = "ticket"
options = "--resume ticket"
without = ["there"]
"#;

fn parse(text: &str) -> Result<Plan, PlanError> {
    Plan::parse(text, Path::new("plans/p.toml"))
}

#[test]
fn a_plan_is_read_whole() {
    let plan = parse(PLAN).unwrap();
    assert_eq!(plan.about, "Two lines.");
    assert_eq!(plan.baseline, Baseline { target: None, mode: Some(0) });
    assert_eq!(plan.measures, [Measure::Rate, Measure::P99]);
    let limits = Limits { precision: 0.05, rounds: (3, 9), time: Duration::from_secs(90) };
    assert_eq!(plan.limits, limits);
    assert_eq!(plan.targets[1].process, ProcessSource::PidFile(PathBuf::from("plans/there.pid")));
    assert_eq!(plan.cells().collect::<Vec<_>>(), [(0, 0), (1, 0), (0, 1)]);
}

#[test]
fn options_come_from_the_plan_the_target_and_the_mode() {
    let plan = parse(PLAN).unwrap();
    let mut variables = Variables::default();
    variables.set("port", "8443");
    let words = plan.options(0, 1, &variables).unwrap();
    assert_eq!(words, ["--connections", "24", "--connect", "127.0.0.1:8443", "--resume", "ticket"]);
}

#[test]
fn targets_and_modes_can_be_left_out() {
    let names = |plan: &Plan| {
        let targets = plan.targets.iter().map(|target| target.name.clone());
        targets.chain(plan.modes.iter().map(|mode| mode.name.clone())).collect::<Vec<_>>().join(" ")
    };
    let mut plan = parse(PLAN).unwrap();
    plan.keep(&["there".to_owned()], &["ticket".to_owned()]).unwrap();
    assert_eq!(names(&plan), "there full ticket", "what the others are compared with stays");
    assert_eq!(plan.baseline.mode, Some(0));
    assert_eq!(plan.cells().collect::<Vec<_>>(), [(0, 0)]);
    let mut plan = parse(PLAN).unwrap();
    plan.keep(&[], &[]).unwrap();
    assert_eq!(names(&plan), "nginx there full ticket");
    let error = plan.keep(&["where".to_owned()], &[]).unwrap_err();
    assert_eq!(error, "no target is called \"where\": there are nginx, there");
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let plan = parse("title = \"t\"\n[[target]]\nname = \"a\"\n[[mode]]\nname = \"m\"\n").unwrap();
    assert_eq!(plan.measures, [Measure::Rate, Measure::ServerCpu, Measure::P99]);
    assert_eq!(plan.limits, Limits { precision: 0.03, rounds: (6, 30), time: Duration::from_mins(10) });
    assert_eq!(plan.baseline, Baseline::default());
    assert_eq!(plan.targets[0].process, ProcessSource::Unknown);
}

#[test]
fn a_wrong_plan_says_where_and_what_would_be_right() {
    for (from, to, hint) in [
        ("mode = \"full\"", "mode = \"ful\"", "no mode is called \"ful\": there are full, ticket"),
        (
            "without = [\"there\"]",
            "without = [\"where\"]",
            "no target is called \"where\": there are nginx, there",
        ),
        ("name = \"there\"", "name = \"nginx\"", "two targets are called \"nginx\""),
        ("\"rate\", \"p99\"", "\"speed\"", "\"speed\" is no measure: write one of rate, server-cpu"),
        ("\"rate\", \"p99\"", "", "compare.measures is empty"),
        ("[3, 9]", "[9, 3]", "compare.rounds is [9, 3]"),
        ("0.05", "5.0", "compare.precision is 5"),
        ("\"90s\"", "\"soon\"", "compare.time is \"soon\""),
        ("pid_file = \"there.pid\"", "pid_file = \"x\"\npid = 1", "several of start, pid and pid_file"),
        ("ready = \"127.0.0.1:{port}\"\n", "", "does not say when it is ready"),
        ("title", "titel", "unknown field `titel`"),
        ("cores = [1]", "cores = 1", "invalid type"),
    ] {
        let text = PLAN.replacen(from, to, 1);
        let error = parse(&text).expect_err(hint).to_string();
        assert!(error.starts_with("plans/p.toml: ") && error.contains(hint), "{error}");
    }
}

#[test]
fn the_plans_of_this_repository_are_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../bench/plans");
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let plans: Vec<_> =
        files.iter().filter(|file| file.extension().is_some_and(|kind| kind == "toml")).collect();
    assert!(plans.len() >= 5, "{plans:?}");
    for file in plans {
        let plan = Plan::read(file).unwrap();
        assert!(!plan.about.is_empty(), "{} does not say what it is about", file.display());
    }
}
