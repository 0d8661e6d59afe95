//! User, groups and capabilities of the process.

use std::ffi::CString;
use std::fmt;

use nix::unistd::{User, initgroups, setgid, setuid};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
};

use crate::error::SandboxError;

/// Capability that a server needs as any user: to bind ports below 1024, also after a reload.
const TO_LISTEN: CapabilitySet = CapabilitySet::NET_BIND_SERVICE;

/// Capabilities that a process keeps with its user, so that a new version of a program has access to its keys, logs and state:
/// those to files, which [`confine`](crate::confine) limits to folders.
const WITH_SAME_USER: CapabilitySet =
    TO_LISTEN.union(CapabilitySet::DAC_READ_SEARCH).union(CapabilitySet::DAC_OVERRIDE);

/// User and capabilities of the process after [`drop_privileges`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Privileges {
    /// Number of the user.
    pub user: u32,
    /// Name of the user to which the process has changed; `None` if it is the user of the start.
    pub changed_to: Option<String>,
    /// Name of a user that the process cannot change to, because another user than root started it.
    pub ignored: Option<String>,
    /// Names of the capabilities that are left, without `CAP_`, in lower case.
    pub capabilities: Vec<&'static str>,
    /// Rights that the kernel does not let the process give up, one message each.
    pub missing: Vec<String>,
}

impl Privileges {
    /// Whether the process is root.
    pub fn is_root(&self) -> bool {
        self.user == 0
    }

    /// The user by name or number, as messages name it.
    pub fn shown_user(&self) -> String {
        self.changed_to.clone().unwrap_or_else(|| self.user.to_string())
    }
}

impl fmt::Display for Privileges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let capabilities =
            if self.capabilities.is_empty() { "none".to_owned() } else { self.capabilities.join(", ") };
        write!(f, "user {}, capabilities {capabilities}", self.shown_user())
    }
}

/// Changes to the user `name` with its groups, if root has started the process and a name is given. With `is_confined`, gives up
/// all capabilities except those of a server, empties the bounding set, and sets `PR_SET_NO_NEW_PRIVS`.
///
/// After a change of the user, `CAP_NET_BIND_SERVICE` remains. Otherwise the capabilities to read and write files of others remain
/// too, if the process has them. Must be called while the process has one thread, since Linux keeps capabilities per
/// thread. An `Err` may leave a part of the rights.
pub fn drop_privileges(name: Option<&str>, is_confined: bool) -> Result<Privileges, SandboxError> {
    let user = name.map(look_up_user).transpose()?;
    let is_root = geteuid().is_root();
    // Before the change of the user, which makes the capability to do so ineffective.
    if is_confined {
        empty_bounding_set();
    }
    let wanted = user.filter(|user| user.uid.as_raw() != geteuid().as_raw());
    let (changed, ignored) = if is_root { (wanted, None) } else { (None, wanted) };
    if let Some(user) = &changed {
        // Otherwise the change from root to another user clears the permitted capabilities (capabilities(7)).
        set_keep_capabilities(true).map_err(refused)?;
        become_user(user).map_err(|source| SandboxError::Become { name: user.name.clone(), source })?;
        keep_capabilities(TO_LISTEN).map_err(refused)?;
    }
    let mut missing = Vec::new();
    if is_confined {
        if let Err(error) = keep_capabilities(WITH_SAME_USER) {
            missing.push(format!("capabilities are not given up: {error}"));
        }
        // The kernel before 4.3 has no ambient set.
        let _ = clear_ambient_capability_set();
        if let Err(error) = set_no_new_privs(true) {
            missing.push(format!("programs may get further rights: {error}"));
        }
    }
    let left = capabilities(None).map_err(refused)?.permitted;
    Ok(Privileges {
        user: geteuid().as_raw(),
        changed_to: changed.map(|user| user.name),
        ignored: ignored.map(|user| user.name),
        capabilities: names(left),
        missing,
    })
}

/// Reason for which a process cannot run as the user `name` (`server.user`, `keys.isolate_user`); `None` if the user exists.
pub fn trouble_with_user(name: &str) -> Option<String> {
    look_up_user(name).err().map(|error| error.to_string())
}

fn refused(error: Errno) -> SandboxError {
    SandboxError::Capabilities(error.into())
}

/// Keeps the capabilities of the calling thread that are in `limit`, and makes them effective. Nothing is inheritable: programs
/// that the process starts get none of them.
pub fn keep_capabilities(limit: CapabilitySet) -> rustix::io::Result<()> {
    let kept = capabilities(None)?.permitted.intersection(limit);
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: none })
}

/// The user with this name, with its ids. An unknown name is [`SandboxError::NoUser`].
pub fn look_up_user(name: &str) -> Result<User, SandboxError> {
    let found =
        User::from_name(name).map_err(|source| SandboxError::LookUp { name: name.to_owned(), source })?;
    found.ok_or_else(|| SandboxError::NoUser { name: name.to_owned() })
}

fn become_user(user: &User) -> nix::Result<()> {
    // A name from the table of users has no NUL.
    let name = CString::new(user.name.as_str()).map_err(|_| nix::Error::EINVAL)?;
    // Groups first: `setuid` clears the effective capability to change them.
    initgroups(&name, user.gid)?;
    setgid(user.gid)?;
    setuid(user.uid)
}

/// Removes all capabilities from the bounding set. Only a process that may do so could use them: a refusal changes nothing.
fn empty_bounding_set() {
    for capability in CapabilitySet::all().iter() {
        if capability_is_in_bounding_set(capability) == Ok(true) {
            let _ = remove_capability_from_bounding_set(capability);
        }
    }
}

/// Names of capabilities for the log: of those that a server may keep, and `others`.
fn names(set: CapabilitySet) -> Vec<&'static str> {
    let known = [
        (CapabilitySet::NET_BIND_SERVICE, "net_bind_service"),
        (CapabilitySet::DAC_READ_SEARCH, "dac_read_search"),
        (CapabilitySet::DAC_OVERRIDE, "dac_override"),
    ];
    let kept = known.iter().filter(|(capability, _)| set.contains(*capability)).map(|(_, name)| *name);
    let others = (!WITH_SAME_USER.contains(set)).then_some("others");
    kept.chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_user_is_an_error_before_anything_changes() {
        // Set already in a container with `no-new-privileges`.
        let before = rustix::thread::no_new_privs().expect("a kernel that says");
        let error = drop_privileges(Some("who-is-this"), true).expect_err("no such user");
        assert!(error.to_string().contains("there is no user \"who-is-this\""), "{error}");
        assert_eq!(rustix::thread::no_new_privs().expect("a kernel that says"), before);
    }

    #[test]
    fn capabilities_are_named_for_the_log() {
        let privileges = |set| Privileges {
            user: 33,
            changed_to: Some("www-data".to_owned()),
            ignored: None,
            capabilities: names(set),
            missing: Vec::new(),
        };
        assert_eq!(privileges(TO_LISTEN).to_string(), "user www-data, capabilities net_bind_service");
        assert_eq!(privileges(CapabilitySet::empty()).to_string(), "user www-data, capabilities none");
        assert_eq!(
            names(CapabilitySet::all()),
            ["net_bind_service", "dac_read_search", "dac_override", "others"]
        );
    }
}
