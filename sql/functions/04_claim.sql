-- Claim: take up to n jobs and lease them. One path for fresh jobs, retries that are due, and jobs whose lease expired: no
-- reaper, nothing else that has to run.

-- Takes jobs of ONE queue. Internal; claim, claim_batch and sweep are the doors.
--
-- How it looks for jobs. Each of the nine priorities is probed by equality, highest first, from its own cursor: the last
-- (run_at, id) that this caller has seen there. Without a cursor the scan walks over every dead row that vacuum has not
-- removed yet, and when some long transaction holds vacuum back, those are all jobs finished since it began: 8.7k, 3.1k,
-- 2.0k jobs/s in three rounds of 100k, against 67k, 66k, 78k with one. A cursor is only a hint; what lies behind it (rows
-- that committed late, released rows, expired leases) is found by full scans (07_sweep.sql). look_back_ms moves the
-- start back a little, for rows whose transactions commit out of order.
--
-- How it takes them, in two statements. The first visits a bounded number of live rows in order, decides what each of them
-- is, and locks the ones to take with SKIP LOCKED. The second writes the lease by ctid, which is a HOT update: no index
-- mentions what it changes.
--
-- Its plan cannot flip. The statistics of a queue table are always wrong, so the choice is not left to them: no sequential
-- or bitmap scans, no sorts, no hash or merge joins, and one generic plan.
--
-- Returns the jobs in no particular order, then one row with id null that says how the claim went: cursor_at/cursor_id, where it stopped in each
-- priority, when rows were passed over that the jobs returned do not show; parked, how many jobs were put away instead of
-- returned (poison, expired, cancelled), in which case it is worth claiming again; more, whether it stopped for its own bound;
-- clock, the database's time.
create or replace function rowlock.claim_queue(
  from_queue text, want integer, worker bigint, token bigint, lease_ms integer, kinds text[],
  suspects boolean, after_at timestamptz[], after_id bigint[], look_back_ms integer
) returns table (
  queue text, id bigint, kind text, payload jsonb, priority smallint, attempt integer, failures smallint, crashes smallint,
  max_attempts smallint, run_at timestamptz, created_at timestamptz, lease_until timestamptz, tid text, timeout_ms bigint,
  expires_at timestamptz, tags text[], metadata jsonb, trace text,
  cursor_at timestamptz[], cursor_id bigint[], parked integer, more boolean, clock timestamptz
)
  language plpgsql volatile
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
  c_queue     constant text := from_queue;
  c_priority  constant smallint[] := '{4,3,2,1,0,-1,-2,-3,-4}';
  c_visit_max constant integer := greatest(2000, 2 * want);
  v_now       timestamptz := rowlock.clock();
  v_queue     rowlock.queue := rowlock.ensure_queue(c_queue);
  v_lease     timestamptz := v_now + make_interval(secs => coalesce(claim_queue.lease_ms, v_queue.lease_ms) / 1000.0);
  v_token     bigint := claim_queue.token;
  v_kinds     jsonb := nullif(v_queue.kinds, '{}');  -- null is cheaper to look things up in
  v_paused    text[];
  v_at        timestamptz[] := after_at;
  v_id        bigint[] := after_id;
  v_left      integer := want;
  v_visit     integer := greatest(want, 100);
  v_visited   integer := 0;
  v_seen      integer;
  v_moved     boolean := false;
  v_parked    integer := 0;
  v_take      tid[];
  v_poison    tid[];
  v_expired   tid[];
  v_cancelled tid[];
  v_next_at   timestamptz[];
  v_next_id   bigint[];
begin
  if v_queue.paused or want <= 0 then
    return query select c_queue, null::bigint, null::text, null::jsonb, null::smallint, null::integer, null::smallint,
      null::smallint, null::smallint, null::timestamptz, null::timestamptz, null::timestamptz, null::text, null::bigint,
      null::timestamptz, null::text[], null::jsonb, null::text, null::timestamptz[], null::bigint[], 0, false, v_now;
    return;
  end if;
  if v_kinds is not null then
    v_paused := nullif(array(select k.key from jsonb_each(v_kinds) k where k.value -> 'paused' = 'true'), '{}');
  end if;
  if v_at is null then
    v_at := array_fill('-infinity'::timestamptz, array[9]);
    v_id := array_fill(0::bigint, array[9]);
  elsif look_back_ms > 0 then
    select array_agg(least(c.at, v_now - make_interval(secs => look_back_ms / 1000.0))), array_agg(case when c.at < v_now - make_interval(secs => look_back_ms / 1000.0) then c.id else 0 end)
      into v_at, v_id
      from unnest(v_at, v_id) as c (at, id);
  end if;

  loop
    with seen as materialized (
      select s.*
        from unnest(c_priority, v_at, v_id) with ordinality as c (priority, at, id, ord),
             lateral (
               select c.ord, j.run_at, j.id, j.lease_until, j.ctid as tid,
                      case
                        when j.lease_until > v_now then null                                  -- running
                        when j.kind <> all (claim_queue.kinds) or j.kind = any (v_paused) then null  -- not for this caller
                        when j.cancel_at is not null then 'cancelled'
                        when j.expires_at <= v_now then 'expired'
                        when j.lease_until = '-infinity' then 'take'
                        -- The lease expired under this job: its worker may have died of it. Such a job is only taken into a
                        -- free slot, never ahead of one, so that the next death is not blamed on jobs that merely waited.
                        -- One crash proves nothing: the job may have waited in its worker's buffer.
                        when j.crashes + 1 >= coalesce(v_queue.max_crashes, greatest(2, coalesce(j.max_attempts,
                               (v_kinds -> j.kind ->> 'max_attempts')::smallint, v_queue.max_attempts))) then 'poison'
                        when suspects then 'take'
                      end as fate
                 from rowlock.job j
                where j.queue = c_queue and j.priority = c.priority
                  and (j.run_at, j.id) > (c.at, c.id) and j.run_at <= v_now
                order by j.run_at, j.id
                limit v_visit
             ) s
       limit v_visit
    ), picked as materialized (
      select j.ctid as tid, s.fate
        from seen s
        join rowlock.job j on j.ctid = s.tid
       -- Somebody may have changed the row between the look and the lock. Then what it is has to be decided anew, next time.
       where s.fate is not null and j.queue = c_queue and j.id = s.id and j.lease_until = s.lease_until and j.run_at = s.run_at
       limit v_left
         for update of j skip locked
    )
    select array_agg(p.tid) filter (where p.fate = 'take'), array_agg(p.tid) filter (where p.fate = 'poison'),
           array_agg(p.tid) filter (where p.fate = 'expired'), array_agg(p.tid) filter (where p.fate = 'cancelled'),
           -- How many rows were visited matters only if too few were picked; where the scan stopped, only if it passed
           -- over rows that the caller will not see.
           case when count(*) < v_left then (select count(*) from seen) end,
           case when count(*) < v_left and (select count(*) from seen) > count(*) then
             array(select coalesce(l.run_at, v_at[n]) from generate_series(1, 9) n
                     left join lateral (select s.run_at from seen s where s.ord = n order by s.run_at desc, s.id desc limit 1) l on true
                    order by n) end,
           case when count(*) < v_left and (select count(*) from seen) > count(*) then
             array(select coalesce(l.id, v_id[n]) from generate_series(1, 9) n
                     left join lateral (select s.id from seen s where s.ord = n order by s.run_at desc, s.id desc limit 1) l on true
                    order by n) end
      into v_take, v_poison, v_expired, v_cancelled, v_seen, v_next_at, v_next_id
      from picked p;

    if v_take is not null then
      v_left := v_left - cardinality(v_take);
      return query
        update rowlock.job j
           set lease_until = v_lease, claimed_at = v_now, token = v_token, lease_by = worker, attempt = j.attempt + 1,
               crashes = case when j.lease_until = '-infinity' then j.crashes else j.crashes + 1 end,
               errors = case when j.lease_until = '-infinity' then j.errors
                             else rowlock.add_error(j.errors, j.attempt, j.lease_until, j.lease_by, 'the lease expired: the worker died or lost its connection') end
         where j.ctid = any (v_take)
        returning j.queue, j.id, j.kind, j.payload, j.priority, j.attempt, j.failures, j.crashes,
          coalesce(j.max_attempts, (v_kinds -> j.kind ->> 'max_attempts')::smallint, v_queue.max_attempts),
          j.run_at, j.created_at, j.lease_until, j.ctid::text, coalesce(j.timeout_ms, (v_kinds -> j.kind ->> 'timeout_ms')::bigint),
          j.expires_at, j.tags, j.metadata, j.trace, null::timestamptz[], null::bigint[], null::integer, null::boolean, null::timestamptz;
    end if;
    if v_poison is not null then
      v_left := v_left - cardinality(v_poison);
      v_parked := v_parked + rowlock.park_poison(c_queue, v_poison, v_now);
    end if;
    if v_expired is not null then
      v_left := v_left - cardinality(v_expired);
      v_parked := v_parked + rowlock.park_finished(c_queue, v_expired, 'expired', v_now);
    end if;
    if v_cancelled is not null then
      v_left := v_left - cardinality(v_cancelled);
      v_parked := v_parked + rowlock.park_finished(c_queue, v_cancelled, 'cancelled', v_now);
    end if;

    exit when v_left <= 0 or v_seen is null;   -- full
    v_visited := v_visited + v_seen;
    if v_next_at is not null then
      v_moved := true;
      v_at := v_next_at;
      v_id := v_next_id;
    end if;
    exit when v_seen < v_visit;                -- nothing left to look at
    exit when not v_moved or v_visited >= c_visit_max;
    v_visit := least(2 * v_visit, 1000);
  end loop;

  return query select c_queue, null::bigint, null::text, null::jsonb, null::smallint, null::integer, null::smallint,
    null::smallint, null::smallint, null::timestamptz, null::timestamptz, null::timestamptz, null::text, null::bigint,
    null::timestamptz, null::text[], null::jsonb, null::text,
    case when v_moved then v_at end, case when v_moved then v_id end, v_parked, v_visited >= c_visit_max, v_now;
end $$;

-- Puts jobs that killed their workers too often among the dead. The rows are locked by the caller. (On the settings: 05_ack.sql.)
create or replace function rowlock.park_poison(queue text, tids tid[], now timestamptz) returns integer
  language sql volatile
  set search_path = pg_catalog, pg_temp
  set enable_indexscan = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
  with gone as (
    delete from rowlock.job j where j.ctid = any (tids) and j.queue = park_poison.queue returning j
  ), kept as (
    insert into rowlock.dead (id, created_at, run_at, died_at, worker, attempt, failures, crashes, priority, queue, kind, reason,
                              payload, errors, tags, metadata, options)
    select (j).id, (j).created_at, (j).run_at, now, (j).lease_by, (j).attempt, (j).failures, (j).crashes + 1, (j).priority, (j).queue,
           (j).kind, 'poison', (j).payload,
           rowlock.add_error((j).errors, (j).attempt, (j).lease_until, (j).lease_by,
             format('poison: the lease expired under this job %s times; it is parked, not tried again', (j).crashes + 1)),
           (j).tags, (j).metadata, rowlock.job_options(j)
      from gone
    returning 1
  )
  select count(*)::integer from gone
$$;

-- Ends jobs without running them: past their expiry, or cancelled. The rows are locked by the caller.
create or replace function rowlock.park_finished(queue text, tids tid[], outcome text, now timestamptz) returns integer
  language sql volatile
  set search_path = pg_catalog, pg_temp
  set enable_indexscan = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
  with gone as (
    delete from rowlock.job j where j.ctid = any (tids) and j.queue = park_finished.queue returning j
  ), kept as (
    insert into rowlock.finished (id, created_at, run_at, started_at, finished_at, worker, attempt, failures, crashes, priority, queue,
                                  kind, outcome, payload, errors, tags, metadata, options)
    select (j).id, (j).created_at, (j).run_at, nullif((j).claimed_at, '-infinity'), now, (j).lease_by, (j).attempt, (j).failures, (j).crashes, (j).priority,
           (j).queue, (j).kind, park_finished.outcome, (j).payload, (j).errors, (j).tags, (j).metadata, rowlock.job_options(j)
      from gone
     where (select q.retention from rowlock.ensure_queue(park_finished.queue) q) > interval '0'
    returning 1
  )
  select count(*)::integer from gone
$$;

-- What the library calls: claims over several queues in the given order, at most wants[i] from queues[i] and want in all.
-- after_at and after_id, the cursors, hold nine entries for each queue, or are null. Ends each queue with the row that claim_queue
-- describes; queues that were not reached have none.
--
-- A claim need not survive a crash of Postgres: losing one is a redelivery, which at-least-once allows, and the random token
-- keeps the forgotten holder out. So it commits asynchronously, and then the disk is not on its path. set_config reaches to
-- the end of the caller's transaction (a SET clause on the function would be undone before the commit): claim alone in a
-- transaction of its own, never beside an acknowledgement.
create or replace function rowlock.claim_batch(
  queues       text[],
  wants        integer[],
  want         integer,
  worker       bigint,
  token        bigint,
  lease_ms     integer default null,
  kinds        text[] default null,
  suspects     boolean default true,
  after_at     timestamptz[] default null,
  after_id     bigint[] default null,
  look_back_ms integer default 0
) returns table (
  queue text, id bigint, kind text, payload jsonb, priority smallint, attempt integer, failures smallint, crashes smallint,
  max_attempts smallint, run_at timestamptz, created_at timestamptz, lease_until timestamptz, tid text, timeout_ms bigint,
  expires_at timestamptz, tags text[], metadata jsonb, trace text,
  cursor_at timestamptz[], cursor_id bigint[], parked integer, more boolean, clock timestamptz
)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_left integer := want;
  v_rows integer;
begin
  perform set_config('synchronous_commit', 'off', true);
  if claim_batch.token is null or claim_batch.token = 0 then
    perform rowlock.refuse('token', claim_batch.token::text, 'is no token: make a random number for each claim');
  elsif queues is null or cardinality(queues) is distinct from cardinality(wants) or want is null then
    perform rowlock.refuse('queues', queues::text, 'must come with as many wants, and a want for all');
  end if;
  for n in 1 .. cardinality(queues) loop
    exit when v_left <= 0;
    return query
      select * from rowlock.claim_queue(queues[n], least(wants[n], v_left), worker, claim_batch.token, lease_ms, kinds, suspects,
        after_at[9 * n - 8 : 9 * n], after_id[9 * n - 8 : 9 * n], look_back_ms);
    get diagnostics v_rows = row_count;
    v_left := v_left - (v_rows - 1);  -- the last row is not a job
  end loop;
end $$;

-- The simple form, for people and for workers in other languages:
--   select * from rowlock.claim('{mail,default}', 10)
-- Give complete or fail the queue, id and token of what it returns. Call it in a transaction of its own (autocommit).
create or replace function rowlock.claim(
  queues   text[] default '{default}',
  n        integer default 1,
  lease_ms integer default null,
  kinds    text[] default null,
  worker   bigint default 0
) returns table (
  queue text, id bigint, token bigint, kind text, payload jsonb, priority smallint, attempt integer, failures smallint, crashes smallint,
  max_attempts smallint, run_at timestamptz, created_at timestamptz, lease_until timestamptz, tid text, timeout_ms bigint,
  expires_at timestamptz, tags text[], metadata jsonb, trace text
)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_token  bigint;
  v_queue  text;
  v_left   integer := n;
  v_parked integer;
  v_more   boolean;
  v_at     timestamptz[];
  v_id     bigint[];
  v_job    record;
begin
  if n is null or n not between 1 and 10000 then
    perform rowlock.refuse('n', n::text, 'is out of range: claim from 1 to 10000 jobs at a time');
  elsif queues is null or cardinality(queues) = 0 or array_position(queues, null) is not null then
    perform rowlock.refuse('queues', queues::text, 'must name at least one queue');
  elsif claim.lease_ms not between 1000 and 86400000 then
    perform rowlock.refuse('lease_ms', claim.lease_ms::text, 'is out of range: it must be from 1000 to 86400000');
  end if;
  perform set_config('synchronous_commit', 'off', true);
  -- 62 random bits from a source that nobody can predict; never 0, which means "not leased".
  v_token := (('x' || translate(left(gen_random_uuid()::text, 19), '-', ''))::bit(64)::bigint & 4611686018427387903) | 1;
  foreach v_queue in array queues loop
    v_at := null;
    v_id := null;
    -- This caller keeps no cursor, so when claim_queue stops at its bound (behind thousands of running jobs, say), go on from there.
    loop
      v_parked := 0;
      v_more := false;
      for v_job in
        select * from rowlock.claim_queue(v_queue, v_left, worker, v_token, claim.lease_ms, kinds, true, v_at, v_id, 0) c
         order by c.id is null, c.priority desc, c.run_at, c.id
      loop
        if v_job.id is null then
          v_parked := v_job.parked;
          v_more := v_job.more and v_job.cursor_at is not null;
          v_at := coalesce(v_job.cursor_at, v_at);
          v_id := coalesce(v_job.cursor_id, v_id);
          continue;
        end if;
        v_left := v_left - 1;
        queue := v_job.queue; id := v_job.id; token := v_token; kind := v_job.kind; payload := v_job.payload;
        priority := v_job.priority; attempt := v_job.attempt; failures := v_job.failures; crashes := v_job.crashes;
        max_attempts := v_job.max_attempts; run_at := v_job.run_at; created_at := v_job.created_at; lease_until := v_job.lease_until;
        tid := v_job.tid; timeout_ms := v_job.timeout_ms; expires_at := v_job.expires_at; tags := v_job.tags;
        metadata := v_job.metadata; trace := v_job.trace;
        return next;
      end loop;
      exit when v_left <= 0 or v_parked = 0 and not v_more;
    end loop;
    exit when v_left <= 0;
  end loop;
end $$;
