"""Which scenarios run with which numbers, and in what order: round by round, each system in turn."""

import re
from dataclasses import dataclass

from .systems import System

# Drains in the same tables, one after the other.
CHURN = 3
HANDLERS = 1000
# Each of 10 kB.
LARGE, LARGE_BYTES = 40_000, 10_000
# A deep backlog is for those who get through it in minutes.
FAST = 30_000
# In the order of a round.
SCENARIOS = ("drain", "bulk2", "pinned", "single1", "single8", "single32", "busy8", "busy32", "apart8", "apart32", "steady", "handlers", "large",
             "drain again", "latency", "backlog")
# What the adapters call them, where it is something else.
CALLED = {"bulk2": "bulk", "pinned": "drain", "drain again": "drain", "backlog": "drain", "handlers": "steady", "large": "drain"}


@dataclass(frozen=True)
class Step:
    round: int
    system: System
    scenario: str
    settings: dict
    pinned: bool = False

    def adapter_scenario(self):
        return "single" if "PRODUCERS" in self.settings and re.match("single|busy|apart", self.scenario) else CALLED.get(self.scenario, self.scenario)

    def measures(self):
        """The scenario that its figures belong to."""
        return "drain" if self.scenario == "drain again" else self.scenario


def steps(systems, rounds, scale=1.0, jobs=None, backlog=0, only_scenarios=None, samples=200):
    """All steps. Scenario by scenario within a round, systems interleaved within a scenario."""
    planned = []
    for number in range(1, rounds + 1):
        for scenario in SCENARIOS:
            if only_scenarios and scenario.removesuffix(" again") not in only_scenarios:
                continue
            for system in turned(systems, number):
                step = one(number, system, scenario, scale, jobs, backlog, samples)
                if step:
                    planned.append(step)
    return planned


def turned(systems, number):
    """Another order each round, so that nobody always follows the same neighbour."""
    at = (number - 1) * 5 % max(1, len(systems))
    return systems[at:] + systems[:at]


def one(number, system, scenario, scale, jobs, backlog, samples):
    def count(own):
        scaled = own if scale == 1 else max(500, int(own * scale))
        return min(scaled, jobs) if jobs else scaled

    if scenario == "backlog":
        if not backlog or number > 1 or system.drain < FAST or "steady" not in system.scenarios:
            return None
        return Step(number, system, scenario, {"JOBS": backlog, "ROUNDS": 1})
    if scenario == "drain again":
        # Those that many bars are about: one measurement in each round would be too few.
        return Step(number, system, scenario, {"JOBS": count(system.drain), "ROUNDS": 1}) if system.often else None
    if scenario not in system.scenarios:
        return None
    if scenario == "bulk2":
        return Step(number, system, scenario, {"JOBS": count(system.drain), "LOADERS": 2})
    if scenario in ("drain", "pinned"):
        # The churn, held up or not, once; later rounds repeat the plain drain. Ours is what a bar is about, and quick: with each.
        churned = "pinned" in system.scenarios and (number == 1 or system.name == "rowlock")
        if scenario == "pinned" and not churned:
            return None
        settings = {"JOBS": count(system.drain), "ROUNDS": CHURN if churned else 1}
        return Step(number, system, scenario, settings, pinned=scenario == "pinned")
    if re.match("single|busy|apart", scenario):
        kind, producers = re.match(r"(\D+)(\d+)", scenario).groups()
        # One alone waits for the disk each time.
        own = system.single // 6 if producers == "1" else system.single
        settings = {"JOBS": count(own), "PRODUCERS": int(producers), "BUSY": int(kind == "busy"), "APART": int(kind == "apart")}
        return Step(number, system, scenario, settings)
    if scenario == "large":
        return Step(number, system, scenario, {"JOBS": count(min(system.drain, LARGE)), "PAYLOAD_BYTES": LARGE_BYTES})
    if scenario == "steady":
        return Step(number, system, scenario, {"JOBS": count(system.steady), "PRODUCERS": 4})
    if scenario == "handlers":
        settings = {"JOBS": count(system.handlers or system.steady), "PRODUCERS": 4, "HANDLER_MS": 10, "WORKERS": HANDLERS}
        return Step(number, system, scenario, settings)
    return Step(number, system, scenario, {"JOBS": samples, "PRODUCERS": 1})
