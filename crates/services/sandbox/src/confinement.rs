//! [`confine`], the second step: file access and system calls of all threads.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, LandlockStatus, PathBeneath, PathFd, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use rustix::thread::set_no_new_privs;

use crate::calls::Calls;
use crate::filter;
use crate::folders::{Access, Folders};
use crate::granted::Granted;
use crate::threads;

/// Version of Landlock whose rights are limited; an older kernel limits those that it knows. A later version has rights to connect,
/// which stay unlimited: upstreams may be anywhere.
const VERSION: ABI = ABI::V5;

/// Limits that [`confine`] has set.
#[derive(Clone, Debug, Default)]
pub struct Confinement {
    /// The granted files; `None` if file access is not limited.
    pub granted: Option<Granted>,
    /// Whether system calls are limited.
    pub limits_calls: bool,
    /// Limits that the kernel does not support or refuses, one message each.
    pub missing: Vec<String>,
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = match &self.granted {
            Some(granted) => format!("{} granted files and folders", granted.all.len()),
            None => "all files".to_owned(),
        };
        let calls = if self.limits_calls { "those of a server, without exec and fork" } else { "all" };
        write!(f, "{files}, system calls: {calls}")
    }
}

/// Limits file access to `folders`, unless they are `None`, and system calls to `calls`, for all threads and irrevocably.
///
/// A kernel without a limit is no error: [`Confinement::missing`] names it. Sets `PR_SET_NO_NEW_PRIVS`. To be called once per
/// process.
pub fn confine(folders: Option<&Folders>, calls: Calls) -> Confinement {
    let mut confinement = Confinement::default();
    // First: the filter of system calls leaves none to limit file access.
    if let Some(folders) = folders {
        let granted = Granted::of(folders);
        match restrict_files(&granted, &mut confinement.missing) {
            Ok(true) => confinement.granted = Some(granted),
            Ok(false) => {}
            Err(error) => confinement.missing.push(format!("file access is not limited: {error}")),
        }
    }
    let installed = set_no_new_privs(true).map_err(io::Error::from).and_then(|()| filter::install(calls));
    match installed {
        Ok(()) => confinement.limits_calls = true,
        Err(error) => confinement.missing.push(format!("system calls are not limited: {error}")),
    }
    confinement
}

/// Rights of Landlock for one kind of access. Without `EXECUTE`, for which nothing is granted.
fn rights(access: Access) -> BitFlags<AccessFs> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let append = AccessFs::WriteFile | AccessFs::MakeReg;
    match access {
        Access::Read => read,
        Access::Append => append,
        Access::Write => {
            let links = AccessFs::MakeSym | AccessFs::Refer | AccessFs::Truncate;
            let folders = AccessFs::MakeDir | AccessFs::RemoveDir | AccessFs::RemoveFile;
            read | append | links | folders
        }
    }
}

/// Limits the file access of all threads. Returns `false`, with a reason in `missing`, if the kernel has no Landlock.
fn restrict_files(granted: &Granted, missing: &mut Vec<String>) -> Result<bool, RulesetError> {
    let mut rules = Ruleset::default().handle_access(AccessFs::from_all(VERSION))?.create()?;
    for (path, access) in &granted.all {
        // A path that has vanished meanwhile is not granted.
        let Ok(opened) = PathFd::new(path) else { continue };
        let all = rights(*access);
        let own = if path.is_dir() { all } else { all & AccessFs::from_file(VERSION) };
        // By reference: a rule that the kernel refuses must not cost the others.
        if let Err(error) = (&mut rules).add_rule(PathBeneath::new(opened, own)) {
            missing.push(format!("{} cannot be granted: {error}", path.display()));
        }
    }
    let copy = rules.try_clone();
    let RestrictionStatus { ruleset, landlock, .. } = rules.restrict_self()?;
    match (ruleset, landlock) {
        (RulesetStatus::NotEnforced, LandlockStatus::NotEnabled) => {
            missing
                .push("file access is not limited: Landlock is disabled (kernel parameter lsm=)".to_owned());
            return Ok(false);
        }
        (RulesetStatus::NotEnforced, _) => {
            missing.push("file access is not limited: Landlock requires Linux 5.13, and a container or unit whose filter permits it".to_owned());
            return Ok(false);
        }
        (RulesetStatus::PartiallyEnforced, LandlockStatus::Available { effective_abi, .. }) => {
            missing.push(limited_in_part(effective_abi));
        }
        (RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced, _) => {}
    }
    let others = copy.map(Option::<OwnedFd>::from).and_then(|ruleset| match ruleset {
        Some(ruleset) => threads::restrict(&ruleset),
        None => Ok(Vec::new()),
    });
    match others {
        Ok(left) if left.is_empty() => {}
        Ok(left) => missing.push(format!("file access of the threads {} is not limited", left.join(", "))),
        Err(error) => missing.push(format!("file access of other threads is not limited: {error}")),
    }
    Ok(true)
}

/// Message about a kernel with an older version of Landlock.
fn limited_in_part(version: ABI) -> String {
    // `openat2` truncates too, with flags in memory that no filter of system calls can read.
    let emptied = if version < ABI::V3 {
        "; before version 3, files that the user may write can be emptied"
    } else {
        ""
    };
    format!(
        "file access is limited in part: Landlock of the kernel has version {version}, and {VERSION} limits all{emptied}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_does_not_limit_truncation_is_named_with_the_consequence() {
        let begin = |version| {
            format!(
                "file access is limited in part: Landlock of the kernel has version {version}, and 5 limits all"
            )
        };
        assert_eq!(
            limited_in_part(ABI::V2),
            begin(2) + "; before version 3, files that the user may write can be emptied"
        );
        assert_eq!(limited_in_part(ABI::V3), begin(3));
    }
}
