-- Archive: jobs that have ended, read out as lines of JSON in batches. The client writes each batch where it will, and when
-- that is safe has exactly those rows deleted. A crash between the two leaves a job in the archive and here: then it is
-- archived twice, but never lost. (To archive into a table of this database, see start_archive in 11_history.sql.)

-- The next batch of the finished or the dead (place), of one queue or of all, that ended before a time; the oldest first, the dead
-- queue by queue. At most max_jobs, and not much more than max_bytes. line is a JSON object in the words of find_job. Ends
-- with a row whose id is null: its next is null when there is nothing more, else what to pass as from_next.
create or replace function rowlock.archive_batch(
  place text, ended_before timestamptz, of_queue text default null, max_jobs integer default 1000, max_bytes integer default 4194304,
  from_next jsonb default null
) returns table (id bigint, ended_at timestamptz, line text, next jsonb)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set jit = off
  set timezone = 'UTC'
as $$
#variable_conflict use_column
declare
  c_visit_max constant integer := 100000;
  v_now     timestamptz := rowlock.clock();
  v_batch   record;
  v_job     record;
  v_slice   record;
  v_from    timestamptz;
  v_id      bigint;
  v_before  timestamptz := least(ended_before, v_now);
  v_length  interval;
  v_jobs    integer := 0;
  v_bytes   bigint := 0;
  v_visited bigint := 0;
  v_full    boolean := false;
begin
  if place is null or place not in ('finished', 'dead') then
    perform rowlock.refuse('place', place, 'is no place of jobs that have ended: known are finished and dead');
  elsif ended_before is null then
    perform rowlock.refuse('ended_before', null, 'is missing: say before which time the jobs ended');
  elsif of_queue is not null then
    perform rowlock.check_name('queue', of_queue);
  end if;
  perform rowlock.check_count('max_jobs', max_jobs, 10000);
  perform rowlock.check_count('max_bytes', max_bytes, 268435456);

  if place = 'dead' then
    v_batch := rowlock.dead_batch(of_queue, null, null, null, null, null, null, null, ended_before, null, max_jobs, from_next);
    for v_job in
      select d.*, coalesce(d.options, '{}') as o
        from unnest(v_batch.found_queues, v_batch.found_ids) with ordinality as f (queue, id, n) join rowlock.dead d on d.id = f.id and d.queue = f.queue
       order by f.n
    loop
      id := v_job.id;
      ended_at := v_job.died_at;
      line := (select row_to_json(l)::text
                 from (select 'dead' as place, 'dead' as state, v_job.id, v_job.queue, v_job.kind, v_job.priority, v_job.payload, v_job.attempt,
                              v_job.failures, v_job.crashes, v_job.created_at, v_job.run_at, v_job.died_at as ended_at, v_job.reason,
                              v_job.o -> 'max_attempts' as max_attempts, v_job.o -> 'timeout_ms' as timeout_ms, v_job.o -> 'expires_at' as expires_at,
                              v_job.o -> 'backoff' as backoff, v_job.o -> 'unique_key' as unique_key, v_job.o -> 'trace' as trace,
                              v_job.tags, v_job.metadata, v_job.errors, nullif(v_job.worker, 0) as worker) l);
      return next;
      v_bytes := v_bytes + octet_length(line);
      if v_bytes >= max_bytes then
        v_batch.next := jsonb_build_object('queue', v_job.queue, 'died_at', v_job.died_at, 'id', v_job.id);
        exit;
      end if;
    end loop;
    return query select null::bigint, null::timestamptz, null::text, v_batch.next;
    return;
  end if;

  -- Nothing is kept for longer than ten years.
  v_from := coalesce(rowlock.next_time(from_next, 'finished_at'), v_now - interval '3652 days');
  v_id := coalesce(rowlock.next_number(from_next, 'id'), 0);
  v_length := v_before - v_from;
  while v_from < v_before and not v_full and v_visited < c_visit_max loop
    v_slice := rowlock.history_slice(v_from, least(v_before, v_from + v_length), 5000);
    v_visited := v_visited + v_slice.rows + 100;  -- an empty stretch costs something too
    v_length := (v_slice.until - v_from) * 4;
    for v_job in
      select f.*, coalesce(f.options, '{}') as o
        from rowlock.finished f
       where f.finished_at >= v_from and f.finished_at < v_slice.until and (f.finished_at > v_from or f.id > v_id)
         and (of_queue is null or f.queue = of_queue)
       order by f.finished_at, f.id
    loop
      id := v_job.id;
      ended_at := v_job.finished_at;
      line := (select row_to_json(l)::text
                 from (select 'finished' as place, v_job.outcome as state, v_job.id, v_job.queue, v_job.kind, v_job.priority, v_job.payload, v_job.attempt,
                              v_job.failures, v_job.crashes, v_job.created_at, v_job.run_at, v_job.started_at, v_job.finished_at as ended_at,
                              v_job.o -> 'max_attempts' as max_attempts, v_job.o -> 'timeout_ms' as timeout_ms, v_job.o -> 'expires_at' as expires_at,
                              v_job.o -> 'backoff' as backoff, v_job.o -> 'unique_key' as unique_key, v_job.o -> 'trace' as trace,
                              v_job.tags, v_job.metadata, v_job.errors, v_job.result, nullif(v_job.worker, 0) as worker) l);
      return next;
      v_jobs := v_jobs + 1;
      v_bytes := v_bytes + octet_length(line);
      v_full := v_jobs >= max_jobs or v_bytes >= max_bytes;
      exit when v_full;
    end loop;
    v_from := case when v_full then ended_at else v_slice.until end;
    v_id := case when v_full then id else 0 end;
  end loop;
  return query select null::bigint, null::timestamptz, null::text,
    case when v_from < v_before then jsonb_build_object('finished_at', v_from, 'id', v_id) end;
end $$;

-- Deletes jobs that archive_batch returned, when they are safe elsewhere. A dead one that has been redriven meanwhile, and even
-- died again, is left alone. Returns how many it deleted.
create or replace function rowlock.archive_done(place text, ids bigint[], ended_ats timestamptz[]) returns bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set jit = off
as $$
declare
  v_rows bigint;
begin
  if place is null or place not in ('finished', 'dead') then
    perform rowlock.refuse('place', place, 'is no place of jobs that have ended: known are finished and dead');
  end if;
  perform rowlock.check_ids(ids);
  if cardinality(ids) is distinct from cardinality(ended_ats) then
    perform rowlock.refuse('ids', cardinality(ids)::text, 'entries, but the other arrays have another length');
  end if;
  if place = 'dead' then
    delete from rowlock.dead d using unnest(ids, ended_ats) as i (id, at) where d.id = i.id and d.died_at = i.at;
  else
    delete from rowlock.finished f using unnest(ids, ended_ats) as i (id, at) where f.id = i.id and f.finished_at = i.at;
  end if;
  get diagnostics v_rows = row_count;
  return v_rows;
end $$;
