-- The tables of the queue. In all files of this directory `rowlock.` stands for the schema: the migrator puts the
-- configured name in its place (and that name, quoted, where the files say '@schema').

-- Ids come from a named sequence rather than an identity column: distributing a table over several servers restarts an
-- identity and would hand out ids twice.
create sequence rowlock.job_id;
create sequence rowlock.queue_no;
create sequence rowlock.worker_id;

-- A live job is one row here until it is finished; nothing else has to agree with it. Its state is derived and never
-- stored: scheduled if run_at > now, running if lease_until > now, else ready (see the view `jobs`).
--
-- The order of the columns matters. A claim rewrites lease_until .. crashes, and Postgres logs only the bytes between
-- the common prefix and the common suffix of the old and the new row. So the columns of the lease stand together, and
-- they are never null: a null that becomes a value changes the null bitmap, and with it the whole prefix.
create table rowlock.job (
  id           bigint      not null default nextval('rowlock.job_id'),
  created_at   timestamptz not null default clock_timestamp(),
  run_at       timestamptz not null default clock_timestamp(),
  -- The lease. '-infinity': never claimed, or given back. A time in the past: the holder let it expire, which is how a
  -- crash of a worker shows.
  lease_until  timestamptz not null default '-infinity',
  claimed_at   timestamptz not null default '-infinity',
  token        bigint      not null default 0,   -- random per claim; fences every acknowledgement
  lease_by     bigint      not null default 0,   -- worker.id, 0 for a nameless caller
  attempt      integer     not null default 0,   -- rises by one with each claim, never falls
  failures     smallint    not null default 0,   -- counted against max_attempts
  crashes      smallint    not null default 0,   -- leases that expired under the job
  priority     smallint    not null default 0,
  queue        text        not null default 'default',
  kind         text        not null,
  payload      jsonb       not null,
  -- What most jobs leave out. null: the queue's setting.
  max_attempts smallint,
  timeout_ms   bigint,
  expires_at   timestamptz,
  cancel_at    timestamptz,                      -- when somebody asked the running job to stop
  unique_key   text,
  backoff      jsonb,
  tags         text[],
  metadata     jsonb,
  trace        text,                             -- W3C traceparent of whoever enqueued
  errors       jsonb,                            -- [{attempt, at, worker, error}], oldest first
  progress     jsonb,
  primary key (id),
  -- Cheap rules only: this table is also loaded by COPY. The functions say the same and more, in friendlier words.
  constraint job_queue_length check (octet_length(queue) between 1 and 200),
  constraint job_kind_length check (octet_length(kind) between 1 and 200),
  constraint job_priority_range check (priority between -4 and 4),
  constraint job_payload_object check (jsonb_typeof(payload) = 'object'),
  constraint job_run_at_finite check (run_at between '2000-01-01 00:00:00+00' and '2999-12-31 00:00:00+00')
) with (
  -- Room on each page for the new version of every row on it, so that a claim is a HOT update: measured after COPY, the
  -- share of HOT claims is 24 % at 90, 50 % at 70, 93 % at 50 and 100 % at 45.
  fillfactor = 45,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 500000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000,
  autovacuum_vacuum_cost_delay = 0
);

-- The claim index. No index on this table may mention lease_until, token, lease_by, attempt, failures, crashes or
-- progress, not even in a predicate: one that does, and no claim is a HOT update any more.
create index job_claim on rowlock.job (queue, priority desc, run_at, id);

create unique index job_unique on rowlock.job (queue, unique_key) where unique_key is not null;

-- History. Partitioned by day of finished_at (UTC); the partitions are made ahead of time by rowlock.maintain().
create table rowlock.finished (
  id           bigint      not null,
  created_at   timestamptz not null,
  run_at       timestamptz not null,
  started_at   timestamptz,                      -- of the last attempt; null if there was none
  finished_at  timestamptz not null,
  worker       bigint      not null,
  attempt      integer     not null,
  failures     smallint    not null,
  crashes      smallint    not null,
  priority     smallint    not null,
  queue        text        not null,
  kind         text        not null,
  outcome      text        not null,             -- done, cancelled, expired
  payload      jsonb       not null,
  result       jsonb,
  errors       jsonb,
  tags         text[],
  metadata     jsonb,
  options      jsonb,                            -- max_attempts, timeout_ms, backoff, unique_key, trace: as enqueued
  constraint finished_outcome check (outcome in ('done', 'cancelled', 'expired'))
) partition by range (finished_at);

-- Rows arrive in about the order of their ids, so the first index grows at its right end and the second is almost free.
create index finished_id on rowlock.finished (id);
create index finished_at on rowlock.finished using brin (finished_at) with (pages_per_range = 32, autosummarize = on);

-- Catches what no day's partition takes, so that a missing partition never fails an acknowledgement.
create table rowlock.finished_default partition of rowlock.finished default;

-- Dead letters: kept until somebody redrives or discards them.
create table rowlock.dead (
  id           bigint      not null primary key,
  created_at   timestamptz not null,
  run_at       timestamptz not null,
  died_at      timestamptz not null,
  worker       bigint      not null,
  attempt      integer     not null,
  failures     smallint    not null,
  crashes      smallint    not null,
  priority     smallint    not null,
  queue        text        not null,
  kind         text        not null,
  reason       text        not null,             -- failed: out of attempts; poison: killed its workers; refused: the handler said so
  payload      jsonb       not null,
  errors       jsonb,
  tags         text[],
  metadata     jsonb,
  options      jsonb,
  constraint dead_reason check (reason in ('failed', 'poison', 'refused'))
);
create index dead_queue on rowlock.dead (queue, died_at, id);

-- Settings per queue, and the list of queues there are: a row appears with the first job, so nobody has to look for
-- queue names in the job table.
create table rowlock.queue (
  name              text        not null primary key,
  no                integer     not null default nextval('rowlock.queue_no'),
  created_at        timestamptz not null default clock_timestamp(),
  paused            boolean     not null default false,
  lease_ms          integer     not null default 30000,
  max_attempts      smallint    not null default 5,
  max_crashes       smallint,                    -- null: as max_attempts, but at least 2
  backoff           jsonb       not null default '{"type": "exponential", "base_ms": 60000, "factor": 2, "max_ms": 86400000, "jitter": 0.1}',
  retention         interval    not null default '7 days',   -- of history; zero: keep none
  max_payload_bytes integer     not null default 1048576,
  kinds             jsonb       not null default '{}',       -- {kind: {paused, max_attempts, backoff, timeout_ms}}
  constraint queue_name_length check (octet_length(name) between 1 and 200),
  constraint queue_lease check (lease_ms between 1000 and 86400000),
  constraint queue_max_attempts check (max_attempts between 1 and 1000),
  constraint queue_max_crashes check (max_crashes between 1 and 1000),
  constraint queue_retention check (retention between interval '0' and interval '3650 days'),
  constraint queue_max_payload check (max_payload_bytes between 1024 and 268435456),
  constraint queue_kinds_object check (jsonb_typeof(kinds) = 'object')
);

-- Who works, where, on what. seen_at is written every few seconds; a row whose seen_at is old belongs to a dead worker.
create table rowlock.worker (
  id          bigint      not null primary key default nextval('rowlock.worker_id'),
  started_at  timestamptz not null,
  seen_at     timestamptz not null,
  running     integer     not null default 0,
  state       text        not null default 'running',
  name        text        not null,
  host        text        not null,
  pid         integer     not null,
  version     text        not null,
  queues      text[]      not null,
  kinds       text[]      not null,
  concurrency integer     not null,
  details     jsonb,
  constraint worker_state check (state in ('running', 'draining', 'stopped'))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- What a job's earlier attempt already did outside this database (see 10_once.sql).
create table rowlock.once (
  queue      text        not null,
  job_id     bigint      not null,
  key        text        not null,
  done_at    timestamptz not null default clock_timestamp(),
  value      jsonb,
  primary key (queue, job_id, key)
);

-- Failures of rows of other people's tables that are worked as a queue: nothing is installed in those tables, so the
-- memory of what failed is here.
create table rowlock.table_failure (
  source     text        not null,
  row_key    text        not null,
  failures   integer     not null,
  crashes    integer     not null default 0,    -- batches that ended with their process or connection; such a row is worked alone
  retry_at   timestamptz not null,              -- 'infinity': parked until somebody clears it; '-infinity': a note that blocks nothing
  failed_at  timestamptz not null,
  error      text        not null,
  primary key (source, row_key)
);
create index table_failure_alone on rowlock.table_failure (source, retry_at) where crashes > 0;

-- The batches of such rows that are being worked. The batch's transaction holds the advisory lock batch_id and deletes the
-- row when it commits; so a row here whose lock is free tells of a crash, and of the keys that it happened to.
create table rowlock.table_batch (
  source     text        not null,
  batch_id   bigint      not null,              -- random
  started_at timestamptz not null,
  keys       text[]      not null,
  primary key (source, batch_id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
alter table rowlock.table_batch alter column keys set storage main;

-- How far the history of a queue has been cleared, where the queue keeps it for a shorter time than others: everything
-- that finished before `upto` is gone. Written by maintenance, about once a minute at most, never by a job.
create table rowlock.retained (
  queue text        not null primary key,
  upto  timestamptz not null
) with (fillfactor = 50);

create index once_done_at on rowlock.once (done_at);

-- Small numbers that must not be rows. A row that is rewritten at every idle moment grows a chain of dead versions as
-- soon as something holds vacuum back, and becomes the bottleneck; a sequence is overwritten in place and belongs to no
-- transaction. Each queue uses the pair with the number queue.no % 32; sharing one costs a little work, never correctness.
--   bell_N:  until when (ms since 1970) somebody wants to be notified of new jobs (see wake.sql)
--   sweep_N: when the next full scan is due (see sweep.sql)
do $$
begin
  for n in 0 .. 31 loop
    execute format('create sequence rowlock.bell_%s minvalue 0 start 0', n);
    execute format('create sequence rowlock.sweep_%s minvalue 0 start 0', n);
  end loop;
end $$;
