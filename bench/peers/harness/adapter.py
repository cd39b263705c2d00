"""One run of one adapter: starts it, gives it the word for each phase, meters what lies between word and result."""

import json
import os
import subprocess
import threading
from collections import Counter

from .meter import Meter
from .postgres import Failed


def run(postgres, system, scenario, settings, log, pinned=False, limit=600):
    """The phases of one run, each a dict. `settings` are the environment variables of the protocol."""
    database = "peer_" + system.name.replace("-", "_")
    postgres.fresh(database)
    environment = dict(os.environ, DATABASE_URL=postgres.url(database), RUST_BACKTRACE="0", **system.environment())
    environment.update({name: str(value) for name, value in settings.items()})
    with open(log, "a", encoding="utf-8") as errors:
        # What earlier runs said is no reason for what goes wrong in this one.
        begin = errors.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            [*system.command(), scenario],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment,
        )
    # A peer that hangs is a result too.
    overdue = threading.Event()
    watchdog = threading.Timer(limit, lambda: (overdue.set(), process.kill()))
    watchdog.start()
    reader = None
    try:
        meter, phases, turns = Meter(postgres, database, process.pid), [], Counter()
        for line in process.stdout:
            if line.startswith("ready "):
                if pinned and not reader:
                    reader = postgres.pin(database)
                meter.begin()
                process.stdin.write("go\n")
                process.stdin.flush()
            elif line.startswith("{"):
                result = json.loads(line)
                result.update(meter.end(), turn=turns[result["phase"]])
                turns[result["phase"]] += 1
                phases.append(result)
        if process.wait() != 0:
            raise Failed(f"not done after {limit} s" if overdue.is_set() else why(process.returncode, log, begin))
        # Otherwise something would count as pinned that was not.
        if reader and not reader.holds():
            raise Failed("the reader that held the horizon was gone")
    except OSError as error:
        process.kill()
        process.wait()
        raise Failed(why(process.returncode, log, begin)) from error
    finally:
        watchdog.cancel()
        if process.poll() is None:
            process.kill()
            process.wait()
        if reader:
            reader.end()
        postgres.drop(database)
    check(phases, scenario, settings)
    return phases


def check(phases, scenario, settings):
    """Fails unless all that the scenario has was done, and done right."""
    wanted = 2 * int(settings.get("ROUNDS", 1)) if scenario == "drain" else 1
    if len(phases) < wanted:
        raise Failed(f"ended early: {len(phases)} of {wanted} phases")
    if not all(phase["exact"] for phase in phases):
        raise Failed("not every job ran exactly once")


def why(code, log, begin):
    """The last words of an adapter, from there on."""
    with open(log, encoding="utf-8", errors="replace") as file:
        file.seek(begin)
        lines = [line.strip() for line in file if line.strip()]
    telling = [line for line in lines if "error" in line.lower()]
    ended = f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
    return (telling or lines)[-1][:300] if lines else ended
