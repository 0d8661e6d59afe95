//! State of the process: every `static` that changes, and the reason for which it is no field of a component.
//!
//! Components are `server::Part`s, which `brisk serve` lists and which a reload replaces. A static is in no such list and
//! outlives reloads, so each is listed here. The measuring tools run once per process and are not examined.

use std::collections::BTreeSet;

use crate::tree::{FOLDERS, crates, folder, name, product, read, sources};

/// Folders whose statics are not examined.
const SKIPPED: &[&str] = &["tools", "tests"];

/// Modules for tests and fuzzing.
const SKIPPED_FILES: &[&str] = &["fuzz.rs", "testing.rs", "tests.rs"];

/// Types of values that change, or whose first use determines them.
const CHANGING: &[&str] =
    &["Atomic", "Cell", "Counters", "Counts", "LazyLock", "Mutex", "OnceLock", "RwLock", "Semaphore"];

/// The statics by reason, as crate and name.
const STATICS: &[(&str, &[&str])] = &[
    (
        "computed from constants at the first use, equal in every process",
        &[
            "beacon::VERSION",
            "dashboard::LIST",
            "http::FIELDS",
            "lanes::TABLES",
            "tls-base::SUITES",
            "tls-client::MOZILLA",
            "tls-client::SUITES",
            "tls::GROUPS",
            "visits::BROWSERS",
            "visits::DEVICES",
            "wire::ALL",
        ],
    ),
    (
        "facts of the file system that a worker keeps for a second, with their folder in the key",
        &["folder::KNOWN"],
    ),
    ("a property of the processor, measured once", &["keys::CHOICES", "lanes::MEASURED"]),
    ("the origin of times that are kept as numbers in atomics", &["certs::START", "upstream-group::START"]),
    (
        "numbers that distinguish objects of the process",
        &["certs::COUNT", "logs::NEXT", "telemetry::NEXT", "transform::NEXT", "upstream-group::NEXT"],
    ),
    (
        "memory that a thread reuses within a turn, or hands to a call that takes no argument",
        &[
            "http::SPARE",
            "http-server::SPARE",
            "keys::WAITING",
            "keys::WAKE",
            "logs::SLOTS",
            "logs::STAMP",
            "telemetry::NUMBER",
            "tls-client::CURRENT",
            "tls-client::INCOMING",
            "tls-client::MLKEM768_PAIR",
            "tls-client::SECP256R1_PAIR",
            "tls-client::SECP384R1_PAIR",
            "tls-client::X25519_PAIR",
            "tls::BUFFERS",
            "tls::CERTIFICATE",
            "tls::CURRENT",
            "tls::INCOMING",
            "tls::LAST",
            "tls::NOTES",
            "tls::REFUSAL",
            "tls::SEALING",
            "tls::STACKS",
            "tls::WAKER",
            "tls::WORKER",
            "beacon::MADE",
            "transform::IDLE",
            "transform::SCRATCH",
            "upstream::COPIES",
            "upstream::SCRATCH",
            "upstream::SPARE",
        ],
    ),
    (
        "counts for the metrics, which a reload must not reset",
        &[
            "keys::FAULTS",
            "keys::SIGNATURES",
            "tls::ENCAPSULATIONS",
            "tls::EXCHANGES",
            "transform::ANSWERS",
            "transform::ARRIVALS",
            "transform::BROKEN",
            "transform::COPIES_SENT",
            "transform::COUNTS",
            "transform::REFUSED",
        ],
    ),
    (
        "content that is kept beyond reloads within a limit of the process",
        &["net::OF_PROCESS", "transform::CLOCK", "transform::HELD", "transform::KEPT", "transform::STORE"],
    ),
    ("padded pages of a visitor, which a reload must not grant again", &["transform::PAGES"]),
    ("random keys whose sessions and cookies outlive reloads", &["rules::RANDOM", "session::OF_PROCESS"]),
    ("a limit of threads or of log lines for the process", &["answer::READERS", "transform::THROTTLE"]),
    ("one thread looks after the files of the hosts of all generations", &["answer::SWITCHES"]),
    ("a shared library and a token know only the process", &["keys-pkcs11::MODULES", "keys-pkcs11::REFUSED"]),
    (
        "a signal handler has no other access to its data",
        &[
            "profile::RUNNING",
            "profile::SLOTS",
            "profile::TAKEN",
            "sandbox::ANSWERS",
            "sandbox::COUNT",
            "sandbox::RULESET",
        ],
    ),
    (
        "a deliberate defect, which no released program has",
        &["defects::CALLS", "defects::CHOSEN", "defects::IS_RELOADED"],
    ),
    ("the log of the program begins before all components", &["cli::DROPPED", "cli::PROBLEMS"]),
    ("kernels compiled for the processor, for tests of the crate", &["keys-cuda::CACHE"]),
];

/// The name of the static that a line declares, if its type is one of [`CHANGING`].
fn declared<'a>(line: &'a str, next: &str) -> Option<&'a str> {
    let line = line.trim_start();
    let rest = line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(crate) ")).unwrap_or(line);
    let (name, kind) = rest.strip_prefix("static ")?.split_once(':')?;
    // A long type is in the next line.
    let kind = if kind.trim().is_empty() { next } else { kind };
    let kind = kind.split_once(" = ").map_or(kind, |(kind, _)| kind);
    CHANGING.iter().any(|changing| kind.contains(changing)).then_some(name)
}

fn found() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let examined = crates().into_iter().filter(|path| !SKIPPED.contains(&FOLDERS[folder(path)]));
    for path in examined {
        for file in sources(&path.join("src")) {
            let is_skipped = SKIPPED_FILES.iter().any(|skipped| file.to_string_lossy().ends_with(skipped));
            let text = if is_skipped { String::new() } else { read(&file) };
            let lines = product(&text);
            let following = lines.iter().skip(1).chain(&[""]);
            let names = lines.iter().zip(following).filter_map(|(line, next)| declared(line, next));
            found.extend(names.map(|own| format!("{}::{own}", name(&path))));
        }
    }
    found
}

#[test]
fn every_static_that_changes_has_a_reason() {
    let listed: Vec<_> =
        STATICS.iter().flat_map(|(_, names)| *names).map(|name| (*name).to_owned()).collect();
    let (found, set) = (found(), listed.iter().cloned().collect::<BTreeSet<_>>());
    assert_eq!(set.len(), listed.len(), "a static has two reasons");
    let unlisted: Vec<_> = found.difference(&set).collect();
    assert!(unlisted.is_empty(), "make these fields of a `server::Part`, or state the reason: {unlisted:#?}");
    let gone: Vec<_> = set.difference(&found).collect();
    assert!(gone.is_empty(), "no such static: {gone:#?}");
}

#[test]
fn declarations_are_found_with_their_types() {
    assert_eq!(declared("    static NEXT: AtomicU64 = AtomicU64::new(0);", ""), Some("NEXT"));
    assert_eq!(declared("pub(crate) static ALL: LazyLock<A> =", "    LazyLock::new(a);"), Some("ALL"));
    assert_eq!(declared("static LONG:", "    RefCell<Vec<u8>> = a();"), Some("LONG"));
    assert_eq!(declared("static TABLE: [u8; 4] = of(&Cell::new(1));", ""), None);
    assert_eq!(declared("let name: &'static str = Cell::NAME;", ""), None);
}
