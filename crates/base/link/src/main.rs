//! The helper process of a link. Manual use: `brisk-link --to-client delay=25ms,rate=10M --to-server delay=25ms`, then
//! enter either end with `nsenter --net=/proc/PID/fd/N` and the printed numbers. It ends with its standard input.

use std::process::ExitCode;

use brisk_link::Direction;
use clap::Parser;

/// Connects two network namespaces by a link with delay, rate and loss, until standard input ends.
#[derive(Parser)]
struct Options {
    /// The direction to the client, as delay=25ms,rate=10M,loss=0.5%,reorder=1%,queue=64k
    #[arg(long, default_value_t)]
    to_client: Direction,
    /// The direction to the server, likewise
    #[arg(long, default_value_t)]
    to_server: Direction,
}

fn main() -> ExitCode {
    let Options { to_client, to_server } = Options::parse();
    match brisk_link::run(to_client, to_server) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("brisk-link: {error}");
            ExitCode::FAILURE
        }
    }
}
