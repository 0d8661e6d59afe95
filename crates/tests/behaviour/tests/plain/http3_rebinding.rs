//! HTTP/3 after a NAT has given a client another port or address, whose first datagrams are lost.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brisk_behaviour::h3_client::{self as h3, head, response};
use brisk_behaviour::site::Site;
use brisk_testkit::datagram_relay::{DatagramRelay, Fate, Way};
use brisk_testkit::process::wait_until;

/// Length of a download, of which a client need not extend the windows: then it sends acknowledgements only. More than the gateway
/// sends before it has an acknowledgement after [`BEFORE`], so that data remains for the new port.
const LENGTH: usize = 150_000;
/// Datagrams of a download before the change of the port.
const BEFORE: usize = 40;

fn site() -> Site {
    let large = "x".repeat(LENGTH);
    let fixed = "\n[[host.route]]\npath = \"/fixed\"\nrespond = { body = \"here\" }\n";
    h3::h3_site(
        "",
        &format!("\n[[host.route]]\npath = \"/large\"\nrespond = {{ body = {large:?} }}\n{fixed}"),
    )
}

/// Datagrams and bytes after a change of the port.
#[derive(Debug, Default)]
struct Observed {
    up: AtomicUsize,
    down: AtomicUsize,
    bytes_up: AtomicUsize,
    bytes_down: AtomicUsize,
    /// Datagrams down that exceeded three times the bytes up.
    excess: AtomicUsize,
}

impl Observed {
    fn add(&self, way: Way, length: usize) {
        let (count, bytes) = match way {
            Way::Up => (&self.up, &self.bytes_up),
            Way::Down => (&self.down, &self.bytes_down),
        };
        count.fetch_add(1, Ordering::SeqCst);
        bytes.fetch_add(length, Ordering::SeqCst);
        if get(&self.bytes_down) > 3 * get(&self.bytes_up) {
            self.excess.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn get(count: &AtomicUsize) -> usize {
    count.load(Ordering::SeqCst)
}

/// A relay that gives the client a port at `address` in the middle of a download. `is_lost` decides about the datagrams to the
/// new port; those to the old port are lost.
fn changing(
    site: &Site,
    address: Ipv4Addr,
    is_lost: impl Fn(&Observed) -> bool + Send + Sync + 'static,
) -> (DatagramRelay, Arc<Observed>) {
    let observed = Arc::new(Observed::default());
    let (own, total) = (Arc::clone(&observed), AtomicUsize::new(0));
    let relay = DatagramRelay::new(site.brisk.https(), move |way, _, datagram| {
        let is_changed = get(&own.up) > 0;
        match way {
            Way::Down if !is_changed => {
                total.fetch_add(1, Ordering::SeqCst);
                Fate::Pass
            }
            Way::Up if !is_changed && get(&total) < BEFORE => Fate::Pass,
            Way::Up => {
                own.add(Way::Up, datagram.len());
                if is_changed { Fate::Pass } else { Fate::Rebind(address) }
            }
            Way::Down => {
                let is_lost = is_lost(&own);
                own.add(Way::Down, datagram.len());
                if is_lost { Fate::Drop } else { Fate::Pass }
            }
        }
    });
    (relay, observed)
}

/// A download whose port changes to `address`, and to which as many datagrams are lost as the client sends.
fn download_to(address: Ipv4Addr) {
    let site = site();
    let (relay, observed) = changing(&site, address, |seen| get(&seen.down) < get(&seen.up));
    let mut connection = h3::connect(&h3::client(&site), relay.address());
    let received = h3::get(&mut connection, "/large");
    assert_eq!((received.status(), received.body.len()), ("200", LENGTH));
    assert!(get(&observed.up) > 0 && get(&observed.down) > 1, "{observed:?}");
}

#[test]
fn a_download_continues_at_a_new_port_whose_first_datagrams_are_lost() {
    download_to(Ipv4Addr::LOCALHOST);
}

#[test]
fn a_download_continues_at_a_new_address_whose_first_datagrams_are_lost() {
    download_to(Ipv4Addr::new(127, 0, 5, 5));
}

#[test]
fn a_new_address_without_response_gets_at_most_three_times_its_bytes() {
    let site = site();
    let (relay, observed) = changing(&site, Ipv4Addr::new(127, 0, 5, 6), |_| true);
    let mut connection = h3::connect(&h3::client(&site), relay.address());
    let _stream = connection.request(&head("GET", "/large", &[]));
    connection.wait(|_| get(&observed.down) >= 2).expect("an open connection");
    assert_eq!(get(&observed.excess), 0, "{observed:?}");
}

#[test]
fn a_port_that_changes_again_and_again_costs_no_memory() {
    let site = site();
    let relay = DatagramRelay::to(site.brisk.https());
    let mut connection = h3::connect(&h3::client(&site), relay.address());
    // Until then, a server discards datagrams from other addresses (RFC 9000 section 9).
    assert_eq!(h3::get(&mut connection, "/fixed").body, b"here", "the handshake is confirmed");
    let mut round = |number: u8| {
        relay.replace(Ipv4Addr::new(127, 0, 7, 1 + number % 4));
        let stream = connection.request(&head("GET", "/fixed", &[]));
        assert_eq!(response(&mut connection, stream).expect("a response").body, b"here");
    };
    (0..20).for_each(&mut round);
    let before = site.brisk.process().resident_bytes();
    (0..200).for_each(&mut round);
    let grown = site.brisk.process().resident_bytes().saturating_sub(before);
    assert!(grown < 4 << 20, "{grown} bytes");
    connection.close();
    wait_until("the end of the connection", || {
        (site.brisk.metrics().sum("brisk_connections_open", &[]) < 0.5).then_some(())
    });
    let opened = site.brisk.metrics().sum("brisk_handshakes_total", &[]);
    assert!((opened - 1.0).abs() < 0.5, "{opened} handshakes");
}
