//! Cost of a million sessions in the memory store: `cargo bench --package brisk-session --bench memory`.
//!
//! Each session size is measured in a process of its own, because freed memory would be reused by the next. The
//! allocator is that of the gateway.

use std::{env, fs, hint::black_box, process::Command, time::Duration};

use brisk_session::{Claim, Lookup, MemorySettings, MemoryStore, SessionStore};

#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SESSIONS: u64 = 1_000_000;

/// Bytes of a TLS 1.3 session, and of a TLS 1.2 session with a client certificate.
const SIZES: [usize; 2] = [100, 230];

const LIFETIME: Duration = Duration::from_hours(1);

fn main() {
    // Ignores the argument `--bench` from Cargo.
    if let Some(size) = env::args().find_map(|argument| argument.parse().ok()) {
        measure(size);
        return measure_eviction(size);
    }
    let program = env::current_exe().expect("the path of this program");
    for size in SIZES {
        let status = Command::new(&program).arg(size.to_string()).status().expect("this program runs");
        assert!(status.success(), "{status}");
    }
}

fn measure(size: usize) {
    let store = store();
    println!("{SESSIONS} sessions of {size} bytes, IDs of 32 bytes");

    let before = resident();
    let put = timed(0..SESSIONS, |number| put(&store, number, size));
    let held = store.statistics();
    let each = (resident() - before) as f64 / held.sessions as f64;
    println!("  memory   {each:.0} bytes a session, {:.0} sessions in 1 MiB", f64::from(1 << 20) / each);
    println!("           {} by its own account", held.bytes / held.sessions);
    println!("  put      {put:.0} ns while it grows, {} kept", held.sessions);

    let found = |number| matches!(store.get(&id(number)), Lookup::Ready(Ok(_)));
    let get = timed(scattered(), found);
    println!("  get      {get:.0} ns, in random order");
    let miss = timed(SESSIONS..2 * SESSIONS, found);
    println!("  get      {miss:.0} ns, not there");

    let taken = |number| matches!(store.take(&id(number), Claim::Everywhere), Lookup::Ready(Ok(_)));
    let take = timed(scattered(), taken);
    println!("  take     {take:.0} ns, in random order; {} left", store.statistics().sessions);
}

/// Fills a full store with as many sessions again, while one in a hundred of the old ones is looked up ten times.
fn measure_eviction(size: usize) {
    const HOT: u64 = 100;
    let store = store();
    (0..SESSIONS).for_each(|number| assert!(put(&store, number, size)));
    let before = store.statistics();
    let evicting = timed(0..SESSIONS, |number| {
        if number % 10 == 0 {
            let _asked_for = store.get(&id(number * HOT / 10 % SESSIONS));
        }
        put(&store, SESSIONS + number, size)
    });
    let evicted = store.statistics().evicted - before.evicted;
    println!("  put      {evicting:.0} ns when full, {evicted} evicted, with a get of one in ten");
    let held = |number: &u64| matches!(store.get(&id(*number)), Lookup::Ready(Ok(_)));
    let [hot, new] = [(0..SESSIONS).step_by(HOT as usize), (SESSIONS..2 * SESSIONS).step_by(1)]
        .map(|numbers| 100.0 * numbers.clone().filter(held).count() as f64 / numbers.count() as f64);
    println!("           {hot:.1} % of those asked for are left, {new:.1} % of the new ones");
}

fn store() -> MemoryStore {
    MemoryStore::new(&MemorySettings { max_sessions: SESSIONS as usize, max_bytes: usize::MAX >> 1 })
}

fn put(store: &MemoryStore, number: u64, size: usize) -> bool {
    matches!(store.put(&id(number), vec![number as u8; size], LIFETIME), Lookup::Ready(true))
}

/// Nanoseconds of processor time per call, which other load on the machine affects less than wall-clock time.
fn timed(numbers: impl Iterator<Item = u64>, mut each: impl FnMut(u64) -> bool) -> f64 {
    let (start, mut count) = (on_processor(), 0_u64);
    for number in numbers {
        black_box(each(number));
        count += 1;
    }
    (on_processor() - start) as f64 / count as f64
}

/// Processor time of this thread in nanoseconds.
fn on_processor() -> u64 {
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel says");
    schedstat
        .split_whitespace()
        .next()
        .and_then(|first| first.parse().ok())
        .expect("the first word is a number")
}

/// All numbers in an order without locality: the step and the number of sessions are coprime.
fn scattered() -> impl Iterator<Item = u64> {
    (0..SESSIONS).map(|number| number * 618_033_989 % SESSIONS)
}

/// Pseudo-random bytes for a session ID (`SplitMix64`).
fn id(number: u64) -> [u8; 32] {
    let mut id = [0; 32];
    for (index, word) in id.chunks_exact_mut(8).enumerate() {
        let mut mixed = (number * 4 + index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word.copy_from_slice(&(mixed ^ (mixed >> 31)).to_be_bytes());
    }
    id
}

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("the kernel says");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("there is this line");
    let kibibytes: u64 = line.trim_end_matches("kB").trim().parse().expect("a number");
    kibibytes << 10
}
