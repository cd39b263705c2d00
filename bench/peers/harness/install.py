"""Installs the peers by name with the ordinary package clients, all into .work."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from .postgres import Failed
from .systems import HERE, WORK


def install(systems, logs):
    """{(kind, adapter): why it cannot be had, or None}."""
    wanted = list(dict.fromkeys((system.kind, system.adapter) for system in systems))
    found = rust([adapter for kind, adapter in wanted if kind == "rust"], logs)
    for kind, adapter in wanted:
        if kind == "rust":
            continue
        log = fresh(logs / f"install-{kind}-{adapter}.log")
        try:
            {"node": node, "python": python}[kind](adapter, log)
            found[kind, adapter] = None
        except Failed as error:
            found[kind, adapter] = str(error)
    return found


def present(systems):
    """As `install`, but looks only whether they were installed before."""
    def there(system):
        command = system.command()
        if system.kind == "node":
            return (Path(command[-1]).parent / "node_modules").exists()
        return Path(command[0]).exists()

    return {(s.kind, s.adapter): None if there(s) else "not installed before" for s in systems}


def rust(adapters, logs):
    """All in one go, so that they share what they depend on; one that does not build does not stop the others."""
    if not adapters:
        return {}
    log = fresh(logs / "install-rust.log")
    binaries = {adapter: WORK / "target" / "release" / f"peer-{adapter}" for adapter in adapters}
    for binary in binaries.values():
        binary.unlink(missing_ok=True)
    why = {}
    if not built(list(binaries), log):
        # One that cannot even be fetched stops all: then each by itself.
        for adapter in binaries:
            own = fresh(logs / f"install-rust-{adapter}.log")
            if not built([adapter], own):
                why[adapter] = reason(own)
    return {("rust", adapter): None if binary.exists() else why.get(adapter, "not built") for adapter, binary in binaries.items()}


def built(adapters, log):
    packages = [part for adapter in adapters for part in ("-p", f"peer-{adapter}")]
    command = ["cargo", "build", "--release", "--locked", "--keep-going", *packages]
    try:
        call(command, log, cwd=HERE / "rust", env=dict(os.environ, CARGO_TARGET_DIR=str(WORK / "target")))
    except Failed:
        return False
    return True


def fresh(log):
    log.unlink(missing_ok=True)
    return log


def node(adapter, log):
    place = WORK / "node"
    place.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "node" / "adapter.mjs", place)
    shutil.copytree(HERE / "node" / adapter, place / adapter, dirs_exist_ok=True)
    call(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"], log, cwd=place / adapter)


def python(adapter, log):
    place = WORK / "python" / adapter
    if not (place / "bin" / "python").exists():
        call([sys.executable, "-m", "venv", str(place)], log)
    requirements = HERE / "python" / f"{adapter}.txt"
    call([str(place / "bin" / "python"), "-m", "pip", "install", "-q", "-r", str(requirements)], log)


def call(command, log, **more):
    with open(log, "a", encoding="utf-8") as output:
        try:
            done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False, **more)
        except FileNotFoundError as error:
            raise Failed(f"{command[0]} is not installed") from error
    if done.returncode != 0:
        raise Failed(f"`{command[0]} {command[1]}` failed: {reason(log)}")


def reason(log):
    """The line of the log that says most, without where on this machine it was."""
    with open(log, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    telling = [line for line in lines[-60:] if line.lower().startswith(("error", "npm error"))]
    return (telling or lines or ["no word why"])[0].replace(f"{HERE}/", "")[:300]
