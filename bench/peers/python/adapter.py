"""What the adapters in Python share: the protocol with the harness, the scenarios, and the ledger that sees to it that each job
ran exactly once. The same as rust/adapter; see there and README.md for what each scenario means."""

import asyncio
import base64
import json
import math
import os
import sys
import time

BATCH = 100
# How many jobs each producer enqueues before it is measured.
WARM_UP = 2


class Config:
    scenario = sys.argv[1] if len(sys.argv) > 1 else ""
    url = os.environ.get("DATABASE_URL", "")
    jobs = int(os.environ.get("JOBS", 10_000))
    producers = int(os.environ.get("PRODUCERS", 4))
    # Who load in bulk.
    loaders = int(os.environ.get("LOADERS", 4))
    # How many enqueue at the same time at most. A pool has so many connections open before anything is measured.
    enqueuers = max(producers, loaders)
    rounds = int(os.environ.get("ROUNDS", 1))
    # How long a handler takes, and how many are to be at work at once, where a scenario says so.
    handler_seconds = int(os.environ.get("HANDLER_MS", 0)) / 1000
    at_once = int(os.environ.get("WORKERS", 100)) if handler_seconds else None


# What makes payloads large, where that is measured: it cannot be compressed.
FILLER = base64.b64encode(os.urandom(int(os.environ.get("PAYLOAD_BYTES", 0)) * 3 // 4)).decode()


def payload(n):
    return {"n": n, "filler": FILLER} if FILLER else {"n": n}


class Ledger:
    def __init__(self, jobs):
        self.runs = bytearray(jobs)
        self.started = {}
        self.timed = False
        self.count = 0
        self.target = math.inf
        self.reached = asyncio.Event()

    async def run(self, n):
        """The handler of job `n`."""
        if self.timed:
            self.started[n] = time.perf_counter()
        if Config.handler_seconds:
            await asyncio.sleep(Config.handler_seconds)
        self.runs[n] += 1
        self.count += 1
        if self.count >= self.target:
            self.reached.set()

    async def until(self, jobs):
        """Waits until so many have run; fails when nothing has moved for a minute."""
        self.target = jobs
        while self.count < jobs:
            seen = self.count
            self.reached.clear()
            try:
                await asyncio.wait_for(self.reached.wait(), 60)
            except asyncio.TimeoutError as error:
                if self.count == seen:
                    raise RuntimeError(f"after {seen} of {jobs} jobs nothing ran for a minute") from error

    def exact(self, jobs):
        return all(runs == 1 for runs in self.runs[:jobs])


class Run:
    """A peer has: bulk_chunk, settings, bulk(numbers), batch(numbers), single(n), start(ledger) -> worker, stop(worker), count() -> jobs
    whose completion is not stored yet. Its connections for enqueuers are open."""

    def __init__(self, peer):
        self.peer = peer

    async def ready(self, phase):
        print(f"ready {phase}", flush=True)
        line = await asyncio.to_thread(sys.stdin.readline)
        if line.strip() != "go":
            raise RuntimeError(f"expected `go`, not {line!r}")

    def report(self, phase, jobs, seconds, exact, **more):
        line = {"phase": phase, "jobs": jobs, "seconds": seconds, "exact": exact, "settings": self.peer.settings, **more}
        print(json.dumps(line), flush=True)

    async def produce(self, first, jobs, size, producers, call):
        starts = iter(range(0, jobs, size))

        async def producer():
            for start in starts:
                await call(list(range(first + start, first + min(start + size, jobs))))

        await asyncio.gather(*(producer() for _ in range(producers)))

    async def finished(self, ledger, jobs):
        """Waits until all have run and their completion is stored, and says when that was: what a count sees was so when it began."""
        await ledger.until(jobs)
        ran = time.perf_counter()
        while True:
            await asyncio.sleep(0.002)
            looked = time.perf_counter()
            if await self.peer.count() == 0:
                return looked
            if looked - ran > 60:
                raise RuntimeError("jobs ran, but are not finished after a minute")

    async def bulk(self, number=0):
        await self.ready("bulk")
        began = time.perf_counter()
        await self.produce(number * Config.jobs, Config.jobs, self.peer.bulk_chunk, Config.loaders, self.peer.bulk)
        seconds = time.perf_counter() - began
        self.report("bulk", Config.jobs, seconds, await self.peer.count() == Config.jobs)

    async def warm_up(self):
        """Each producer enqueues a few that do not count, all at the same time: then its connection is open and its statement known."""

        async def producer(number):
            for at in range(WARM_UP):
                await self.peer.single(Config.jobs + number * WARM_UP + at)

        await asyncio.gather(*(producer(number) for number in range(Config.producers)))

    async def single(self):
        await self.warm_up()
        before = await self.peer.count()
        await self.ready("single")
        began = time.perf_counter()
        await self.produce(0, Config.jobs, 1, Config.producers, lambda numbers: self.peer.single(numbers[0]))
        seconds = time.perf_counter() - began
        self.report("single", Config.jobs, seconds, await self.peer.count() == before + Config.jobs)

    async def drain(self):
        ledger = Ledger(Config.jobs * Config.rounds)
        for number in range(Config.rounds):
            await self.bulk(number)
            await self.ready("drain")
            began = time.perf_counter()
            worker = await self.peer.start(ledger)
            so_far = (number + 1) * Config.jobs
            seconds = await self.finished(ledger, so_far) - began
            self.report("drain", Config.jobs, seconds, ledger.exact(so_far))
            await self.peer.stop(worker)
        return ledger.exact(Config.jobs * Config.rounds)

    async def steady(self):
        jobs = math.ceil(Config.jobs / BATCH) * BATCH
        ledger = Ledger(jobs)
        worker = await self.peer.start(ledger)
        await self.ready("steady")
        began = time.perf_counter()
        await self.produce(0, jobs, BATCH, Config.producers, self.peer.batch)
        seconds = await self.finished(ledger, jobs) - began
        self.report("steady", jobs, seconds, ledger.exact(jobs))
        await self.peer.stop(worker)
        return ledger.exact(jobs)

    async def latency(self):
        ledger = Ledger(Config.jobs)
        ledger.timed = True
        worker = await self.peer.start(ledger)
        await asyncio.sleep(1)
        await self.ready("latency")
        began, waits = time.perf_counter(), []
        for n in range(Config.jobs):
            await asyncio.sleep((40 + n * 17 % 61) / 1000)
            before = time.perf_counter()
            await self.peer.single(n)
            await ledger.until(n + 1)
            waits.append(max(0, round((ledger.started[n] - before) * 1e6)))
        self.report("latency", Config.jobs, time.perf_counter() - began, ledger.exact(Config.jobs), waits_us=waits)
        await self.peer.stop(worker)
        return ledger.exact(Config.jobs)


async def run(peer):
    scenarios = Run(peer)
    known = {name: getattr(scenarios, name) for name in ("bulk", "single", "drain", "steady", "latency")}
    if Config.scenario not in known:
        sys.exit(f"nobody knows a scenario {Config.scenario!r}")
    if await known[Config.scenario]() is False:
        sys.exit("some jobs did not run exactly once")
    # What a peer leaves running in the background must not keep the process.
    sys.stdout.flush()
    os._exit(0)
