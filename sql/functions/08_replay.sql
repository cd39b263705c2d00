-- Replay: finished jobs, many at once. The habits are those of 08_manage.sql.

-- The end of a stretch of history that begins at from_at, is over at to_at at the latest, and holds about `most` rows at
-- most, of all queues: how replay, retention and stats keep their work bounded without an index on (queue, finished_at).
-- rows: how many it holds. A single acknowledgement's jobs share one time, so a stretch of a millisecond may hold more.
create or replace function rowlock.history_slice(from_at timestamptz, to_at timestamptz, most integer, out until timestamptz, out rows bigint)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set jit = off
as $$
begin
  until := to_at;
  loop
    select count(*) into rows
      from (select from rowlock.finished f where f.finished_at >= from_at and f.finished_at < until limit most + 1) s;
    exit when rows <= most or until - from_at <= interval '1 ms';
    until := from_at + (until - from_at) / 4;
  end loop;
end $$;

-- Runs finished jobs of a window again, as copies; their metadata says replay_of. outcome: done, cancelled, expired, or null
-- for any. rate, start_at and next are those of redrive; the window ends at the time of the first call at the latest, so that
-- a loop never meets its own jobs. duplicates: not copied, because their unique key is taken.
create or replace function rowlock.replay(
  queue           text,
  finished_after  timestamptz,
  finished_before timestamptz default null,
  kind            text default null,
  outcome         text default 'done',
  rate            double precision default null,
  start_at        timestamptz default null,
  max_jobs        integer default 1000,
  inout next      jsonb default null,
  out replayed    bigint,
  out duplicates  bigint
)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set jit = off
as $$
#variable_conflict use_column
declare
  c_queue   constant text := replay.queue;
  c_visit_max constant integer := 100000;
  v_now     timestamptz := rowlock.stamp();
  v_start   timestamptz;
  v_from    timestamptz;
  v_id      bigint;
  v_before  timestamptz;
  v_length  interval;
  v_slice   record;
  v_batch   record;
  v_run_ats timestamptz[];
  v_taken   bigint := 0;
  v_visited bigint := 0;
  v_copied  record;
begin
  perform rowlock.check_name('queue', c_queue);
  if replay.kind is not null then
    perform rowlock.check_name('kind', replay.kind);
  end if;
  if replay.outcome not in ('done', 'cancelled', 'expired') then
    perform rowlock.refuse('outcome', replay.outcome, 'is no outcome: known are done, cancelled, expired');
  elsif finished_after is null then
    perform rowlock.refuse('finished_after', null, 'is missing: say where the window begins');
  elsif finished_after >= finished_before then
    perform rowlock.refuse('finished_before', finished_before::text, format('does not come after finished_after, %s', finished_after));
  end if;
  perform rowlock.check_count('max_jobs', max_jobs, 10000);
  perform rowlock.check_rate(rate);
  perform rowlock.check_time('start_at', replay.start_at);
  v_start := greatest(coalesce(rowlock.next_time(next, 'start_at'), replay.start_at), v_now);
  v_before := least(coalesce(rowlock.next_time(next, 'before'), finished_before, v_now), v_now);
  -- Nothing is kept for longer than ten years.
  v_from := greatest(coalesce(rowlock.next_time(next, 'finished_at'), finished_after), v_now - interval '3652 days');
  v_id := coalesce(rowlock.next_number(next, 'id'), 0);
  v_length := v_before - v_from;
  replayed := 0;
  duplicates := 0;

  while v_from < v_before and v_taken < max_jobs and v_visited < c_visit_max loop
    v_slice := rowlock.history_slice(v_from, least(v_before, v_from + v_length), 5000);
    v_visited := v_visited + v_slice.rows + 100;  -- an empty stretch costs something too
    v_length := (v_slice.until - v_from) * 4;
    select coalesce(array_agg(f.id order by f.finished_at, f.id), '{}') as ids, count(*) as n,
           (array_agg(f.finished_at order by f.finished_at desc, f.id desc))[1] as last_at, (array_agg(f.id order by f.finished_at desc, f.id desc))[1] as last_id
      into v_batch
      from (select f.finished_at, f.id
              from rowlock.finished f
             where f.queue = c_queue and f.finished_at >= v_from and f.finished_at < v_slice.until
               and (f.finished_at > v_from or f.id > v_id)
               and (replay.kind is null or f.kind = replay.kind) and (replay.outcome is null or f.outcome = replay.outcome)
             order by f.finished_at, f.id
             limit max_jobs - v_taken) f;
    if v_batch.n > 0 then
      select array_agg(v_start + case when rate is null then interval '0' else make_interval(secs => (v_taken + n - 1) / rate) end order by n)
        into v_run_ats from generate_series(1, v_batch.n) n;
      perform rowlock.check_time('start_at', v_run_ats[v_batch.n]);
      select count(c.new_id) as copied, count(*) - count(c.new_id) as duplicates into v_copied
        from rowlock.copy_finished(c_queue, v_batch.ids, v_run_ats, v_from, v_slice.until, 'replay_of', v_now) c;
      replayed := replayed + v_copied.copied;
      duplicates := replay.duplicates + v_copied.duplicates;
      v_taken := v_taken + v_batch.n;
    end if;
    if v_taken >= max_jobs then
      v_from := v_batch.last_at;
      v_id := v_batch.last_id;
    else
      v_from := v_slice.until;
      v_id := 0;
    end if;
  end loop;

  if replayed > 0 then
    perform rowlock.ring((rowlock.ensure_queue(c_queue)).no, c_queue, v_start, v_now);
  end if;
  next := case when v_from < v_before then jsonb_build_object('finished_at', v_from, 'id', v_id, 'before', v_before, 'start_at',
    v_start + case when rate is null then interval '0' else make_interval(secs => v_taken / rate) end) end;
end $$;
