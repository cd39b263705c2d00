-- What a holder says about its jobs: complete, fail, snooze, release, extend, progress.
--
-- Each takes the jobs of one queue as parallel arrays and is fenced by (queue, id, token): a holder whose lease went to
-- somebody else changes nothing. Each answers for every item: done; lost (the lease is somebody else's, or the job is gone);
-- busy (the row is locked by an open transaction, such as the handler's own: try again).
--
-- Rows are taken in the order of their ids and with SKIP LOCKED, so that two callers cannot deadlock and one locked row does
-- not hold up the others.
--
-- The plans are pinned, because statistics made while the table was small had the rows looked for by walking over the whole
-- queue in an index, and a session keeps such a plan while the queue grows:
--   * What goes by ctid runs with index scans off, so that only the TID scan is left.
--   * What goes by id (hold) asks for a range of one id in order, with sorts off: only the primary key gives that order.

create or replace function rowlock.check_ack(ids bigint[], tokens bigint[], others integer[] default '{}') returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if ids is null or cardinality(ids) is distinct from cardinality(tokens)
     or exists (select from unnest(others) o where o <> cardinality(ids)) then
    perform rowlock.refuse('ids', coalesce(cardinality(ids), 0)::text, 'entries, but the other arrays have another length');
  end if;
end $$;

-- Locks the rows that the caller holds. held: their places in the input; tids: where they are; the others are lost or busy.
create or replace function rowlock.hold(
  queue text, ids bigint[], tokens bigint[],
  out held integer[], out tids tid[], out lost bigint[], out busy bigint[]
)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_indexscan = on
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_material = off
  set jit = off
as $$
#variable_conflict use_column
begin
  if exists (select from rowlock.bundle b where b.token = any (tokens)) then
    perform rowlock.write_leases(queue, ids, tokens);
  end if;
  with locked as materialized (
    select i.n, l.tid
      from (select u.id, u.token, u.n from unnest(ids, tokens) with ordinality as u (id, token, n) where u.token <> 0 order by u.id) i,
           lateral (select j.ctid as tid
                      from rowlock.job j
                     where j.id between i.id and i.id and j.queue = hold.queue and j.token = i.token
                     order by j.id
                       for update skip locked) l
  )
  select coalesce(array_agg(n::integer), '{}'), coalesce(array_agg(tid), '{}') into held, tids from locked;

  lost := '{}';
  busy := '{}';
  if cardinality(held) < cardinality(ids) then
    select coalesce(array_agg(r.id) filter (where not r.there), '{}'), coalesce(array_agg(r.id) filter (where r.there), '{}')
      into lost, busy
      from (select i.id, coalesce((select true from rowlock.job j
                                    where j.id between i.id and i.id and j.queue = hold.queue
                                      -- Its lease could not be written either.
                                      and (j.token = i.token or j.token = 0 and exists (
                                             select from rowlock.bundle b
                                              where b.token = i.token and j.id = any (b.ids) and j.claimed_at < b.claimed_at))
                                      and i.token <> 0
                                    order by j.id), false) as there
              from unnest(ids, tokens) with ordinality as i (id, token, n)
             where i.n <> all (held)) r;
  end if;
end $$;

-- Deletes jobs by ctid and keeps them in the history if the queue has one. With `untouched`, passes over rows that anybody has
-- locked since the claim (which locks a row before it writes the lease, and leaves its own mark as xmax). Returns the ids that it
-- deleted.
--
-- All rows are found by one TID scan: a join with a TID scan inside, one for each row, takes four times as long. The price is that
-- a row is known by its place alone until it is deleted. Should another row be there now (leases were renewed, and one row is where
-- the other was), the delete is undone and the id decides. Callers that give their jobs in the order of the places save the
-- comparison of sets.
create or replace function rowlock.finish_done(
  queue text, ids bigint[], tokens bigint[], tids tid[], results jsonb[], ran_ms integer[], keep boolean, untouched boolean, now timestamptz
) returns bigint[]
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_indexscan = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_hashjoin = on -- the caller's settings reach to here, and something has to be on
  set enable_nestloop = off
  set enable_mergejoin = off
  set jit = off
as $$
#variable_conflict use_column
declare
  v_ids    bigint[];
  v_tokens bigint[];
  v_wrong  boolean;
begin
  if keep then
    with gone as (
      delete from rowlock.job j
       where j.ctid = any (tids) and j.queue = finish_done.queue and j.token <> 0
         and (not untouched or j.xmax = 0 or j.xmax = j.xmin)
      returning j
    ), kept as (
      insert into rowlock.finished (id, created_at, run_at, started_at, finished_at, worker, attempt, failures, crashes, priority,
                                    queue, kind, outcome, payload, result, errors, tags, metadata, options)
      select (j).id, (j).created_at, (j).run_at,
             coalesce(greatest(now - i.ran_ms * interval '1 ms', (j).claimed_at), (j).claimed_at), now,
             (j).lease_by, (j).attempt, (j).failures, (j).crashes, (j).priority, (j).queue, (j).kind, 'done', (j).payload, i.result,
             (j).errors, (j).tags, (j).metadata,
             case when num_nonnulls((j).max_attempts, (j).timeout_ms, (j).expires_at, (j).backoff, (j).unique_key, (j).trace) > 0
                  then rowlock.job_options(j) end
        from gone
        join unnest(ids, tokens, results, finish_done.ran_ms) as i (id, token, result, ran_ms) on i.id = (j).id and i.token = (j).token
      returning 1
    )
    select array_agg((j).id), (select count(*) from kept) <> count(*) into v_ids, v_wrong from gone;
  else
    with gone as (
      delete from rowlock.job j
       where j.ctid = any (tids) and j.queue = finish_done.queue and j.token <> 0
         and (not untouched or j.xmax = 0 or j.xmax = j.xmin)
      returning j.id, j.token
    )
    select array_agg(id), array_agg(token) into v_ids, v_tokens from gone;
    v_wrong := (v_ids <> ids or v_tokens <> tokens)
      and exists (select d.id, d.token from unnest(v_ids, v_tokens) as d (id, token) except select i.id, i.token from unnest(ids, tokens) as i (id, token));
  end if;
  if v_wrong then
    raise exception 'rows have changed places, or are named twice' using errcode = 'RL001';
  end if;
  return coalesce(v_ids, '{}');
exception
  when sqlstate 'RL001' then
    return '{}';
end $$;

-- Finished with success, without a history, and as far as the caller knows nobody has touched the jobs since they were claimed: what the library
-- calls for most. Deletes all of them or none, and says which. They are known by where they are, and come in runs, one for each claim: runs[i]
-- of them, one after the other, have tokens[i], and marks[i] is what that claim said (rowlock.mark). closed: bundles that nothing is left of.
--
-- A place in a file and the transaction that wrote what is there name one version of one row: no transaction writes there twice. So nothing of
-- the row has to be sent, returned and compared, which takes as long as deleting it. Whoever has touched a row since has written another
-- version, or left a sign in xmax; and a table that was written anew (vacuum full) is another file. That is asked last, when the deletes
-- keep everybody from doing so. Of a bundle (04_bundle.sql) the rows are as they were before the claim, which has left its own sign in xmax. A delete that is undone leaves its sign in xmax too: complete_batch then finds the jobs by their ids.
create or replace function rowlock.complete_untouched(
  queue text, tids tid[], runs integer[], tokens bigint[], marks bigint[], closed bigint[] default null
) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_indexscan = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set jit = off
as $$
#variable_conflict use_column
declare
  v_from  integer := 1;
  v_run   tid[];
  v_token bigint;
  v_xid   xid;
  v_rows  integer;
begin
  if closed <> '{}' then
    perform rowlock.close_bundles(closed);
  end if;
  if tids is null or cardinality(runs) is distinct from cardinality(tokens) or cardinality(runs) is distinct from cardinality(marks)
     or cardinality(tids) <> (select coalesce(sum(r), 0) from unnest(runs) r) or 0 >= any (runs) then
    perform rowlock.refuse('runs', runs::text, 'must add up to the number of tids, and come with a token and a mark for each');
  end if;
  if (rowlock.look_up_queue(queue)).retention > interval '0' then
    return false;
  end if;
  for n in 1 .. cardinality(runs) loop
    v_run := tids[v_from : v_from + runs[n] - 1];
    v_token := tokens[n];
    v_xid := (marks[n] & 4294967295)::text::xid;
    v_from := v_from + runs[n];
    if rowlock.is_bundle(v_token) then
      delete from rowlock.job j
       where j.ctid = any (v_run) and j.queue = complete_untouched.queue and j.token = 0 and j.xmax = v_xid;
    else
      delete from rowlock.job j
       where j.ctid = any (v_run) and j.queue = complete_untouched.queue and j.token = v_token and v_token <> 0 and j.xmin = v_xid and (j.xmax = 0 or j.xmax = j.xmin);
    end if;
    get diagnostics v_rows = row_count;
    if v_rows is distinct from runs[n] or rowlock.mark(v_xid) is distinct from marks[n] then
      raise exception 'some were touched' using errcode = 'RL001';
    end if;
  end loop;
  return true;
exception
  when sqlstate 'RL001' then
    return false;
end $$;

-- Finished with success: what the library calls where complete_untouched does not do. tids (the place of each, as claim_batch returned it), results
-- and ran_ms (how long the handler ran) may be null, and so may their elements. runs and marks are what workers of the version before this one say,
-- who go on while the schema is newer; nothing is made of them.
--
-- The fast way: jobs are deleted by their places, if nobody has locked the row since the claim: locking them first would cost a second write-ahead
-- record for each job. What this misses (an extend moved the row, somebody touched it) is looked up by id and locked; only what is missing there
-- too is lost.
create or replace function rowlock.complete_batch(
  queue text, ids bigint[], tokens bigint[], tids tid[] default null, results jsonb[] default null, ran_ms integer[] default null,
  runs integer[] default null, marks bigint[] default null,
  out done bigint[], out lost bigint[], out busy bigint[]
)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_now  timestamptz := rowlock.clock();
  v_keep boolean := (rowlock.look_up_queue(queue)).retention > interval '0';
  v_n    integer[];
  v_rest record;
begin
  perform rowlock.check_ack(ids, tokens, array[cardinality(tids), cardinality(results), cardinality(ran_ms)]);
  lost := '{}';
  busy := '{}';
  done := '{}';
  if tids is not null then
    done := rowlock.finish_done(queue, ids, tokens, tids, results, ran_ms, v_keep, true, v_now);
  end if;
  if cardinality(done) < cardinality(ids) then
    v_n := array(select min(n) from generate_subscripts(ids, 1) n where ids[n] <> all (done) group by ids[n], tokens[n]);
    v_rest := rowlock.hold(queue, array(select ids[n] from unnest(v_n) n), array(select tokens[n] from unnest(v_n) n));
    lost := v_rest.lost;
    busy := v_rest.busy;
    v_n := array(select v_n[h] from unnest(v_rest.held) h);
    done := done || rowlock.finish_done(queue, array(select ids[n] from unnest(v_n) n), array(select tokens[n] from unnest(v_n) n),
      v_rest.tids, array(select results[n] from unnest(v_n) n), array(select ran_ms[n] from unnest(v_n) n), v_keep, false, v_now);
  end if;
end $$;

-- The same for everybody: tids as text, as claim returns them.
create or replace function rowlock.complete(
  queue text, ids bigint[], tokens bigint[], tids text[] default null, results jsonb[] default null, ran_ms integer[] default null,
  out done bigint[], out lost bigint[], out busy bigint[]
)
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
  select c.done, c.lost, c.busy from rowlock.complete_batch(queue, ids, tokens, tids::tid[], results, ran_ms) c
$$;

-- An attempt failed. It is tried again after a delay (retry_ms[i] if given, else by the backoff policy of the job, its kind or
-- its queue), until max_attempts failures; then it goes to the dead with all its errors. fates[i] overrules that: 'refused' sends
-- it to the dead at once, 'cancelled' ends it, as happens to a job that somebody asked to cancel. dead: those of done that are
-- dead now.
create or replace function rowlock.fail(
  queue text, ids bigint[], tokens bigint[], errors text[], retry_ms bigint[] default null, fates text[] default null,
  out done bigint[], out lost bigint[], out busy bigint[], out dead bigint[]
)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_indexscan = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_material = off
  set jit = off
as $$
#variable_conflict use_column
declare
  c_queue constant text := fail.queue;
  c_year  constant bigint := 31536000000;
  v_now   timestamptz := rowlock.stamp();
  v_queue rowlock.queue := rowlock.look_up_queue(c_queue);
  v_held  record;
  v_due   timestamptz;            -- when the first of them is tried again
begin
  perform rowlock.check_ack(ids, tokens, array[coalesce(cardinality(errors), 0), cardinality(retry_ms), cardinality(fates)]);
  if exists (select from unnest(retry_ms) r where r not between 0 and c_year) then
    perform rowlock.refuse('retry_ms', array_to_string(array(select r from unnest(retry_ms) r where r not between 0 and c_year), ','),
      'is out of range: a retry may wait from 0 ms to a year');
  end if;
  if exists (select from unnest(fates) f where f not in ('refused', 'cancelled')) then
    perform rowlock.refuse('fates', array_to_string(fates, ','), 'may only hold refused, cancelled or null');
  end if;
  v_held := rowlock.hold(c_queue, ids, tokens);
  lost := v_held.lost;
  busy := v_held.busy;

  with item as materialized (
    select j.ctid as tid, j, (j.failures + 1)::smallint as failures,
           rowlock.add_error(j.errors, j.attempt, v_now, j.lease_by, coalesce(fail.errors[h.n], 'failed without a word')) as errors,
           case
             when j.cancel_at is not null then 'cancelled'
             when fates[h.n] is not null then fates[h.n]
             when j.failures + 1 >= coalesce(j.max_attempts, (v_queue.kinds -> j.kind ->> 'max_attempts')::smallint, v_queue.max_attempts)
               then 'failed'
             else 'retry'
           end as fate,
           v_now + interval '1 ms' * coalesce(retry_ms[h.n], rowlock.backoff_ms(
             coalesce(j.backoff, v_queue.kinds -> j.kind -> 'backoff', v_queue.backoff), j.failures + 1, random())) as retry_at
      from unnest(v_held.held, v_held.tids) as h (n, tid)
      join rowlock.job j on j.ctid = h.tid
     where j.queue = c_queue
  ), retried as (
    update rowlock.job j
       set run_at = i.retry_at, failures = i.failures, errors = i.errors, lease_until = '-infinity', token = 0, progress = null
      from item i
     where j.ctid = i.tid and j.queue = c_queue and i.fate = 'retry'
    returning j.id
  ), gone as (
    delete from rowlock.job j using item i where j.ctid = i.tid and j.queue = c_queue and i.fate <> 'retry'
    returning j, i.failures, i.errors, i.fate
  ), buried as (
    insert into rowlock.dead (id, created_at, run_at, died_at, worker, attempt, failures, crashes, priority, queue, kind, reason,
                              payload, errors, tags, metadata, options)
    select (j).id, (j).created_at, (j).run_at, v_now, (j).lease_by, (j).attempt, failures, (j).crashes, (j).priority, (j).queue,
           (j).kind, fate, (j).payload, errors, (j).tags, (j).metadata, rowlock.job_options(j)
      from gone where fate <> 'cancelled'
  ), cancelled as (
    insert into rowlock.finished (id, created_at, run_at, started_at, finished_at, worker, attempt, failures, crashes, priority,
                                  queue, kind, outcome, payload, errors, tags, metadata, options)
    select (j).id, (j).created_at, (j).run_at, (j).claimed_at, v_now, (j).lease_by, (j).attempt, failures, (j).crashes,
           (j).priority, (j).queue, (j).kind, 'cancelled', (j).payload, errors, (j).tags, (j).metadata, rowlock.job_options(j)
      from gone where fate = 'cancelled' and v_queue.retention > interval '0'
  )
  select coalesce((select array_agg(id) from retried), '{}') || coalesce((select array_agg((j).id) from gone), '{}'),
         coalesce((select array_agg((j).id) from gone where fate <> 'cancelled'), '{}'),
         (select min(i.retry_at) from item i where i.fate = 'retry')
    into done, dead, v_due;
  if v_due is not null then
    perform rowlock.ring(v_queue.no, c_queue, v_due, v_now);
  end if;
end $$;

-- Not now: run again after a delay. Costs no failure.
create or replace function rowlock.snooze(
  queue text, ids bigint[], tokens bigint[], delay_ms bigint[],
  out done bigint[], out lost bigint[], out busy bigint[]
)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_indexscan = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set jit = off
as $$
#variable_conflict use_column
declare
  c_year constant bigint := 31536000000;
  v_now  timestamptz := rowlock.stamp();
  v_held record;
  v_due  timestamptz;             -- when the first of them runs again
begin
  perform rowlock.check_ack(ids, tokens, array[coalesce(cardinality(delay_ms), 0)]);
  if exists (select from unnest(delay_ms) d where d is null or d not between 0 and c_year) then
    perform rowlock.refuse('delay_ms', array_to_string(delay_ms, ','), 'is out of range: a job may snooze from 0 ms to a year');
  end if;
  v_held := rowlock.hold(snooze.queue, ids, tokens);
  lost := v_held.lost;
  busy := v_held.busy;
  with snoozed as (
    update rowlock.job j
       -- A job that somebody asked to cancel need not wait for its end: the next claim sees to it.
       set run_at = case when j.cancel_at is null then v_now + interval '1 ms' * delay_ms[h.n] else v_now end, lease_until = '-infinity', token = 0
      from unnest(v_held.held, v_held.tids) as h (n, tid)
     where j.ctid = h.tid and j.queue = snooze.queue
    returning j.id, j.run_at
  )
  select coalesce(array_agg(id), '{}'), min(run_at) into done, v_due from snoozed;
  if v_due is not null then
    perform rowlock.ring((rowlock.look_up_queue(queue)).no, queue, v_due, v_now);
  end if;
end $$;

-- Gives jobs back as if they had not been claimed (only `attempt` keeps the higher number): a worker that stops.
create or replace function rowlock.release(
  queue text, ids bigint[], tokens bigint[],
  out done bigint[], out lost bigint[], out busy bigint[]
)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_indexscan = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set jit = off
as $$
#variable_conflict use_column
declare
  v_held  record;
  v_since timestamptz;            -- when the first of them was due
begin
  perform rowlock.check_ack(ids, tokens);
  v_held := rowlock.hold(release.queue, ids, tokens);
  lost := v_held.lost;
  busy := v_held.busy;
  with released as (
    update rowlock.job j
       set lease_until = '-infinity', token = 0
      from unnest(v_held.tids) as h (tid)
     where j.ctid = h.tid and j.queue = release.queue
    returning j.id, j.run_at
  )
  select coalesce(array_agg(id), '{}'), min(run_at) into done, v_since from released;
  if done <> '{}' then
    -- These rows keep their place in the order, which is behind everybody's cursor.
    perform rowlock.rewind(queue, v_since);
  end if;
end $$;

-- Renews leases from now on. tids: where the rows of done are now, for complete's fast path, in the order of done;
-- cancelled: those of done that somebody asked to cancel.
create or replace function rowlock.extend(
  queue text, ids bigint[], tokens bigint[], lease_ms integer default null,
  out done bigint[], out lost bigint[], out busy bigint[], out tids text[], out cancelled bigint[]
)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_indexscan = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set jit = off
as $$
#variable_conflict use_column
declare
  v_until timestamptz := rowlock.clock()
    + make_interval(secs => coalesce(lease_ms, (rowlock.look_up_queue(queue)).lease_ms) / 1000.0);
  v_held  record;
begin
  perform rowlock.check_ack(ids, tokens);
  if lease_ms not between 1000 and 86400000 then
    perform rowlock.refuse('lease_ms', lease_ms::text, 'is out of range: it must be from 1000 to 86400000');
  end if;
  v_held := rowlock.hold(extend.queue, ids, tokens);
  lost := v_held.lost;
  busy := v_held.busy;
  with extended as (
    update rowlock.job j
       set lease_until = v_until
      from unnest(v_held.tids) as h (tid)
     where j.ctid = h.tid and j.queue = extend.queue
    returning j.id, j.ctid as tid, j.cancel_at
  )
  select coalesce(array_agg(id), '{}'), coalesce(array_agg(tid::text), '{}'), coalesce(array_agg(id) filter (where cancel_at is not null), '{}')
    into done, tids, cancelled from extended;
end $$;

-- Says how far a running job is: any JSON, such as {"done": 40, "of": 100}. Answers 'done', 'lost' or 'busy'.
create or replace function rowlock.progress(queue text, id bigint, token bigint, progress jsonb) returns text
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set enable_indexscan = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_held record;
begin
  if octet_length(progress.progress::text) > 65536 then
    perform rowlock.refuse('progress', format('%s bytes', octet_length(progress.progress::text)), 'is too large: at most 65536 bytes are allowed');
  end if;
  v_held := rowlock.hold(progress.queue, array[progress.id], array[progress.token]);
  if v_held.tids = '{}' then
    return case when v_held.busy = '{}' then 'lost' else 'busy' end;
  end if;
  update rowlock.job j set progress = progress.progress where j.ctid = any (v_held.tids) and j.queue = progress.queue;
  return 'done';
end $$;
