"""What is to be reached by Rowlock alone, from what `rowlock bench` measured. Pure."""

import re

from . import own as bench
from .bars import Bar

# What of a command says how much is measured; the rest (rounds, producers) says how.
SIZES = ("jobs", "samples", "rate", "duration", "idle", "workers")
# How long, in seconds, and how many.
UNITS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "k": 1000, "K": 1000, "M": 1_000_000}
# The small backlog that a deep one is compared with.
SMALL = 10_000


class Own:
    """The lines of all parts."""

    def __init__(self, parts):
        self.parts = {part["name"]: part for part in parts}
        self.full = {part.name: " ".join(map(str, part.arguments)) for part in bench.parts("full")}

    def lines(self, part, case=""):
        """Those of a part whose case has this in it."""
        return [line for line in self.parts.get(part, {}).get("lines", []) if case in line["case"]]

    def jobs(self, part):
        """How many there were in the largest of its cases."""
        found = [line["jobs"] for line in self.lines(part) if line.get("jobs")]
        return f"{max(found):,} jobs" if found else "all jobs"

    def option(self, part, name):
        """What was said behind an option, or nothing."""
        return option(self.parts.get(part, {}).get("command", ""), name)

    def limits(self, *parts):
        """What has to be said of a bar that is made of these parts: whether less was asked for in one than the bar was set for (also if nobody
        knows how much), and whether one ended before its time."""
        smaller = any(amount(self.option(part, name)) < amount(option(self.full[part], name)) for part in parts for name in SIZES)
        return {"smaller": smaller, "incomplete": any(self.parts.get(part, {}).get("failed") for part in parts)}

    def bar(self, what, against, bound, part, case, figure, below=False, unit="x", scale=1.0):
        """The worst of the lines that are meant."""
        found = [line for line in self.lines(part, case) if figure in line]
        if not found:
            return Bar(what, against, None, bound, below, unit)
        worst = (max if below else min)(found, key=lambda line: line[figure])
        span = worst.get("spread", {}).get(figure)
        return Bar(what, against, worst[figure] * scale, bound, below, unit, span=tuple(end * scale for end in span) if span else None,
                   **self.limits(part))


def option(command, name):
    """What was said behind an option, or nothing."""
    found = re.search(rf"--{name} (\S+)", command)
    return found.group(1) if found else ""


def amount(text):
    """`10M`, `500ms` or `2000` as a number; 0 for nothing."""
    found = re.fullmatch(r"(\d+)([a-zA-Z]*)", text)
    return int(found.group(1)) * UNITS.get(found.group(2), 0) if found else 0


def own_bars(parts):
    own = Own(parts)
    backlog = own.jobs("backlog")
    return [
        own.bar(f"drain of {own.jobs('floor')}, the thinnest client", "the floor of the same round", 0.7, "floor", "history off", "of_floor"),
        *[transaction(own, n) for n in bench.CALLERS],
        *[own.bar(f"single enqueue, {n} producers, a worker working", "plain INSERT beside it", 0.8, "transaction", f"one by one, {n} producers, a worker busy",
                  "of_plain") for n in bench.CALLERS],
        *pinned(own),
        own.bar(f"claim time, {backlog} waiting", "a backlog of 10,000", 1.2, "backlog", "", "claim_of_small", below=True),
        *memory(own),
        *[processes(own, n) for n in (2, 4, 8)],
        own.bar("CPU of Postgres with 20 idle workers", "one core", 1, "idle", "", "postgres_cpu_percent", True, "%"),
        *rested(own),
    ]


def transaction(own, callers):
    """Neither statement is prepared, as in most transactions that others write; where theirs is, it costs less."""
    case = f"and a job, {callers} callers"
    bar = own.bar(f"enqueue in a caller's transaction, {callers} callers", "one more plain INSERT in it, sent alike", 1.0, "transaction", case, "of_plain")
    prepared = [line["of_prepared"] for line in own.lines("transaction", case) if "of_prepared" in line]
    if prepared:
        bar.made_of = f"against one that is prepared {min(prepared):.2f} x;"
    return bar


def pinned(own):
    jobs, rate = own.jobs("drains"), f"{own.option('rate', 'rate') or '?'} a second for {own.option('rate', 'duration') or '?'}"
    for who in ("a reader", "a writer"):
        by = f"held back by {who}"
        yield own.bar(f"drain of {jobs}, vacuum {by}", "the same without", 0.98, "drains", f"drain first, {by}", "of_clean")
        yield again(own, jobs, by)
        for figure, what in (("start_p99", "p99 of pick-up"), ("postgres_cpu", "CPU of Postgres")):
            case = f"a second, {by}"
            yield own.bar(f"{rate}, {what}, vacuum {by}", "the same without", 1.5, "rate", case, f"{figure}_of_clean", below=True)
            yield own.bar("… in its worst tenth of the time", "the whole time without", 1.5, "rate", case, f"{figure}_worst_of_clean", below=True)


def again(own, jobs, by):
    """Over dead rows, against the same with nobody; and beside it against the first drain with nobody, which found none."""
    case = f"drain again, over its dead rows, {by}"
    bar = own.bar(f"drain of {jobs} over as many dead rows, vacuum {by}", "the same without", 0.98, "drains", case, "of_clean")
    rates = [line["per_second"] for name in (case, "drain first, held back by nobody") for line in own.lines("drains", name)]
    if len(rates) == 2:
        bar.made_of = f"against the first one with nobody {rates[0] / rates[1]:.2f} x;"
    return bar


def memory(own):
    """With the whole backlog waiting; and that it does not grow with what waits. There may be a thousand times as much, so half as much again is flat."""
    backlog = own.jobs("backlog")
    return [
        own.bar(f"worker memory, {backlog} waiting", "60 MB", 60, "backlog", "", "worker_rss_max_bytes", True, "MB", 1e-6),
        own.bar(f"worker memory, {backlog} waiting, against {SMALL:,}", "flat", 1.5, "backlog", "", "worker_rss_of_small", below=True),
    ]


def processes(own, n):
    """Never falling: against one process and against half as many, whichever is the lower."""
    def bar(against, figure):
        return own.bar(f"{n} worker processes, {own.jobs('processes')}", against, 1.0, "processes", f"{n} processes", figure)

    if n == 2:
        return bar("one", "of_one")
    both = f"one and {n // 2}, the worse"
    one, half = bar(both, "of_one"), bar(both, "of_half")
    # Of one alone it does not follow that it never falls.
    if one.value is None or half.value is None:
        return half if half.value is None else one
    one.made_of = f"of one {one.value:.2f} x, of {n // 2} of them {half.value:.2f} x;"
    one.value = min(one.value, half.value)
    if one.span and half.span:
        one.span = tuple(map(min, one.span, half.span))
    return one


def rested(own):
    """The same, but for the noise of 400 samples; and what the very first job waited, for which connections may open and plans be made."""
    after, before = own.lines("rested"), own.lines("busy")

    def bar(what, against, bound, figure, digits):
        known = after and before and before[0][figure]
        made_of = f"{after[0][figure]:.{digits}f} ms ÷ {before[0][figure]:.{digits}f} ms" if known else ""
        return Bar(what, against, after[0][figure] / before[0][figure] if known else None, bound, True, made_of=made_of,
                   **own.limits("rested", "busy"))

    return [
        bar(f"pick-up p50 after {idle(after)}", "without", 1.1, "start_p50_ms", 2),
        # One sample each, so a coarse bound.
        bar(f"first job after {idle(after)}", "first job without", 2, "first_start_ms", 1),
    ]


def idle(lines):
    return lines[0]["case"].removeprefix("idle queue, after ") + " idle" if lines else "a rest"
