"""What is to be reached by Rowlock alone, from what `rowlock bench` measured. Pure."""

from .bars import Bar


class Own:
    """The lines of all parts."""

    def __init__(self, parts):
        self.parts = {part["name"]: part for part in parts}

    def lines(self, part, case=""):
        """Those of a part whose case has this in it."""
        return [line for line in self.parts.get(part, {}).get("lines", []) if case in line["case"]]

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
    return [
        own.bar("drain, 1M jobs, the thinnest client", "the floor of the same round", 0.7, "floor", "history off", "of_floor"),
        own.bar("enqueue in a caller's transaction, 8 callers", "one more statement in it", 1.0, "transaction", "and a job", "of_plain"),
        *pinned(own),
        own.bar("claim time, deep backlog", "a backlog of 10,000", 1.2, "backlog", "", "claim_of_small", below=True),
        own.bar("worker memory, deep backlog", "60 MB", 60, "backlog", "", "worker_rss_max_bytes", True, "MB", 1e-6),
        *[own.bar(f"{n} worker processes, 1M jobs", "one", 1.0, "processes", f"{n} processes", "of_one") for n in (2, 4, 8)],
        own.bar("CPU of Postgres with 20 idle workers", "one core", 1, "idle", "", "postgres_cpu_percent", True, "%"),
        rested(own),
    ]


def pinned(own):
    for who in ("a reader", "a writer"):
        by = f"held back by {who}"
        yield own.bar(f"drain of 1M, vacuum {by}", "the same without", 0.98, "drains", f"drain first, {by}", "of_clean")
        yield own.bar(f"drain of 1M over 1M dead rows, vacuum {by}", "the same without", 0.98, "drains", f"drain again, over its dead rows, {by}", "of_clean")
        for figure, what in (("start_p99", "p99 of pick-up"), ("postgres_cpu", "CPU of Postgres")):
            case = f"a second, {by}"
            yield own.bar(f"2,000 a second, {what}, vacuum {by}", "the same without", 1.5, "rate", case, f"{figure}_of_clean", below=True)
            yield own.bar(f"… in its worst tenth of the time", "the whole time without", 1.5, "rate", case, f"{figure}_worst_of_clean", below=True)


def rested(own):
    """The same, but for the noise of 400 samples."""
    after, before = own.lines("rested"), own.lines("busy")
    value = after[0]["start_p50_ms"] / before[0]["start_p50_ms"] if after and before else None
    made_of = f"{after[0]['start_p50_ms']:.2f} ms ÷ {before[0]['start_p50_ms']:.2f} ms" if value else ""
    return Bar(f"pick-up p50 after {idle(after)}", "without", value, 1.1, True, made_of=made_of)


def idle(lines):
    return lines[0]["case"].removeprefix("idle queue, after ") + " idle" if lines else "a rest"
