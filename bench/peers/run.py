#!/usr/bin/env python3
"""Measures Rowlock and its peers side by side; see README.md here. Writes docs/benchmarks.md after a full run."""

import argparse
import json
import signal
import sys
import time
from pathlib import Path

from harness import adapter, machine, own, plan, report
from harness.install import install
from harness.install import present as installed
from harness.postgres import Failed, Postgres
from harness.systems import BY_NAME, HERE, SYSTEMS, WORK

DOCS = HERE.parent.parent / "docs"
# How the parts of Rowlock's own bench are called among what failed.
OWN_FAILED = "bench, "


def main():
    options = arguments()
    if options.render:
        run = merged([read(path) for path in options.render])
        print(report.write(run, place(options, run)))
        return
    WORK.mkdir(exist_ok=True)
    (WORK / "logs").mkdir(exist_ok=True)
    run = begin(options)
    if options.install_only:
        return
    measure(options, run)
    page = report.write(run, place(options, run))
    say(f"raw figures: {run['file']}\nreport: {page}")


def place(options, run):
    """The folder for the report."""
    return options.out or (WORK / "report" if is_partial(run) else DOCS)


def arguments(given=None):
    """What was said, or an end with 2 before anything is started."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=systems, help="names of systems, with commas: " + ", ".join(BY_NAME))
    parser.add_argument("--skip", type=systems, default=[], help="names of systems to leave out, with commas")
    parser.add_argument("--scenarios", type=scenarios, help="only these, with commas: " + ", ".join(names_of_scenarios()))
    parser.add_argument("--rounds", type=positive, help="how often everything is measured (2)")
    parser.add_argument("--minutes", type=positive, help="begin no new measurement of peers after so long; the report says how many are missing")
    parser.add_argument("--jobs", type=positive, help="at most so many jobs in a phase")
    parser.add_argument("--quick", action="store_true", help="one round with a tenth of the jobs; to try things, not to quote")
    parser.add_argument("--backlog", type=positive, default=0, metavar="N", help="also drain a backlog of so many jobs")
    parser.add_argument("--own", choices=[*own.SIZES, "none"], default="short", help="also what concerns Rowlock alone, by `rowlock bench`: in a quarter "
                        "of an hour (short), or with ten minutes at a constant rate, 10M jobs and an hour of rest (full: two hours)")
    parser.add_argument("--own-only", action="store_true", help="only that, and no peers")
    parser.add_argument("--own-parts", type=parts, metavar="PARTS", help="only these of it, with commas: " + ", ".join(names_of_parts()))
    parser.add_argument("--database", metavar="URL", help="a server to use instead of a private one; databases peer_* are made and "
                        "dropped there")
    parser.add_argument("--out", type=Path, help="folder for benchmarks.md (docs after a full run, else .work/report)")
    parser.add_argument("--install-only", action="store_true", help="install the peers and stop")
    parser.add_argument("--no-install", action="store_true", help="take what was installed before")
    parser.add_argument("--render", type=Path, nargs="+", metavar="JSON", help="write the report of earlier runs anew: peers from the first, and Rowlock's "
                        "own parts from all of them")
    options = parser.parse_args(given)
    wrong = contradiction(options)
    if wrong:
        parser.error(wrong)
    options.rounds = options.rounds or (1 if options.quick else 2)
    if not options.render and not options.own_only:
        if not wanted(options):
            parser.error("--only and --skip leave nobody to measure")
        if not planned(options, wanted(options)):
            parser.error("nothing to measure: these systems have none of these scenarios")
    return options


def contradiction(options):
    """Why these options cannot be meant together, or nothing."""
    if options.quick and options.rounds:
        return "--quick is one round: leave --rounds out"
    if options.own == "none" and options.own_only:
        return "--own-only with --own none leaves nothing to measure"
    if options.own == "none" and options.own_parts:
        return "--own-parts means nothing with --own none"
    about_peers = ("only", "skip", "scenarios", "rounds", "minutes", "jobs", "backlog")
    if options.own_only and any(getattr(options, name) for name in about_peers):
        return f"--{', --'.join(about_peers[:-1])} and --{about_peers[-1]} are about peers, which --own-only leaves out"
    return None


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def some_of(known):
    """Names with commas, each of which must be known."""
    def read(text):
        found = [name.strip() for name in text.split(",") if name.strip()]
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(f"nobody knows {name!r}; there are: {', '.join(known)}")
        if not found:
            raise argparse.ArgumentTypeError(f"names nothing; there are: {', '.join(known)}")
        return found

    return read


def names_of_scenarios():
    return [name for name in plan.SCENARIOS if name not in ("drain again", "backlog")]


def names_of_parts():
    return [part.name for part in own.parts("short")]


systems, scenarios, parts = some_of(BY_NAME), some_of(names_of_scenarios()), some_of(names_of_parts())


def wanted(options):
    """The systems that were asked for."""
    return [] if options.own_only else [s for s in SYSTEMS if (not options.only or s.name in options.only) and s.name not in options.skip]


def planned(options, present):
    """All that is to be measured of these systems."""
    scale, samples = (0.1, 20) if options.quick else (1.0, 200)
    return plan.steps(present, options.rounds, scale, options.jobs, options.backlog, options.scenarios, samples)


def begin(options):
    """A run of which nothing is measured yet."""
    asked = wanted(options)
    present, absent = install_all(asked, options)
    if asked and not present:
        sys.exit("nothing to measure: no system could be installed")
    if options.own != "none":
        say("building rowlock …")
        own.build()
    return {
        "machine": machine.describe(), "commit": machine.commit(), "rounds": options.rounds, "backlog": options.backlog,
        "own_only": options.own_only,
        "short": bool(options.only or options.skip or options.quick or options.jobs or options.scenarios or options.rounds < 2),
        "systems": [{"name": s.name, "version": s.version()} for s in present], "absent": absent,
        "missing": 0, "steps": 0, "minutes": 0.0, "others": 0.0, "failed": [], "phases": [], "own": [],
        "file": str(WORK / "results" / f"{time.strftime('%Y%m%d-%H%M%S')}.json"),
    }


def install_all(wanted, options):
    """(those that can run, {name: why not})."""
    if options.no_install:
        found = installed(wanted)
    else:
        say("installing the peers; the first time takes minutes …")
        found = install(wanted, WORK / "logs")
    absent = {s.name: found[s.kind, s.adapter] for s in wanted if found[s.kind, s.adapter]}
    for name, why in absent.items():
        say(f"  {name} left out: {why}")
    return [s for s in wanted if s.name not in absent], absent


def measure(options, run):
    """Fills the run. What is measured is kept at once: a long run may be ended from outside."""
    Path(run["file"]).parent.mkdir(exist_ok=True)
    say("waiting until the machine has come to rest, two minutes at most …")
    machine.settle()
    run["load_before"] = machine.load()
    postgres = Postgres(options.database)
    run["postgres"] = {"version": postgres.version, "settings": postgres.settings, "file_system": machine.file_system(postgres.dir) if postgres.dir else "?"}
    clock = machine.Clock(postgres.postmaster)
    try:
        measure_peers(options, run, postgres, clock)
        if options.own != "none":
            measure_own(options, run, postgres, clock)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        keep(run)
        postgres.stop()


def measure_peers(options, run, postgres, clock):
    steps = planned(options, [BY_NAME[system["name"]] for system in run["systems"]])
    run["steps"] = run["missing"] = len(steps)
    began = time.monotonic()
    for number, step in enumerate(steps, 1):
        if options.minutes and time.monotonic() - began > 60 * options.minutes:
            say(f"{run['missing']} of {len(steps)} measurements are left out: {options.minutes} minutes are over")
            return
        say(f"[{number}/{len(steps)}] round {step.round}: {step.system.name} {step.scenario}", end=" ")
        where = {"system": step.system.name, "scenario": step.measures(), "round": step.round}
        log = WORK / "logs" / f"{step.system.name}.log"
        try:
            found = adapter.run(postgres, step.system, step.adapter_scenario(), step.settings, log, step.pinned)
        except Exception as error:  # whatever it is, the others go on
            say(f"failed: {error!r}")
            run["failed"].append({**where, "why": str(error) or repr(error)})
        else:
            run["phases"] += [{**where, **phase} for phase in found]
            say(", ".join(f"{p['phase']} {p['jobs'] / p['seconds']:,.0f}/s" for p in found))
        run["missing"] = len(steps) - number
        look_at(clock, run)
        keep(run)


def look_at(clock, run):
    """How long it has taken so far, and what others did meanwhile."""
    seconds, run["others"] = clock.read()
    run["minutes"] = seconds / 60


def measure_own(options, run, postgres, clock):
    for part in own.parts(options.own, 100_000 if options.quick else 1_000_000):
        if options.own_parts and part.name not in options.own_parts:
            continue
        say(f"rowlock bench {' '.join(map(str, part.arguments))} …")
        try:
            run["own"].append({**own.run(postgres, part), "at": machine.now()})
            if "failed" in run["own"][-1]:
                say(f"  incomplete: {run['own'][-1]['failed']}")
        except Exception as error:  # whatever it is, the others go on
            say(f"  failed: {error}")
            run["failed"].append({"system": "rowlock", "scenario": OWN_FAILED + part.name, "round": 1, "why": str(error) or repr(error)})
        look_at(clock, run)
        keep(run)


def is_partial(run):
    """Whether this says too little of peers to stand for the whole, by the saved run alone: fewer systems, scenarios, jobs or rounds were asked
    for, no peers, or less was measured than one round has, because time was over or because it failed; or one of those that the most bars are about is
    not there. Of what size Rowlock's own parts are does not count, nor whether they are there: their bars say so."""
    failed = sum(not failure["scenario"].startswith(OWN_FAILED) for failure in run.get("failed", []))
    cut = run.get("missing", 0) + failed > run.get("steps", 0) * (1 - 1 / run.get("rounds", 1))
    there = {system["name"] for system in run["systems"]}
    return bool(run.get("short") or run.get("own_only") or cut or not {"rowlock", "floor", "pgmq"} <= there)


def read(path):
    """A run that was kept."""
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Failed(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise Failed(f"{path} is not JSON: {error}") from error
    if not isinstance(run, dict) or not {"machine", "postgres", "systems", "phases"} <= run.keys():
        raise Failed(f"{path} is no run of bench-peers, or of one that ended before anything was measured")
    return run


def merged(runs):
    """One run of several: peers and machine of the first, of each part of Rowlock's own the last, a complete one if there is one."""
    for other in runs[1:]:
        check_alike(runs[0], other)
    own_parts = {}
    for run in runs:
        for part in run.get("own", []):
            known = own_parts.get(part["name"])
            if not known or known.get("failed") or not part.get("failed"):
                own_parts[part["name"]] = {"commit": run.get("commit"), **part}
    failed = runs[0]["failed"] + [failure for other in runs[1:] for failure in other["failed"] if failure["scenario"].startswith(OWN_FAILED)]
    failed = [failure for failure in failed if not (failure["scenario"].startswith(OWN_FAILED) and failure["scenario"].removeprefix(OWN_FAILED) in own_parts)]
    return {**runs[0], "failed": failed, "own": [own_parts[name] for name in names_of_parts() if name in own_parts]}


def check_alike(first, other):
    """Only runs on one kind of machine and server can be shown as one."""
    for what, of in (("machine", "cpu"), ("machine", "cores"), ("postgres", "version"), ("postgres", "settings")):
        if first[what][of] != other[what][of]:
            raise Failed(f"these runs cannot be shown as one: {what} {of} is {first[what][of]!r} in the first and {other[what][of]!r} in another")


def keep(run):
    Path(run["file"]).write_text(json.dumps(run), encoding="utf-8")


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
        sys.exit(f"stopped; what was measured is in {WORK / 'results'}")
