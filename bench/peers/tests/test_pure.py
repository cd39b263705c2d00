"""The parts that need no database: statistics, ratios, plan, report. `python3 -m unittest discover -s bench/peers/tests`"""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import run as program
from harness import install, own, plan, report, stats
from harness.bars import Bar, bars
from harness.figures import Figures
from harness.own_bars import own_bars
from harness.postgres import Failed, with_database
from harness.systems import BY_NAME, HERE, SYSTEMS


def phase(system, scenario, name, jobs, seconds, number=1, **more):
    return {"system": system, "scenario": scenario, "round": number, "phase": name, "jobs": jobs, "seconds": seconds, "exact": True,
            "settings": "s", "adapter_cpu": 0.1, "server_cpu": 0.2, "wal": 1000.0 * jobs, "wal_without_images": 200.0 * jobs,
            "table_bytes": 100 * jobs, "index_bytes": 50 * jobs, **more}


class Install(unittest.TestCase):
    def test_the_reason_of_a_failure_does_not_tell_where_it_was(self):
        with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
            log.write(f"Compiling\nerror: cannot build `peer ({HERE}/rust/peer)`\n")
            log.flush()
            self.assertEqual(install.reason(log.name), "error: cannot build `peer (rust/peer)`")


class Stats(unittest.TestCase):
    def test_percentiles_are_values_that_were_measured(self):
        values = list(range(1, 101))
        self.assertEqual(stats.percentile(values, 0.5), 50)
        self.assertEqual(stats.percentile(values, 0.99), 99)
        self.assertEqual(stats.percentile([7], 0.99), 7)
        self.assertIsNone(stats.percentile([], 0.5))

    def test_nothing_measured_is_no_number(self):
        self.assertIsNone(stats.middle([None]))
        self.assertIsNone(stats.ratio(1.0, None))
        self.assertIsNone(stats.spread([5.0]))
        self.assertAlmostEqual(stats.spread([9.0, 10.0, 11.0]), 0.1)


class Bars(unittest.TestCase):
    def test_verdicts(self):
        self.assertEqual(Bar("a", "b", 2.0, 2).verdict(), "reached")
        self.assertEqual(Bar("a", "b", 1.99, 2).verdict(), "not reached")
        self.assertEqual(Bar("a", "b", 3.1, 3, below=True).verdict(), "not reached")
        self.assertEqual(Bar("a", "b", None, 3).verdict(), "not measured")

    def test_river_is_the_faster_of_both(self):
        # River in Rust does 10k/s; in Go it would do 25.6k where pgmq does 65.1k.
        phases = [phase("rowlock", "drain", "drain", 102_400, 1.0), phase("river", "drain", "drain", 10_000, 1.0),
                  phase("pgmq", "drain", "drain", 65_100, 1.0)]
        against = {bar.against: bar for bar in bars(Figures(phases), ["rowlock", "river"]) if bar.what == "drain, history off"}
        self.assertAlmostEqual(against["River (Go), scaled"].value, 4.0)
        self.assertEqual(against["River (Go), scaled"].verdict(), "reached")

    def test_handlers_are_measured_against_bare_sleeps(self):
        phases = [phase("rowlock", "handlers", "steady", 85_500, 1.0, handlers_allow=90_000.0)]
        found = [bar for bar in bars(Figures(phases), ["rowlock"]) if "10 ms" in bar.what]
        self.assertAlmostEqual(found[0].value, 0.95)
        # Of a run that did not measure them nothing is claimed.
        del phases[0]["handlers_allow"]
        found = [bar for bar in bars(Figures(phases), ["rowlock"]) if "10 ms" in bar.what]
        self.assertEqual(found[0].verdict(), "not measured")

    def test_a_time_is_compared_as_on_the_machine_that_its_bar_was_set_for(self):
        def p99(waits_us):
            phases = [phase(name, "latency", "latency", 1, 1.0, waits_us=waits) for name, waits in waits_us.items()]
            return next(bar for bar in bars(Figures(phases), ["rowlock"]) if "p99" in bar.what)

        # Raw SQL takes twice as long here as it did there.
        bar = p99({"rowlock": [9000, 5000], "raw-batch": [9000, 2400]})
        self.assertAlmostEqual(bar.value, 2.5)
        self.assertEqual(bar.made_of, "5.00 ms ÷ 2.00")
        self.assertEqual(p99({"rowlock": [9000, 5000]}).verdict(), "not measured")

    def test_pinned_compares_the_last_drain_with_the_middle_one(self):
        phases = [phase("rowlock", "drain", "drain", 100, s, turn=t) for t, s in enumerate((3.0, 2.0, 1.0))]
        phases += [phase("rowlock", "pinned", "drain", 100, s, turn=t) for t, s in enumerate((3.0, 2.0, 4.0))]
        self.assertAlmostEqual(Figures(phases).pinned("rowlock"), 0.5)
        # A drain in fresh tables later in the round is none of them.
        phases.append(phase("rowlock", "drain", "drain", 100, 0.1, turn=0))
        self.assertAlmostEqual(Figures(phases).pinned("rowlock"), 0.5)
        # A second round counts if it has both.
        phases.append(phase("rowlock", "pinned", "drain", 100, 1.0, number=2))
        self.assertAlmostEqual(Figures(phases).pinned("rowlock"), 0.5)
        phases.append(phase("rowlock", "drain", "drain", 100, 1.0, number=2))
        self.assertAlmostEqual(Figures(phases).pinned("rowlock"), 0.75)

    def test_only_fresh_tables_count(self):
        phases = [phase("rowlock", "drain", "drain", 100, s, turn=t) for t, s in enumerate((1.0, 2.0, 2.0))]
        self.assertEqual(Figures(phases).rate("rowlock", "drain"), 100)

    def test_bulk_is_by_as_many_loaders_as_are_faster(self):
        phases = [phase("pgmq", "drain", "bulk", 100, 1.0), phase("pgmq", "bulk2", "bulk", 100, 0.5), phase("rowlock", "drain", "bulk", 100, 0.4),
                  phase("rowlock", "bulk2", "bulk", 100, 0.5)]
        self.assertEqual(Figures(phases).bulk("pgmq"), 200)
        bar = next(bar for bar in bars(Figures(phases), []) if bar.what == "bulk enqueue" and bar.against == "pgmq")
        self.assertAlmostEqual(bar.value, 1.25)

    def test_a_bar_between_the_rounds_is_within_the_noise(self):
        phases = []
        for number, seconds in enumerate((2.0, 1.0, 2.0), 1):
            phases += [phase("rowlock", "drain", "drain", 100, seconds, number), phase("floor", "drain", "drain", 100, 1.0, number)]
        bar = next(bar for bar in bars(Figures(phases), []) if bar.against == "the floor")
        self.assertEqual((bar.value, bar.span, bar.verdict()), (0.5, (0.5, 1.0), "within the noise"))

    def test_without_pgmq_nothing_is_said_of_river(self):
        phases = [phase("rowlock", "drain", "drain", 100, 1.0), phase("river", "drain", "drain", 10, 1.0)]
        river = [bar for bar in bars(Figures(phases), []) if bar.against.startswith("River (no")]
        self.assertTrue(river and all(bar.verdict() == "not measured" for bar in river))


class Own(unittest.TestCase):
    def part(self, name, *lines):
        return {"name": name, "command": "rowlock bench", "seconds": 1.0, "at": "d", "lines": list(lines)}

    def test_the_worst_line_counts(self):
        found = {bar.what: bar for bar in own_bars([
            self.part("backlog", {"case": "10,000 waiting", "jobs": 10_000, "worker_rss_max_bytes": 20e6},
                      {"case": "1,000,000 waiting", "jobs": 1_000_000, "worker_rss_max_bytes": 70e6, "claim_of_small": 1.1, "spread": {"claim_of_small": [0.9, 1.3]}}),
            self.part("rested", {"case": "idle queue, after 1h", "start_p50_ms": 2.2, "first_start_ms": 9}),
            self.part("busy", {"case": "idle queue", "start_p50_ms": 2.0, "first_start_ms": 8}),
        ])}
        self.assertEqual(found["worker memory, 1,000,000 jobs waiting"].verdict(), "not reached")
        claim = found["claim time, 1,000,000 jobs waiting"]
        self.assertEqual((claim.value, claim.span, claim.verdict()), (1.1, (0.9, 1.3), "reached"))
        self.assertAlmostEqual(found["pick-up p50 after 1h idle"].value, 1.1)
        self.assertEqual(found["CPU of Postgres with 20 idle workers"].verdict(), "not measured")

    def test_parts_of_other_runs_say_so(self):
        def a_run(commit, *parts, failed=(), cpu="c"):
            return {"commit": commit, "own": [self.part(name) for name in parts], "machine": {"cpu": cpu, "cores": 2},
                    "postgres": {"version": "15", "settings": {}}, "failed": [{"scenario": name} for name in failed]}

        peers, other = a_run("new", "drains", "floor", failed=("drain", "bench, busy", "bench, rate")), a_run("old+", "floor", "busy")
        with self.assertRaisesRegex(Failed, "machine cpu is 'c' in the first and 'another'"):
            program.merged([peers, a_run("old", cpu="another")])
        found = program.merged([peers, other])
        self.assertEqual([failure["scenario"] for failure in found["failed"]], ["drain", "bench, rate"])
        self.assertEqual([(part["name"], part["commit"]) for part in found["own"]], [("floor", "old+"), ("drains", "new"), ("busy", "old+")])
        lines = report.own_commands(found).splitlines()
        self.assertEqual(lines, [f"- `rowlock bench` (0 min{more})" for more in ("; another run, Rowlock at old+", "", "; another run, Rowlock at old+")])

    def test_each_part_has_a_bar(self):
        names = [part.name for part in own.parts("full")]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual(own.parts("full")[-1].arguments[-1], "10m")


class Plan(unittest.TestCase):
    def test_systems_are_interleaved_and_nothing_is_done_twice(self):
        steps = plan.steps(SYSTEMS, rounds=2)
        keys = [(s.round, s.system.name, s.scenario) for s in steps]
        self.assertEqual(len(keys), len(set(keys)))
        self.assertEqual({(s.measures(), s.adapter_scenario()) for s in steps if s.scenario == "drain again"}, {("drain", "drain")})
        self.assertEqual({s.adapter_scenario() for s in steps}, {"drain", "bulk", "single", "steady", "latency"})
        drains = [s.system.name for s in steps if s.scenario == "drain" and s.round == 1]
        self.assertEqual(drains, [s.name for s in SYSTEMS if "drain" in s.scenarios])
        self.assertEqual({s.system.name for s in steps if s.scenario == "pinned" and s.round > 1}, {"rowlock"})

    def test_jobs_are_a_limit(self):
        for step in plan.steps(SYSTEMS, rounds=1, jobs=1000):
            self.assertLessEqual(step.settings["JOBS"], 1000)
        self.assertEqual({s.settings["PRODUCERS"] for s in plan.steps(SYSTEMS, 1) if s.scenario == "single32"}, {32})

    def test_names_are_unique(self):
        self.assertEqual(len(BY_NAME), len(SYSTEMS))


class Urls(unittest.TestCase):
    def test_another_database_on_the_same_server(self):
        self.assertEqual(with_database("postgres://me:pw@db:5433/app?sslmode=disable", "x"), "postgres://me:pw@db:5433/x?sslmode=disable")
        self.assertEqual(with_database("postgresql:///app?host=/run", "x"), "postgresql:///x?host=/run")
        with self.assertRaises(Failed):
            with_database("host=localhost", "x")


class Report(unittest.TestCase):
    def test_page_has_what_was_measured_and_what_was_not(self):
        phases = [phase("rowlock", "drain", "bulk", 1000, 0.01), phase("rowlock", "drain", "drain", 1000, 0.02),
                  phase("rowlock", "latency", "latency", 2, 1.0, waits_us=[5000, 900, 2100])]
        run = {"machine": {"date": "d", "cpu": "c", "cores": 2, "memory_gb": 4, "system": "s",
                           "tools": {"rustc": "r", "node": "n", "python": "p"}},
               "postgres": {"version": "15", "settings": {"fsync": "on"}}, "rounds": 1, "backlog": 0, "minutes": 1.0, "load_before": 0.1,
               "others": 0.05, "short": True, "systems": [{"name": "rowlock", "version": "this tree"}],
               "absent": {"pgmq": "cargo is not installed"}, "failed": [{"system": "rowlock", "scenario": "steady", "why": "x"}],
               "phases": phases}
        with tempfile.TemporaryDirectory() as place:
            page = report.write(run, Path(place)).read_text(encoding="utf-8")
            self.assertIn("| **Rowlock** | 100.0 | 50.0 |", page)
            self.assertIn("0.9 / 2.1", page)
            self.assertIn("pgmq: not installed: cargo is not installed", page)
            self.assertIn("steady: failed: x", page)
            self.assertIn("with page images 2000; 400 bytes |  | reached", page)
            svg = (Path(place) / "benchmarks" / "drain.svg").read_text(encoding="utf-8")
            self.assertTrue(svg.startswith("<svg"))


if __name__ == "__main__":
    unittest.main()
