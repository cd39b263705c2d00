"""What is to be reached, as ratios within one run. Pure."""

from dataclasses import dataclass

from .figures import Figures
from .stats import ratio, span

# River's Go client cannot be had here; its figures from another run count scaled by what pgmq did there and does here. Its latency is
# scaled by that of raw SQL with NOTIFY, too: pgmq's is no measure of a machine, but about half of the interval at which it is polled. So is the
# one bar that is a time, which was set for that other machine.
RIVER_GO = {"drain": 25_600, "bulk": 108_000, "single8": 4_600, "steady": 19_300, "p50": 1.6}
PGMQ_THERE = {"drain": 65_100, "bulk": 261_000, "single8": 8_900, "steady": 36_700, "p50": 5.4}
RAW_THERE = {"p50": 1.2}
SCALED = "River (Go), scaled"


@dataclass
class Bar:
    what: str
    against: str
    value: float | None
    # The least, or with `below` the most, that it may be.
    bound: float
    below: bool = False
    unit: str = "x"
    # What was measured, where the value is made of it.
    made_of: str = ""
    # Lowest and highest of the rounds.
    span: tuple | None = None
    # Whether fewer jobs or a shorter time were measured than the bar was set for.
    smaller: bool = False
    # Whether the measurement ended before its time.
    incomplete: bool = False
    # Systems that failed in some of what the value is made of.
    failed: tuple = ()

    def holds(self, value):
        return value <= self.bound if self.below else value >= self.bound

    def verdict(self):
        if any(name.startswith("rowlock") for name in self.failed):
            return "not reached: it failed in a round"
        if self.incomplete:
            return "not reached: it ended before its time"
        if self.value is None:
            return "not measured"
        ends = [self.holds(end) for end in self.span or ()]
        if not self.holds(self.value):
            # Some rounds reach it, and the one in the middle does not.
            return "within the noise" if any(ends) else "not reached"
        if ends and not any(ends):
            # The middle of what is compared, each by itself, need not be the middle of what the rounds say.
            return "within the noise"
        said = ["reached"]
        if not all(ends):
            said.append("but not in each round")
        if self.smaller:
            said.append("at a smaller size")
        if self.failed:
            said.append(f"but {' and '.join(self.failed)} failed in a round")
        return ", ".join(said)


def compared(figures, what, against, bound, value, below=False, beside=()):
    """A bar whose value is worked out of all rounds, and again of each. `beside`: (system, scenario) of others that might have been meant."""
    all_of_it = Figures(figures.phases, figures.failed)
    return Bar(what, against, value(all_of_it), bound, below, span=span([value(one) for one in figures.rounds()]),
               failed=tuple(all_of_it.missing(beside)))


def best(values):
    """(name, value) of the highest."""
    values = [(name, value) for name, value in values if value is not None]
    return max(values, key=lambda pair: pair[1]) if values else ("", None)


def river(figures, what, measure):
    """(name, how it is measured) of the faster of River's clients. Without pgmq nobody knows how fast the one in Go would be here, and nothing is said."""
    scenario = {"drain": "drain", "bulk": "drain", "single8": "single8"}[what]

    def scaled(one):
        return river_go(one, what)

    if pgmq_rate(figures, what) is None:
        return f"River (no {scenario} of pgmq to scale its Go client by)", lambda _: None
    name, _ = best([("riverqueue", measure(figures)), (SCALED, scaled(figures))])
    return (name, measure) if name == "riverqueue" else (name, scaled)


def river_go(figures, what):
    """What River's client in Go would do here, or nothing without pgmq."""
    pgmq = pgmq_rate(figures, what)
    return RIVER_GO[what] * pgmq / PGMQ_THERE[what] if pgmq else None


def pgmq_rate(figures, what):
    return {"drain": lambda: figures.rate("pgmq", "drain"), "bulk": lambda: figures.bulk("pgmq"),
            "single8": lambda: figures.single("pgmq", 8), "steady": lambda: figures.rate("pgmq", "steady")}[what]()


def bars(figures, queues):
    """`queues`: names of the job queues that compete."""
    return [*drains(figures), *steady(figures, queues), *bulks(figures), *single(figures, 8), *single(figures, 32), *latency(figures),
            compared(figures, "drain, horizon pinned by a reader, over the dead rows of two before", "the same without", 0.98,
                     lambda f: f.pinned("rowlock")), whole_life(figures)]


def drains(figures):
    def ours(f):
        return f.rate("rowlock", "drain")

    graphiles = ("graphile-worker", "graphile-rust")
    graphile, _ = best([(name, figures.rate(name, "drain")) for name in graphiles])
    name, go = river(figures, "drain", lambda f: f.rate("river", "drain"))
    what = "drain, history off"
    return [
        compared(figures, what, graphile or "graphile-worker", 2, lambda f: ratio(ours(f), f.rate(graphile, "drain")),
                 beside=[(name, "drain") for name in graphiles]),
        compared(figures, what, name, 4, lambda f: ratio(ours(f), go(f)), beside=[("river", "drain")]),
        compared(figures, what, "pgmq", 1.5, lambda f: ratio(ours(f), f.rate("pgmq", "drain"))),
        compared(figures, what, "the floor", 0.7, lambda f: ratio(ours(f), f.rate("floor", "drain"))),
        compared(figures, "drain, history kept", name, 3, lambda f: ratio(f.rate("rowlock-history", "drain"), go(f)), beside=[("river", "drain")]),
    ]


def steady(figures, queues):
    def ours(f):
        return f.rate("rowlock", "steady")

    def others(f, name):
        return river_go(f, "steady") if name == SCALED else f.rate(name, "steady")

    other, _ = best([(name, others(figures, name)) for name in [*queues, SCALED] if not name.startswith("rowlock")])
    handled, allowed = figures.rate("rowlock", "handlers", "steady"), figures.handlers_allow("rowlock")
    sleeps = compared(figures, "steady, 10 ms handlers, 1,000 at a time", "what the handlers allow", 0.95,
                      lambda f: ratio(f.rate("rowlock", "handlers", "steady"), f.handlers_allow("rowlock")))
    sleeps.made_of = f"{handled / 1000:.1f}k ÷ {allowed / 1000:.1f}k" if handled and allowed else ""
    return [
        compared(figures, "steady, flat out", other or "best job queue", 2, lambda f: ratio(ours(f), others(f, other)),
                 beside=[(name, "steady") for name in [*queues, "pgmq"]]),
        compared(figures, "steady, flat out", "pgmq", 1.3, lambda f: ratio(ours(f), f.rate("pgmq", "steady"))),
        sleeps,
    ]


def bulks(figures):
    def by(system):
        scenario = figures.bulk_by(system)
        return lambda f: f.rate(system, scenario, "bulk")

    def ways(*systems):
        return [(system, scenario) for system in systems for scenario in ("drain", "bulk2")]

    ours, pgmq = by("rowlock"), by("pgmq")
    name, go = river(figures, "bulk", by("river"))
    return [
        compared(figures, "bulk enqueue", "pgmq", 1.0, lambda f: ratio(ours(f), pgmq(f)), beside=ways("rowlock", "pgmq")),
        compared(figures, "bulk enqueue", name, 2.4, lambda f: ratio(ours(f), go(f)), beside=ways("rowlock", "river", "pgmq")),
    ]


def single(figures, producers):
    """With a worker whose slots are all taken; and with a client for each producer, who then share nothing."""
    def ours(f):
        return f.rate("rowlock", f"busy{producers}", "single")

    def measured(f):
        return f.single("river", producers)

    what = f"single enqueue, {producers} producers, workers busy"
    name, fastest = river(figures, "single8", measured) if producers == 8 else ("riverqueue", measured)
    return [
        compared(figures, what, "plain INSERT", 0.8, lambda f: ratio(ours(f), f.single("floor", producers))),
        compared(figures, what, "pgmq", 1.7, lambda f: ratio(ours(f), f.single("pgmq", producers))),
        compared(figures, what, name, 3, lambda f: ratio(ours(f), fastest(f)), beside=[("river", f"single{producers}")]),
        compared(figures, f"single enqueue, {producers} producers with a client each", "plain INSERT", 0.8,
                 lambda f: ratio(f.rate("rowlock", f"apart{producers}", "single"), f.single("floor", producers))),
    ]


def latency(figures):
    def slower(f):
        return ratio(f.wait_ms("raw-batch", 0.5), RAW_THERE["p50"])

    def by_pgmq(f):
        return ratio(f.wait_ms("pgmq", 0.5), PGMQ_THERE["p50"])

    def p50(scale, by):
        def rivers(f):
            times = scale(f)
            found = [f.wait_ms("river", 0.5), RIVER_GO["p50"] * times if times else None]
            return min((ms for ms in found if ms is not None), default=None) if times else None

        return compared(figures, "pick-up latency, idle, p50", f"River's fastest (Go, scaled by {by}, or Rust)", 1.0,
                        lambda f: ratio(f.wait_ms("rowlock", 0.5), rivers(f)), below=True)

    p99, times = figures.wait_ms("rowlock", 0.99), slower(figures)
    late = compared(figures, "pick-up latency, idle, p99, scaled by raw SQL", "3 ms", 3,
                    lambda f: ratio(f.wait_ms("rowlock", 0.99), slower(f)), below=True)
    late.unit, late.made_of = "ms", f"{p99:.2f} ms ÷ {times:.2f}" if p99 and times else ""
    return [p50(slower, "raw SQL"), p50(by_pgmq, "pgmq"), late]


def whole_life(figures):
    def bytes_of(f):
        return total(f.wal("rowlock"))

    bar = compared(figures, "WAL per job, whole life, history off, without page images", "500 bytes", 500, bytes_of, below=True)
    bar.unit = "bytes"
    if bar.value is not None:
        enqueue, finish = figures.wal("rowlock")
        bar.made_of = f"by COPY {enqueue:.0f} + {finish:.0f}, with page images {total(figures.wal('rowlock', 'wal')):.0f};"
    return bar


def total(parts):
    """Nothing, if one is missing."""
    return None if None in parts else sum(parts)
