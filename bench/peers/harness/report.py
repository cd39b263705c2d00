"""docs/benchmarks.md and its plots, from a finished run. Pure but for `write`."""

import re

from .bars import RAW_THERE, bars
from .figures import Figures
from .own_bars import own_bars
from .plan import LARGE
from .plots import bars as chart
from .systems import BY_NAME

NONE = ""


def write(run, out):
    """`out`: the folder that gets benchmarks.md and benchmarks/*.svg."""
    figures = Figures(run["phases"], run["failed"])
    names = [system["name"] for system in run["systems"]]
    plots = out / "benchmarks"
    plots.mkdir(parents=True, exist_ok=True)
    for old in plots.glob("*.svg"):
        old.unlink()
    charts = draw(figures, names)
    for file, (_, svg) in charts.items():
        (plots / file).write_text(svg, encoding="utf-8")
    page = out / "benchmarks.md"
    page.write_text(markdown(run, figures, names, charts), encoding="utf-8")
    return page


def markdown(run, figures, names, charts):
    queues = [name for name in names if BY_NAME[name].queue]
    parts = [
        head(run), "## To reach\n", bar_table(bars(figures, queues)), own_head(run), bar_table(own_bars(run.get("own", []))), own_commands(run),
        "## Side by side\n", main_table(figures, names), single_table(figures, names), work_table(figures, names),
        "\n".join(f"![{title}](benchmarks/{file})" for file, (title, _) in charts.items()) + "\n",
        "## What it costs\n", cost_table(figures, names), "## Who ran, and how\n", systems_table(run, figures, names),
        absent(run), "## What the columns mean\n", legend(run, figures),
    ]
    return "\n".join(part for part in parts if part)


def head(run):
    machine, postgres = run["machine"], run["postgres"]
    settings = ", ".join(f"`{name} = {value}`" for name, value in postgres["settings"].items())
    missing = f" ({run['missing']} of {run['steps']} measurements, the last ones, were left out for time)" if run.get("missing") else ""
    partial = "\n**A short run: fewer jobs or systems than a full one. Not for quoting.**\n" if run.get("short") else ""
    return f"""# Measured side by side

Written by `make bench-peers`; do not edit. One run, one PostgreSQL, one machine: compare the ratios, absolute numbers belong to the
machine and the moment. Where jobs run, it was checked that each ran exactly once and that its completion was stored; where they are only enqueued, that
all of them were there.
{partial}
- {machine['date']}, {run['minutes']:.0f} minutes, {run['rounds']} rounds{missing}, systems interleaved{of_commit(run)}
- {machine['cores']} cores ({machine['cpu']}), {machine['memory_gb']} GB, {machine['system']}
- PostgreSQL {postgres['version']} on {postgres.get('file_system', '?')}: {settings}
- {machine['tools']['rustc']}, node {machine['tools']['node']}, Python {machine['tools']['python']}
- load average {run['load_before']:.1f} before the run; others used {run['others']:.0%} of the machine during it
"""


def of_commit(run):
    return f"; Rowlock at {run['commit']}" if run.get("commit") else ""


def bar_table(found):
    lines = ["| | against | at least (*at most*) | measured | lowest to highest round | |", "|---|---|---|---|---|---|"]
    for bar in found:
        bound = f"*{bar.bound:g}{suffix(bar)}*" if bar.below else f"{bar.bound:g}{suffix(bar)}"
        value = NONE if bar.value is None else digits(bar.value) + suffix(bar)
        if bar.made_of and bar.value is not None:
            value = f"{bar.made_of} {value}" if bar.made_of.endswith(";") else f"{bar.made_of} = {value}"
        around = f"{digits(bar.span[0])} to {digits(bar.span[1])}" if bar.span else NONE
        lines.append(f"| {bar.what} | {bar.against} | {bound} | {value} | {around} | {bar.verdict()} |")
    return "\n".join(lines) + "\n"


def digits(value):
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def suffix(bar):
    return " x" if bar.unit == "x" else f" {bar.unit}"


def own_head(run):
    own = run.get("own", [])
    when = sorted({part["at"] for part in own if part.get("at")})
    said = f"Measured by `rowlock bench` with the same settings of PostgreSQL, {when[0]} to {when[-1]}; of several lines that a bar means, the worst. " \
        "*At a smaller size*: with fewer jobs or in less time than the bar was set for, which `--own full` measures." if when else \
        "By `rowlock bench`, which was not run here."
    return f"What concerns nobody but Rowlock. {said}\n"


def own_commands(run):
    def earlier(part):
        commit = part.get("commit", run.get("commit"))
        return "" if commit == run.get("commit") else f"; another run, Rowlock at {commit}"

    def incomplete(part):
        return f"; incomplete: {part['failed']}" if part.get("failed") else ""

    lines = [f"- `{part['command']}` ({part['seconds'] / 60:.0f} min{earlier(part)}{incomplete(part)})" for part in run.get("own", [])]
    return "\n".join(lines) + "\n" if lines else ""


def main_table(figures, names):
    lines = [
        "Thousands of jobs per second, medians, ± half of the distance between lowest and highest. †: finished jobs are kept.\n",
        "| | bulk enqueue | drain | producers + worker together | pick-up p50 / p99 ms | drain, horizon pinned ÷ same without | deep backlog drain |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in names:
        cells = [
            rate(figures, name, figures.bulk_by(name), "bulk"), rate(figures, name, "drain"), rate(figures, name, "steady"),
            waits(figures, name), number(figures.pinned(name), 2), rate(figures, name, "backlog", "drain"),
        ]
        lines.append(f"| {BY_NAME[name].shown()} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def single_table(figures, names):
    lines = [
        "One job per call, thousands per second, durable when the call returns:\n",
        "| | 1 producer | 8 producers | 32 producers |",
        "|---|---|---|---|",
    ]
    for name in names:
        for kind, how in (("single", ""), ("busy", ", workers busy"), ("apart", ", each producer with a client of its own")):
            cells = [rate(figures, name, f"{kind}{n}", "single") for n in (1, 8, 32)]
            if any(cells):
                lines.append(f"| {BY_NAME[name].shown()}{how} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def work_table(figures, names):
    lines = [
        "With handlers that take 10 ms, and with payloads of 10 kB, thousands per second:\n",
        "| | producers + worker together, 10 ms handlers | bulk enqueue, 10 kB | drain, 10 kB |",
        "|---|---|---|---|",
    ]
    for name in names:
        cells = [rate(figures, name, "handlers", "steady"), rate(figures, name, "large", "bulk"), rate(figures, name, "large", "drain")]
        if any(cells):
            lines.append(f"| {BY_NAME[name].shown()} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def cost_table(figures, names):
    lines = [
        "Per job; medians. WAL without full-page images, with them in parentheses. Sizes after the first bulk load and after the first drain.\n",
        "| | WAL bytes, enqueue | finish | CPU µs, enqueue: Postgres + client | drain: Postgres + client | table + index bytes, full | drained |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in names:
        with_images, without = figures.wal(name, "wal"), figures.wal(name)
        cells = [
            wal(without[0], with_images[0]), wal(without[1], with_images[1]),
            cpu(figures.cpu_us(name, "drain", "bulk")), cpu(figures.cpu_us(name, "drain", "drain")),
            size(figures, name, "bulk"), size(figures, name, "drain"),
        ]
        lines.append(f"| {BY_NAME[name].shown()} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def systems_table(run, figures, names):
    lines = ["| | version | settings | jobs per drain / single / steady / with 10 ms handlers |", "|---|---|---|---|"]
    versions = {system["name"]: system["version"] for system in run["systems"]}
    for name in names:
        jobs = " / ".join(jobs_of(figures, name, scenario) for scenario in ("drain", "single8", "steady", "handlers"))
        lines.append(f"| {BY_NAME[name].shown()} | {versions[name]} | {figures.settings(name)} | {jobs} |")
    return "\n".join(lines) + "\n"


def absent(run):
    lines = [f"- {BY_NAME[name].shown()}: not installed: {why}" for name, why in run["absent"].items()]
    lines += [f"- {BY_NAME[f['system']].shown()}, {f['scenario']}: failed: {f['why']}" for f in run["failed"]]
    return "### Left out\n\n" + "\n".join(lines) + "\n" if lines else ""


def legend(run, figures):
    return f"""- **bulk enqueue**: by 4 loaders or by 2, whichever is faster for the system; each by the fastest way that its documentation has. Rowlock, the floor and
  raw SQL send each loader's share in one call; the others send 1,000 or 2,000 jobs in each. Rowlock's own client lets only as many load at a time as there
  are cores, because the server is on the same machine.
- **one job per call**: each producer waits until its job is durable before it enqueues the next; no worker runs. The floor's figure is a plain
  INSERT of Rowlock's row without NOTIFY. Producers that share one Rowlock client, as the tasks of one process do, share statements and commits where several enqueue at the same time:
  that is how they can be faster than plain INSERTs. *Each with a client of its own* is what as many processes would see. *Workers busy*: a worker is there and
  all its slots are taken; it costs no CPU, and the systems it is compared with have none.
- **drain**: one worker process, handlers that do nothing, from its start until the last completion is stored; in fresh tables.
- **producers + worker together**: 4 producers in batches of 100 and the worker in one process, flat out.
{sleeps(figures)}- **10 kB**: text that cannot be compressed; the handler gets it decoded. {LARGE:,} jobs, or as many as in a drain where those are fewer.
- **pick-up**: from before the enqueue to the start of the handler, one job at a time on an idle queue. The first one of
  each process, which may open connections, does not count.
- **horizon pinned**: a REPEATABLE READ reader holds its snapshot; the third drain in the same tables, against the middle one of three without the reader.
  Once in each round for Rowlock, once in all for the others: small differences mean nothing.
{deep(run)}- **the floor**: binary COPY into Rowlock's table, HOT update by `ctid`, durable DELETE by `ctid`, 500 at a time; nobody looks for anything. It
  writes a lease into each row; in a flood Rowlock writes one for many.
- **River (Go), scaled**: River's Go client is no package of these clients; its figures from an earlier run on a like machine count times
  what pgmq does here over what it did there; for the latency, what raw SQL does, too (pgmq's is that of its polling).
- **scaled by raw SQL**: the bar of 3 ms was set on the machine of that earlier run, where raw SQL with NOTIFY had a p50 of
  {RAW_THERE["p50"]} ms. The p99 measured here is divided by how much slower raw SQL's p50 is here (its p99 was 2.1 ms
  there).
- **defaults** of Rowlock keep finished jobs for 7 days; *history off* is the one setting that is changed (`retention = 0`), as in peers that delete.
- **reached, but not in each round**: the middle of all rounds reaches it, and one of them does not. **Within the noise**: the other way round.
- An empty cell: variants of a system are measured only where they differ; what failed is listed above. underway has no 10 ms handlers: each task
  under way holds a connection and a transaction, and a thousand are more than the server has room for.
- CPU of Postgres is that of all its processes; of the client, that of the adapter's process.
"""


def sleeps(figures):
    allowed = figures.handlers_allow("rowlock")
    if not allowed:
        return ""
    return (f"- **10 ms handlers**: 1,000 at a time, or as many as a system's settings make of that (pg-boss ends each batch before the next, apalis-postgres and\n"
            f"  pgqueuer have no such limit). They would allow 100,000 a second if timers were exact; as many bare sleeps of 10 ms at once manage\n"
            f"  {allowed:,.0f} in this run, and that is what they allow.\n")


def deep(run):
    if not run["backlog"]:
        return ""
    return f"- **deep backlog drain**: {run['backlog']:,} jobs, once, by those who get through it in minutes.\n"


def draw(figures, names):
    def rows(value, second=lambda _: None):
        found = [(plain(name), value(name), second(name), name.startswith("rowlock")) for name in names]
        return sorted((row for row in found if row[1] is not None), key=lambda row: -row[1])

    charts = {
        "drain.svg": ("Drain, jobs per second", rows(lambda n: figures.rate(n, "drain")), ""),
        "steady.svg": ("Producers and worker together, jobs per second", rows(lambda n: figures.rate(n, "steady")), ""),
        "bulk.svg": ("Bulk enqueue, jobs per second", rows(figures.bulk), ""),
        "single.svg": ("Single enqueue, 8 producers, jobs per second", rows(lambda n: figures.single(n, 8)), ""),
        "pinned.svg": ("Drain with a pinned horizon, as a share of the same without", rows(figures.pinned), ""),
        "latency.svg": ("Pick-up on an idle queue, p50 / p99, ms",
                        rows(lambda n: figures.wait_ms(n, 0.5), lambda n: figures.wait_ms(n, 0.99))[::-1], " ms"),
    }
    return {file: (title, chart(title, found, unit)) for file, (title, found, unit) in charts.items() if found}


def plain(name):
    return re.sub(r"[*`]", "", BY_NAME[name].shown())


def rate(figures, name, scenario, phase=None):
    value = figures.rate(name, scenario, phase)
    if value is None:
        return NONE
    around = figures.spread(name, scenario, phase)
    shown = f"{value / 1000:.1f}" if value >= 1000 else f"{value / 1000:.2f}"
    return shown if around is None else f"{shown} ± {around:.0%}"


def waits(figures, name):
    p50, p99 = figures.wait_ms(name, 0.5), figures.wait_ms(name, 0.99)
    return NONE if p50 is None else f"{p50:.1f} / {p99:.1f}"


def number(value, digits):
    return NONE if value is None else f"{value:.{digits}f}"


def wal(without, with_images):
    if with_images is None:
        return NONE
    return f"({with_images:.0f})" if without is None else f"{without:.0f} ({with_images:.0f})"


def cpu(pair):
    if pair[1] is None:
        return NONE
    return f"? + {pair[1]:.0f}" if pair[0] is None else f"{pair[0]:.0f} + {pair[1]:.0f}"


def size(figures, name, phase):
    table, index = (figures.largest(name, "drain", phase, f"{what}_bytes") for what in ("table", "index"))
    return NONE if table is None else f"{table:.0f} + {index:.0f}"


def jobs_of(figures, name, scenario):
    found = [p["jobs"] for p in figures.phases if p["system"] == name and p["scenario"] == scenario]
    return f"{found[0]:,}" if found else "–"
