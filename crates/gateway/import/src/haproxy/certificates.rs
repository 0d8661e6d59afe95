//! Certificates of hosts: HAProxy chooses among all of a listener by the names in them, brisk has those of each host.

use crate::haproxy::bind::{Certificate, Listeners};
use crate::haproxy::context::Context;
use crate::toml::{self, Keys};

impl<'a> Context<'a> {
    /// Sets `certificates` of a host with these `names`, and `certificate_folder` if it `is_default` and a `crt` is a folder.
    pub(crate) fn certificates(
        &self,
        listeners: &Listeners<'a>,
        names: &[String],
        is_default: bool,
        keys: &mut Keys,
    ) {
        let mut files: Vec<String> = Vec::new();
        let mut assumed = false;
        for own in &listeners.certificates {
            if own.is_folder {
                let (found, is_guess) = self.of_folder(own, names);
                files.extend(found);
                assumed |= is_guess;
            } else if names.iter().any(|name| is_for(own, name)) {
                files.push(own.path.clone());
            }
        }
        if files.is_empty() {
            let first = listeners.certificates.iter().find(|own| !own.is_folder).map(|own| own.path.clone());
            let first = first.or_else(|| {
                listeners.certificates.iter().find_map(|own| self.of_folder(own, &[]).0.into_iter().next())
            });
            files.extend(first);
            if listeners.certificates.len() > 1 && !names.is_empty() {
                let detail = format!(
                    "no file has a name of {}: the host gets the first certificate",
                    names.join(", ")
                );
                self.different(listeners.line, detail);
            }
        }
        if assumed {
            self.different(
                listeners.line,
                "the folder is not on this machine: the names of its files are assumed, NAME.pem",
            );
        }
        // Names of one domain may have the same file for a wildcard.
        files.dedup();
        if !files.is_empty() {
            let entries: Vec<_> = files.iter().map(|path| self.pair(path)).collect();
            keys.set("certificates", format!("[{}]", entries.join(", ")));
        }
        // Names without a host of their own have their certificates in the folder.
        let folder = listeners.certificates.iter().find(|own| own.is_folder);
        if let Some(folder) = folder.filter(|_| is_default) {
            keys.set("certificate_folder", self.file(&folder.path));
            self.different(
                listeners.line,
                "brisk finds certificates in the folder by the names of the files, NAME.pem",
            );
        }
    }

    /// The files of a folder for `names`, and whether they are a guess: `a.example.com.pem` or `_.example.com.pem` for
    /// `a.example.com`. Without `names`, all files that end with `.pem`.
    fn of_folder(&self, folder: &Certificate, names: &[String]) -> (Vec<String>, bool) {
        if !folder.is_folder {
            return (Vec::new(), false);
        }
        let path = |file: &String| format!("{}/{file}", folder.path);
        let wanted = |name: &String| {
            let wild = name.split_once('.').map(|(_, parent)| parent).filter(|parent| parent.contains('.'));
            let wild =
                wild.into_iter().flat_map(|parent| [format!("*.{parent}.pem"), format!("_.{parent}.pem")]);
            std::iter::once(format!("{}.pem", name.replace('*', "_"))).chain(wild).collect::<Vec<_>>()
        };
        match self.files.borrow_mut().names(&folder.path).as_deref() {
            Some(all) if names.is_empty() => {
                (all.iter().filter(|file| file.strip_suffix(".pem").is_some()).map(path).collect(), false)
            }
            Some(all) => {
                let found = names.iter().flat_map(wanted).filter(|file| all.contains(file));
                (found.map(|file| path(&file)).collect(), false)
            }
            None => {
                let files = names
                    .iter()
                    .filter(|name| name.contains('.'))
                    .filter_map(|name| wanted(name).into_iter().next());
                let files: Vec<_> = files.map(|file| path(&file)).collect();
                let is_guess = !files.is_empty();
                (files, is_guess)
            }
        }
    }

    /// `chain` and `key` for the file `a.pem`: both are this file, unless `a.pem.key` is beside it.
    pub(crate) fn pair(&self, path: &str) -> String {
        let key = format!("{path}.key");
        let key = if self.files.borrow().is_file(&key) { key.as_str() } else { path };
        format!("{{ chain = {}, key = {} }}", self.file(path), self.file(key))
    }
}

/// Whether a certificate is for a name, by its file or by the `names` of a `crt-list`: `_.example.com.pem` for `a.example.com`.
fn is_for(certificate: &Certificate, name: &str) -> bool {
    let file = certificate.path.rsplit('/').next().unwrap_or("");
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem).to_ascii_lowercase();
    let bare = name.trim_start_matches("*.");
    let is_own = |own: &str| {
        let own = own.trim_start_matches("*.").trim_start_matches("_.").trim_start_matches("wildcard.");
        own == bare || bare.split_once('.').is_some_and(|(_, parent)| parent == own && own.contains('.'))
    };
    is_own(&stem) || certificate.names.iter().any(|own| is_own(own))
}

/// The certificates of a TCP listener.
pub(crate) fn of_tcp(context: &Context<'_>, listeners: &Listeners<'_>) -> Option<String> {
    let files = listeners.certificates.iter().filter(|own| !own.is_folder).map(|own| context.pair(&own.path));
    let files: Vec<_> = files.collect();
    (!files.is_empty()).then(|| format!("[{}]", files.join(", ")))
}

/// The key `listen` of a TCP listener.
pub(crate) fn listen(listeners: &Listeners<'_>) -> String {
    toml::list(&listeners.addresses)
}
