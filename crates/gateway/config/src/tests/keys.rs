//! `[keys]`.

use std::num::NonZeroUsize;
use std::time::Duration;

use brisk_keys::{BatchSettings, Offload, Threads};

use super::*;

fn with_keys(keys: &str) -> String {
    format!("{LISTENER}workers = 1\n[keys]\n{keys}\n{HOST}")
}

fn settings(keys: &str) -> BatchSettings {
    accepted(&with_keys(keys)).keys.processor
}

fn threads(number: usize) -> Threads {
    Threads::Exactly(NonZeroUsize::new(number).unwrap())
}

#[test]
fn rsa_alone_is_offloaded_by_default() {
    let keys = settings("");
    assert_eq!(keys.offload, Offload { rsa: true, ecdsa: false, ed25519: false });
    assert!(keys.simd && keys.cores.is_empty());
    assert_eq!(keys.queue.get(), 1024);
}

#[test]
fn what_is_written_about_keys_is_what_is_meant() {
    let keys =
        settings("threads = 3\ncores = [4, 0]\nqueue = 9\noffload = [\"ecdsa\", \"ed25519\"]\nsimd = false");
    assert_eq!((keys.threads, keys.queue.get(), keys.simd), (threads(3), 9, false));
    assert_eq!(keys.cores, [4, 0]);
    assert_eq!(keys.offload, Offload { rsa: false, ecdsa: true, ed25519: true });
}

#[test]
fn handshakes_wait_for_a_full_batch_as_written() {
    let wait = |keys| accepted(&with_keys(keys)).keys.simd_wait;
    assert_eq!(wait(""), Duration::from_micros(500));
    assert_eq!(wait("simd_wait = \"80us\""), Duration::from_micros(80));
    assert_eq!(wait("simd_wait = \"0s\""), Duration::ZERO);
}

#[test]
fn cores_have_a_thread_each_by_default() {
    assert_eq!(settings("cores = [5, 6, 7]").threads, threads(3));
}

#[test]
fn threads_that_have_nothing_to_do_are_a_warning() {
    let resolved = accepted(&with_keys("offload = []\nthreads = 2"));
    assert_eq!(
        resolved.warnings,
        ["[keys]: offload = [] leaves all operations to the workers: threads and cores mean nothing"]
    );
    assert_eq!(resolved.keys.processor.offload, Offload { rsa: false, ecdsa: false, ed25519: false });
    assert_eq!(accepted(&with_keys("offload = []")).warnings, [""; 0]);
}

#[cfg(feature = "cuda")]
#[test]
fn a_gpu_is_asked_for_and_has_a_deadline() {
    let cuda = |keys| accepted(&with_keys(keys)).keys.gpu;
    assert_eq!(cuda("cuda_wait = \"5ms\""), None);
    assert_eq!(cuda("cuda = true").unwrap().wait, None);
    assert_eq!(cuda("cuda = true\ncuda_wait = \"5ms\"").unwrap().wait, Some(Duration::from_millis(5)));
    let message = "needs offload to name \"rsa\", so that there are threads beside the GPU";
    refused(&with_keys("cuda = true\noffload = []"), &format!("brisk.toml:5:8: keys.cuda: {message}"));
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_program_that_knows_no_gpu_says_so() {
    let message = "this brisk was built without it: build it with `cargo build --release -p brisk-cli --features cuda`, or write `false`";
    refused(&with_keys("cuda = true"), &format!("brisk.toml:5:8: keys.cuda: {message}"));
    assert_eq!(accepted(&with_keys("cuda = false\ncuda_wait = \"5ms\"")).warnings, [""; 0]);
}

#[test]
fn wrong_settings_of_keys_are_one_line_each() {
    for (line, column, message) in [
        ("threads = 0", 11, "threads: 0 is out of range: write 1 to 1024"),
        ("queue = 0", 9, "queue: 0 is out of range: write 1 to 1000000"),
        ("cores = [0, 5000]", 13, "cores[1]: 5000 is out of range: write 0 to 1023"),
        ("cores = [2, 3, 2]", 16, "cores[2]: keys.cores[0] is 2 already"),
        ("cores = 2", 9, "cores: expected a list, found the number 2; put it in brackets"),
        ("offload = [\"ecsda\"]", 12, "offload[0]: \"ecsda\" is not known here; did you mean `ecdsa`?"),
        (
            "offload = [\"dsa512\"]",
            12,
            "offload[0]: \"dsa512\" is not known here; known here: `rsa`, `ecdsa`, `ed25519`",
        ),
        ("cuda_wait = \"2s\"", 13, "cuda_wait: 2s is out of range: write 1ms to 1s"),
        ("simd_wait = \"1s\"", 13, "simd_wait: 1s is out of range: write 0ms to 10ms"),
        ("simd = \"no\"", 8, "simd: expected `true` or `false`, found the text \"no\""),
    ] {
        refused(&with_keys(line), &format!("brisk.toml:5:{column}: keys.{message}"));
    }
}

#[test]
fn the_user_of_the_key_process_may_be_a_variable() {
    let folder = folder();
    let file = folder.path().join("brisk.toml");
    for (written, expected) in [
        ("${BRISK_TEST_NO_NAME:-keys}", Some("keys")),
        ("keys", Some("keys")),
        // Reported as an error of the text, so there is no process to start.
        ("${BRISK_TEST_NO_NAME}", None),
    ] {
        let keys = format!("isolate = true\nisolate_user = \"{written}\"");
        fs::write(&file, with_keys(&keys)).expect("written");
        let isolation = early_keys(&sources(&file, &Rights::default()).expect("texts")).isolation;
        assert_eq!(isolation.and_then(|isolation| isolation.user).as_deref(), expected, "{written}");
    }
}
