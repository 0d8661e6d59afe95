//! User of `brisk cert`: files created by root would be unreadable for the service.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, bail};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};

use brisk_config::CertificatePlace;

/// Switches a process of root permanently to the owner of the certificate folder. To be called after all files that only
/// root can read.
pub(super) fn become_owner(place: &CertificatePlace) -> anyhow::Result<()> {
    // Records in Redis have no owner.
    let CertificatePlace::Folder(folder) = place else { return Ok(()) };
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let Some((uid, gid)) = owner(folder)? else {
        let dir = folder.parent().unwrap_or(folder).display();
        bail!(
            "{dir} does not exist yet, and what root makes there the service could not read: make it for the user of the \
             service (install -d -m 700 -o USER {dir}), start the service first, or write server.state_dir as the service has it"
        );
    };
    if uid.is_root() {
        return Ok(());
    }
    let become_it = || -> nix::Result<()> {
        // Groups first: only root may change them.
        setgroups(&[gid])?;
        setgid(gid)?;
        setuid(uid)
    };
    become_it().with_context(|| format!("cannot become user {uid}, to whom {} belongs", folder.display()))?;
    tracing::info!(%uid, folder = %folder.display(), "goes on as the user to whom the folder belongs");
    Ok(())
}

/// Owner of `folder`: that of the parent folder if this is not root, since its owner could replace `folder` anyway.
fn owner(folder: &Path) -> io::Result<Option<(Uid, Gid)>> {
    let mut owner = None;
    for folder in folder.parent().into_iter().chain([folder]) {
        match fs::metadata(folder) {
            Ok(facts) => owner = Some((Uid::from_raw(facts.uid()), Gid::from_raw(facts.gid()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        if owner.is_some_and(|(uid, _)| !uid.is_root()) {
            return Ok(owner);
        }
    }
    Ok(owner)
}
