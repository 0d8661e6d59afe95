//! Names that are loaded when they are asked for, changed one by one, and dropped when there are too many.

use std::time::{Duration, Instant};

use brisk_keys::LocalEngine;
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::process::wait_until;
use tempfile::TempDir;

use super::*;

fn put(folder: &TempDir, name: &str, leaf: &Leaf) {
    for (suffix, contents) in [("key", &leaf.key_pem), ("pem", &leaf.chain_pem)] {
        let new = folder.path().join(format!("{name}.{suffix}.new"));
        fs::write(&new, contents).unwrap();
        fs::rename(new, folder.path().join(format!("{name}.{suffix}"))).unwrap();
    }
}

fn started(folder: &TempDir) -> Arc<Catalogue> {
    let catalogue = Catalogue::open(folder.path()).unwrap();
    catalogue.start(Arc::new(|keystore| Arc::new(LocalEngine::new(keystore)))).unwrap();
    catalogue
}

fn load(catalogue: &Catalogue, name: &str) -> Option<Arc<Vec<Served>>> {
    match catalogue.find(name) {
        Found::Ready(served) => Some(served),
        Found::Loading(waiter) => waiter.blocking_recv().ok(),
        Found::Failed | Found::Missing => None,
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
    let catalogue = started(&folder);
    assert_eq!((catalogue.statistics().names, catalogue.statistics().loaded), (3, 0));
    assert!(Arc::ptr_eq(&catalogue, &Catalogue::open(folder.path()).unwrap()));
    assert_eq!(names(&catalogue, "a.test"), ["a.test"]);
    assert!(matches!(catalogue.find("a.test"), Found::Ready(_)));
    assert_eq!(names(&catalogue, "x.c.test"), ["*.c.test"]);
    assert!(matches!(catalogue.find("y.c.test"), Found::Ready(_)));
    for missing in ["c.test", "x.y.c.test", "d.test", "", "..", "a.test/", "*"] {
        assert!(matches!(catalogue.find(missing), Found::Missing), "{missing}");
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
    assert!(matches!(catalogue.find("b.test"), Found::Failed), "it is not read at every handshake");
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
        assert!(matches!(catalogue.find("3.test"), Found::Ready(_)));
    }
    assert_eq!(catalogue.index.evict(19), 19);
    assert_eq!(catalogue.statistics().loaded, 1);
    assert!(matches!(catalogue.find("3.test"), Found::Ready(_)));
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
