#!/usr/bin/env python3
"""Measures Rowlock and its peers side by side; see README.md here. Writes docs/benchmarks.md after a full run."""

import argparse
import json
import signal
import sys
import time
from pathlib import Path

from harness import adapter, machine, plan, report
from harness.install import install
from harness.install import present as installed
from harness.postgres import Failed, Postgres
from harness.systems import BY_NAME, HERE, SYSTEMS, WORK

DOCS = HERE.parent.parent / "docs"


def main():
    options = arguments()
    WORK.mkdir(exist_ok=True)
    (WORK / "logs").mkdir(exist_ok=True)
    if options.render:
        print(report.write(json.loads(options.render.read_text(encoding="utf-8")), options.out or DOCS))
        return
    systems = chosen(options.only, options.skip)
    present, absent = install_all(systems, options)
    if not present:
        sys.exit("nothing to measure: no system could be installed")
    if options.install_only:
        return
    run = measure(options, present, absent)
    raw = WORK / "results" / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    raw.parent.mkdir(exist_ok=True)
    raw.write_text(json.dumps(run), encoding="utf-8")
    page = report.write(run, options.out or (WORK / "report" if run["partial"] else DOCS))
    say(f"raw figures: {raw}\nreport: {page}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="names of systems, with commas: " + ", ".join(BY_NAME))
    parser.add_argument("--skip", help="names of systems to leave out, with commas")
    parser.add_argument("--scenarios", help="only these, with commas: drain, pinned, single8, single32, busy8, busy32, steady, "
                        "handlers, latency")
    parser.add_argument("--rounds", type=positive, default=3, help="how often everything is measured (3)")
    parser.add_argument("--minutes", type=positive, help="begin no new measurement after so long; the report says how many are missing")
    parser.add_argument("--jobs", type=positive, help="at most so many jobs in a phase")
    parser.add_argument("--quick", action="store_true", help="one round with a tenth of the jobs; to try things, not to quote")
    parser.add_argument("--backlog", type=positive, default=0, metavar="N", help="also drain a backlog of so many jobs")
    parser.add_argument("--database", metavar="URL", help="a server to use instead of a private one; databases peer_* are made and "
                        "dropped there")
    parser.add_argument("--out", type=Path, help="folder for benchmarks.md (docs after a full run, else .work/report)")
    parser.add_argument("--install-only", action="store_true", help="install the peers and stop")
    parser.add_argument("--no-install", action="store_true", help="take what was installed before")
    parser.add_argument("--render", type=Path, metavar="JSON", help="write the report of an earlier run anew")
    return parser.parse_args()


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def chosen(only, skip):
    def names(text):
        found = [name.strip() for name in (text or "").split(",") if name.strip()]
        for name in found:
            if name not in BY_NAME:
                sys.exit(f"nobody knows a system {name!r}; there are: {', '.join(BY_NAME)}")
        return found

    wanted, unwanted = names(only), names(skip)
    return [s for s in SYSTEMS if (not wanted or s.name in wanted) and s.name not in unwanted]


def install_all(systems, options):
    """(those that can run, {name: why not})."""
    if options.no_install:
        found = installed(systems)
    else:
        say("installing the peers; the first time takes minutes …")
        found = install(systems, WORK / "logs")
    absent = {s.name: found[s.kind, s.adapter] for s in systems if found[s.kind, s.adapter]}
    for name, why in absent.items():
        say(f"  {name} left out: {why}")
    return [s for s in systems if s.name not in absent], absent


def measure(options, present, absent):
    scenarios = {name.strip() for name in options.scenarios.split(",")} if options.scenarios else None
    rounds = 1 if options.quick else options.rounds
    scale = 0.1 if options.quick else 1.0
    steps = plan.steps(present, rounds, scale, options.jobs, options.backlog, scenarios, 20 if options.quick else 200)
    load = machine.load()
    postgres = Postgres(options.database)
    clock = machine.Clock(postgres.postmaster)
    phases, failed, missing = [], [], 0
    began = time.monotonic()
    try:
        for number, step in enumerate(steps, 1):
            if options.minutes and time.monotonic() - began > 60 * options.minutes:
                missing = len(steps) - number + 1
                say(f"{missing} of {len(steps)} measurements are left out: {options.minutes} minutes are over")
                break
            say(f"[{number}/{len(steps)}] round {step.round}: {step.system.name} {step.scenario}", end=" ")
            log = WORK / "logs" / f"{step.system.name}.log"
            try:
                found = adapter.run(postgres, step.system, step.adapter_scenario(), step.settings, log, step.pinned)
            except Failed as error:
                say(f"failed: {error}")
                failed.append({"system": step.system.name, "scenario": step.scenario, "round": step.round, "why": str(error)})
                continue
            for phase in found:
                phases.append({"system": step.system.name, "scenario": step.scenario, "round": step.round, **phase})
            say(", ".join(f"{p['phase']} {p['jobs'] / p['seconds']:,.0f}/s" for p in found))
        seconds, others = clock.read()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        postgres.stop()
    return {
        "machine": machine.describe(), "postgres": {"version": postgres.version, "settings": postgres.settings},
        "rounds": rounds, "missing": missing, "steps": len(steps), "backlog": options.backlog, "minutes": seconds / 60, "load_before": load, "others": others,
        "partial": bool(options.only or options.skip or options.quick or options.jobs or options.scenarios or rounds < 2),
        "systems": [{"name": s.name, "version": s.version()} for s in present], "absent": absent,
        "failed": failed, "phases": phases,
    }


def say(text, end="\n"):
    print(text, end=end, flush=True, file=sys.stderr)


def stop(*_):
    raise KeyboardInterrupt


if __name__ == "__main__":
    # The server must not outlive the run, whoever ends it.
    signal.signal(signal.SIGTERM, stop)
    try:
        main()
    except Failed as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("stopped")
