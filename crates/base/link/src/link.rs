//! Starting a link, and commands that run at one of its ends.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Direction;

/// Two network namespaces with a link between them. Dropping it ends the link; processes at its ends keep their
/// namespace and lose their network.
#[derive(Debug)]
pub struct Link {
    helper: Child,
    /// Descriptors of the helper for the namespaces of client and server.
    namespaces: [u32; 2],
    own_users: bool,
}

impl Link {
    /// Creates both namespaces and the link between them. `helper` is the program `brisk-link` of this crate. Without
    /// root privileges, also creates a user namespace in which the caller is root.
    ///
    /// # Errors
    ///
    /// Missing support for namespaces or TUN devices, see [`is_forbidden`].
    pub fn start(helper: &Path, to_client: Direction, to_server: Direction) -> io::Result<Self> {
        let own_users = !nix::unistd::geteuid().is_root();
        let mut command = if own_users {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "--"]).arg(helper);
            command
        } else {
            Command::new(helper)
        };
        command.args(["--to-client", &to_client.to_string(), "--to-server", &to_server.to_string()]);
        // The helper ends when its standard input is closed, so it does not outlive this process.
        let mut helper =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let stdout = helper.stdout.take().expect("standard output is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let mut numbers = line.split_whitespace().map_while(|number| number.parse().ok());
        match (numbers.next(), numbers.next()) {
            (Some(client), Some(server)) => Ok(Self { helper, namespaces: [client, server], own_users }),
            _ => Err(failed(helper)),
        }
    }

    /// A command that runs `program` at the client's end, whose address is [`CLIENT`](crate::CLIENT). There is
    /// loopback, and no other network.
    pub fn client(&self, program: impl AsRef<OsStr>) -> Command {
        self.enter(self.namespaces[0], program.as_ref())
    }

    /// Like [`client`](Self::client), at the server's end, [`SERVER`](crate::SERVER).
    pub fn server(&self, program: impl AsRef<OsStr>) -> Command {
        self.enter(self.namespaces[1], program.as_ref())
    }

    fn enter(&self, namespace: u32, program: &OsStr) -> Command {
        let id = self.helper.id();
        let mut command = Command::new("nsenter");
        if self.own_users {
            command.arg(format!("--user=/proc/{id}/ns/user")).arg("--preserve-credentials");
        }
        command.arg(format!("--net=/proc/{id}/fd/{namespace}")).arg("--").arg(program);
        command
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.helper.kill();
        let _ = self.helper.wait();
    }
}

/// Whether [`Link::start`] failed because this machine permits no network namespaces or TUN devices, so that tests with
/// a link must be skipped.
pub fn is_forbidden(error: &io::Error) -> bool {
    let text = error.to_string();
    ["Operation not permitted", "EPERM", "Permission denied", "/dev/net/tun", "unshare failed"]
        .iter()
        .any(|reason| text.contains(reason))
}

/// The error of a helper that could not start: its standard error.
fn failed(helper: Child) -> io::Error {
    match helper.wait_with_output() {
        Ok(output) => io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => error,
    }
}
