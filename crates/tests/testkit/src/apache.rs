//! Apache as an upstream, in a temporary folder on a free port.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

use crate::process::{Process, command, serve_on_free_port};

/// A running Apache over HTTP/1.1. Dropping it kills it.
#[derive(Debug)]
pub struct Apache {
    process: Process,
    address: SocketAddr,
    folder: TempDir,
}

impl Apache {
    /// Starts it with these modules, such as `dav`, and directives, in which `/srv/` is a temporary folder. `prepare` fills this
    /// folder before; Apache's user may write to it.
    pub fn start(modules: &[&str], directives: &str, prepare: impl FnOnce(&Path)) -> Self {
        let folder = TempDir::with_prefix("brisk-test-apache-").expect("a temporary folder");
        let path = folder.path();
        // The process that root starts changes its user.
        fs::set_permissions(path, Permissions::from_mode(0o777)).expect("a folder of ours");
        prepare(path);
        let base = path.display().to_string();
        let modules = ["mpm_event", "authz_core"].iter().chain(modules);
        let module = |name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
        let modules = modules.map(module).collect::<Vec<_>>().concat();
        // Snippets of documentation contain a path that readers recognise; the test must not write there.
        let directives = directives.replace("/srv/", &format!("{base}/"));
        let file = path.join("apache.conf");
        let (process, address) = serve_on_free_port(|port| {
            let text = format!(
                "ServerRoot {base}\nPidFile {base}/pid\nErrorLog /dev/stderr\nMutex file:{base}\nListen 127.0.0.1:{port}\n\
                 {modules}User www-data\nGroup www-data\n{directives}"
            );
            fs::write(&file, text).expect("a temporary file");
            let mut apache = command("apache2");
            // One process, which ends when it is killed.
            apache.arg("-X").arg("-f").arg(&file);
            apache
        });
        Self { process, address, folder }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its temporary folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The error log so far.
    pub fn errors(&self) -> String {
        self.process.stderr()
    }
}
