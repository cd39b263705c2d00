"""What the run happened on, and what else the machine was doing."""

import os
import platform
import subprocess
import time
from datetime import datetime, timezone
from pathlib import Path

from .meter import server_seconds


def now():
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def describe():
    return {
        "date": now(),
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "tools": {
            "rustc": version("rustc"),
            "node": version("node"),
            "python": platform.python_version(),
        },
    }


def cpu():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def version(program):
    try:
        return subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return "not installed"


class Clock:
    """How long the run takes, and how much of the machine others use meanwhile."""

    def __init__(self, postmaster):
        self.postmaster = postmaster
        self.began, self.busy, self.ours = time.monotonic(), busy_seconds(), self._ours()

    def read(self):
        """(seconds, share of the machine that went to neither the server, the adapters nor this harness)."""
        seconds = time.monotonic() - self.began
        others = busy_seconds() - self.busy - (self._ours() - self.ours)
        return seconds, max(0.0, others / (seconds * (os.cpu_count() or 1)))

    def _ours(self):
        usage = os.times()
        mine = usage.user + usage.system + usage.children_user + usage.children_system
        return mine + (server_seconds(self.postmaster) or 0.0)


def busy_seconds():
    """CPU seconds of the whole machine since it started, idle and waiting left out."""
    with open("/proc/stat", encoding="utf-8") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")


def load():
    return os.getloadavg()[0]


def settle(most_seconds=120):
    """Waits until the machine does little else, such as the end of a build, and not for ever."""
    deadline = time.monotonic() + most_seconds
    while time.monotonic() < deadline:
        busy = busy_seconds()
        time.sleep(3)
        if busy_seconds() - busy < 0.1 * 3 * (os.cpu_count() or 1):
            return


def file_system(path):
    """What the data lies on: on one in memory a durable commit would cost nothing."""
    done = subprocess.run(["stat", "-f", "-c", "%T", str(path)], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "an unknown file system"


# What Rowlock is made of; texts and this harness do not make another one of it.
PRODUCT = ("Cargo.toml", "Cargo.lock", "crates", "sql")


def commit():
    """The last commit that changed Rowlock, with a + if it was changed since; nothing outside of a checkout."""
    top = Path(__file__).resolve().parents[3]
    git = ["git", "-C", str(top)]
    last = subprocess.run([*git, "log", "-1", "--format=%h", "--", *PRODUCT], capture_output=True, text=True, check=False).stdout.strip()
    changed = subprocess.run([*git, "status", "--porcelain", "--", *PRODUCT], capture_output=True, text=True, check=False).stdout.strip()
    return f"{last}+" if last and changed else last
