"""pgqueuer on asyncpg and uvloop: a pool for producers, a connection of its own for the worker, batches of 1000."""

import asyncio
import json
import sys
from datetime import timedelta
from pathlib import Path

# This file is named as the package that it measures: the package comes first.
sys.path = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent] + [str(Path(__file__).parent)]

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

from adapter import Config, payload, run

BATCH = 1000
ENTRYPOINT = "noop"


class Peer:
    bulk_chunk = 1000
    settings = f"asyncpg, uvloop, batch_size {BATCH}, durable tables"

    async def set_up(self):
        connection = await asyncpg.connect(Config.url)
        await Queries(AsyncpgDriver(connection)).install()
        self.counting = connection
        pool = await asyncpg.create_pool(Config.url, min_size=Config.enqueuers, max_size=Config.enqueuers + 2)
        self.queries = Queries(AsyncpgPoolDriver(pool))
        return self

    async def bulk(self, numbers):
        payloads = [as_bytes(n) for n in numbers]
        await self.queries.enqueue([ENTRYPOINT] * len(numbers), payloads, [0] * len(numbers))

    batch = bulk

    async def single(self, n):
        await self.queries.enqueue(ENTRYPOINT, as_bytes(n))

    async def start(self, ledger):
        queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(Config.url)))

        @queuer.entrypoint(ENTRYPOINT)
        async def noop(job):
            await ledger.run(json.loads(job.payload)["n"])

        task = asyncio.create_task(queuer.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=1)))
        return queuer, task

    async def stop(self, worker):
        queuer, task = worker
        queuer.shutdown.set()
        await task

    async def count(self):
        return await self.counting.fetchval("select count(*) from pgqueuer")


def as_bytes(n):
    return json.dumps(payload(n)).encode()


async def main():
    await run(await Peer().set_up())


uvloop.run(main())
