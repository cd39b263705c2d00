"""The PostgreSQL that everything runs on: a private one, or one that was given."""

import contextlib
import glob
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

SETTINGS = {
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "fsync": "on",
    "synchronous_commit": "on",
    "max_connections": "300",
    # So that the log of a phase can still be read after it.
    "wal_keep_size": "2GB",
}


class Failed(Exception):
    """What went wrong, in words for the one who started the run."""


def bin_dir():
    """Where initdb is: ROWLOCK_PG_BIN, then PATH, then Debian's directories, highest major first."""
    given = os.environ.get("ROWLOCK_PG_BIN")
    if given:
        return Path(given)
    packaged = sorted(
        glob.glob("/usr/lib/postgresql/*/bin/initdb"),
        key=lambda path: int(re.search(r"/(\d+)/bin", path).group(1)),
    )
    found = shutil.which("initdb") if shutil.which("pg_ctl") else None
    if not found and packaged:
        found = packaged[-1]
    if not found:
        raise Failed("no initdb found; install PostgreSQL or set ROWLOCK_PG_BIN")
    return Path(found).parent


def with_database(url, database):
    """The same server, another database. By hand: urlunsplit forgets the slashes of an empty host."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgres", "postgresql"):
        raise Failed("--database takes a URL, such as postgresql://localhost/postgres")
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}/{database}{query}"


class Postgres:
    """`url` names a server that is there already; without it a private one is started and ends with `stop`."""

    def __init__(self, url=None):
        self.given = url
        self.dir = None
        self.settings = {}
        if url:
            self.sql("postgres", "select 1")
        else:
            self._start()
        self.version = self.sql("postgres", "show server_version")
        for name in SETTINGS:
            self.settings[name] = self.sql("postgres", f"select current_setting('{name}', true)")
        self.postmaster = self._postmaster()

    def url(self, database):
        if self.given:
            return with_database(self.given, database)
        return f"postgresql:///{database}?host={self.dir}&port=5432&user=postgres"

    def sql(self, database, query, timeout=600):
        """The first column of the first row, as text."""
        done = subprocess.run(
            ["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", self.url(database), "-c", query],
            capture_output=True, text=True, timeout=timeout,
        )
        if done.returncode != 0:
            raise Failed(done.stderr.strip())
        return done.stdout.strip().split("\n")[0]

    def fresh(self, database):
        """An empty database; what the last one left is written out before."""
        self.drop(database)
        self.sql("postgres", f'create database "{database}" template template0')

    def drop(self, database):
        self.sql("postgres", f'drop database if exists "{database}" with (force)')

    def pin(self, database):
        """A reader with an open snapshot, which keeps vacuum from removing anything until it is closed."""
        return Reader(["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", self.url(database)])

    def stop(self):
        if not self.dir:
            return
        self._as_server([self.bin / "pg_ctl", "-D", self.dir / "data", "-m", "immediate", "-w", "stop"])
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir = None

    def _start(self):
        self.bin = bin_dir()
        self.dir = Path(tempfile.mkdtemp(prefix="rowlock-peers-"))
        # initdb refuses root.
        self.user = "postgres" if os.geteuid() == 0 else None
        if self.user:
            try:
                owner = pwd.getpwnam(self.user)
            except KeyError as error:
                raise Failed("as root a user `postgres` is needed, who then runs the server") from error
            os.chown(self.dir, owner.pw_uid, owner.pw_gid)
        self._as_server([self.bin / "initdb", "-D", self.dir / "data", "-U", "postgres", "-A", "trust", "--no-sync"])
        with open(self.dir / "data" / "postgresql.conf", "a", encoding="utf-8") as conf:
            conf.write(f"unix_socket_directories = '{self.dir}'\nlisten_addresses = ''\n")
            for name, value in SETTINGS.items():
                conf.write(f"{name} = '{value}'\n")
        log = self.dir / "log"
        self._as_server([self.bin / "pg_ctl", "-D", self.dir / "data", "-l", log, "-w", "-t", "60", "start"])

    def _as_server(self, command):
        done = subprocess.run(
            [str(part) for part in command],
            cwd="/", user=self.user, group=self.user, extra_groups=[] if self.user else None,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=120,
        )
        if done.returncode != 0:
            raise Failed(f"{Path(command[0]).name}: {done.stderr.strip()}")

    def _postmaster(self):
        """The server's process id if it runs on this machine and may be looked at; else None."""
        if self.dir:
            return int((self.dir / "data" / "postmaster.pid").read_text().split("\n")[0])
        try:
            path = self.sql("postgres", "select current_setting('data_directory')")
            return int((Path(path) / "postmaster.pid").read_text().split("\n")[0])
        except (Failed, OSError, ValueError):
            return None


class Reader:
    """A session of psql with an open snapshot. psql ends at the first error (ON_ERROR_STOP), so that nobody waits for an answer for ever."""

    # A server may end transactions that do nothing. Which of these settings it knows depends on its version.
    PATIENT = ("select count(set_config(name, '0', false)) from pg_settings where name in "
               "('idle_in_transaction_session_timeout', 'idle_session_timeout', 'transaction_timeout');")
    # The snapshot is that of the first query, and lasts as long as the transaction.
    BEGIN = "begin isolation level repeatable read; select count(*) from pg_class;"
    # The time at which the transaction began: another one would say another.
    SINCE = "select transaction_timestamp();"

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        began = self.ask(self.PATIENT).isdigit() and self.ask(self.BEGIN).isdigit()
        self.since = self.ask(self.SINCE) if began else ""
        if not self.since:
            self.end()
            raise Failed("the reader that holds the horizon could not begin")

    def ask(self, query):
        """The answer in one line; nothing from a session that is gone."""
        try:
            self.process.stdin.write(query + "\n")
            self.process.stdin.flush()
        except OSError:
            return ""
        return self.process.stdout.readline().strip()

    def holds(self):
        """Whether it still does, in the same transaction."""
        return self.process.poll() is None and self.ask(self.SINCE) == self.since

    def end(self):
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            # What was written to one that is gone cannot be flushed.
            with contextlib.suppress(OSError):
                pipe.close()
