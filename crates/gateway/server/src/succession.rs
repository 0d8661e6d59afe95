//! [`Succession`], the connections of a generation of a supervisor with the generations before and after it.

use std::io;
use std::os::unix::net;
use std::time::{Duration, Instant};

use brisk_supervisor::inherited::Passed;
use brisk_supervisor::succession::{Order, PREDECESSOR, Predecessor, REPORTS, STATE, StatePart, answer};
use brisk_supervisor::{Notifier, is_supervised};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::net::UnixDatagram;
use tokio::time::sleep;

/// Looks for the end of a supervisor after a signal that its end may have caused, and the pause between them.
const LOOKS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);

/// Time after the end of a supervisor in which each `SIGTERM` is a report of the kernel: one for each of its threads.
const REPORTS_OF_THREADS: Duration = Duration::from_secs(1);

/// Buffer for one [`Order`]. A longer message is cut, and then is no order.
const LONGEST: usize = 64;

/// The descriptors [`STATE`], [`REPORTS`] and [`PREDECESSOR`]; none without a supervisor.
#[derive(Debug, Default)]
pub(crate) struct Succession {
    state: Option<net::UnixDatagram>,
    supervisor: Option<Notifier>,
    pub(crate) predecessor: Option<Predecessor>,
}

/// The receiver of [`Order`]s in a generation that serves.
#[derive(Debug)]
pub(crate) struct Successors {
    state: Option<UnixDatagram>,
    /// Whether [`Order::Replaced`] has arrived: a successor serves.
    pub(crate) is_replaced: bool,
    /// Time at which the end of the supervisor was noticed.
    orphan_since: Option<Instant>,
}

impl Succession {
    /// Takes [`STATE`], [`REPORTS`] or [`PREDECESSOR`], or returns any other descriptor.
    pub(crate) fn take(&mut self, passed: Passed) -> Option<Passed> {
        match &*passed.name {
            STATE if is_supervised() => self.state = Some(passed.descriptor.into()),
            REPORTS if is_supervised() => self.supervisor = Some(Notifier::through(passed.descriptor)),
            PREDECESSOR if is_supervised() => self.predecessor = Some(Predecessor::new(passed.descriptor)),
            _ => return Some(passed),
        }
        None
    }

    /// The service manager of this process: its supervisor, or systemd.
    pub(crate) fn manager(&mut self) -> Notifier {
        self.supervisor.take().unwrap_or_else(Notifier::from_environment)
    }

    /// [`Successors`] of this process. Must be called inside a runtime.
    pub(crate) fn serve(self) -> io::Result<Successors> {
        let register = |socket: net::UnixDatagram| {
            socket.set_nonblocking(true)?;
            UnixDatagram::from_std(socket)
        };
        Ok(Successors {
            state: self.state.map(register).transpose()?,
            is_replaced: false,
            orphan_since: None,
        })
    }
}

impl Successors {
    /// The next [`Order`]. Never resolves without a supervisor.
    pub(crate) async fn next(&self) -> Order {
        let Some(state) = &self.state else { return std::future::pending().await };
        loop {
            let mut bytes = [0; LONGEST];
            match state.recv(&mut bytes).await {
                Ok(length) => {
                    if let Some(order) = Order::read(&bytes[..length]) {
                        return order;
                    }
                }
                // The supervisor has ended, which `SIGTERM` reports.
                Err(_) => return std::future::pending().await,
            }
        }
    }

    /// Whether a `SIGTERM` that has just arrived reports the end of the supervisor, and is no order of an operator.
    pub(crate) async fn has_lost_supervisor(&mut self) -> bool {
        // The kernel reports the end of each thread of a killed supervisor, and this process has another parent after the end of
        // the last.
        for _ in 0..LOOKS {
            if self.state.is_none() || !is_supervised() {
                break;
            }
            sleep(PAUSE).await;
        }
        let is_orphan = self.state.is_some() && !is_supervised();
        is_orphan && self.orphan_since.get_or_insert_with(Instant::now).elapsed() < REPORTS_OF_THREADS
    }

    /// The orders that have arrived: `SIGTERM` overtakes the order that goes before it.
    pub(crate) fn waiting(&self) -> Vec<Order> {
        let Some(state) = &self.state else { return Vec::new() };
        let (mut orders, mut bytes) = (Vec::new(), [0; LONGEST]);
        // Not by tokio, which reads only after its own poll has seen the message.
        while let Ok((length, _)) = recv(state, &mut bytes[..], RecvFlags::DONTWAIT) {
            orders.extend(Order::read(&bytes[..length]));
        }
        orders
    }

    /// Answers [`Order::Export`]. A failure is logged: the successor then starts without the state.
    pub(crate) fn answer(&self, number: u64, parts: &[StatePart]) {
        let Some(state) = &self.state else { return };
        match send(state, &answer(number, parts), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) => tracing::info!(parts = parts.len(), "state passed to a successor"),
            Err(error) => {
                tracing::warn!(%error, "the state does not reach the successor, whose clients make full handshakes");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_order_that_a_signal_overtakes_is_lost() {
        let (state, other) = net::UnixDatagram::pair().expect("a pair");
        let succession = Succession { state: Some(state), ..Succession::default() };
        let successors = succession.serve().expect("a socket");
        assert!(successors.waiting().is_empty());
        let orders = [Order::Export(7), Order::Abandoned, Order::Replaced];
        for order in orders {
            other.send(&order.to_bytes()).expect("sent");
            other.send(b"garbage").expect("sent");
        }
        assert_eq!(successors.waiting(), orders);
        assert!(successors.waiting().is_empty());
    }
}
