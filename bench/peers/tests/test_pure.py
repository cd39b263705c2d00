"""The parts that need no database: statistics, ratios, plan, report. `python3 -m unittest discover -s bench/peers/tests`"""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from subprocess import CompletedProcess

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import run as program
from harness import adapter, install, machine, own, plan, report, stats
from harness.bars import Bar, bars
from harness.figures import Figures
from harness.own_bars import own_bars
from harness.postgres import Failed, Reader, with_database
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


class Machine(unittest.TestCase):
    def test_the_commit_is_a_short_name_or_nothing(self):
        self.assertRegex(machine.commit(), r"^([0-9a-f]{7,}\+?)?$")


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

    def test_what_holds_only_in_part_says_so(self):
        self.assertEqual(Bar("a", "b", 2.0, 2, span=(2.0, 3.0)).verdict(), "reached")
        self.assertEqual(Bar("a", "b", 2.5, 2, span=(1.9, 3.0)).verdict(), "reached, but not in each round")
        self.assertEqual(Bar("a", "b", 1.9, 2, span=(1.8, 2.0)).verdict(), "within the noise")
        self.assertEqual(Bar("a", "b", 2.0, 2, span=(1.8, 1.9)).verdict(), "within the noise")
        self.assertEqual(Bar("a", "b", 2.0, 2, smaller=True).verdict(), "reached, at a smaller size")
        self.assertEqual(Bar("a", "b", 2.5, 2, span=(1.9, 3.0), smaller=True).verdict(), "reached, but not in each round, at a smaller size")
        self.assertEqual(Bar("a", "b", 1.0, 2, smaller=True).verdict(), "not reached")

    def test_river_in_go_competes_where_both_produce_and_work(self):
        # In Go it would do 38.6k here, where pgmq does 73.4k.
        phases = [phase("rowlock", "steady", "steady", 77_200, 1.0), phase("pgmq", "steady", "steady", 73_400, 1.0),
                  phase("graphile-worker", "steady", "steady", 30_000, 1.0)]
        bar = next(bar for bar in bars(Figures(phases), ["rowlock", "graphile-worker"]) if bar.what == "steady, flat out")
        self.assertEqual(bar.against, "River (Go), scaled")
        self.assertAlmostEqual(bar.value, 2.0)
        # Without pgmq, those count that were measured.
        bar = next(bar for bar in bars(Figures([phases[0], phases[2]]), ["rowlock", "graphile-worker"]) if bar.what == "steady, flat out")
        self.assertEqual(bar.against, "graphile-worker")

    def test_a_latency_is_scaled_by_either(self):
        phases = [phase(name, "latency", "latency", 1, 1.0, waits_us=[9000, us]) for name, us in
                  (("rowlock", 1600), ("raw-batch", 2400), ("pgmq", 10_800))]
        def p50s(phases):
            return [(bar.against, bar.value) for bar in bars(Figures(phases), []) if bar.what == "pick-up latency, idle, p50"]

        # There 1.6 ms, where raw SQL had 1.2 and pgmq 5.4: both are twice as slow here.
        by_raw, by_pgmq = "River's fastest (Go, scaled by raw SQL, or Rust)", "River's fastest (Go, scaled by pgmq, or Rust)"
        self.assertEqual(p50s(phases), [(by_raw, 0.5), (by_pgmq, 0.5)])
        self.assertEqual(p50s(phases[:2]), [(by_raw, 0.5), (by_pgmq, None)])

    def test_a_failure_in_what_a_bar_is_made_of_is_said(self):
        phases = [phase(name, "drain", "drain", jobs, 1.0) for name, jobs in (("rowlock", 900), ("pgmq", 100), ("floor", 1000), ("graphile-rust", 300))]

        def verdicts(*failed):
            found = bars(Figures(phases, [{"system": name, "scenario": scenario, "round": 1, "why": "x"} for name, scenario in failed]), [])
            return {bar.against: bar.verdict() for bar in found if bar.what == "drain, history off"}

        self.assertEqual(set(verdicts(("pgmq", "steady"), ("rowlock", "steady")).values()), {"reached"})
        self.assertEqual(verdicts(("pgmq", "drain"))["pgmq"], "reached, but pgmq failed in a round")
        self.assertEqual(verdicts(("pgmq", "drain"))["the floor"], "reached")
        # One that was not measured might have been the fastest.
        self.assertEqual(verdicts(("graphile-worker", "drain"))["graphile-rust"], "reached, but graphile-worker failed in a round")
        # The product's own failures are no reason to count what is left.
        self.assertEqual(verdicts(("rowlock", "drain"))["the floor"], "not reached: it failed in a round")

    def test_no_bar_counts_where_the_product_failed(self):
        for scenario in ("drain", "pinned", "bulk2", "busy8", "apart32", "steady", "handlers", "latency"):
            found = bars(Figures([phase("floor", "drain", "drain", 1, 1.0)], [{"system": "rowlock", "scenario": scenario, "round": 1, "why": "x"}]), [])
            of = [bar.what for bar in found if bar.failed]
            self.assertTrue(of, scenario)
            if scenario in ("drain", "pinned"):
                self.assertIn("drain, horizon pinned by a reader, over the dead rows of two before", of)
            if scenario == "drain":
                self.assertIn("WAL per job, whole life, history off, without page images", of)

    def test_producers_with_a_client_each_have_a_bar(self):
        phases = [phase("rowlock", "apart8", "single", 900, 1.0), phase("floor", "single8", "single", 1000, 1.0)]
        found = {bar.what: bar.value for bar in bars(Figures(phases), [])}
        self.assertAlmostEqual(found["single enqueue, 8 producers with a client each"], 0.9)
        self.assertIsNone(found["single enqueue, 32 producers with a client each"])

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
    def part(self, name, *lines, size="full"):
        """As it was measured; of `size` none, nobody knows what was asked."""
        said = {part.name: " ".join(map(str, part.arguments)) for part in own.parts(size)}[name] if size else ""
        return {"name": name, "command": f"rowlock bench {said}".strip(), "seconds": 1.0, "at": "d", "lines": list(lines)}

    def bars(self, *parts):
        return {bar.what: bar for bar in own_bars(parts)}

    def test_the_worst_line_counts(self):
        found = {bar.what: bar for bar in own_bars([
            self.part("backlog", {"case": "10,000 waiting", "jobs": 10_000, "worker_rss_max_bytes": 20e6},
                      {"case": "1,000,000 waiting", "jobs": 1_000_000, "worker_rss_max_bytes": 70e6, "claim_of_small": 1.1, "spread": {"claim_of_small": [0.9, 1.3]}}),
            self.part("rested", {"case": "idle queue, after 1h", "start_p50_ms": 2.2, "first_start_ms": 9}),
            self.part("busy", {"case": "idle queue", "start_p50_ms": 2.0, "first_start_ms": 8}),
        ])}
        self.assertEqual(found["worker memory, 1,000,000 jobs waiting"].verdict(), "not reached")
        claim = found["claim time, 1,000,000 jobs waiting"]
        self.assertEqual((claim.value, claim.span, claim.verdict()), (1.1, (0.9, 1.3), "reached, but not in each round"))
        self.assertAlmostEqual(found["pick-up p50 after 1h idle"].value, 1.1)
        self.assertEqual(found["pick-up p50 after 1h idle"].made_of, "2.20 ms ÷ 2.00 ms")
        first = found["first job after 1h idle"]
        self.assertEqual((first.value, first.made_of, first.verdict()), (1.125, "9.0 ms ÷ 8.0 ms", "reached"))
        self.assertEqual(found["CPU of Postgres with 20 idle workers"].verdict(), "not measured")

    def test_what_is_smaller_than_its_bar_says_so(self):
        def claim(size):
            return self.bars(self.part("backlog", {"case": "deep", "jobs": 5, "claim_of_small": 1.1}, size=size))["claim time, 5 jobs waiting"].verdict()

        self.assertEqual([claim(size) for size in ("full", "short", None)], ["reached", *["reached, at a smaller size"] * 2])
        # Of two parts one is enough; and the jobs of a quick run are fewer.
        busy = self.part("busy", {"case": "idle queue", "start_p50_ms": 2.0, "first_start_ms": 8})
        found = self.bars(busy, self.part("rested", {"case": "idle queue, after 1m", "start_p50_ms": 2.0, "first_start_ms": 8}, size="short"))
        self.assertEqual(found["first job after 1m idle"].verdict(), "reached, at a smaller size")
        quick = " ".join(map(str, next(part for part in own.parts("full", 100_000) if part.name == "processes").arguments))
        part = {**self.part("processes", {"case": "2 processes", "of_one": 1.5, "jobs": 100_000}), "command": f"rowlock bench {quick}"}
        self.assertEqual(self.bars(part)["2 worker processes, 100,000 jobs"].verdict(), "reached, at a smaller size")

    def test_more_processes_are_compared_with_one_and_with_half(self):
        def line(n, of_one, of_half=None):
            found = {"case": f"{n} process{'es' if n > 1 else ''}", "jobs": 10, "of_one": of_one, "spread": {"of_one": [of_one - 0.01, of_one + 0.01]}}
            if of_half:
                found["of_half"] = of_half
                found["spread"]["of_half"] = [of_half - 0.1, of_half + 0.2]
            return found

        found = self.bars(self.part("processes", line(1, 1.0), line(2, 1.05), line(4, 1.2, 1.15), line(8, 1.08, 0.9)))
        two, four, eight = (found[f"{n} worker processes, 10 jobs"] for n in (2, 4, 8))
        self.assertEqual((two.value, two.against, two.made_of), (1.05, "one", ""))
        self.assertEqual((four.value, four.verdict()), (1.15, "reached"))
        self.assertEqual(eight.made_of, "of one 1.08 x, of 4 of them 0.90 x;")
        self.assertEqual((eight.value, eight.span, eight.verdict()), (0.9, (0.8, 1.09), "within the noise"))
        # A round that falls behind either does.
        four = self.bars(self.part("processes", line(1, 1.0), line(4, 1.05, 1.06)))["4 worker processes, 10 jobs"]
        self.assertEqual((four.value, four.verdict()), (1.05, "reached, but not in each round"))
        # Of one alone it does not follow that it never falls.
        self.assertEqual(self.bars(self.part("processes", line(1, 1.0), line(4, 1.05)))["4 worker processes, 10 jobs"].verdict(), "not measured")

    def test_a_drain_over_dead_rows_is_compared_with_the_first_one_too(self):
        lines = [{"case": "drain first, held back by nobody", "jobs": 10, "per_second": 100.0},
                 {"case": "drain again, over its dead rows, held back by nobody", "jobs": 10, "per_second": 98.0},
                 {"case": "drain again, over its dead rows, held back by a reader", "jobs": 10, "per_second": 97.0, "of_clean": 0.99}]
        bar = self.bars(self.part("drains", *lines))["drain of 10 jobs over as many dead rows, vacuum held back by a reader"]
        self.assertEqual((bar.value, bar.made_of, bar.verdict()), (0.99, "against the first one with nobody 0.97 x;", "reached"))

    def test_each_number_of_callers_has_its_bars(self):
        lines = [{"case": f"in a transaction: and a job, {n} callers", "jobs": 10, "of_plain": 1 + n / 100, "of_prepared": 0.9} for n in (8, 32)]
        lines += [{"case": f"one by one, {n} producers{more}", "jobs": 10, "of_plain": 1 + n / 100} for n in (8, 32) for more in ("", ", a worker busy")]
        found = self.bars(self.part("transaction", *lines))
        for n in (8, 32):
            bar = found[f"enqueue in a caller's transaction, {n} callers"]
            self.assertEqual((bar.value, bar.made_of), (1 + n / 100, "against one that is prepared 0.90 x;"))
            self.assertEqual(found[f"single enqueue, {n} producers, a worker working"].value, 1 + n / 100)

    def test_memory_is_compared_with_that_of_a_small_backlog(self):
        lines = [{"case": "10,000 waiting", "jobs": 10_000, "worker_rss_max_bytes": 20e6},
                 {"case": "10,000,000 waiting", "jobs": 10_000_000, "worker_rss_max_bytes": 31e6, "worker_rss_of_small": 1.55}]
        found = self.bars(self.part("backlog", *lines))
        memory, flat = found["worker memory, 10,000,000 jobs waiting"], found["worker memory, 10,000,000 jobs waiting, against 10,000"]
        self.assertEqual((memory.value, memory.verdict()), (31.0, "reached"))
        self.assertEqual((flat.value, flat.verdict()), (1.55, "not reached"))
        self.assertIsNone(self.bars(self.part("backlog", lines[0]))["worker memory, 10,000 jobs waiting, against 10,000"].value)

    def test_a_part_that_ended_before_its_time_says_so(self):
        part = {**self.part("idle", {"case": "20 idle workers", "postgres_cpu_percent": 0.5}), "failed": "gone"}
        self.assertEqual(self.bars(part)["CPU of Postgres with 20 idle workers"].verdict(), "not reached: it ended before its time")

    def test_what_was_measured_before_a_failure_is_kept(self):
        def told(code, out, err=""):
            return own.told(own.parts("short")[0], 2.0, CompletedProcess([], code, json.dumps(out) if out else "", err))

        whole = {"lines": [{"case": "a"}], "load_before": 0.5, "optimised": True, "settings": {"fsync": "on"}, "place": {"private": False}, "version": "0"}
        found = told(0, whole)
        self.assertEqual({name: found[name] for name in own.KEPT}, {name: whole[name] for name in own.KEPT})
        self.assertNotIn("version", found)
        self.assertNotIn("failed", found)
        part = told(1, {"lines": [{"case": "a"}], "failed": "round 2, drain: gone"}, "a line\nError: gone\n")
        self.assertEqual((part["lines"], part["failed"]), ([{"case": "a"}], "round 2, drain: gone"))
        self.assertIn("(0 min; incomplete: round 2, drain: gone)", report.own_commands({"own": [part]}))
        for code, out, why in ((1, None, "Error: gone"), (1, {"lines": []}, "Error: gone"), (0, None, "nothing that was measured")):
            with self.assertRaisesRegex(Failed, why):
                told(code, out, "Error: gone\n")

    def test_parts_of_other_runs_say_so(self):
        def a_run(commit, *parts, failed=(), cpu="c"):
            return {"commit": commit, "own": [self.part(name, size=None) for name in parts], "machine": {"cpu": cpu, "cores": 2},
                    "postgres": {"version": "15", "settings": {}}, "failed": [{"scenario": name} for name in failed]}

        peers, other = a_run("new", "drains", "floor", failed=("drain", "bench, busy", "bench, rate")), a_run("old+", "floor", "busy")
        with self.assertRaisesRegex(Failed, "machine cpu is 'c' in the first and 'another'"):
            program.merged([peers, a_run("old", cpu="another")])
        found = program.merged([peers, other])
        self.assertEqual([failure["scenario"] for failure in found["failed"]], ["drain", "bench, rate"])
        self.assertEqual([(part["name"], part["commit"]) for part in found["own"]], [("floor", "old+"), ("drains", "new"), ("busy", "old+")])
        lines = report.own_commands(found).splitlines()
        self.assertEqual(lines, [f"- `rowlock bench` (0 min{more})" for more in ("; another run, Rowlock at old+", "", "; another run, Rowlock at old+")])

    def test_a_complete_part_comes_before_an_incomplete_one(self):
        def a_run(commit, **more):
            return {"commit": commit, "own": [{**self.part("busy"), **more}], "machine": {"cpu": "c", "cores": 2},
                    "postgres": {"version": "15", "settings": {}}, "failed": []}

        for runs, taken in (((a_run("1"), a_run("2", failed="x")), "1"), ((a_run("1", failed="x"), a_run("2")), "2"), ((a_run("1"), a_run("2")), "2")):
            self.assertEqual(program.merged(list(runs))["own"][0]["commit"], taken)

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


class Arguments(unittest.TestCase):
    def refused(self, *said):
        """What is said of it."""
        with contextlib.redirect_stderr(io.StringIO()) as errors, self.assertRaises(SystemExit) as end:
            program.arguments(said)
        self.assertEqual(end.exception.code, 2, said)
        return errors.getvalue()

    def test_what_cannot_be_meant_is_refused(self):
        for option in ("--only", "--skip", "--scenarios", "--own-parts"):
            for nobody in ("", ",", " , "):
                self.assertIn("names nothing", self.refused(option, nobody))
        self.assertIn("leaves nothing", self.refused("--own-only", "--own", "none"))
        self.assertIn("means nothing", self.refused("--own-parts", "rate", "--own", "none"))
        for said in (("--only", "pgmq"), ("--skip", "pgmq"), ("--scenarios", "drain")):
            self.assertIn("--own-only leaves out", self.refused("--own-only", *said))
        self.assertIn("leave nobody", self.refused("--only", "pgmq", "--skip", "pgmq"))
        self.assertIn("none of these scenarios", self.refused("--only", "floor", "--scenarios", "latency"))
        self.assertIn("--quick is one round", self.refused("--quick", "--rounds", "2"))

    def test_rounds(self):
        self.assertEqual([program.arguments(said).rounds for said in ((), ("--quick",), ("--rounds", "3"))], [2, 1, 3])


class Kept(unittest.TestCase):
    def test_what_is_no_run_is_refused_in_one_line(self):
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / "run.json"
            with self.assertRaisesRegex(Failed, "run.json cannot be read: No such file"):
                program.read(file)
            for text, why in (("{", "is not JSON"), ("[]", "is no run"), ("{}", "is no run")):
                file.write_text(text, encoding="utf-8")
                with self.assertRaisesRegex(Failed, why):
                    program.read(file)

    def test_a_partial_run_does_not_go_to_docs(self):
        def run(**more):
            return {"short": False, "rounds": 2, "steps": 100, "missing": 0, "systems": [{"name": name} for name in ("rowlock", "floor", "pgmq")], **more}

        # The second as of earlier versions.
        for whole in (run(own_only=False), run(), run(missing=50)):
            self.assertFalse(program.is_partial(whole))
        for part in (run(short=True), run(own_only=True), run(missing=51), run(systems=[]), run(systems=[{"name": "rowlock"}])):
            self.assertTrue(program.is_partial(part))
        options = program.arguments([])
        self.assertEqual([program.place(options, one) for one in (run(), run(short=True))], [program.DOCS, program.WORK / "report"])
        self.assertEqual(program.place(program.arguments(["--out", "x"]), run(short=True)), Path("x"))


class Adapter(unittest.TestCase):
    def test_all_phases_must_be_there(self):
        good = {"exact": True}
        adapter.check([good] * 6, "drain", {"ROUNDS": 3})
        adapter.check([good], "single", {"PRODUCERS": 8})
        for phases, scenario, settings, why in (([good] * 5, "drain", {"ROUNDS": 3}, "ended early: 5 of 6 phases"),
                                                ([good], "drain", {}, "ended early: 1 of 2 phases"),
                                                ([], "steady", {}, "ended early: 0 of 1 phases"),
                                                ([{"exact": False}], "bulk", {}, "not every job")):
            with self.assertRaisesRegex(Failed, why):
                adapter.check(phases, scenario, settings)

    def test_a_reader_that_is_gone_holds_nothing(self):
        # In place of psql, what answers each line of queries with one line.
        reader = Reader(["sh", "-c", "while read -r line; do echo 1; done"])
        self.assertTrue(reader.holds())
        reader.end()
        self.assertFalse(reader.holds())
        # Another transaction.
        reader = Reader(["sh", "-c", "n=0; while read -r line; do n=$((n + 1)); echo $n; done"])
        self.assertFalse(reader.holds())
        reader.end()
        # An error ends psql.
        reader = Reader(["sh", "-c", "read -r a; echo 1; read -r b; echo 1; read -r c; echo 1; read -r d"])
        self.assertFalse(reader.holds())
        reader.end()
        with self.assertRaisesRegex(Failed, "could not begin"):
            Reader(["true"])


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
