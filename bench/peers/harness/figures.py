"""From measured phases to the figures of the report. Pure."""

from .stats import middle, percentile, ratio, spread


class Figures:
    """All phases of one run: a list of {system, scenario, round, turn, phase, jobs, seconds, …}. And what failed in it: {system, scenario, round, why}."""

    def __init__(self, phases, failed=()):
        self.phases = phases
        self.failed = list(failed)
        # (system, scenario) of all that was asked for: what failed of that would be missing in the answer.
        self.asked = set()

    def rounds(self):
        """The same of each round alone."""
        numbers = sorted({p["round"] for p in self.phases})
        found = [Figures([p for p in self.phases if p["round"] == number]) for number in numbers]
        for one in found:
            one.asked = self.asked
        return found

    def all_of(self, system, scenario, phase):
        """In the order in which they were measured."""
        self.asked.add((system, scenario))
        wanted = (system, scenario, phase)
        return [p for p in self.phases if (p["system"], p["scenario"], p["phase"]) == wanted]

    def missing(self, beside=()):
        """Which systems failed in some of what was asked for, or in what stands beside it."""
        asked = self.asked | set(beside)
        return sorted({f["system"] for f in self.failed if (f["system"], f["scenario"]) in asked})

    def of(self, system, scenario, phase):
        """Only those that found their tables fresh: what others do to theirs again and again is no measure of anything but that."""
        return [p for p in self.all_of(system, scenario, phase) if p.get("turn", 0) == 0]

    def rates(self, system, scenario, phase):
        return [p["jobs"] / p["seconds"] for p in self.of(system, scenario, phase)]

    def rate(self, system, scenario, phase=None):
        """Jobs per second: the median."""
        return middle(self.rates(system, scenario, phase or scenario))

    def spread(self, system, scenario, phase=None):
        return spread(self.rates(system, scenario, phase or scenario))

    def per_job(self, system, scenario, phase, what):
        """The median of something per job."""
        phases = self.of(system, scenario, phase)
        return middle([p[what] / p["jobs"] if p.get(what) is not None else None for p in phases])

    def cpu_us(self, system, scenario, phase):
        """(server, client) microseconds per job."""
        server = self.per_job(system, scenario, phase, "server_cpu")
        client = self.per_job(system, scenario, phase, "adapter_cpu")
        return (None if server is None else server * 1e6, None if client is None else client * 1e6)

    def largest(self, system, scenario, phase, what):
        return middle([p[what] / p["jobs"] for p in self.of(system, scenario, phase)[:1]])

    def bulk_by(self, system):
        """The scenario in which it loads faster: with four loaders, or with two."""
        found = [(self.rate(system, scenario, "bulk"), scenario) for scenario in ("drain", "bulk2")]
        found = [pair for pair in found if pair[0] is not None]
        return max(found)[1] if found else "drain"

    def bulk(self, system):
        return self.rate(system, self.bulk_by(system), "bulk")

    def single(self, system, producers):
        return self.rate(system, f"single{producers}", "single")

    def wait_ms(self, system, share):
        """A percentile of the pick-up latency over all rounds, but for the first job of each, which may open connections."""
        waits = [us for p in self.of(system, "latency", "latency") for us in p["waits_us"][1:]]
        found = percentile(waits, share)
        return None if found is None else found / 1000

    def pinned(self, system):
        """The last drain under a pinned horizon against the middle one of as many without; the median of the rounds that have both."""
        found = []
        for one in self.rounds():
            clean, pinned = one.churn(system, "drain"), one.churn(system, "pinned")
            found.append(ratio(pinned[-1], middle(clean)) if pinned and clean else None)
        return middle(found)

    def churn(self, system, scenario):
        """How fast each drain was of the first row of them in the same tables."""
        phases = self.all_of(system, scenario, "drain")
        fresh = [at for at, p in enumerate(phases) if p.get("turn", 0) == 0]
        return [p["jobs"] / p["seconds"] for p in (phases[: fresh[1]] if len(fresh) > 1 else phases)]

    def handlers_allow(self, system):
        """How many bare sleeps of a handler's length, as many at once, are done in a second: the median."""
        return middle([p.get("handlers_allow") for p in self.of(system, "handlers", "steady")])

    def wal(self, system, what="wal_without_images"):
        """(enqueue, finish) bytes per job."""
        return self.per_job(system, "drain", "bulk", what), self.per_job(system, "drain", "drain", what)

    def settings(self, system):
        """As the adapter says, of the plainest scenario there is; and with handlers that take a while, if those are others."""
        said = {}
        for phase in self.phases:
            if phase["system"] == system:
                said.setdefault(phase["scenario"] == "handlers", phase["settings"])
        plain, handlers = said.get(False, ""), said.get(True)
        return f"{plain}. 10 ms handlers: {handlers}" if handlers and handlers != plain else plain
