"""docs/benchmarks.md and its plots, from a finished run. Pure but for `write`."""

import re

from .bars import RAW_THERE, bars
from .figures import Figures
from .plots import bars as chart
from .systems import BY_NAME

NONE = ""


def write(run, out):
    """`out`: the folder that gets benchmarks.md and benchmarks/*.svg."""
    figures = Figures(run["phases"])
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
    parts = [
        head(run), "## To reach\n", bar_table(figures, names), "## Side by side\n", main_table(figures, names),
        "\n".join(f"![{title}](benchmarks/{file})" for file, (title, _) in charts.items()) + "\n",
        "## What it costs\n", cost_table(figures, names), "## Who ran, and how\n", systems_table(run, figures, names),
        absent(run), "## What the columns mean\n", legend(run, figures),
    ]
    return "\n".join(part for part in parts if part)


def head(run):
    machine, postgres = run["machine"], run["postgres"]
    settings = ", ".join(f"`{name} = {value}`" for name, value in postgres["settings"].items())
    missing = f" ({run['missing']} of {run['steps']} measurements of the last were left out for time)" if run.get("missing") else ""
    partial = "\n**A short run: fewer jobs or systems than a full one. Not for quoting.**\n" if run["partial"] else ""
    return f"""# Measured side by side

Written by `make bench-peers`; do not edit. One run, one PostgreSQL, one machine: compare the ratios, absolute numbers belong to the
machine and the moment. Every phase of every system checked that each job ran exactly once, and waited until its completion was stored.
{partial}
- {machine['date']}, {run['minutes']:.0f} minutes, {run['rounds']} rounds{missing}, systems interleaved
- {machine['cores']} cores ({machine['cpu']}), {machine['memory_gb']} GB, {machine['system']}
- PostgreSQL {postgres['version']}: {settings}
- {machine['tools']['rustc']}, node {machine['tools']['node']}, Python {machine['tools']['python']}
- load average {run['load_before']:.1f} before the run; others used {run['others']:.0%} of the machine during it
"""


def bar_table(figures, names):
    queues = [name for name in names if BY_NAME[name].queue]
    lines = ["| | against | at least (*at most*) | measured | |", "|---|---|---|---|---|"]
    for bar in bars(figures, queues):
        unit = " x" if bar.unit == "x" else f" {bar.unit}"
        bound = f"*{bar.bound:g}{unit}*" if bar.below else f"{bar.bound:g}{unit}"
        value = NONE if bar.value is None else f"{bar.value:.2f}{unit}" if bar.value < 100 else f"{bar.value:.0f}{unit}"
        value = f"{bar.made_of} = {value}" if bar.made_of else value
        lines.append(f"| {bar.what} | {bar.against} | {bound} | {value} | {bar.verdict()} |")
    return "\n".join(lines) + "\n"


def main_table(figures, names):
    lines = [
        "Thousands of jobs per second, medians, ± half of the distance between lowest and highest.\n",
        "| | bulk enqueue | single enqueue, 8 producers | 32 producers | drain | producers + worker together | pick-up p50 / p99 ms "
        "| drain, horizon pinned ÷ same without | deep backlog drain |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in names:
        cells = [
            rate(figures, name, "drain", "bulk"), rate(figures, name, "single8", "single"),
            rate(figures, name, "single32", "single"), rate(figures, name, "drain"), rate(figures, name, "steady"),
            waits(figures, name), number(figures.pinned(name), 2), rate(figures, name, "backlog", "drain"),
        ]
        lines.append(f"| {BY_NAME[name].title} | " + " | ".join(cells) + " |")
        if figures.rate(name, "busy8", "single"):
            busy = [rate(figures, name, f"busy{n}", "single") for n in (8, 32)]
            lines.append(f"| {BY_NAME[name].title}, workers busy | | {busy[0]} | {busy[1]} | | | | | |")
        if figures.rate(name, "handlers", "steady"):
            lines.append(f"| {BY_NAME[name].title}, 10 ms handlers | | | | | {rate(figures, name, 'handlers', 'steady')} | | | |")
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
        lines.append(f"| {BY_NAME[name].title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def systems_table(run, figures, names):
    lines = ["| | version | settings | jobs per drain / single / steady |", "|---|---|---|---|"]
    versions = {system["name"]: system["version"] for system in run["systems"]}
    for name in names:
        jobs = " / ".join(jobs_of(figures, name, scenario) for scenario in ("drain", "single8", "steady"))
        lines.append(f"| {BY_NAME[name].title} | {versions[name]} | {figures.settings(name)} | {jobs} |")
    return "\n".join(lines) + "\n"


def absent(run):
    lines = [f"- {BY_NAME[name].title}: not installed: {why}" for name, why in run["absent"].items()]
    lines += [f"- {BY_NAME[f['system']].title}, {f['scenario']}: failed: {f['why']}" for f in run["failed"]]
    return "### Left out\n\n" + "\n".join(lines) + "\n" if lines else ""


def legend(run, figures):
    return f"""- **bulk enqueue**: 4 producers, each by the peer's fastest documented way. Rowlock's client lets as many load at a time as there are cores,
  because the server is on the same machine.
- **single enqueue**: each producer waits until its job is durable before it enqueues the next; no worker runs. The floor's figure is a plain
  INSERT of Rowlock's row without NOTIFY. *Workers busy*: a worker is there and all its slots are taken.
- **drain**: one worker process, handlers that do nothing, from its start until the last completion is stored.
- **producers + worker together**: 4 producers in batches of 100 and the worker in one process, flat out.
{sleeps(figures)}- **pick-up**: from before the enqueue to the start of the handler, one job at a time on an idle queue. The first one of
  each process, which may open connections, does not count.
- **horizon pinned**: a REPEATABLE READ reader holds its snapshot; the third drain in the same tables, against the third without the reader.
{deep(run)}- **the floor**: COPY into Rowlock's table, HOT update by `ctid`, durable DELETE by `ctid`; nobody looks for anything.
- **River (Go), scaled**: River's Go client is no package of these clients; its figures from an earlier run on a like machine count times
  what pgmq does here over what it did there; for the latency, what raw SQL does (pgmq's is that of its polling).
- **scaled by raw SQL**: the bar of 3 ms was set on the machine of that earlier run, where raw SQL with NOTIFY had a p50 of
  {RAW_THERE["p50"]} ms. The p99 measured here is divided by how much slower raw SQL's p50 is here (its p99 was 2.1 ms
  there).
- CPU of Postgres is that of all its processes; of the client, that of the adapter's process.
"""


def sleeps(figures):
    allowed = figures.handlers_allow("rowlock")
    if not allowed:
        return ""
    return (f"- **10 ms handlers**: 1,000 at a time. They would allow 100,000 a second if timers were exact; as many bare sleeps of 10 ms at once manage\n"
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
    return re.sub(r"[*`]", "", BY_NAME[name].title)


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
