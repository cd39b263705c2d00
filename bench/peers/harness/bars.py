"""What is to be reached, as ratios within one run. Pure."""

from dataclasses import dataclass

from .stats import ratio

# River's Go client cannot be had here; its figures from another run count scaled by what pgmq did there and does here. Its latency is
# scaled by that of raw SQL with NOTIFY: pgmq's is no measure of a machine, but about half of the interval at which it is polled. So is the
# one bar that is a time, which was set for that other machine.
RIVER_GO = {"drain": 25_600, "bulk": 108_000, "single8": 4_600, "p50": 1.6}
PGMQ_THERE = {"drain": 65_100, "bulk": 261_000, "single8": 8_900}
RAW_THERE = {"p50": 1.2}


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

    def reached(self):
        if self.value is None:
            return None
        return self.value <= self.bound if self.below else self.value >= self.bound

    def verdict(self):
        return {None: "not measured", True: "reached", False: "not reached"}[self.reached()]


def best(values):
    """(name, value) of the highest."""
    values = [(name, value) for name, value in values if value is not None]
    return max(values, key=lambda pair: pair[1]) if values else ("", None)


def scaled(what, pgmq_here):
    """River's Go figure on this machine."""
    return RIVER_GO[what] * pgmq_here / PGMQ_THERE[what] if pgmq_here else None


def river(figures, what, measured, pgmq_here):
    name, value = best([("riverqueue", measured), ("River (Go), scaled", scaled(what, pgmq_here))])
    return name or "River", value


def bars(figures, queues):
    """`queues`: names of the job queues that compete."""
    f = figures
    ours, kept = f.rate("rowlock", "drain"), f.rate("rowlock-history", "drain")
    pgmq = f.rate("pgmq", "drain")
    graphile = best([(n, f.rate(n, "drain")) for n in ("graphile-worker", "graphile-rust")])
    river_drain = river(f, "drain", f.rate("river", "drain"), pgmq)
    found = [
        Bar("drain, history off", graphile[0] or "graphile-worker", ratio(ours, graphile[1]), 2),
        Bar("drain, history off", river_drain[0], ratio(ours, river_drain[1]), 4),
        Bar("drain, history off", "pgmq", ratio(ours, pgmq), 1.5),
        Bar("drain, history off", "the floor", ratio(ours, f.rate("floor", "drain")), 0.7),
        Bar("drain, history kept", river_drain[0], ratio(kept, river_drain[1]), 3),
    ]
    steady = f.rate("rowlock", "steady")
    other = best([(n, f.rate(n, "steady")) for n in queues if not n.startswith("rowlock")])
    found += [
        Bar("steady, flat out", other[0] or "best job queue", ratio(steady, other[1]), 2),
        Bar("steady, flat out", "pgmq", ratio(steady, f.rate("pgmq", "steady")), 1.3),
        Bar("steady, 10 ms handlers, 1,000 at a time", "what the handlers allow",
            ratio(f.rate("rowlock", "handlers", "steady"), f.handlers_allow("rowlock")), 0.95),
    ]
    river_bulk = river(f, "bulk", f.bulk("river"), f.bulk("pgmq"))
    found += [
        Bar("bulk enqueue", "pgmq", ratio(f.bulk("rowlock"), f.bulk("pgmq")), 1.0),
        Bar("bulk enqueue", river_bulk[0], ratio(f.bulk("rowlock"), river_bulk[1]), 2.4),
    ]
    for producers in (8, 32):
        found += single(f, producers)
    return found + latency(f) + [
        Bar("drain, horizon pinned by a reader, after churn", "the same without", f.pinned("rowlock"), 0.98),
        Bar("WAL per job, whole life, history off, without page images", "500 bytes", whole_life(f), 500, True, "bytes"),
    ]


def single(f, producers):
    """With a worker whose slots are all taken."""
    ours = f.rate("rowlock", f"busy{producers}", "single")
    pgmq = f.single("pgmq", producers)
    what = f"single enqueue, {producers} producers, workers busy"
    measured = f.single("river", producers)
    name, value = river(f, "single8", measured, pgmq) if producers == 8 else ("riverqueue", measured)
    return [
        Bar(what, "plain INSERT", ratio(ours, f.single("floor", producers)), 0.8),
        Bar(what, "pgmq", ratio(ours, pgmq), 1.7),
        Bar(what, name, ratio(ours, value), 3),
    ]


def latency(f):
    ours, raw = f.wait_ms("rowlock", 0.5), f.wait_ms("raw-batch", 0.5)
    slower, p99 = ratio(raw, RAW_THERE["p50"]), f.wait_ms("rowlock", 0.99)
    made_of = f"{p99:.2f} ms ÷ {slower:.2f}" if p99 and slower else ""
    go = RIVER_GO["p50"] * slower if slower else None
    rivers = [ms for ms in (f.wait_ms("river", 0.5), go) if ms is not None]
    return [
        Bar("pick-up latency, idle, p50", "River's fastest", ratio(ours, min(rivers, default=None)), 1.0, True),
        Bar("pick-up latency, idle, p99, scaled by raw SQL", "3 ms", ratio(p99, slower), 3, True, "ms", made_of),
    ]


def whole_life(f):
    enqueue, finish = f.wal("rowlock")
    return None if enqueue is None or finish is None else enqueue + finish
