//! A simulated link with delay, rate and loss between two network namespaces.
//!
//! The cost of round trips is visible only if they take time, which they do not over loopback. A [`Link`] consists of
//! two network namespaces, a client's and a server's, with a TUN device in each. A helper process transfers packets
//! between the devices, in each direction through a [`Pipe`] that delays them like a link with that delay, rate and
//! queue. No kernel module is needed (in contrast to netem), and no root privileges if users may create namespaces.
//!
//! ```no_run
//! # use std::{path::Path, process::Command, time::Duration};
//! # use brisk_link::{Direction, Link, SERVER};
//! let half = Direction { delay: Duration::from_millis(25), rate: Some(10_000_000), ..Direction::default() };
//! let link = Link::start(Path::new("brisk-link"), half, half)?;
//! let ping = link.client("ping").arg("-c1").arg(SERVER.to_string()).status()?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod link;
mod pipe;
mod shaper;

pub use link::{Link, is_forbidden};
pub use pipe::{Direction, ParseError, Pipe};
pub use shaper::{CLIENT, SERVER, run};
