//! One of the gateways: a supervisor, its generations, and the link that is their program.

use std::fs::{self, Permissions};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use brisk_behaviour::program::brisk_program;
use brisk_defects::Defect;
use brisk_testkit::brisk::{Brisk, Metrics, Setup};
use brisk_testkit::http1::Message;
use brisk_testkit::process::{Finished, TIMEOUT, run};

/// Time for a response of the admin listener.
const ADMIN: Duration = Duration::from_secs(10);

pub(crate) struct Gateway {
    pub(crate) brisk: Brisk,
    program: PathBuf,
}

impl Gateway {
    /// Starts a gateway whose program is a link in `folder`. `prepare` adds the configuration.
    pub(crate) fn start(
        folder: &Path,
        index: usize,
        defect: Option<Defect>,
        prepare: impl FnOnce(Setup) -> Setup,
    ) -> Self {
        let program = folder.join(format!("gateway-{index}"));
        symlink(brisk_program(), &program).expect("a link");
        let setup = Setup::new(&program).supervised();
        let setup =
            defect.into_iter().fold(setup, |setup, defect| setup.environment("BRISK_DEFECT", defect.name()));
        let brisk = prepare(setup).start();
        // The addresses are printed a moment before the supervisor logs that the gateway serves.
        brisk.generation_after(0);
        Self { brisk, program }
    }

    /// Process id of the supervisor.
    pub(crate) fn supervisor(&self) -> u32 {
        self.brisk.process().id()
    }

    /// Process id of the generation that has served last.
    pub(crate) fn serving(&self) -> u32 {
        self.brisk.generation_after(0)
    }

    /// Runs `brisk upgrade`.
    pub(crate) fn upgrade(&self) -> Finished {
        let mut command = Command::new(brisk_program());
        run(command.args(["upgrade", "--pid", &self.supervisor().to_string()]), b"", TIMEOUT)
    }

    /// Puts a shell script in the place of the program.
    pub(crate) fn replace_program(&self, script: &str, mode: u32) {
        let new = self.program.with_extension("new");
        fs::write(&new, format!("#!/bin/sh\n{script}\n")).expect("a file");
        fs::set_permissions(&new, Permissions::from_mode(mode)).expect("a file");
        fs::rename(new, &self.program).expect("a file");
    }

    /// Puts the program back into its place.
    pub(crate) fn restore_program(&self) {
        let new = self.program.with_extension("new");
        symlink(brisk_program(), &new).expect("a link");
        fs::rename(new, &self.program).expect("a link");
    }

    /// The response of the admin listener; `None` if the process ends meanwhile.
    pub(crate) fn ask_admin(&self, path: &str) -> Option<Message> {
        let mut stream = TcpStream::connect(self.brisk.admin()).ok()?;
        stream.set_read_timeout(Some(ADMIN)).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
        Message::read_response(&mut stream).ok()
    }

    /// The metrics of the serving generation; `None` if it ends meanwhile.
    pub(crate) fn metrics(&self) -> Option<Metrics> {
        let page = self.ask_admin("/metrics")?;
        (page.status() == 200).then(|| Metrics(page.text()))
    }
}
