//! The memory that this process may use: the limit of its container, else the machine's memory.
//!
//! `/proc/self/cgroup` names the control group of the process. The group and each group above it
//! may have a limit, and the lowest one applies. Version 2 keeps it in `memory.max`, version 1 in
//! `memory.limit_in_bytes`. Inside a container the path may be the host's and not exist; the
//! mounted root is then the container's own group, and its limit is read as well.
//!
//! What it deliberately does not do: watch for changes, or look at the memory of other processes. A
//! raised limit applies at the next start.

use std::fs;
use std::path::{Path, PathBuf};

/// Without `--memory-max`, buckets may use the limit divided by this.
pub const BUCKET_SHARE: u64 = 2;

/// Without settings of their own, unfinished request bodies and unsent answers may each use the
/// limit divided by this.
const REQUEST_SHARE: u64 = 8;

/// The same in bytes, where the limit is unknown.
const REQUEST_BYTES_UNKNOWN: u64 = 64 * 1024 * 1024;

/// The most that unsent answers may use by default.
const ANSWER_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// How much memory unfinished request bodies may use by default.
pub fn request_bytes() -> u64 {
    let limit = MemoryLimit::of_current_process();
    limit.map_or(REQUEST_BYTES_UNKNOWN, |limit| limit.bytes / REQUEST_SHARE)
}

/// How much memory unsent answers may use by default, where the largest answer has so many bytes.
pub fn answer_bytes(answer_bytes_max: usize) -> u64 {
    let answers_min = (answer_bytes_max as u64).saturating_mul(2);
    request_bytes().min(ANSWER_BYTES_MAX).max(answers_min)
}

/// A limit of memory, and its source.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemoryLimit {
    /// In bytes.
    pub bytes: u64,
    /// The file that it comes from.
    pub from: PathBuf,
}

// === impl MemoryLimit ===

impl MemoryLimit {
    /// The limit of this process; none when the system does not give one.
    pub fn of_current_process() -> Option<Self> {
        Self::under_root(Path::new("/"))
    }

    /// The limit, with `/proc` and `/sys/fs/cgroup` below `root`.
    pub fn under_root(root: &Path) -> Option<Self> {
        let machine = machine(&root.join("proc/meminfo"));
        let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let mounted = root.join("sys/fs/cgroup");
        let container = groups
            .lines()
            .flat_map(|line| files(line, &mounted))
            .filter_map(|file| {
                let bytes = fs::read_to_string(&file).ok()?.trim().parse().ok()?;
                Some(Self { bytes, from: file })
            })
            .min_by_key(|limit| limit.bytes);
        // Without a limit version 2 has "max", and version 1 a number larger than any machine's
        // memory.
        match (container, machine) {
            (Some(container), Some(machine)) if container.bytes >= machine.bytes => Some(machine),
            (container, machine) => container.or(machine),
        }
    }

    /// How much of it is for buckets.
    pub fn bucket_bytes(&self) -> u64 {
        self.bytes / BUCKET_SHARE
    }
}

/// The files that may hold a limit, from one line of `/proc/self/cgroup`: `0::/path`, or
/// `5:memory:/path`.
fn files(line: &str, mounted: &Path) -> Vec<PathBuf> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
        return Vec::new();
    };
    let (roots, file) = if controllers.is_empty() {
        // With version 1 present, version 2 is mounted elsewhere and does not limit memory; reading
        // it does no harm.
        (
            vec![mounted.to_owned(), mounted.join("unified")],
            "memory.max",
        )
    } else if controllers.split(',').any(|name| name == "memory") {
        (vec![mounted.join("memory")], "memory.limit_in_bytes")
    } else {
        return Vec::new();
    };
    let path = path.trim_start_matches('/');
    let mut files = Vec::new();
    for root in roots {
        let groups = Path::new(path).ancestors();
        files.extend(groups.map(|group| root.join(group).join(file)));
    }
    files
}

/// The memory of the machine: `MemTotal:  16384 kB`.
fn machine(meminfo: &Path) -> Option<MemoryLimit> {
    let text = fs::read_to_string(meminfo).ok()?;
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(MemoryLimit {
        bytes: kib.checked_mul(1024)?,
        from: meminfo.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes these files below a root, and gives the limit: bytes, and the file below the root.
    fn limit(files: &[(&str, &str)]) -> Option<(u64, String)> {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        MemoryLimit::under_root(root.path()).map(|limit| {
            let from = limit.from.strip_prefix(root.path()).unwrap();
            (limit.bytes, from.display().to_string())
        })
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemFree: 1 kB\nMemTotal:    8192 kB\n");

    #[test]
    fn version_2_the_lowest_of_the_group_and_those_above_it() {
        let group = ("proc/self/cgroup", "0::/a/b\n");
        let low = ("sys/fs/cgroup/a/memory.max", "4096\n");
        let high = ("sys/fs/cgroup/a/b/memory.max", "8192\n");
        let found = Some((4096, low.0.to_owned()));
        assert_eq!(limit(&[MEMINFO, group, low, high]), found);
        let max = ("sys/fs/cgroup/a/b/memory.max", "max\n");
        assert_eq!(limit(&[MEMINFO, group, low, max]), found);
    }

    #[test]
    fn version_2_in_a_container_that_sees_itself_as_the_root() {
        let root = ("sys/fs/cgroup/memory.max", "67108864\n");
        for path in ["0::/\n", "0::/../../not/here\n"] {
            let group = ("proc/self/cgroup", path);
            let found = limit(&[("proc/meminfo", "MemTotal: 900000 kB\n"), group, root]);
            assert_eq!(found, Some((64 << 20, root.0.to_owned())), "{path}");
        }
    }

    #[test]
    fn version_1_also_with_the_path_of_the_host() {
        let group = (
            "proc/self/cgroup",
            "9:cpu:/x\n4:hugetlb,memory:/docker/f00\n0::/\n",
        );
        let own = (
            "sys/fs/cgroup/memory/docker/f00/memory.limit_in_bytes",
            "4096",
        );
        let root = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "8192");
        assert_eq!(
            limit(&[MEMINFO, group, own, root]),
            Some((4096, own.0.to_owned()))
        );
        assert_eq!(
            limit(&[MEMINFO, group, root]),
            Some((8192, root.0.to_owned()))
        );
    }

    #[test]
    fn without_a_limit_the_machine_has_one() {
        let machine = Some((8 << 20, MEMINFO.0.to_owned()));
        assert_eq!(limit(&[MEMINFO]), machine);
        let group = ("proc/self/cgroup", "4:memory:/\n0::/\n");
        let none = (
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        assert_eq!(limit(&[MEMINFO, group, none]), machine);
        assert_eq!(
            limit(&[MEMINFO, group, ("sys/fs/cgroup/memory.max", "max\n")]),
            machine
        );
        assert_eq!(limit(&[]), None);
    }

    #[test]
    fn half_of_it_is_for_buckets() {
        let limit = MemoryLimit {
            bytes: 64 << 20,
            from: PathBuf::new(),
        };
        assert_eq!(limit.bucket_bytes(), 32 << 20);
    }
}
