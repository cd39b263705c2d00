-- What people and dashboards read. The views `jobs`, `queues` and `workers` and the function `stats` are part of the contract: columns are
-- added, never renamed, removed or given another meaning. The tables behind them may change.
--
-- Counts stop at 10,000: a dashboard that counts millions of rows times out exactly when it is needed. The plans of the
-- counting functions are pinned as in 04_claim.sql; those of a view cannot be.

-- Live jobs. state: scheduled, ready, running. A job whose lease expired under it is ready, with crashed = true: it waits to
-- be claimed like any other, and its crashes are counted when it is. worker: the last that claimed it.
create or replace view rowlock.jobs as
select j.id, j.queue::text as queue, j.kind::text as kind,
       case when j.lease_until > c.now then 'running' when j.run_at > c.now then 'scheduled' else 'ready' end as state,
       j.lease_until > '-infinity' and j.lease_until <= c.now as crashed,
       j.priority::smallint as priority, j.payload::jsonb as payload, j.attempt, j.failures, j.crashes, j.max_attempts, j.created_at,
       j.run_at::timestamptz as run_at,
       nullif(j.claimed_at, '-infinity') as started_at, nullif(j.lease_until, '-infinity') as lease_until,
       j.expires_at, j.cancel_at, j.timeout_ms, j.unique_key, j.backoff, j.tags, j.metadata, j.trace, j.errors, j.progress,
       nullif(j.lease_by, 0) as worker, w.name as worker_name, w.host as worker_host
  from rowlock.job j
 cross join (select rowlock.clock() as now offset 0) c  -- once, not for each row
  left join rowlock.worker w on w.id = j.lease_by;

-- How full a queue is. Each number counts up to `cap`; capped says that at least one of them stopped there. Ready and running
-- are told apart among the first `cap` jobs that are due, in the order of claiming; oldest_ready_at looks at the first
-- 1000 of each priority.
create or replace function rowlock.depth(
  queue text, cap integer default 10000,
  out ready bigint, out running bigint, out scheduled bigint, out dead bigint, out capped boolean, out oldest_ready_at timestamptz
)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_material = off
  set jit = off
as $$
#variable_conflict use_column
declare
  c_priority constant smallint[] := '{4,3,2,1,0,-1,-2,-3,-4}';
  v_now  timestamptz := rowlock.clock();
  v_due  bigint;
begin
  perform rowlock.check_count('cap', cap, 1000000);
  select count(*) filter (where d.lease_until <= v_now), count(*) filter (where d.lease_until > v_now), count(*)
    into ready, running, v_due
    from (select s.lease_until
            from unnest(c_priority) as p (priority),
                 lateral (select j.lease_until from rowlock.job j
                           where rowlock.line(j.queue, j.priority) = rowlock.line(depth.queue, p.priority) and j.queue = depth.queue and j.priority = p.priority and j.run_at <= v_now
                           order by j.run_at, j.id limit cap + 1) s
           limit cap + 1) d;
  select count(*) into scheduled
    from (select from unnest(c_priority) as p (priority),
                 lateral (select from rowlock.job j
                           where rowlock.line(j.queue, j.priority) = rowlock.line(depth.queue, p.priority) and j.queue = depth.queue and j.priority = p.priority and j.run_at > v_now
                           order by j.run_at, j.id limit cap + 1) s
           limit cap + 1) d;
  select count(*) into dead from (select from rowlock.dead d where d.queue = depth.queue order by d.died_at, d.id limit cap + 1) d;
  select min(s.run_at) filter (where s.lease_until <= v_now) into oldest_ready_at
    from unnest(c_priority) as p (priority),
         lateral (select j.run_at, j.lease_until from rowlock.job j
                   where rowlock.line(j.queue, j.priority) = rowlock.line(depth.queue, p.priority) and j.queue = depth.queue and j.priority = p.priority and j.run_at <= v_now
                   order by j.run_at, j.id limit 1000) s;
  capped := v_due > cap or scheduled > cap or dead > cap;
  ready := least(ready, cap);
  running := least(running, cap);
  scheduled := least(scheduled, cap);
  dead := least(dead, cap);
end $$;

-- Queues, with what waits in them.
create or replace view rowlock.queues as
select q.name, q.paused, d.ready, d.running, d.scheduled, d.dead, d.capped, d.oldest_ready_at,
       rowlock.clock() - d.oldest_ready_at as oldest_wait,
       array(select k.key from jsonb_each(q.kinds) k where k.value -> 'paused' = 'true' order by 1) as paused_kinds,
       q.retention, q.lease_ms, q.max_attempts, q.max_crashes, q.backoff, q.max_payload_bytes, q.kinds, q.created_at
  from rowlock.queue q, lateral rowlock.depth(q.name) d;

-- Workers, also those that stopped or died lately. They report every ten seconds: alive says that the last few reports
-- were not missed. An empty list of kinds means all. running is as of seen_at.
create or replace view rowlock.workers as
select w.id, w.name, w.host, w.pid, w.version, w.state, w.state <> 'stopped' and w.seen_at > c.now - interval '40 seconds' as alive,
       w.running, w.concurrency, w.queues, w.kinds, w.started_at, w.seen_at, w.details
  from rowlock.worker w
 cross join (select rowlock.clock() as now offset 0) c;

-- Numbers per queue, or of one: depths as in `queues`; how many jobs finished in the last minute and hour; how long they waited
-- (from run_at to the start) and ran, over the successful ones of the last hour, in ms. Looks at 20,000 finished
-- jobs at most for the minute and 100,000 for the hour, of all queues together: when there are more, it takes the most
-- recent part, works out the rest, and says estimated. sampled: how many jobs the percentiles rest on.
create or replace function rowlock.stats(queue text default null) returns table (
  name text, paused boolean, ready bigint, running bigint, scheduled bigint, dead bigint, capped boolean, oldest_wait_ms bigint,
  finished_minute bigint, finished_hour bigint, estimated boolean, sampled bigint,
  wait_p50_ms bigint, wait_p95_ms bigint, wait_p99_ms bigint, run_p50_ms bigint, run_p95_ms bigint, run_p99_ms bigint
)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set jit = off
  set work_mem = '16MB'
as $$
#variable_conflict use_column
declare
  v_now    timestamptz := rowlock.clock();
  v_minute interval := rowlock.history_reach(v_now, interval '1 minute', 20000);
  v_hour   interval := rowlock.history_reach(v_now, interval '1 hour', 100000);
begin
  if stats.queue is not null then
    perform rowlock.check_name('queue', stats.queue);
  end if;
  return query
  with recent as materialized (
    select f.queue, f.finished_at, f.outcome, extract(epoch from f.started_at - f.run_at) * 1000 as wait_ms,
           extract(epoch from f.finished_at - f.started_at) * 1000 as run_ms
      from rowlock.finished f
     where f.finished_at > v_now - greatest(v_minute, v_hour) and f.finished_at <= v_now
       and (stats.queue is null or f.queue = stats.queue)
  ), past as materialized (
    select r.queue, count(*) filter (where r.finished_at > v_now - v_minute) as in_minute,
           count(*) filter (where r.finished_at > v_now - v_hour) as in_hour, count(*) filter (where r.outcome = 'done') as sampled,
           percentile_disc('{0.5,0.95,0.99}'::float8[]) within group (order by greatest(r.wait_ms, 0)::bigint) filter (where r.outcome = 'done') as waits,
           percentile_disc('{0.5,0.95,0.99}'::float8[]) within group (order by greatest(r.run_ms, 0)::bigint) filter (where r.outcome = 'done') as runs
      from recent r
     group by r.queue
  )
  select q.name, q.paused, d.ready, d.running, d.scheduled, d.dead, d.capped,
         (extract(epoch from v_now - d.oldest_ready_at) * 1000)::bigint,
         round(coalesce(p.in_minute, 0) * (60 / extract(epoch from v_minute)))::bigint,
         round(coalesce(p.in_hour, 0) * (3600 / extract(epoch from v_hour)))::bigint,
         v_minute < interval '1 minute' or v_hour < interval '1 hour', coalesce(p.sampled, 0),
         p.waits[1], p.waits[2], p.waits[3], p.runs[1], p.runs[2], p.runs[3]
    from rowlock.queue q
   cross join lateral rowlock.depth(q.name) d
    left join past p on p.queue = q.name
   where stats.queue is null or q.name = stats.queue
   order by q.name;
end $$;

-- How far back from now one can look, up to `reach`, and meet about `most` finished jobs at most. At least 100 ms.
create or replace function rowlock.history_reach(now timestamptz, reach interval, most integer) returns interval
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set jit = off
as $$
declare
  v_rows bigint;
begin
  loop
    select count(*) into v_rows
      from (select from rowlock.finished f where f.finished_at > history_reach.now - reach and f.finished_at <= history_reach.now limit most + 1) s;
    exit when v_rows <= most or reach <= interval '100 ms';
    reach := greatest(reach / 2, interval '100 ms');
  end loop;
  return reach;
end $$;
