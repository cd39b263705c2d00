//! CPU time and memory of processes on this machine, from `/proc`.

use rustix::time::{ClockId, clock_gettime};

/// A tick is 10 ms on every Linux that matters here.
const TICK_US: u64 = 10_000;

struct Stat {
    name: String,
    parent: u32,
    own_us: u64,
    /// Of children that have ended and were waited for.
    children_us: u64,
}

/// User and system time of this process.
pub(super) fn client_us() -> u64 {
    let own = clock_gettime(ClockId::ProcessCPUTime);
    u64::try_from(own.tv_sec).unwrap_or(0) * 1_000_000
        + u64::try_from(own.tv_nsec).unwrap_or(0) / 1000
}

/// User and system time of the whole server that the given backend belongs to; `None` if that is no process of this machine. Connections that
/// did work must still be open: what a process used is not there to be read while it ends.
pub(super) fn postgres_us(backend: i32) -> Option<u64> {
    let server = |s: &Stat| s.name.starts_with("postgres") || s.name == "postmaster";
    let postmaster = stat(&backend.to_string()).filter(server)?.parent;
    let top = stat(&postmaster.to_string()).filter(server)?;
    let mut total = top.own_us + top.children_us;
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name
            .to_str()
            .filter(|n| n.bytes().all(|b| b.is_ascii_digit()))
        else {
            continue;
        };
        if let Some(stat) = stat(pid).filter(|s| s.parent == postmaster) {
            total += one_thread_us(pid).unwrap_or(stat.own_us);
        }
    }
    Some(total)
}

/// Memory of a process that is in RAM.
pub(super) fn rss_bytes(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Exact, where the kernel keeps it; of the first thread alone, and a server process has no other.
fn one_thread_us(pid: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let ns: u64 = text.split_whitespace().next()?.parse().ok()?;
    (ns > 0).then_some(ns / 1000)
}

fn stat(pid: &str) -> Option<Stat> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(text: &str) -> Option<Stat> {
    // The name is in parentheses and may hold anything; what follows the last one is numbers.
    let (before, after) = text.rsplit_once(')')?;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks = |n: usize| fields.get(n)?.parse::<u64>().ok();
    Some(Stat {
        name: before.split_once('(')?.1.to_owned(),
        parent: fields.get(1)?.parse().ok()?,
        own_us: (ticks(11)? + ticks(12)?) * TICK_US,
        children_us: (ticks(13)? + ticks(14)?) * TICK_US,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_whatever_the_name() {
        let text = "42 (a) (b c) S 7 1 1 0 -1 4194304 100 0 0 0 30 12 5 6 20 0 1 0 100 0 0";
        let stat = parse(text).unwrap();
        assert_eq!((&*stat.name, stat.parent), ("a) (b c", 7));
        assert_eq!((stat.own_us, stat.children_us), (420_000, 110_000));
        assert!(parse("42 (a").is_none());
    }

    #[test]
    fn a_process_that_is_no_server_has_no_time_of_one() {
        let me = i32::try_from(std::process::id()).unwrap();
        assert_eq!(postgres_us(me), None);
        assert!(rss_bytes(std::process::id()).unwrap() > 0);
    }
}
