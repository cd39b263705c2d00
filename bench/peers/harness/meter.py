"""What a phase costs: CPU of the server and of the adapter, write-ahead log, size of tables and indexes."""

import os
import time
from dataclasses import dataclass

from .postgres import Failed

TICKS = os.sysconf("SC_CLK_TCK")

SIZES = """select coalesce(sum(pg_table_size(c.oid)), 0)::bigint || ' ' || coalesce(sum(pg_indexes_size(c.oid)), 0)::bigint
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'm') and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_toast'"""


@dataclass
class Reading:
    lsn: str
    server: float | None
    adapter: float


def stat(pid):
    """(parent, own seconds, seconds of ended children), or None when the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return None
    # The name is in parentheses and may hold anything; what follows the last one is numbers.
    fields = text[text.rindex(")") + 2 :].split()
    ticks = [int(field) for field in fields[11:15]]
    return int(fields[1]), (ticks[0] + ticks[1]) / TICKS, (ticks[2] + ticks[3]) / TICKS


def server_seconds(postmaster):
    """CPU of the whole server, backends that have ended included; None if it cannot be seen."""
    for _ in range(100):
        top = stat(postmaster) if postmaster else None
        if not top:
            return None
        total = top[1] + top[2]
        for name in os.listdir("/proc"):
            child = stat(name) if name.isdigit() else None
            if child and child[0] == postmaster:
                total += child[1]
        # A backend that ended meanwhile was counted twice or not at all: look again.
        after = stat(postmaster)
        if after and after[2] == top[2]:
            return total
    return None


def adapter_seconds(pid):
    found = stat(pid)
    return found[1] + found[2] if found else 0.0


class Meter:
    """Reads before `go` and after the result. What reading costs falls outside of the measured time."""

    def __init__(self, postgres, database, pid):
        self.postgres, self.database, self.pid = postgres, database, pid

    def begin(self):
        # Fresh statistics for everybody: a bulk load has just changed the tables, and autovacuum would look later or never.
        self.postgres.sql(self.database, "analyze")
        self.postgres.sql(self.database, "checkpoint")
        lsn = self.postgres.sql(self.database, "select pg_current_wal_insert_lsn()")
        # The backend that told it ends a moment later; its time is not the adapter's doing.
        time.sleep(0.02)
        self.before = Reading(lsn, server_seconds(self.postgres.postmaster), adapter_seconds(self.pid))

    def end(self):
        """Seconds of CPU, bytes of log and of relations since `begin`."""
        adapter, server = adapter_seconds(self.pid), server_seconds(self.postgres.postmaster)
        lsn = self.postgres.sql(self.database, "select pg_current_wal_insert_lsn()")
        table, index = self.postgres.sql(self.database, SIZES).split()
        wal = float(self.postgres.sql(self.database, f"select '{lsn}'::pg_lsn - '{self.before.lsn}'::pg_lsn"))
        images = self._images(lsn)
        return {
            "adapter_cpu": adapter - self.before.adapter,
            "server_cpu": None if server is None else server - self.before.server,
            "wal": wal,
            "wal_without_images": None if images is None else wal - images,
            "table_bytes": int(table),
            "index_bytes": int(index),
        }

    def _images(self, end):
        """Bytes of full-page images; None where pg_walinspect is not to be had (before PostgreSQL 15)."""
        flushed = f"select pg_current_wal_flush_lsn() >= '{end}'::pg_lsn"
        deadline = time.monotonic() + 5
        # An asynchronous commit at the end reaches the disk a moment later.
        while self.postgres.sql("postgres", flushed) != "t" and time.monotonic() < deadline:
            time.sleep(0.1)
        try:
            self.postgres.sql("postgres", "set client_min_messages = error; create extension if not exists pg_walinspect")
            query = f"select coalesce(sum(fpi_size), 0) from pg_get_wal_stats('{self.before.lsn}', '{end}')"
            return float(self.postgres.sql("postgres", query))
        except Failed:
            return None
