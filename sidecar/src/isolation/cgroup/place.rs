//! Where this process is among the control groups: `/proc/self/cgroup` and `/proc/self/mountinfo`
//! (`cgroups(7)`, `proc_pid_mountinfo(5)`).

use std::path::{Path, PathBuf};

use super::version::Version;

/// One hierarchy, and this process in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub version: Version,
    /// The controllers it has; of version 2 each group tells itself.
    pub controllers: Vec<String>,
    /// Where the hierarchy is mounted.
    pub mount: PathBuf,
    /// The group this process is in, below `mount` or `mount` itself.
    pub group: PathBuf,
}

/// All hierarchies that are mounted where this process can see its own group.
pub(super) fn places(cgroup: &str, mountinfo: &str) -> Vec<Place> {
    mountinfo.lines().filter_map(|line| place(cgroup, line)).collect()
}

fn place(cgroup: &str, line: &str) -> Option<Place> {
    let (own, filesystem) = line.split_once(" - ")?;
    let own: Vec<&str> = own.split(' ').collect();
    let (root, mount) = (unescape(own.get(3)?), PathBuf::from(unescape(own.get(4)?)));
    let mut filesystem = filesystem.split(' ');
    let version = match filesystem.next()? {
        "cgroup" => Version::V1,
        "cgroup2" => Version::V2,
        _ => return None,
    };
    let options: Vec<&str> = filesystem.nth(1).unwrap_or_default().split(',').collect();
    let (controllers, path) = cgroup.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let controllers: Vec<&str> = controllers.split(',').filter(|name| !name.is_empty()).collect();
        let here = match version {
            Version::V1 => !controllers.is_empty() && controllers.iter().all(|name| options.contains(name)),
            Version::V2 => number == "0" && controllers.is_empty(),
        };
        here.then_some((controllers, path))
    })?;
    // What is mounted may be a part of the hierarchy, as in a container.
    let below = Path::new(path).strip_prefix(&root).ok()?;
    let group = mount.join(below);
    Some(Place { version, controllers: controllers.into_iter().map(str::to_owned).collect(), mount, group })
}

/// Spaces and their like are written as a backslash and three octal digits.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = match after {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if *first == b'\\' => {
                Some((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'))
            }
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(cgroup: &str, mountinfo: &str) -> Vec<(Version, String, String)> {
        let places = places(cgroup, mountinfo);
        places
            .into_iter()
            .map(|p| (p.version, p.controllers.join(","), p.group.display().to_string()))
            .collect()
    }

    #[test]
    fn one_hierarchy_for_everything() {
        let cgroup = "0::/user.slice/user-1000.slice/session-2.scope\n";
        let mounts = "26 24 0:23 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n\
                      23 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n";
        let group = "/sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope";
        assert_eq!(found(cgroup, mounts), [(Version::V2, String::new(), group.to_owned())]);
    }

    #[test]
    fn a_hierarchy_for_each_controller_and_an_empty_second_version() {
        let cgroup = "9:name=systemd:/\n4:memory:/box/7\n2:cpu,cpuacct:/\n0::/\n";
        let mounts = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let expected = [
            (Version::V1, "cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct/"),
            (Version::V1, "memory", "/sys/fs/cgroup/memory/box/7"),
            (Version::V1, "name=systemd", "/sys/fs/cgroup/systemd/"),
            (Version::V2, "", "/sys/fs/cgroup/unified/"),
        ];
        assert_eq!(found(cgroup, mounts), expected.map(|(v, c, g)| (v, c.to_owned(), g.to_owned())));
    }

    #[test]
    fn a_part_of_a_hierarchy_in_a_container() {
        let cgroup = "4:memory:/docker/ab/inner\n3:pids:/elsewhere\n";
        let mounts = "1 2 0:3 /docker/ab /sys/fs/cgroup/mem\\040ory ro - cgroup cgroup rw,memory\n\
                      1 2 0:4 /docker/ab /sys/fs/cgroup/pids ro - cgroup cgroup rw,pids\n";
        let expected = (Version::V1, "memory".to_owned(), "/sys/fs/cgroup/mem ory/inner".to_owned());
        assert_eq!(found(cgroup, mounts), [expected], "and a group that is not mounted is not found");
    }

    #[test]
    fn lines_of_another_form_are_no_places() {
        for line in ["", "-", " - cgroup2", "1 2 3 - cgroup2 x rw", "1 2 3 / /x rw - cgroup2"] {
            assert!(places("0::/\n", line).len() <= 1, "{line}");
        }
        assert_eq!(places("", "26 24 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"), []);
    }
}
