//! Decides as which user the server runs.
//!
//! Promises: never as root, because Postgres refuses that: as root, the owner of the data, else `postgres`, else `nobody`; as
//! anybody else, that user itself. Must not change who owns a directory that it was not told to give away.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::error::{Error, Result};

/// The user that the server's processes run as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// The user of this process.
    Ourselves,
    /// Somebody else, because this process runs as root.
    Other(User),
}

/// One line of `/etc/passwd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    name: String,
    uid: u32,
    gid: u32,
}

impl Identity {
    /// The identity for data in `existing`, if they are there already, else for new data.
    pub(crate) fn choose(existing: Option<&Path>) -> Result<Identity> {
        let us = rustix::process::geteuid();
        let owner = match existing {
            Some(path) => Some((
                path,
                fs::metadata(path)
                    .map_err(Error::io("looking at", path))?
                    .uid(),
            )),
            None => None,
        };
        if !us.is_root() {
            return match owner {
                Some((path, owner)) if owner != us.as_raw() => Err(Error::NotOwner {
                    path: path.to_owned(),
                    owner,
                    us: us.as_raw(),
                }),
                _ => Ok(Identity::Ourselves),
            };
        }
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let user = unprivileged_user(&passwd, owner.map(|(_, uid)| uid));
        user.map(Identity::Other).ok_or_else(|| match owner {
            Some((path, owner)) => Error::NotOwner {
                path: path.to_owned(),
                owner,
                us: 0,
            },
            None => Error::NoUnprivilegedUser,
        })
    }

    /// Makes `command` run as this user.
    pub(crate) fn apply(&self, command: &mut Command) {
        if let Identity::Other(user) = self {
            // The standard library also drops the supplementary groups of root here.
            command.uid(user.uid).gid(user.gid);
        }
    }

    /// Makes an own directory at `path` that only this user can enter.
    pub(crate) fn create_private_dir(&self, path: &Path) -> Result<()> {
        fs::create_dir(path).map_err(Error::io("creating", path))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))
            .map_err(Error::io("protecting", path))?;
        self.give(path)
    }

    /// Makes this user the owner of `path`.
    pub(crate) fn give(&self, path: &Path) -> Result<()> {
        match self {
            Identity::Ourselves => Ok(()),
            Identity::Other(user) => chown(path, Some(user.uid), Some(user.gid))
                .map_err(Error::io("changing the owner of", path)),
        }
    }

    /// The permissions of a directory that this user passes through, and that is otherwise ours.
    pub(crate) fn passage_mode(&self) -> u32 {
        match self {
            Identity::Ourselves => 0o700,
            Identity::Other(_) => 0o711,
        }
    }

    /// Fails if this user cannot get to the directory `path`, naming the directory that stops it.
    ///
    /// Without this, the failure would be a bare "Permission denied" from somewhere inside Postgres.
    pub(crate) fn check_can_enter(&self, path: &Path) -> Result<()> {
        let Identity::Other(user) = self else {
            return Ok(());
        };
        let full = path.canonicalize().map_err(Error::io("looking at", path))?;
        let on_the_way: Vec<&Path> = full.ancestors().collect();
        for dir in on_the_way.into_iter().rev() {
            let metadata = fs::metadata(dir).map_err(Error::io("looking at", dir))?;
            if !user.may_enter(metadata.mode(), metadata.uid(), metadata.gid()) {
                return Err(Error::CannotEnter {
                    user: user.name.clone(),
                    path: full.clone(),
                    blocked_at: dir.to_owned(),
                });
            }
        }
        Ok(())
    }
}

impl User {
    fn may_enter(&self, mode: u32, owner: u32, group: u32) -> bool {
        let execute_bit = if owner == self.uid {
            0o100
        } else if group == self.gid {
            0o010
        } else {
            0o001
        };
        mode & execute_bit != 0
    }
}

/// The user with id `owner` if there is one, else `postgres`, else `nobody`.
///
/// Postgres looks its own user up there, so a bare number will not do.
fn unprivileged_user(passwd: &str, owner: Option<u32>) -> Option<User> {
    let users: Vec<User> = passwd
        .lines()
        .filter_map(parse_passwd_line)
        .filter(|user| user.uid != 0)
        .collect();
    let find = |wanted: &dyn Fn(&User) -> bool| users.iter().find(|user| wanted(user)).cloned();
    match owner {
        Some(owner) => find(&|user| user.uid == owner),
        None => {
            find(&|user| user.name == "postgres").or_else(|| find(&|user| user.name == "nobody"))
        }
    }
}

fn parse_passwd_line(line: &str) -> Option<User> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let _password = fields.next()?;
    let uid = fields.next()?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    Some(User { name, uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n\
                          # a comment\n\
                          nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n\
                          postgres:x:101:104:PostgreSQL administrator,,,:/var/lib/postgresql:/bin/bash\n";

    fn name(user: Option<User>) -> Option<String> {
        user.map(|user| user.name)
    }

    #[test]
    fn root_becomes_postgres_or_nobody_but_never_root() {
        assert_eq!(
            name(unprivileged_user(PASSWD, None)).as_deref(),
            Some("postgres")
        );
        let without_postgres = PASSWD.replace("postgres:", "pg:");
        assert_eq!(
            name(unprivileged_user(&without_postgres, None)).as_deref(),
            Some("nobody")
        );
        assert_eq!(
            unprivileged_user("root:x:0:0:root:/root:/bin/bash\n", None),
            None
        );
        assert_eq!(unprivileged_user("postgres:x:0:0::/:/bin/sh\n", None), None);
    }

    #[test]
    fn the_owner_of_the_data_comes_first() {
        assert_eq!(
            name(unprivileged_user(PASSWD, Some(65534))).as_deref(),
            Some("nobody")
        );
        assert_eq!(unprivileged_user(PASSWD, Some(4711)), None);
    }

    #[test]
    fn entering_follows_the_permission_bits_of_the_right_class() {
        let user = User {
            name: "postgres".to_owned(),
            uid: 101,
            gid: 104,
        };
        assert!(user.may_enter(0o755, 0, 0));
        assert!(!user.may_enter(0o700, 0, 0));
        assert!(user.may_enter(0o700, 101, 0));
        assert!(
            !user.may_enter(0o077, 101, 104),
            "the owner's bits decide, even if others may do more"
        );
        assert!(user.may_enter(0o710, 0, 104));
        assert!(!user.may_enter(0o701, 0, 104));
    }
}
