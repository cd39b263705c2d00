"""One run of one adapter: starts it, gives it the word for each phase, meters what lies between word and result."""

import json
import os
import subprocess
import threading

from .meter import Meter
from .postgres import Failed


def run(postgres, system, scenario, settings, log, pinned=False, limit=600):
    """The phases of one run, each a dict. `settings` are the environment variables of the protocol."""
    database = "peer_" + system.name.replace("-", "_")
    postgres.fresh(database)
    environment = dict(os.environ, DATABASE_URL=postgres.url(database), RUST_BACKTRACE="0", **system.environment())
    environment.update({name: str(value) for name, value in settings.items()})
    with open(log, "a", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [*system.command(), scenario],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment,
        )
    # A peer that hangs is a result too.
    watchdog = threading.Timer(limit, process.kill)
    watchdog.start()
    reader = None
    try:
        meter, phases = Meter(postgres, database, process.pid), []
        for line in process.stdout:
            if line.startswith("ready "):
                if pinned and not reader:
                    reader = postgres.pin(database)
                meter.begin()
                process.stdin.write("go\n")
                process.stdin.flush()
            elif line.startswith("{"):
                result = json.loads(line)
                result.update(meter.end())
                phases.append(result)
        if process.wait() != 0:
            raise Failed(why(process.returncode, log, limit))
    except OSError as error:
        process.kill()
        process.wait()
        raise Failed(why(process.returncode, log, limit)) from error
    finally:
        watchdog.cancel()
        if process.poll() is None:
            process.kill()
            process.wait()
        if reader:
            reader.kill()
            reader.wait()
        postgres.drop(database)
    if not phases or not all(phase["exact"] for phase in phases):
        raise Failed("not every job ran exactly once")
    return phases


def why(code, log, limit):
    """The last words of an adapter."""
    if code == -9:
        return f"not done after {limit} s"
    with open(log, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    telling = [line for line in lines if "error" in line.lower()]
    return (telling or lines)[-1][:300] if lines else f"ended with code {code}"
