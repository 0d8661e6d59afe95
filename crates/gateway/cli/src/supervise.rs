//! `brisk supervise`: the main process, which survives its gateway; and `brisk upgrade`, which replaces the gateway by a new
//! program.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::anyhow;
use brisk_supervisor::{Settings, program_path};
use clap::Parser;

use crate::args::{Cli, Command, Serve, Supervise, Upgrade};
use crate::{limits, log};

/// Runs the supervisor until it is stopped. Exit code: that of the last gateway.
pub(crate) fn run(arguments: Supervise) -> ExitCode {
    let Supervise { pid_file, ready_timeout, serve: words } = arguments;
    // Before anything starts: a wrong argument of the gateway is one of this command.
    let Serve { log, .. } = serve_arguments(&words);
    let supervised = log::start(&log).and_then(|_log| {
        // Inherited by the gateways, whose sockets are all open here too.
        limits::raise_open_files();
        let program = program_path().map_err(|error| anyhow!("cannot find the own program: {error}"))?;
        Ok(brisk_supervisor::run(&Settings { program, arguments: words, ready_timeout, pid_file })?)
    });
    supervised.map_or_else(
        |error| {
            eprintln!("{error}");
            ExitCode::FAILURE
        },
        ExitCode::from,
    )
}

/// Orders an upgrade and prints the process id of the new gateway.
pub(crate) fn upgrade(arguments: &Upgrade) -> anyhow::Result<()> {
    let supervisor = match (arguments.pid, &arguments.pid_file) {
        (Some(id), _) => Ok(id),
        (None, path) => Err(path.as_deref().expect("one of the two options is required")),
    };
    let process = brisk_supervisor::request_upgrade(supervisor)?;
    println!("upgraded: process {process} serves");
    Ok(())
}

/// Parses the arguments of `serve`. Ends the process with a message if they are wrong.
fn serve_arguments(words: &[OsString]) -> Serve {
    let line = ["brisk", "serve"].map(OsString::from).into_iter().chain(words.iter().cloned());
    let Command::Serve(serve) = Cli::parse_from(line).command else {
        unreachable!("the second word is `serve`")
    };
    serve
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Supervise {
        let Command::Supervise(supervise) = Cli::parse_from(line.split(' ')).command else {
            panic!("{line}")
        };
        supervise
    }

    #[test]
    fn options_of_the_supervisor_come_before_those_of_the_gateway() {
        let read = parse("brisk supervise --pid-file p --ready-timeout 5 --config c --log debug");
        assert_eq!(read.pid_file.as_deref(), Some("p".as_ref()));
        assert_eq!(read.ready_timeout.as_secs(), 5);
        assert_eq!(read.serve, ["--config", "c", "--log", "debug"]);
        let serve = serve_arguments(&read.serve);
        assert_eq!((serve.config.as_deref(), &*serve.log), (Some("c".as_ref()), "debug"));
        let read = parse("brisk supervise brisk.toml --pid-file p");
        assert_eq!((read.pid_file, read.serve.len()), (None, 3));
        assert!(parse("brisk supervise").serve.is_empty());
    }

    #[test]
    fn an_upgrade_needs_one_supervisor() {
        for line in ["brisk upgrade", "brisk upgrade --pid 1 --pid-file p", "brisk upgrade --pid 0"] {
            assert_eq!(Cli::try_parse_from(line.split(' ')).expect_err(line).exit_code(), 2, "{line}");
        }
        Cli::try_parse_from(["brisk", "upgrade", "--pid-file", "p"]).expect("a right line");
    }
}
