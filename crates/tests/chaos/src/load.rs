//! The load: visitors of all habits at both gateways, on a thread of their own.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use brisk_testkit::random::Random;
use futures_util::future::join_all;
use tokio::runtime::Builder;

use crate::shared::{GATEWAYS, Shared};
use crate::visitor::{Habit, Visitor};

/// Visitors of each gateway.
const HABITS: [Habit; 5] = [Habit::Kept, Habit::Kept, Habit::Resumed, Habit::Full, Habit::Multiplexed];

/// Starts the visitors of the gateways at `addresses`, until [`Shared::end`].
pub(crate) fn start(
    shared: &Arc<Shared>,
    addresses: [SocketAddr; GATEWAYS],
    root: &Path,
    seed: u64,
) -> JoinHandle<()> {
    let mut random = Random::new(!seed);
    let mut visitors = Vec::new();
    for (gateway, address) in addresses.into_iter().enumerate() {
        for habit in HABITS {
            let own = Random::new(random.number());
            visitors.push(Visitor::new(shared, gateway, address, root.to_owned(), habit, own));
        }
    }
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(join_all(visitors.into_iter().map(Visitor::run)));
    })
}
