"""Rowlock by its own bench, for the bars that no peer has a part in: `rowlock bench ... --json` on the same server."""

import json
import os
import subprocess
import time
from dataclasses import dataclass

from .postgres import Failed
from .systems import HERE

ROOT = HERE.parent.parent
DATABASE = "peer_own"
# How long the slow ones take. The bars were set for the full size.
SIZES = {
    "short": {"rate": "60s", "backlog": 1_000_000, "idle": "60s"},
    "full": {"rate": "10m", "backlog": 10_000_000, "idle": "1h"},
}


@dataclass(frozen=True)
class Part:
    name: str
    arguments: tuple


def parts(size, jobs=1_000_000):
    """What is measured, quick things first."""
    length = SIZES[size]
    return [
        Part("floor", ("floor", "drain", "--jobs", jobs, "--rounds", 5)),
        Part("transaction", ("enqueue", "--jobs", 20_000, "--producers", 8, "--rounds", 3)),
        Part("processes", ("processes", "--jobs", jobs, "--rounds", 5)),
        Part("drains", ("pinned", "--jobs", jobs, "--duration", "500ms", "--rounds", 5)),
        Part("backlog", ("backlog", "--jobs", length["backlog"], "--rounds", 3)),
        Part("idle", ("idle", "--workers", 20, "--duration", "60s")),
        Part("rested", ("latency", "--samples", 400, "--idle", length["idle"])),
        Part("busy", ("latency", "--samples", 400)),
        Part("rate", ("pinned", "--jobs", 10_000, "--rate", 2000, "--duration", length["rate"])),
    ]


def build():
    """The program, as a user would build it."""
    done = subprocess.run(
        ["cargo", "build", "--release", "--quiet", "-p", "rowlock-cli"], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False,
    )
    if done.returncode != 0:
        raise Failed(f"rowlock does not build: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'no word why'}")


def program():
    target = os.environ.get("CARGO_TARGET_DIR")
    return (ROOT / target if target else ROOT / "target") / "release" / "rowlock"


def run(postgres, part):
    """What `rowlock bench` says of one part, with what was asked."""
    postgres.fresh(DATABASE)
    command = [str(program()), "bench", "--json", "-d", postgres.url(DATABASE), *map(str, part.arguments)]
    began = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    finally:
        postgres.drop(DATABASE)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise Failed(lines[-1].strip()[:300] if lines else f"ended with code {done.returncode}")
    said = " ".join(map(str, part.arguments))
    return {"name": part.name, "command": f"rowlock bench {said}", "seconds": time.monotonic() - began, "lines": json.loads(done.stdout)["lines"]}
