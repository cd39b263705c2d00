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
# How many at once call in transactions, and one by one.
CALLERS = (8, 32)
# How long the slow ones take. The bars were set for the full size.
SIZES = {
    "short": {"rate": "60s", "backlog": 1_000_000, "idle": "60s"},
    "full": {"rate": "10m", "backlog": 10_000_000, "idle": "1h"},
}

# Nothing of all this takes so long.
LIMIT_SECONDS = 3 * 3600

# What else the bench's document says that tells under what circumstances the lines were measured.
KEPT = ("load_before", "optimised", "settings", "place")


@dataclass(frozen=True)
class Part:
    name: str
    arguments: tuple


def parts(size, jobs=1_000_000):
    """What is measured, quick things first."""
    length = SIZES[size]
    return [
        Part("floor", ("floor", "drain", "--jobs", jobs, "--rounds", 5)),
        Part("transaction", ("enqueue", "--jobs", 20_000, "--producers", ",".join(map(str, CALLERS)), "--rounds", 3)),
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
    """What `rowlock bench` says of one part, with what was asked; what it measured before a failure, too."""
    postgres.fresh(DATABASE)
    command = [str(program()), "bench", "--json", "-d", postgres.url(DATABASE), *map(str, part.arguments)]
    began = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"not done after {LIMIT_SECONDS} s") from error
    return told(part, time.monotonic() - began, done)


def told(part, seconds, done):
    """A part of the run, from the JSON that was printed; marked as failed, if that is not all."""
    try:
        document = json.loads(done.stdout)
    except ValueError:
        document = {}
    if not document.get("lines"):
        raise Failed(why(document, done) if done.returncode != 0 else "it printed nothing that was measured")
    said = " ".join(map(str, part.arguments))
    found = {"name": part.name, "command": f"rowlock bench {said}", "seconds": seconds, "lines": document["lines"]}
    found.update({name: document[name] for name in KEPT if name in document})
    return found if done.returncode == 0 else {**found, "failed": why(document, done)}


def why(document, done):
    """In one line."""
    lines = [line for line in [*done.stderr.splitlines(), *(document.get("failed") or "").splitlines()] if line.strip()]
    return lines[-1].strip()[:300] if lines else f"ended with code {done.returncode}"
