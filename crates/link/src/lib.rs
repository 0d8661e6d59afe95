//! A link with delay, rate and loss between two network namespaces.
//!
//! What a round trip costs is only seen where round trips take time, and loopback has none. A [`Link`] is two network
//! namespaces, a client's and a server's, with a TUN device in each. A helper process carries the packets from one device to
//! the other, each direction through a [`Pipe`] that holds them back as a link with that delay, rate and queue would. No
//! module of the kernel is needed (netem would be one), and no root where users may create namespaces.
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
