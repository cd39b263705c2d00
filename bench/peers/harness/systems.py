"""The catalogue: every system, where its adapter lives, and how many jobs it gets. To add a peer, add a line here."""

import json
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
WORK = HERE / ".work"

ALL = ("drain", "bulk2", "pinned", "single1", "single8", "single32", "steady", "handlers", "latency", "large")


@dataclass(frozen=True)
class System:
    name: str
    title: str
    # rust, node or python
    kind: str
    # The folder (rust, node) or file (python) of the adapter.
    adapter: str
    # The package whose version is shown; None: part of this tree.
    package: str | None
    # Jobs per phase, so that each takes a second or three; slow peers get fewer.
    drain: int
    single: int
    steady: int
    scenarios: tuple = ALL
    variables: dict = field(default_factory=dict)
    # In the scenario with handlers that take a while; None: as many as in the steady one.
    handlers: int | None = None
    # Whether it is a job queue that competes; the rest is there for comparison.
    queue: bool = True
    # Whether it keeps finished jobs.
    keeps: bool = False
    # Whether its drains are measured twice in each round.
    often: bool = False

    def shown(self):
        """Its title, with the sign of those who keep finished jobs."""
        return f"{self.title} †" if self.keeps else self.title

    def command(self):
        if self.kind == "rust":
            return [str(WORK / "target" / "release" / f"peer-{self.adapter}")]
        if self.kind == "node":
            folder = WORK / "node" / self.adapter
            # A peer that needs a newer node than the machine has brings it as a package.
            own = folder / "node_modules" / "node" / "bin" / "node"
            return [str(own) if own.exists() else "node", str(folder / "main.mjs")]
        return [str(WORK / "python" / self.adapter / "bin" / "python"), str(HERE / "python" / f"{self.adapter}.py")]

    def environment(self):
        return {name: str(value) for name, value in self.variables.items()}

    def version(self):
        if self.package is None:
            return "this tree" if self.name.startswith("rowlock") else ""
        if self.kind == "rust":
            lock = (HERE / "rust" / "Cargo.lock").read_text(encoding="utf-8")
            found = re.search(rf'name = "{re.escape(self.package)}"\nversion = "([^"]+)"', lock)
            return found.group(1) if found else "?"
        if self.kind == "node":
            path = WORK / "node" / self.adapter / "node_modules" / self.package / "package.json"
            return json.loads(path.read_text(encoding="utf-8"))["version"] if path.exists() else "?"
        code = f"import importlib.metadata as m; print(m.version('{self.package}'))"
        return subprocess.run([self.command()[0], "-c", code], capture_output=True, text=True, check=False).stdout.strip()


SYSTEMS = [
    System("rowlock", "**Rowlock**", "rust", "rowlock", None, 600_000, 30_000, 400_000,
           (*ALL, "busy8", "busy32", "apart8", "apart32"), handlers=600_000, often=True),
    System("rowlock-history", "**Rowlock**", "rust", "rowlock", None, 200_000, 0, 0, ("drain",),
           {"HISTORY": 1}, keeps=True, often=True),
    System("floor", "the machine's floor", "rust", "floor", None, 600_000, 30_000, 0, ("drain", "bulk2", "single1", "single8", "single32", "large"),
           queue=False, often=True),
    System("raw-batch", "raw SQL in batches of 100, NOTIFY per insert", "rust", "raw", None, 150_000, 12_000, 100_000,
           ALL, {"VARIANT": "batch"}, queue=False),
    System("raw-one", "raw SQL, one job per claim", "rust", "raw", None, 15_000, 0, 0, ("drain", "latency"),
           {"VARIANT": "one"}, queue=False),
    System("pgmq", "pgmq", "rust", "pgmq", "pgmq", 130_000, 16_000, 80_000, queue=False, often=True),
    System("pgmq-archive", "pgmq, archived", "rust", "pgmq", "pgmq", 130_000, 0, 0, ("drain",), {"HISTORY": 1}, queue=False, keeps=True),
    System("graphile-worker", "graphile-worker", "node", "graphile", "graphile-worker", 90_000, 2_500, 25_000),
    System("graphile-default", "graphile-worker, default settings", "node", "graphile", "graphile-worker", 5_000, 0, 0,
           ("drain", "latency"), {"VARIANT": "default"}),
    System("graphile-rust", "graphile_worker (Rust)", "rust", "graphile", "graphile_worker", 90_000, 2_500, 50_000, often=True),
    System("river", "River (its Rust client)", "rust", "river", "riverqueue", 50_000, 9_000, 40_000, keeps=True, often=True),
    System("river-default", "River, default settings", "rust", "river", "riverqueue", 2_000, 0, 0, ("drain", "latency"),
           {"VARIANT": "default"}, keeps=True),
    System("pg-boss", "pg-boss", "node", "pgboss", "pg-boss", 60_000, 2_500, 40_000, keeps=True),
    System("apalis", "apalis-postgres", "rust", "apalis", "apalis-postgres", 20_000, 9_000, 25_000, keeps=True),
    System("awa", "awa", "rust", "awa", "awa", 20_000, 2_000, 15_000),
    System("pgqueuer", "pgqueuer", "python", "pgqueuer", "pgqueuer", 30_000, 7_000, 25_000),
    System("procrastinate", "procrastinate", "python", "procrastinate", "procrastinate", 2_000, 4_000, 1_000),
    System("sqlxmq", "sqlxmq", "rust", "sqlxmq", "sqlxmq", 7_000, 5_000, 4_000),
    System("underway", "underway", "rust", "underway", "underway", 600, 9_000, 500,
           # Each task under way holds a connection and a transaction: a thousand at once are more than a server has.
           tuple(scenario for scenario in ALL if scenario != "handlers"), keeps=True),
]

BY_NAME = {system.name: system for system in SYSTEMS}
