//! Loading on request, changes of single names, and eviction.

use std::os::unix::fs::symlink;
use std::time::{Duration, Instant, SystemTime};

use brisk_keys::LocalEngine;
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::process::wait_until;
use tempfile::TempDir;

use super::*;
use crate::slot::Slot;

fn put(folder: &TempDir, name: &str, leaf: &Leaf) {
    for (suffix, contents) in [("key", &leaf.key_pem), ("pem", &leaf.chain_pem)] {
        let new = folder.path().join(format!("{name}.{suffix}.new"));
        fs::write(&new, contents).unwrap();
        fs::rename(new, folder.path().join(format!("{name}.{suffix}"))).unwrap();
    }
}

fn started(folder: &TempDir) -> Arc<Catalogue> {
    started_in(&Catalogues::default(), folder)
}

fn started_in(catalogues: &Catalogues, folder: &TempDir) -> Arc<Catalogue> {
    let catalogue = catalogues.open(folder.path()).unwrap();
    catalogue.start(Arc::new(|keystore| Arc::new(LocalEngine::new(keystore))), None).unwrap();
    catalogue
}

fn load(catalogue: &Catalogue, name: &str) -> Option<Arc<Vec<Served>>> {
    match catalogue.find(name) {
        CatalogueLookup::Ready(served) => Some(served),
        CatalogueLookup::Loading(waiter) => waiter.blocking_recv().ok(),
        CatalogueLookup::Failed | CatalogueLookup::Missing => None,
    }
}

fn names(catalogue: &Catalogue, name: &str) -> Vec<String> {
    load(catalogue, name).map(|served| served[0].certificate.names.clone()).unwrap_or_default()
}

#[test]
fn what_is_asked_for_is_loaded_once_and_nothing_else() {
    let (ca, folder) = (TestCa::new(), tempfile::tempdir().unwrap());
    for name in ["a.test", "b.test", "_.c.test"] {
        put(&folder, name, &ca.server(&[&name.replace('_', "*")]).issue());
    }
    let catalogues = Catalogues::default();
    let catalogue = started_in(&catalogues, &folder);
    assert_eq!((catalogue.statistics().names, catalogue.statistics().loaded), (3, 0));
    assert!(Arc::ptr_eq(&catalogue, &catalogues.open(folder.path()).unwrap()));
    assert_eq!(names(&catalogue, "a.test"), ["a.test"]);
    assert!(matches!(catalogue.find("a.test"), CatalogueLookup::Ready(_)));
    assert_eq!(names(&catalogue, "x.c.test"), ["*.c.test"]);
    assert!(matches!(catalogue.find("y.c.test"), CatalogueLookup::Ready(_)));
    for missing in ["c.test", "x.y.c.test", "d.test", "", "..", "a.test/", "*"] {
        assert!(matches!(catalogue.find(missing), CatalogueLookup::Missing), "{missing}");
    }
    let CatalogueStatistics { loaded, loads, failures, .. } = catalogue.statistics();
    assert_eq!((loaded, loads, failures), (2, 2, 0));
}

#[test]
fn changes_are_shown_one_by_one() {
    let (ca, folder) = (TestCa::new(), tempfile::tempdir().unwrap());
    put(&folder, "a.test", &ca.server(&["a.test"]).issue());
    let catalogue = started(&folder);
    assert_eq!(names(&catalogue, "a.test"), ["a.test"]);
    put(&folder, "a.test", &ca.server(&["a.test", "new.test"]).issue());
    wait_until("the new certificate", || (names(&catalogue, "a.test").len() == 2).then_some(()));
    put(&folder, "b.test", &ca.server(&["b.test"]).issue());
    wait_until("a new name", || catalogue.has("b.test").then_some(()));
    assert_eq!(names(&catalogue, "b.test"), ["b.test"]);
    fs::remove_file(folder.path().join("b.test.pem")).unwrap();
    wait_until("the name to go", || (!catalogue.has("b.test")).then_some(()));
    assert_eq!((catalogue.statistics().names, catalogue.statistics().loaded), (1, 1));
}

#[test]
fn a_wrong_certificate_keeps_the_one_before_and_is_tried_again_when_it_changes() {
    let (ca, folder) = (TestCa::new(), tempfile::tempdir().unwrap());
    let good = ca.server(&["a.test"]).issue();
    put(&folder, "a.test", &good);
    fs::write(folder.path().join("b.test.pem"), "nothing").unwrap();
    let catalogue = started(&folder);
    assert_eq!(names(&catalogue, "a.test"), ["a.test"]);
    fs::write(folder.path().join("a.test.pem"), "nothing").unwrap();
    wait_until("the failure", || (catalogue.statistics().failures > 0).then_some(()));
    assert_eq!(names(&catalogue, "a.test"), ["a.test"]);
    assert!(load(&catalogue, "b.test").is_none());
    assert!(matches!(catalogue.find("b.test"), CatalogueLookup::Failed), "it is not read at every handshake");
    put(&folder, "b.test", &ca.server(&["b.test"]).issue());
    wait_until("the right one", || load(&catalogue, "b.test"));
}

#[test]
fn those_asked_for_longest_ago_are_dropped() {
    let (ca, folder) = (TestCa::new(), tempfile::tempdir().unwrap());
    let leaf = ca.server(&["a.test"]).issue();
    for number in 0..20 {
        put(&folder, &format!("{number}.test"), &leaf);
    }
    let catalogue = started(&folder);
    (0..20).for_each(|number| drop(load(&catalogue, &format!("{number}.test")).unwrap()));
    let later = Instant::now() + Duration::from_millis(1100);
    while Instant::now() < later {
        assert!(matches!(catalogue.find("3.test"), CatalogueLookup::Ready(_)));
    }
    assert_eq!(catalogue.index.evict(19), 19);
    assert_eq!(catalogue.statistics().loaded, 1);
    assert!(matches!(catalogue.find("3.test"), CatalogueLookup::Ready(_)));
}

#[test]
fn clients_that_ask_together_wait_for_one_load() {
    let (ca, folder) = (TestCa::new(), tempfile::tempdir().unwrap());
    put(&folder, "a.test", &ca.server(&["a.test"]).issue());
    let catalogue = started(&folder);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(names(&catalogue, "a.test"), ["a.test"]));
        }
    });
    assert_eq!(catalogue.statistics().loads, 1);
}

#[test]
fn one_name_that_takes_long_does_not_hold_up_another() {
    let (ca, folder) = (TestCa::new(), tempfile::tempdir().unwrap());
    let (slow, quick) = (ca.server(&["slow.test"]).issue(), ca.server(&["quick.test"]).issue());
    put(&folder, "slow.test", &slow);
    put(&folder, "quick.test", &quick);
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = std::sync::mpsc::channel();
    let held = Mutex::new(Some((begin, held)));
    let catalogue = Catalogues::default().open(folder.path()).unwrap();
    let engines = move |keystore| {
        // The first load blocks.
        let first = held.lock().unwrap().take();
        if let Some((begin, held)) = first {
            begin.send(()).unwrap();
            let _ = held.recv();
        }
        Arc::new(LocalEngine::new(keystore)) as Arc<dyn PrivateKeyEngine>
    };
    catalogue.start(Arc::new(engines), None).unwrap();
    let CatalogueLookup::Loading(slow) = catalogue.find("slow.test") else { panic!("it is not there yet") };
    begun.recv().unwrap();
    wait_until("another name", || load(&catalogue, "quick.test"));
    drop(release);
    assert_eq!(slow.blocking_recv().unwrap()[0].certificate.names, ["slow.test"]);
}

#[test]
fn a_key_and_a_chain_that_follow_one_another_are_waited_for() {
    let (ca, folder) = (TestCa::new(), tempfile::tempdir().unwrap());
    let (old, new) = (ca.server(&["a.test"]).issue(), ca.server(&["a.test", "new.test"]).issue());
    put(&folder, "a.test", &old);
    fs::write(folder.path().join("a.test.pem"), &new.chain_pem).unwrap();
    let catalogue = started(&folder);
    let CatalogueLookup::Loading(loading) = catalogue.find("a.test") else { panic!("it is not there yet") };
    std::thread::sleep(Duration::from_millis(50));
    put(&folder, "a.test", &new);
    assert_eq!(loading.blocking_recv().unwrap()[0].certificate.names.len(), 2);
    assert_eq!(catalogue.statistics().failures, 0);
}

#[test]
fn a_name_whose_files_cannot_be_looked_at_stays() {
    let (ca, folder) = (TestCa::new(), tempfile::tempdir().unwrap());
    put(&folder, "a.test", &ca.server(&["a.test"]).issue());
    let catalogue = started(&folder);
    assert_eq!(names(&catalogue, "a.test"), ["a.test"]);
    // A link to itself is an error other than "not found".
    let file = folder.path().join("a.test.pem");
    symlink(&file, folder.path().join("link")).unwrap();
    fs::rename(folder.path().join("link"), &file).unwrap();
    wait_until("the look", || (catalogue.statistics().failures > 0).then_some(()));
    assert_eq!(names(&catalogue, "a.test"), ["a.test"]);
    fs::remove_file(&file).unwrap();
    wait_until("the name to go", || (!catalogue.has("a.test")).then_some(()));
}

#[test]
fn a_wildcard_whose_files_cannot_be_looked_at_stays() {
    let (ca, folder) = (TestCa::new(), tempfile::tempdir().unwrap());
    put(&folder, "_.a.test", &ca.server(&["*.a.test"]).issue());
    let catalogue = started(&folder);
    assert_eq!(names(&catalogue, "x.a.test"), ["*.a.test"]);
    let file = folder.path().join("_.a.test.pem");
    symlink(&file, folder.path().join("link")).unwrap();
    fs::rename(folder.path().join("link"), &file).unwrap();
    wait_until("the look", || (catalogue.statistics().failures > 0).then_some(()));
    assert_eq!(names(&catalogue, "x.a.test"), ["*.a.test"]);
}

#[test]
fn a_link_is_a_name_of_its_own_and_discloses_nothing_of_another_file() {
    let (ca, folder, elsewhere) = (TestCa::new(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (leaf, secret) = (ca.server(&["a.test"]).issue(), elsewhere.path().join("secret"));
    put(&elsewhere, "other", &leaf);
    fs::write(&secret, "root:0123456789abcdef\n").unwrap();
    let link = |target: PathBuf, name: &str| symlink(target, folder.path().join(name)).unwrap();
    for suffix in ["pem", "key"] {
        link(elsewhere.path().join(format!("other.{suffix}")), &format!("a.test.{suffix}"));
        link(PathBuf::from(format!("a.test.{suffix}")), &format!("b.test.{suffix}"));
        link(secret.clone(), &format!("secret.test.{suffix}"));
        link(elsewhere.path().to_owned(), &format!("folder.test.{suffix}"));
    }
    link(elsewhere.path().join("other.pem"), "key.test.pem");
    link(secret, "key.test.key");
    let catalogue = started(&folder);
    for name in ["a.test", "b.test"] {
        assert_eq!(names(&catalogue, name), ["a.test"], "{name}");
    }
    for name in ["secret.test", "key.test"] {
        let error = catalogue.read(name).expect_err(name);
        let [message, details] = [error.to_string(), format!("{error:?}")];
        for text in [message, details] {
            assert!(!text.contains("root") && !text.contains("0123456789abcdef"), "{text}");
        }
        assert!(load(&catalogue, name).is_none(), "{name}");
    }
    assert!(load(&catalogue, "folder.test").is_none());
}

#[test]
fn what_was_read_before_is_not_shown_over_what_was_read_since() {
    let (ca, folder) = (TestCa::new(), tempfile::tempdir().unwrap());
    put(&folder, "a.test", &ca.server(&["a.test"]).issue());
    let catalogue = started(&folder);
    let entry = catalogue.index.get("a.test").unwrap();
    let slot = || Slot::with(catalogue.read("a.test").unwrap());
    // The stamp of the current files, so that the thread that follows changes has nothing to do.
    let stamp = catalogue.stamp("a.test");
    // The first read waits for its staple while the second finishes.
    let first = entry.begin(stamp);
    assert!(entry.is_read() && !entry.is_loaded(), "a change meanwhile is looked at");
    let second = entry.begin(stamp);
    catalogue.put("a.test", &entry, slot(), second);
    let shown = catalogue.index.get("a.test").unwrap().loaded().unwrap();
    catalogue.put("a.test", &entry, slot(), first);
    assert!(Arc::ptr_eq(&shown, &entry.loaded().unwrap()));
    assert_eq!(catalogue.statistics().changes, 0);
    let third = entry.begin(stamp);
    catalogue.index.remove("a.test");
    catalogue.put("a.test", &entry, slot(), third);
    assert!(entry.loaded().is_none(), "its files are gone");
    // A running read does not block `put`.
    let _reading = entry.read();
    let fourth = entry.begin(stamp);
    catalogue.put("a.test", &entry, slot(), fourth);
    assert!(entry.is_loaded());
}

#[test]
fn files_in_capitals_claim_no_name() {
    let (ca, folder) = (TestCa::new(), tempfile::tempdir().unwrap());
    put(&folder, "WWW.a.test", &ca.server(&["www.a.test"]).issue());
    assert!(!Catalogues::default().open(folder.path()).unwrap().has("www.a.test"));
    assert!(index::is_in_capitals("WWW.a.test.pem") && !index::is_in_capitals("www.a.test.pem"));
    assert!(!index::is_in_capitals("README") && !index::is_in_capitals("NOTES.txt"));
}

#[test]
fn must_staple_without_a_responder_is_refused() {
    let (ca, folder) = (TestCa::new(), tempfile::tempdir().unwrap());
    put(&folder, "a.test", &ca.server(&["a.test"]).must_staple().issue());
    put(&folder, "b.test", &ca.server(&["b.test"]).must_staple().ocsp_at("http://ocsp.test").issue());
    let catalogue = started(&folder);
    assert!(load(&catalogue, "a.test").is_none());
    assert!(load(&catalogue, "b.test").is_some());
}

#[test]
fn expiry_is_that_of_all_names_also_of_those_without_requests() {
    let (ca, folder) = (TestCa::new(), tempfile::tempdir().unwrap());
    put(&folder, "later.test", &ca.server(&["later.test"]).issue());
    put(&folder, "_.sooner.test", &ca.server(&["*.sooner.test"]).expired().issue());
    fs::write(folder.path().join("wrong.test.pem"), "no certificate").unwrap();
    let catalogue = started(&folder);
    let expiry =
        wait_until("all files to be read", || Some(catalogue.expiry()).filter(|one| one.read_at.is_some()));
    let names: Vec<_> = expiry.first.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!((names, expiry.unreadable), (vec!["*.sooner.test", "later.test"], 1));
    assert!(expiry.first[0].0 < SystemTime::now() && expiry.first[1].0 > SystemTime::now());
    assert_eq!(catalogue.statistics().loaded, 0, "nothing is loaded for it");
}

#[test]
fn one_thread_reads_the_expiry_of_all_folders_also_after_one_is_gone() {
    let (ca, catalogues) = (TestCa::new(), Catalogues::default());
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    for folder in &folders {
        put(folder, "a.test", &ca.server(&["a.test"]).issue());
    }
    let open = |number: usize| {
        let catalogue = started_in(&catalogues, &folders[number]);
        wait_until("all files to be read", || catalogue.expiry().read_at);
        catalogue
    };
    let first = open(0);
    let second = open(1);
    drop(first);
    let third = open(2);
    assert!([&second, &third].iter().all(|catalogue| catalogue.expiry().first.len() == 1));
}
