"""procrastinate on psycopg's pool and uvloop, 30 jobs at once, finished jobs deleted."""

import asyncio
import sys
from pathlib import Path

# This file is named as the package that it measures: the package comes first.
sys.path = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent] + [str(Path(__file__).parent)]

import procrastinate
import psycopg
import uvloop

from adapter import Config, payload, run

CONCURRENCY = 30


class Peer:
    bulk_chunk = 1000
    concurrency = Config.at_once or CONCURRENCY
    settings = f"uvloop, concurrency {concurrency}, delete_jobs always"

    async def set_up(self):
        least, most = Config.enqueuers, Config.enqueuers + CONCURRENCY + 2
        connector = procrastinate.PsycopgConnector(conninfo=Config.url, min_size=least, max_size=most)
        self.app = procrastinate.App(connector=connector)
        self.ledger = None

        @self.app.task(name="noop")
        async def noop(n, filler=None):
            await self.ledger.run(n)

        self.task = noop
        await self.app.open_async()
        await self.app.schema_manager.apply_schema_async()
        self.counting = await psycopg.AsyncConnection.connect(Config.url, autocommit=True)
        return self

    async def bulk(self, numbers):
        await self.task.batch_defer_async(*(payload(n) for n in numbers))

    batch = bulk

    async def single(self, n):
        await self.task.defer_async(**payload(n))

    async def start(self, ledger):
        self.ledger = ledger
        work = self.app.run_worker_async(
            concurrency=self.concurrency, delete_jobs="always", install_signal_handlers=False,
        )
        return asyncio.create_task(work)

    async def stop(self, worker):
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)

    async def count(self):
        row = await (await self.counting.execute("select count(*) from procrastinate_jobs")).fetchone()
        return row[0]


async def main():
    await run(await Peer().set_up())


uvloop.run(main())
