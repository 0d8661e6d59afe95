use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::*;
use crate::experiment::Definitions;
use crate::gather::Gathered;
use crate::metric::Metric;
use crate::reader::{Database, Query, Span};
use crate::row::{Numbers, Row};
use crate::sample::{Sample, Sampled};
use crate::visit::Visit;
use crate::worth::worth;
use crate::{Browser, Connection, Device, Session};

/// The start of an hour and of a day.
const START: i64 = 20_000 * DAY;

fn store(folder: &Path) -> Store {
    Store::open(folder).unwrap()
}

fn visit(host: &Arc<str>, at: i64, ms: f64) -> Visit {
    let mut visit = Visit::new(Arc::clone(host), "/".into());
    visit.at = UNIX_EPOCH + Duration::from_secs(at as u64);
    visit.measures.set(Metric::FirstByte, ms);
    visit
}

fn write(store: &mut Store, visits: impl IntoIterator<Item = Visit>) {
    let mut gathered = Gathered::new();
    visits.into_iter().for_each(|visit| gathered.add(visit));
    store.write(&mut gathered, &Definitions::default(), START).unwrap();
}

fn query(host: Option<&str>, span: Span) -> Query {
    Query { host: host.map(str::to_owned), page: None, span, metric: Metric::FirstByte }
}

/// Visits in the series and in the sample of a span, and rows of the sample.
fn counts(folder: &Path, host: Option<&str>, span: Span, now: i64) -> (u64, u64, usize) {
    let database = Database::open(folder).unwrap();
    let series = database.series(&query(host, span), now).unwrap();
    let sample = database.sample(&query(host, span), now).unwrap();
    (series.points.iter().map(|point| point.count).sum(), sample.visits, sample.rows.len())
}

fn count(store: &Store, text: &str) -> i64 {
    store.connection.query_row(text, [], |row| row.get(0)).unwrap()
}

/// Three hours with a visit of each of two hosts every ten seconds.
fn three_hours(store: &mut Store) {
    let hosts: [Arc<str>; 2] = ["a".into(), "b".into()];
    for minute in 0..180 {
        let visits = (0..6).flat_map(|index| {
            let at = START + minute * 60 + index * 10;
            hosts.iter().map(move |host| visit(host, at, 100.0 + (minute / 60) as f64 * 50.0))
        });
        write(store, visits);
    }
}

#[test]
fn figures_are_the_same_before_and_after_they_are_rolled_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(folder.path());
    three_hours(&mut store);
    let now = START + 3 * HOUR + 10;
    let all = |span| counts(folder.path(), None, span, now);
    let one = |span| counts(folder.path(), Some("b"), span, now);
    let before = (all(Span::Month), all(Span::Day), one(Span::Month));
    assert_eq!(before, ((2160, 2160, 2160), (2160, 2160, 2160), (1080, 1080, 1080)));
    for _ in 0..2 {
        store.roll_up(now, &Settings::default()).unwrap();
        assert_eq!((all(Span::Month), all(Span::Day), one(Span::Month)), before);
    }
    // The hour that is just over waits for visits that are late.
    assert_eq!(count(&store, "SELECT count(DISTINCT start) FROM series WHERE level = 2"), 2);
    store.roll_up(now + GRACE, &Settings::default()).unwrap();
    assert_eq!(count(&store, "SELECT count(DISTINCT start) FROM series WHERE level = 2"), 3);
    assert_eq!((all(Span::Month), all(Span::Day), one(Span::Month)), before);
    assert_eq!(counts(folder.path(), Some("none"), Span::Day, now), (0, 0, 0));
    let series = Database::open(folder.path()).unwrap().series(&query(Some("a"), Span::Month), now).unwrap();
    assert_eq!((series.points.len(), series.step), (3, HOUR));
    for (point, expected) in series.points.iter().zip([100.0, 150.0, 200.0]) {
        assert!((point.p50 / expected - 1.0_f64).abs() < 0.01, "{point:?}");
    }
}

#[test]
fn what_comes_late_is_rolled_up_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(folder.path());
    let host = "a".into();
    write(&mut store, [visit(&host, START, 100.0)]);
    store.roll_up(START + 2 * HOUR, &Settings::default()).unwrap();
    write(&mut store, [visit(&host, START + 5, 300.0)]);
    assert_eq!(counts(folder.path(), None, Span::Month, START + 2 * HOUR), (2, 2, 2));
    store.roll_up(START + 2 * HOUR, &Settings::default()).unwrap();
    assert_eq!(counts(folder.path(), None, Span::Month, START + 2 * HOUR), (2, 2, 2));
    assert_eq!(count(&store, "SELECT count(*) FROM sample WHERE rolled = 0"), 0);
}

#[test]
fn minutes_of_unlike_traffic_have_their_weight_in_the_hour() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(folder.path());
    let host: Arc<str> = "a".into();
    // Of the first minute 512 of 5000 are kept, of the others all.
    write(&mut store, (0..5_000).map(|_| visit(&host, START, 1.0)));
    for minute in 1..26 {
        write(&mut store, (0..200).map(|_| visit(&host, START + 60 * minute, 2.0)));
    }
    let small = Settings { max_bytes: 20 << 20, ..Settings::default() };
    assert_eq!(kept_of_an_hour(&small), 208);
    store.roll_up(START + 2 * HOUR, &small).unwrap();
    let sample =
        Database::open(folder.path()).unwrap().sample(&query(None, Span::Day), START + 2 * HOUR).unwrap();
    assert_eq!((sample.visits, sample.rows.len()), (10_000, 208));
    assert!((share_below(&sample, 1.5) - 0.5).abs() < 0.01, "half of the visits are of the first minute");
}

/// The part of the visits that took less than `ms`.
fn share_below(sample: &Sample, ms: f64) -> f64 {
    let weight = |visits: &mut dyn Iterator<Item = &Sampled>| visits.map(|visit| visit.weight).sum::<f64>();
    let is_below = |visit: &&Sampled| visit.row.measures.get(Metric::FirstByte) < Some(ms);
    weight(&mut sample.rows.iter().filter(is_below)) / weight(&mut sample.rows.iter())
}

#[test]
fn a_burst_has_its_share_in_the_hour() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(folder.path());
    let host: Arc<str> = "a".into();
    // 512 rows stand for 100,000 visits, others for one each.
    write(&mut store, (0..100_000).map(|_| visit(&host, START, 1.0)));
    for minute in 1..60 {
        write(&mut store, (0..60).map(|_| visit(&host, START + 60 * minute, 2.0)));
    }
    let now = START + 2 * HOUR;
    store.roll_up(now, &Settings::default()).unwrap();
    let sample = Database::open(folder.path()).unwrap().sample(&query(None, Span::Day), now).unwrap();
    assert_eq!((sample.visits, sample.rows.len()), (103_540, 512 + 3_540));
    let share = share_below(&sample, 1.5);
    assert!((share - 100_000.0 / 103_540.0).abs() < 0.001, "{share}");
}

#[test]
fn rows_of_unlike_weight_keep_their_share_when_they_are_cut() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(folder.path());
    let host: Arc<str> = "a".into();
    // 2048 rows of weight 195, rows of weights between 1 and 2, and 8000 of weight 1.
    for minute in 0..4 {
        write(&mut store, (0..100_000).map(|_| visit(&host, START + minute * 60, 1.0)));
    }
    for minute in 4..24 {
        write(&mut store, (0..500 + 20 * minute).map(|_| visit(&host, START + minute * 60, 2.0)));
    }
    for minute in 24..44 {
        write(&mut store, (0..400).map(|_| visit(&host, START + minute * 60, 3.0)));
    }
    let all = 400_000.0 + (4..24).map(|minute| 500.0 + 20.0 * f64::from(minute)).sum::<f64>() + 8_000.0;
    let now = START + 2 * HOUR;
    store.roll_up(now, &Settings::default()).unwrap();
    let sample = Database::open(folder.path()).unwrap().sample(&query(None, Span::Day), now).unwrap();
    assert!(sample.rows.len() <= 6_002, "{}", sample.rows.len());
    let shares = [share_below(&sample, 1.5), share_below(&sample, 2.5)];
    assert!((shares[0] - 400_000.0 / all).abs() < 0.001, "{shares:?}");
    assert!((shares[1] - (1.0 - 8_000.0 / all)).abs() < 0.003, "{shares:?}");
    assert_eq!(sample.visits, all as u64);
}

#[test]
fn a_thinned_class_has_equal_weights() {
    let rows = (0..1_000_u16).map(|number| {
        let mut row = [0; row::LENGTH];
        row[..2].copy_from_slice(&number.to_le_bytes());
        (row, if number < 500 { 1.0 } else { 1.8 })
    });
    let (mut random, mut heavy, mut all) = (Random::seeded(3), 0, 0);
    for _ in 0..20 {
        let class = Class { seen: 1_400, greatest: 1.8, rows: rows.clone().collect() };
        let size = class.most();
        assert_eq!(size, 777);
        let drawn = class.draw(size, &mut random);
        assert_eq!(drawn.len(), size);
        all += size;
        heavy += drawn.iter().filter(|row| u16::from_le_bytes([row[0], row[1]]) >= 500).count();
    }
    // 900 of 1400 visits.
    let share = heavy as f64 / all as f64;
    assert!((share - 900.0 / 1_400.0).abs() < 0.01, "{share}");
}

#[test]
fn what_was_removed_is_given_back_to_the_file_system() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(folder.path());
    three_hours(&mut store);
    let size = |store: &Store| {
        store.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        super::super::bytes(folder.path())
    };
    let before = size(&store);
    store.connection.execute_batch("DELETE FROM sample; DELETE FROM series").unwrap();
    assert!(store.pragma("freelist_count").unwrap() > 30);
    store.shrink().unwrap();
    assert_eq!(store.pragma("freelist_count").unwrap(), 0);
    assert!(size(&store) < before / 2, "{} of {before}", size(&store));
}

#[test]
fn of_too_many_portions_some_are_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(folder.path());
    let transaction = store.connection.transaction().unwrap();
    for number in 0..50_000_i64 {
        let seen = 1 + i64::from(number % 10 == 0) * 90;
        let mut row = Vec::new();
        let ms = if seen > 1 { 1.0 } else { 2.0 };
        Row::new(&visit(&"a".into(), START, ms), Numbers::default()).write(&mut row);
        let values = params![START + number % 600 * HOUR, number / 600, seen, row];
        let text = "INSERT INTO sample (level, rolled, start, host, seen, rows) VALUES (1, 1, ?, ?, ?, ?)";
        transaction.prepare_cached(text).unwrap().execute(values).unwrap();
    }
    transaction.commit().unwrap();
    let database = Database::open(folder.path()).unwrap();
    let sample = database.sample(&query(None, Span::Month), START + 601 * HOUR).unwrap();
    assert_eq!(sample.visits, 45_000 + 5_000 * 91);
    assert!(sample.rows.len() <= 20_001, "{}", sample.rows.len());
    let share = share_below(&sample, 1.5);
    assert!((share - 0.91).abs() < 0.02, "{share}");
    let weight: f64 = sample.rows.iter().map(|visit| visit.weight).sum();
    assert!((weight / 500_000.0 - 1.0).abs() < 0.05, "{weight}");
}

#[test]
fn what_is_old_is_removed_and_what_is_of_the_future_stays() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(folder.path());
    three_hours(&mut store);
    write(&mut store, [visit(&"a".into(), START + 900 * DAY, 1.0)]);
    let settings = Settings::default();
    store.roll_up(START + 4 * HOUR, &settings).unwrap();
    let rows = |store: &Store, table: &str, level: i64| {
        count(store, &format!("SELECT count(*) FROM {table} WHERE level = {level}"))
    };
    store.remove_old(START + 8 * HOUR, &settings).unwrap();
    assert_eq!((rows(&store, "sample", 0), rows(&store, "series", 0), rows(&store, "sample", 1)), (1, 2, 6));
    assert_eq!(store.latest().unwrap(), Some(START + 8 * HOUR));
    store.remove_old(START + 3 * DAY, &settings).unwrap();
    assert_eq!((rows(&store, "series", 1), rows(&store, "series", 2)), (0, 9));
    store.remove_old(START + 31 * DAY, &settings).unwrap();
    assert_eq!((rows(&store, "sample", 1), rows(&store, "series", 2)), (0, 0));
}

#[test]
fn a_database_that_is_too_large_loses_its_oldest_days() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(folder.path());
    let hosts: Vec<Arc<str>> = (0..20).map(|number| format!("host {number}").into()).collect();
    for day in 0..6 {
        let visits = hosts.iter().flat_map(|host| {
            (0..300).map(move |number| visit(host, START + day * DAY, 10.0 + f64::from(number)))
        });
        write(&mut store, visits);
    }
    let now = START + 6 * DAY;
    store.roll_up(now, &Settings::default()).unwrap();
    store.remove_old(now, &Settings::default()).unwrap();
    let before = store.used().unwrap();
    let settings = Settings { max_bytes: before / 2, ..Settings::default() };
    store.remove_old(now, &settings).unwrap();
    assert!(store.used().unwrap() <= before / 2);
    let oldest = count(&store, "SELECT min(start) FROM sample") - START;
    assert!((2 * DAY..6 * DAY).contains(&oldest), "{oldest}");
    // And it cannot grow far beyond the limit meanwhile, whatever comes.
    store.limit(before / 2).unwrap();
    let error = (0..5_000).find_map(|_| {
        let mut gathered = Gathered::new();
        hosts
            .iter()
            .flat_map(|host| (0..5).map(move |_| visit(host, now, 1.0)))
            .for_each(|visit| gathered.add(visit));
        store.write(&mut gathered, &Definitions::default(), now).err()
    });
    let error = error.expect("the limit is reached");
    assert!(error.is_full(), "{error}");
}

#[test]
fn minutes_go_before_days() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(folder.path());
    let hosts: Vec<Arc<str>> = (0..20).map(|number| format!("host {number}").into()).collect();
    let settings = Settings::default();
    for day in 0..6 {
        write(&mut store, hosts.iter().map(|host| visit(host, START + day * DAY, 10.0)));
    }
    let now = START + 6 * DAY;
    store.roll_up(now, &settings).unwrap();
    store.remove_old(now, &settings).unwrap();
    let history = store.used().unwrap();
    let count_days = |store: &Store| count(store, "SELECT count(DISTINCT start) FROM sample WHERE level = 1");
    assert_eq!(count_days(&store), 6);
    // An hour in which more comes than there is room for; first it is in no hour yet, then rolled up.
    let max_bytes = 4 * history;
    for minute in 0..60 {
        let visits = hosts.iter().flat_map(|host| (0..40).map(move |_| visit(host, now + minute * 60, 1.0)));
        write(&mut store, visits);
    }
    assert!(store.used().unwrap() > max_bytes, "{} of {max_bytes}", store.used().unwrap());
    store.remove_too_much(max_bytes).unwrap();
    assert_eq!(count_days(&store), 6);
    store.roll_up(now + 2 * HOUR, &Settings { max_bytes, ..Settings::default() }).unwrap();
    store.remove_too_much(max_bytes).unwrap();
    assert_eq!(count_days(&store), 7);
    assert!(store.used().unwrap() <= max_bytes);
}

#[test]
fn a_small_database_keeps_fewer_rows_of_each_write() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(folder.path());
    store.limit(16 << 20).unwrap();
    assert_eq!(store.kept_at_once, 123);
    store.limit(1 << 30).unwrap();
    assert_eq!(store.kept_at_once, 7_890);
}

#[test]
fn the_smallest_database_has_room_for_a_day_of_its_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(folder.path());
    let hosts: Vec<Arc<str>> = (0..300).map(|number| format!("host{number}.example").into()).collect();
    let smallest = Settings::smallest(hosts.len());
    store.limit(smallest).unwrap();
    let empty = store.used().unwrap();
    let mut random = Random::seeded(7);
    for minute in 0..60 {
        let visits = hosts.iter().map(|host| {
            let mut visit = visit(host, START + minute * 60, 0.0);
            for metric in crate::gather::SERIES {
                visit.measures.set(metric, 100.0 + 2_000.0 * random.unit());
            }
            visit
        });
        let visits: Vec<_> = visits.collect();
        write(&mut store, visits);
    }
    // As fit() has it. Not much less would do, either.
    let minutes = store.used().unwrap() - empty;
    assert!(minutes <= smallest / 2, "{minutes} of {smallest}");
    let settings = Settings { max_bytes: smallest, ..Settings::default() };
    store.roll_up(START + HOUR + GRACE, &settings).unwrap();
    let day = 24 * store.history(i64::MAX).unwrap();
    assert!(day <= smallest / 5 * 2, "{day} of {smallest}");
    assert!(minutes > smallest / 4 || day > smallest / 5, "{minutes} and {day} of {smallest}");
    // What is not of hosts has room, too.
    assert!(empty < Settings::smallest(0) / 50 && Settings::smallest(1) == Settings::smallest(100));
}

#[test]
fn a_database_of_the_first_schema_is_brought_to_the_latest() {
    let folder = tempfile::tempdir().unwrap();
    let connection = rusqlite::Connection::open(folder.path().join("visits.db")).unwrap();
    connection.execute_batch(include_str!("../schema-1.sql")).unwrap();
    connection
        .execute_batch(
            "PRAGMA user_version = 1; PRAGMA application_id = 0x62566973;
             INSERT INTO experiment VALUES (3, 'e', 4, 0.02, 'a', 5, NULL, NULL);
             INSERT INTO series VALUES (1, 3, 1, 0, 1, 4, x'0101')",
        )
        .unwrap();
    drop(connection);
    let store = store(folder.path());
    assert_eq!(count(&store, "SELECT count(*) FROM series"), 0);
    assert_eq!(count(&store, "SELECT id FROM experiment WHERE name = 'e' AND ended IS NULL"), 3);
}

/// A visit of many, in which resumption saves `saved` ms; one browser is slow and resumes rarely.
fn synthetic(random: &mut Random, hosts: &[Arc<str>], at: i64, saved: f64) -> Visit {
    let number = random.below(hosts.len() as u64) as usize;
    let normal = (-2.0 * random.unit().ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos();
    let is_slow = random.unit() < 0.3;
    let resumed = random.unit() < if is_slow { 0.3 } else { 0.7 };
    let slow = if is_slow { 300.0 } else { 0.0 };
    let ms = 80.0 * (0.5 * normal).exp() + number as f64 + slow + if resumed { 0.0 } else { saved };
    let mut visit = visit(&hosts[number], at, ms);
    visit.session = if resumed { Session::Psk } else { Session::NewVisitor };
    visit.browser = if is_slow { Browser::Firefox } else { Browser::Chrome };
    visit.device = if random.unit() < 0.5 { Device::Phone } else { Device::Desktop };
    visit.connection = Connection::New;
    for (metric, part) in [(Metric::LargestPaint, 6.0), (Metric::Handshake, 0.3), (Metric::Interaction, 0.7)]
    {
        visit.measures.set(metric, ms * part);
    }
    visit
}

/// 30 days of 100 hosts with visits for each hour's whole sample: some minutes in a release build. `make visits` runs it.
#[test]
#[ignore = "takes a release build: make visits"]
fn thirty_days_of_a_hundred_hosts_are_less_than_a_gigabyte() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(folder.path());
    let hosts: Vec<Arc<str>> = (0..100).map(|number| format!("www{number}.example.com").into()).collect();
    let (mut random, settings) = (Random::new(), Settings::default());
    let (begin, mut visits) = (Instant::now(), 0);
    for hour in 0..720 {
        let at = START + hour * HOUR;
        for part in 0..6 {
            let minute = at + part * 600;
            write(&mut store, (0..1_500).map(|_| synthetic(&mut random, &hosts, minute, 80.0)));
            visits += 1_500;
        }
        store.roll_up(at + HOUR + GRACE, &settings).unwrap();
        if hour % 3 == 0 {
            store.remove_old(at + HOUR + GRACE, &settings).unwrap();
        }
    }
    let now = START + 720 * HOUR;
    let file = std::fs::metadata(folder.path().join(super::super::FILE)).unwrap().len();
    let samples = count(&store, "SELECT sum(length(rows)) FROM sample");
    let rows = samples / row::LENGTH as i64;
    let series = count(&store, "SELECT sum(length(histogram)) FROM series");
    println!("{visits} visits written in {:.1?}; {rows} rows kept", begin.elapsed());
    println!(
        "file {} MB: samples {} MB, histograms {} MB",
        file / 1_000_000,
        samples / 1_000_000,
        series / 1_000_000
    );
    let database = Database::open(folder.path()).unwrap();
    for (name, host) in [("all hosts", None), ("one host", Some("www7.example.com"))] {
        let query = query(host, Span::Month);
        let begin = Instant::now();
        let points = database.series(&query, now).unwrap().points.len();
        let series = begin.elapsed();
        let begin = Instant::now();
        let sample = database.sample(&query, now).unwrap();
        let loaded = begin.elapsed();
        let begin = Instant::now();
        let found = worth(&sample, Metric::FirstByte);
        println!(
            "a month of {name}: {points} points in {series:.1?}; sample of {} rows in {loaded:.1?}, findings in {:.1?}: {}",
            sample.rows.len(),
            begin.elapsed(),
            found.findings.first().map_or("none", |finding| &finding.text)
        );
    }
    assert!(file < 1_000_000_000, "{file} bytes");
}

/// A million visits with a hidden effect, all of them looked at, and then as the database keeps them.
#[test]
#[ignore = "takes a release build: make visits"]
fn a_million_visits_with_a_hidden_effect() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(folder.path());
    let hosts: Vec<Arc<str>> = (0..10).map(|number| format!("www{number}.example.com").into()).collect();
    let mut random = Random::new();
    let mut all = Sample { visits: 1_000_000, ..Sample::default() };
    for minute in 0..1_000 {
        let visits: Vec<_> =
            (0..1_000).map(|_| synthetic(&mut random, &hosts, START + minute * 60, 80.0)).collect();
        all.rows.extend(visits.iter().map(|visit| {
            let host = hosts.iter().position(|host| *host == visit.host).unwrap() as u16;
            let row = Row::new(visit, Numbers::default());
            Sampled { weight: 1.0, host, period: 0, at: 0, row }
        }));
        write(&mut store, visits);
    }
    let now = START + 1_000 * 60;
    store.roll_up(now + GRACE, &Settings::default()).unwrap();
    let kept = Database::open(folder.path()).unwrap().sample(&query(None, Span::Day), now).unwrap();
    for (name, sample) in [("all", &all), ("kept", &kept)] {
        let begin = Instant::now();
        let found = worth(sample, Metric::FirstByte);
        let difference = found.findings[0].difference;
        println!(
            "{name}: {} rows in {:.1?}: {difference:?}, unadjusted {:.1}: {}",
            sample.rows.len(),
            begin.elapsed(),
            found.findings[0].unadjusted,
            found.findings[0].text
        );
        assert!(difference.low <= 80.0 && difference.high >= 80.0, "{difference:?}");
    }
}
