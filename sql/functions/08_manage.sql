-- What people do to jobs: cancel, retry, purge, find one; and with many at once, redrive and discard (08_redrive.sql) and
-- replay (08_replay.sql).
--
-- Habits of these functions:
--   * They answer for every job instead of failing for one: a row that is locked by an open transaction is 'busy' (try
--     again), a unique key that is taken is 'duplicate'.
--   * Each call does a bounded amount of work. Those that go by a filter return `next`: null when there is nothing left,
--     else what to pass as `next` to the following call. Run each call in a transaction of its own, until next is null.
--   * They find out the queue first and then work queue by queue, so that the statements that write name one queue.
--   * Live jobs are looked up by their primary key whatever the statistics say, in the way that 05_ack.sql explains, and then
--     changed by their ctid.

create or replace function rowlock.check_ids(ids bigint[]) returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if ids is null then
    perform rowlock.refuse('ids', null, 'must be a list of job ids');
  elsif cardinality(ids) > 10000 then
    perform rowlock.refuse('ids', cardinality(ids)::text, 'entries are too many for one call: at most 10000');
  elsif exists (select from unnest(ids) i where i is null) then
    perform rowlock.refuse('ids', null, 'stands in the list, where only job ids may');
  end if;
end $$;

create or replace function rowlock.check_count(what text, value bigint, most bigint) returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if value is null or value not between 1 and most then
    perform rowlock.refuse(what, value::text, format('is out of range: it must be from 1 to %s', most));
  end if;
end $$;

create or replace function rowlock.check_rate(rate double precision) returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  -- NaN is above every number here, so it is refused too.
  if rate not between 0.001 and 1000000 then
    perform rowlock.refuse('rate', rate::text, 'is out of range: it must be from 0.001 to 1000000 jobs per second, or null for all at once');
  end if;
end $$;

-- One part of a `next`, which comes back from outside and may be anything by then.
create or replace function rowlock.next_time(next jsonb, part text) returns timestamptz
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_time timestamptz;
begin
  if next is null then
    return null;
  end if;
  begin
    v_time := (next ->> part)::timestamptz;
  exception when data_exception then
    v_time := null;
  end;
  if v_time is null or not isfinite(v_time) then
    perform rowlock.refuse('next', next ->> part, format('is not the %s that an earlier call returned', part));
  end if;
  return v_time;
end $$;

create or replace function rowlock.next_number(next jsonb, part text) returns bigint
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if next is not null and (jsonb_typeof(next -> part) is distinct from 'number'
       or (next -> part)::numeric <> trunc((next -> part)::numeric)
       or (next -> part)::numeric not between -9223372036854775808 and 9223372036854775807) then
    perform rowlock.refuse('next', next ->> part, format('is not the %s that an earlier call returned', part));
  end if;
  return (next -> part)::numeric::bigint;
end $$;

-- Cancels jobs. A waiting one ends at once, in the history, as cancelled. A running one is marked and its worker is told,
-- which tells the handler; it ends as cancelled when the handler gives up, and as done when it finishes all the same.
-- answer: cancelled; asked (it runs: see above); busy; not_live (finished, dead or unknown). One row per id, in any order.
create or replace function rowlock.cancel(ids bigint[]) returns table (id bigint, answer text)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set jit = off
as $$
#variable_conflict use_column
declare
  v_now      timestamptz := rowlock.clock();
  v_each     record;
  v_mine     bigint[];
  v_locked   record;
  v_busy     bigint[];
  v_answered bigint[] := '{}';
begin
  perform rowlock.check_ids(ids);
  for v_each in
    select j.queue, array_agg(i.id order by i.id) as ids
      from (select distinct u from unnest(cancel.ids) u) as i (id),
           lateral (select j.queue from rowlock.job j where j.id between i.id and i.id order by j.id offset 0) j
     group by j.queue order by j.queue
  loop
    v_mine := rowlock.write_leases(v_each.queue, v_each.ids);
    with locked as materialized (
      select l.*
        from unnest(v_mine) as i (id),  -- in their order
             lateral (select j.id, j.ctid as tid, j.lease_until > v_now as running
                        from rowlock.job j
                       where j.id between i.id and i.id and j.queue = v_each.queue
                       order by j.id
                         for update skip locked) l
    )
    select coalesce(array_agg(l.id), '{}') as ids,
           array_agg(l.id) filter (where not running) as waiting, array_agg(l.tid) filter (where not running) as waiting_tids,
           array_agg(l.id) filter (where running) as running, array_agg(l.tid) filter (where running) as running_tids
      into v_locked
      from locked l;

    if v_locked.waiting is not null then
      perform rowlock.park_finished(v_each.queue, v_locked.waiting_tids, 'cancelled', v_now);
      return query select w, 'cancelled' from unnest(v_locked.waiting) w;
    end if;
    if v_locked.running is not null then
      update rowlock.job j set cancel_at = coalesce(j.cancel_at, v_now)
       where j.ctid = any (v_locked.running_tids) and j.queue = v_each.queue;
      perform pg_notify('@schema', 'cancel ' || v_each.queue || ' ' || r) from unnest(v_locked.running) r;
      return query select r, 'asked' from unnest(v_locked.running) r;
    end if;
    v_busy := array(select j.id
                      from (select unnest(v_each.ids) except select unnest(v_locked.ids)) as i (id),
                           lateral (select j.id from rowlock.job j where j.id between i.id and i.id and j.queue = v_each.queue order by j.id offset 0) j);
    return query select b, 'busy' from unnest(v_busy) b;
    v_answered := v_answered || v_locked.ids || v_busy;
  end loop;
  return query select r, 'not_live' from (select unnest(cancel.ids) except select unnest(v_answered)) as l (r);
end $$;

-- Puts dead jobs back among the live under their own ids, with their options, and with no failure or crash counted; attempt
-- and errors stay, as they are the job's past. One whose unique key is taken stays dead. An expiry that comes before the
-- new time to run is dropped: whoever asks for the job wants it to run. The rows are locked by the caller. Returns the ids
-- that are live now.
create or replace function rowlock.revive_dead(queue text, ids bigint[], run_ats timestamptz[]) returns bigint[]
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set jit = off
as $$
#variable_conflict use_column
declare
  v_revived bigint[];
begin
  with source as materialized (
    select d.*, coalesce(d.options, '{}') as o, i.at
      from unnest(ids, revive_dead.run_ats) as i (id, at) join rowlock.dead d on d.id = i.id
     where d.queue = revive_dead.queue
  ), added as (
    -- In the order of the keys, as in enqueue_with_options: two callers wait for each other instead of deadlocking.
    insert into rowlock.job (id, created_at, run_at, attempt, priority, queue, kind, payload, max_attempts, timeout_ms, expires_at,
                             unique_key, backoff, tags, metadata, trace, errors)
    select s.id, s.created_at, s.at, s.attempt, s.priority, s.queue, s.kind, s.payload,
           (o ->> 'max_attempts')::smallint, (o ->> 'timeout_ms')::bigint,
           case when (o ->> 'expires_at')::timestamptz > s.at then (o ->> 'expires_at')::timestamptz end,
           o ->> 'unique_key', o -> 'backoff', s.tags, s.metadata, o ->> 'trace', s.errors
      from source s
     order by o ->> 'unique_key' nulls first, s.died_at, s.id
    on conflict (queue, unique_key) where unique_key is not null do nothing
    returning job.id
  ), gone as (
    delete from rowlock.dead d using added a where d.id = a.id and d.queue = revive_dead.queue
  )
  select array_agg(a.id) into v_revived from added a;
  return coalesce(v_revived, '{}');
end $$;

-- Enqueues finished jobs of one queue again, as copies with new ids: what happened stays as it was. `mark` is the key in the
-- copy's metadata that names the original. The times only say in which partitions to look. A copy whose unique key is
-- taken is not made: its new_id is null.
create or replace function rowlock.copy_finished(
  queue text, ids bigint[], run_ats timestamptz[], from_at timestamptz, to_at timestamptz, mark text, now timestamptz
) returns table (id bigint, new_id bigint)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set jit = off
as $$
#variable_conflict use_column
begin
  return query
  with source as materialized (
    select f.id, f.priority, f.kind, f.payload, f.tags, f.metadata, coalesce(f.options, '{}') as o, i.n, i.at,
           nextval('rowlock.job_id') as new_id
      from unnest(ids, copy_finished.run_ats) with ordinality as i (id, at, n) join rowlock.finished f on f.id = i.id
     where f.queue = copy_finished.queue and f.finished_at between from_at and to_at
  ), added as (
    insert into rowlock.job (id, created_at, run_at, priority, queue, kind, payload, max_attempts, timeout_ms, expires_at,
                             unique_key, backoff, tags, metadata, trace)
    select s.new_id, copy_finished.now, s.at, s.priority, copy_finished.queue, s.kind, s.payload,
           (o ->> 'max_attempts')::smallint, (o ->> 'timeout_ms')::bigint,
           case when (o ->> 'expires_at')::timestamptz > s.at then (o ->> 'expires_at')::timestamptz end,
           o ->> 'unique_key', o -> 'backoff', s.tags, coalesce(s.metadata, '{}') || jsonb_build_object(mark, s.id), o ->> 'trace'
      from source s
     order by o ->> 'unique_key' nulls first, s.n
    on conflict (queue, unique_key) where unique_key is not null do nothing
    returning job.id
  )
  select s.id, a.id from source s left join added a on a.id = s.new_id;
end $$;

-- Runs jobs again, or sooner. answer, and what new_id is then:
--   revived    it was dead and is live again under the same id, with a clean slate of failures and crashes
--   copied     it was finished; a copy was enqueued under new_id, its metadata says retry_of
--   hastened   it waited for a later time and is due now; a wish to cancel it, should one be pending, is withdrawn
--   ready, running   nothing to do
--   duplicate  its unique key is taken by the live job new_id
--   busy       locked by an open transaction: try again
--   not_found
-- One row per id, in any order.
create or replace function rowlock.retry(ids bigint[]) returns table (id bigint, new_id bigint, answer text)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set jit = off
as $$
#variable_conflict use_column
declare
  v_now    timestamptz := rowlock.stamp();
  v_left   bigint[];
  v_mine   bigint[];
  v_each   record;
  v_locked bigint[];
  v_busy   bigint[];
  v_done   bigint[];
  v_tid    tid;
  v_tids   tid[];
  v_since  timestamptz;           -- when the first of them is due
begin
  perform rowlock.check_ids(ids);
  v_left := array(select distinct u from unnest(ids) u);

  -- Live ones first: a job that dies or finishes meanwhile is then found where it went.
  for v_each in
    select j.queue, array_agg(i.id order by i.id) as ids
      from unnest(v_left) as i (id),
           lateral (select j.queue from rowlock.job j where j.id between i.id and i.id order by j.id offset 0) j
     group by j.queue order by j.queue
  loop
    v_locked := '{}';
    v_tids := '{}';
    v_mine := rowlock.write_leases(v_each.queue, v_each.ids);
    for id, v_tid, answer in
      select l.*
        from unnest(v_mine) as i (id),  -- in their order
             lateral (select j.id, j.ctid, case when j.lease_until > v_now then 'running'
                                                when j.run_at > v_now or j.cancel_at is not null then 'hastened' else 'ready' end
                        from rowlock.job j
                       where j.id between i.id and i.id and j.queue = v_each.queue
                       order by j.id
                         for update skip locked) l
    loop
      v_locked := v_locked || id;
      if answer = 'hastened' then
        v_tids := v_tids || v_tid;
      end if;
      new_id := id;
      return next;
    end loop;
    if v_tids <> '{}' then
      with hastened as (
        update rowlock.job j set run_at = least(j.run_at, v_now), cancel_at = null
         where j.ctid = any (v_tids) and j.queue = v_each.queue
        returning j.run_at
      )
      select min(h.run_at) into v_since from hastened h;
      -- The caller's transaction may stay open for long, and everybody's cursor be past this time when it commits.
      perform rowlock.rewind(v_each.queue, v_since);
    end if;
    v_busy := array(select j.id
                      from (select unnest(v_each.ids) except select unnest(v_locked)) as i (id),
                           lateral (select j.id from rowlock.job j where j.id between i.id and i.id and j.queue = v_each.queue order by j.id offset 0) j);
    return query select b, null::bigint, 'busy' from unnest(v_busy) b;
    v_left := array(select unnest(v_left) except select unnest(v_locked) except select unnest(v_busy));
  end loop;

  for v_each in
    select d.queue, array_agg(d.id order by d.id) as ids
      from unnest(v_left) as i (id) join rowlock.dead d on d.id = i.id
     group by d.queue order by d.queue
  loop
    v_locked := array(select d.id from unnest(v_each.ids) as i (id) join rowlock.dead d on d.id = i.id
                       where d.queue = v_each.queue
                       order by i.id
                         for update of d skip locked);
    v_done := rowlock.revive_dead(v_each.queue, v_locked, array_fill(v_now, array[cardinality(v_locked)]));
    if v_done <> '{}' then
      perform rowlock.rewind(v_each.queue, v_now);
    end if;
    return query select r, r, 'revived' from unnest(v_done) r;
    return query
      select d.id, (select j.id from rowlock.job j
                     where j.queue = v_each.queue and j.unique_key is not null and j.unique_key = d.options ->> 'unique_key'), 'duplicate'
        from (select unnest(v_locked) except select unnest(v_done)) as i (id) join rowlock.dead d on d.id = i.id
       where d.queue = v_each.queue;
    select coalesce(array_agg(d.id), '{}') into v_busy
      from (select unnest(v_each.ids) except select unnest(v_locked)) as i (id) join rowlock.dead d on d.id = i.id
     where d.queue = v_each.queue;
    return query select b, null::bigint, 'busy' from unnest(v_busy) b;
    v_left := array(select unnest(v_left) except select unnest(v_locked) except select unnest(v_busy));
  end loop;

  for v_each in
    select f.queue, array_agg(f.id order by f.id) as ids
      from unnest(v_left) as i (id) join rowlock.finished f on f.id = i.id
     group by f.queue order by f.queue
  loop
    return query
      select c.id, coalesce(c.new_id, (select j.id from rowlock.job j
                                        where j.queue = v_each.queue and j.unique_key is not null
                                          and j.unique_key = (select f.options ->> 'unique_key' from rowlock.finished f
                                                               where f.id = c.id and f.queue = v_each.queue))),
             case when c.new_id is null then 'duplicate' else 'copied' end
        from rowlock.copy_finished(v_each.queue, v_each.ids, array_fill(v_now, array[cardinality(v_each.ids)]),
               '-infinity', 'infinity', 'retry_of', v_now) c;
    perform rowlock.rewind(v_each.queue, v_now);
    v_left := array(select unnest(v_left) except select unnest(v_each.ids));
  end loop;

  return query select l, null::bigint, 'not_found' from unnest(v_left) l;
end $$;

-- Deletes waiting jobs of a queue, without a trace: all, or those of a kind, or only the ready or only the scheduled ones.
-- Running jobs are left alone. It looks at 100,000 rows at most, one priority after the other.
create or replace function rowlock.purge(
  queue      text,
  kind       text default null,
  state      text default null,
  max_jobs   integer default 1000,
  inout next jsonb default null,
  out purged bigint
)
  language plpgsql volatile security definer
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
  c_queue     constant text := purge.queue;
  c_visit_max constant integer := 100000;
  v_now       timestamptz := rowlock.clock();
  v_after     timestamptz := case when state = 'scheduled' then v_now else '-infinity' end;
  v_before    timestamptz := case when state = 'ready' then v_now else 'infinity' end;
  v_priority  smallint;
  v_at        timestamptz;
  v_id        bigint;
  v_chunk     record;
  v_tids      tid[];
  v_most      integer;
  v_visit     integer;
  v_visited   integer := 0;
begin
  perform rowlock.check_name('queue', c_queue);
  if purge.kind is not null then
    perform rowlock.check_name('kind', purge.kind);
  end if;
  perform rowlock.check_count('max_jobs', max_jobs, 10000);
  if state not in ('ready', 'scheduled') then
    perform rowlock.refuse('state', state, 'is no state of a waiting job: known are ready and scheduled');
  end if;
  if rowlock.next_number(next, 'priority') not between -4 and 4 then
    perform rowlock.refuse('next', next ->> 'priority', 'is not the priority that an earlier call returned');
  end if;
  v_priority := coalesce(rowlock.next_number(next, 'priority'), 4);
  v_at := coalesce(rowlock.next_time(next, 'run_at'), '-infinity');
  v_id := coalesce(rowlock.next_number(next, 'id'), 0);
  purged := 0;

  while v_priority >= -4 loop
    loop
      v_visit := least(1000, c_visit_max - v_visited);
      v_most := max_jobs - purged;
      with seen as materialized (
        select j.run_at, j.id, j.ctid as tid, j.lease_until <= v_now and (purge.kind is null or j.kind = purge.kind) as fits
          from rowlock.job j
         where rowlock.line(j.queue, j.priority) = rowlock.line(c_queue, v_priority) and j.queue = c_queue and j.priority = v_priority and (j.run_at, j.id) > (v_at, v_id)
           and j.run_at > v_after and j.run_at <= v_before
         order by j.run_at, j.id
         limit v_visit
      ), locked as materialized (
        select j.ctid as tid, s.run_at, s.id
          from seen s join rowlock.job j on j.ctid = s.tid
         where s.fits and j.queue = c_queue and j.id = s.id and j.lease_until <= v_now
         limit v_most
           for update of j skip locked
      )
      select (select count(*) from seen) as seen, array_agg(l.tid) as tids,
             (select s.run_at from seen s order by s.run_at desc, s.id desc limit 1) as seen_at,
             (select s.id from seen s order by s.run_at desc, s.id desc limit 1) as seen_id,
             max(l.run_at) as locked_at, (array_agg(l.id order by l.run_at desc, l.id desc))[1] as locked_id
        into v_chunk
        from locked l;
      -- Now that they are locked: those in a bundle are running.
      v_tids := v_chunk.tids;
      if v_priority = 0 then
        v_tids := rowlock.not_bundled(c_queue, v_at, v_id, v_tids);
      end if;
      delete from rowlock.job j where j.ctid = any (v_tids) and j.queue = c_queue;
      purged := purged + coalesce(cardinality(v_tids), 0);
      v_visited := v_visited + v_chunk.seen;
      if purged >= max_jobs then
        next := jsonb_build_object('priority', v_priority, 'run_at', v_chunk.locked_at, 'id', v_chunk.locked_id);
        return;
      end if;
      if cardinality(v_chunk.tids) = v_most then
        -- There may be others between the last of them and the last seen.
        v_at := v_chunk.locked_at;
        v_id := v_chunk.locked_id;
      else
        exit when v_chunk.seen < v_visit;
        v_at := v_chunk.seen_at;
        v_id := v_chunk.seen_id;
      end if;
      if v_visited >= c_visit_max then
        next := jsonb_build_object('priority', v_priority, 'run_at', v_at, 'id', v_id);
        return;
      end if;
    end loop;
    v_priority := v_priority - 1;
    v_at := '-infinity';
    v_id := 0;
  end loop;
  next := null;
end $$;

-- A job, wherever it is now: one row, or none. One statement, so that a job on its way from one table to the other is seen
-- in exactly one of them. The columns are part of the contract:
--   place     live, finished, dead
--   state     live: scheduled, ready, running; finished: done, cancelled, expired; dead: dead
--   crashed   ready because the lease expired under it
--   reason    why it is dead: failed, poison, refused
--   max_attempts, timeout_ms   as they apply: the job's, else its kind's, else its queue's
--   started_at, worker, worker_name, worker_host   of the last attempt; the name is forgotten some time after the worker stopped
--   ended_at  when it finished or died
create or replace function rowlock.find_job(job_id bigint) returns table (
  place text, state text, id bigint, queue text, kind text, priority smallint, payload jsonb,
  attempt integer, failures smallint, crashes smallint, max_attempts smallint, crashed boolean,
  created_at timestamptz, run_at timestamptz, started_at timestamptz, ended_at timestamptz, lease_until timestamptz,
  expires_at timestamptz, cancel_at timestamptz, timeout_ms bigint, reason text, unique_key text, backoff jsonb, tags text[],
  metadata jsonb, trace text, errors jsonb, result jsonb, progress jsonb, worker bigint, worker_name text, worker_host text
)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := rowlock.clock();
begin
  return query
  select f.place, f.state, f.id, f.queue, f.kind, f.priority, f.payload, f.attempt, f.failures, f.crashes,
         coalesce((f.o ->> 'max_attempts')::smallint, (q.kinds -> f.kind ->> 'max_attempts')::smallint, q.max_attempts),
         f.crashed, f.created_at, f.run_at, f.started_at, f.ended_at, f.lease_until, (f.o ->> 'expires_at')::timestamptz, f.cancel_at,
         coalesce((f.o ->> 'timeout_ms')::bigint, (q.kinds -> f.kind ->> 'timeout_ms')::bigint),
         f.reason, f.o ->> 'unique_key', f.o -> 'backoff', f.tags, f.metadata, f.o ->> 'trace', f.errors, f.result, f.progress,
         nullif(f.worker, 0), w.name, w.host
    from (
      select 'live' as place,
             case when j.lease_until > v_now then 'running' when j.run_at > v_now then 'scheduled' else 'ready' end as state,
             j.id, j.queue, j.kind, j.priority, j.payload, j.attempt, j.failures, j.crashes, rowlock.job_options(j) as o,
             j.lease_until <> '-infinity' and j.lease_until <= v_now as crashed,
             j.created_at, j.run_at, nullif(j.claimed_at, '-infinity') as started_at, null::timestamptz as ended_at,
             nullif(j.lease_until, '-infinity') as lease_until, j.cancel_at, null as reason, j.tags, j.metadata, j.errors,
             null::jsonb as result, j.progress, j.lease_by as worker
        from rowlock.job j where j.id = find_job.job_id
      union all
      select 'finished', h.outcome, h.id, h.queue, h.kind, h.priority, h.payload, h.attempt, h.failures, h.crashes, h.options,
             false, h.created_at, h.run_at, h.started_at, h.finished_at, null, null, null, h.tags, h.metadata, h.errors,
             h.result, null, h.worker
        from rowlock.finished h where h.id = find_job.job_id
      union all
      select 'dead', 'dead', d.id, d.queue, d.kind, d.priority, d.payload, d.attempt, d.failures, d.crashes, d.options,
             false, d.created_at, d.run_at, null, d.died_at, null, null, d.reason, d.tags, d.metadata, d.errors,
             null, null, d.worker
        from rowlock.dead d where d.id = find_job.job_id
    ) f
    left join rowlock.queue q on q.name = f.queue
    left join rowlock.worker w on w.id = f.worker;
end $$;
