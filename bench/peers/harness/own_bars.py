"""What is to be reached by Rowlock alone, from what `rowlock bench` measured. Pure."""

import re

from .bars import Bar


class Own:
    """The lines of all parts."""

    def __init__(self, parts):
        self.parts = {part["name"]: part for part in parts}

    def lines(self, part, case=""):
        """Those of a part whose case has this in it."""
        return [line for line in self.parts.get(part, {}).get("lines", []) if case in line["case"]]

    def jobs(self, part):
        """How many there were in the largest of its cases."""
        found = [line["jobs"] for line in self.lines(part) if line.get("jobs")]
        return f"{max(found):,} jobs" if found else "all jobs"

    def option(self, part, name):
        """What was said behind an option, or nothing."""
        found = re.search(rf"--{name} (\S+)", self.parts.get(part, {}).get("command", ""))
        return found.group(1) if found else ""

    def bar(self, what, against, bound, part, case, figure, below=False, unit="x", scale=1.0):
        """The worst of the lines that are meant."""
        found = [line for line in self.lines(part, case) if figure in line]
        if not found:
            return Bar(what, against, None, bound, below, unit)
        worst = (max if below else min)(found, key=lambda line: line[figure])
        span = worst.get("spread", {}).get(figure)
        return Bar(what, against, worst[figure] * scale, bound, below, unit, span=tuple(end * scale for end in span) if span else None)


def own_bars(parts):
    own = Own(parts)
    backlog = own.jobs("backlog")
    return [
        own.bar(f"drain of {own.jobs('floor')}, the thinnest client", "the floor of the same round", 0.7, "floor", "history off", "of_floor"),
        transaction(own),
        *pinned(own),
        own.bar(f"claim time, {backlog} waiting", "a backlog of 10,000", 1.2, "backlog", "", "claim_of_small", below=True),
        own.bar(f"worker memory, {backlog} waiting", "60 MB", 60, "backlog", "", "worker_rss_max_bytes", True, "MB", 1e-6),
        *[processes(own, n) for n in (2, 4, 8)],
        own.bar("CPU of Postgres with 20 idle workers", "one core", 1, "idle", "", "postgres_cpu_percent", True, "%"),
        rested(own),
    ]


def transaction(own):
    """Neither statement is prepared, as in most transactions that others write; where theirs is, it costs less."""
    case = "and a job"
    bar = own.bar(f"enqueue in a caller's transaction, {own.option('transaction', 'producers') or 'several'} callers", "one more plain INSERT in it, sent alike", 1.0,
                  "transaction", case, "of_plain")
    prepared = [line["of_prepared"] for line in own.lines("transaction", case) if "of_prepared" in line]
    if prepared:
        bar.made_of = f"against one that is prepared {min(prepared):.2f} x;"
    return bar


def pinned(own):
    jobs, rate = own.jobs("drains"), f"{own.option('rate', 'rate') or '?'} a second for {own.option('rate', 'duration') or '?'}"
    for who in ("a reader", "a writer"):
        by = f"held back by {who}"
        yield own.bar(f"drain of {jobs}, vacuum {by}", "the same without", 0.98, "drains", f"drain first, {by}", "of_clean")
        yield own.bar(f"drain of {jobs} over as many dead rows, vacuum {by}", "the same without", 0.98, "drains", f"drain again, over its dead rows, {by}", "of_clean")
        for figure, what in (("start_p99", "p99 of pick-up"), ("postgres_cpu", "CPU of Postgres")):
            case = f"a second, {by}"
            yield own.bar(f"{rate}, {what}, vacuum {by}", "the same without", 1.5, "rate", case, f"{figure}_of_clean", below=True)
            yield own.bar("… in its worst tenth of the time", "the whole time without", 1.5, "rate", case, f"{figure}_worst_of_clean", below=True)


def processes(own, n):
    """Against one process, and beside it against half as many."""
    bar = own.bar(f"{n} worker processes, {own.jobs('processes')}", "one", 1.0, "processes", f"{n} processes", "of_one")
    rates = [line["per_second"] for count in (n // 2, n) for line in own.lines("processes", f"{count} process")]
    if len(rates) == 2 and n > 2:
        bar.made_of = f"against {n // 2} of them {rates[1] / rates[0]:.2f} x;"
    return bar


def rested(own):
    """The same, but for the noise of 400 samples. What the very first job waited is beside it: connections may open, plans be made."""
    after, before = own.lines("rested"), own.lines("busy")
    value = after[0]["start_p50_ms"] / before[0]["start_p50_ms"] if after and before else None
    made_of = ""
    if value:
        made_of = "; ".join([f"first job {after[0]['first_start_ms']:.1f} ms, without {before[0]['first_start_ms']:.1f} ms",
                             f"p50 {after[0]['start_p50_ms']:.2f} ms ÷ {before[0]['start_p50_ms']:.2f} ms"])
    return Bar(f"pick-up p50 after {idle(after)}", "without", value, 1.1, True, made_of=made_of)


def idle(lines):
    return lines[0]["case"].removeprefix("idle queue, after ") + " idle" if lines else "a rest"
