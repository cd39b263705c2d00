-- Search: lists of jobs by filter. There is no index for it (one on payloads or tags would nearly double the cost of an
-- enqueue), so a search walks along the indexes that are there, newest first, and its work is bounded: by the rows that it
-- visits and by time. When it stops for its bound, it says so and where to go on.

-- What a filter asks of a payload or of metadata: {path: value}, where the path is names joined by dots ("user.id"), or one
-- name with dots in it. A text also fits a number or a truth value that is written so.
create or replace function rowlock.check_paths(what text, wanted jsonb) returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if wanted is null then
    return;
  elsif jsonb_typeof(wanted) <> 'object' then
    perform rowlock.refuse(what, jsonb_typeof(wanted), 'must be a JSON object {path: value}');
  elsif wanted ? '' then
    perform rowlock.refuse(what, '', 'is an empty path: name a field, such as user.id');
  elsif (select count(*) from jsonb_object_keys(wanted)) > 20 then
    perform rowlock.refuse(what, (select count(*) from jsonb_object_keys(wanted))::text, 'paths are too many: at most 20');
  end if;
end $$;

-- The walks. Each returns the next `most` rows from where the last one stopped, with what a filter may ask about. The plans are
-- pinned as in 04_claim.sql; and none of the conditions can pass over a row, so that the limit is one on rows visited.

-- By id, newest first, through the tables that are wanted. The times are the beginnings of days: they only choose partitions.
create or replace function rowlock.walk_ids(
  below bigint, live boolean, dead boolean, finished boolean, from_day timestamptz, to_day timestamptz, now timestamptz, most integer
) returns table (
  id bigint, priority smallint, at timestamptz, queue text, kind text, state text, reason text, created_at timestamptz,
  ended_at timestamptz, tags text[], payload jsonb, metadata jsonb, errors jsonb
)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set enable_material = off
  set jit = off
as $$
#variable_conflict use_column
begin
  -- Each table on its own and then the newest of them all: left to itself, the planner reads and sorts everything.
  return query
  select u.*
    from (
      (select j.id, j.priority::smallint, j.run_at::timestamptz as at, j.queue::text, j.kind::text,
              case when j.lease_until > walk_ids.now then 'running' when j.run_at > walk_ids.now then 'scheduled' else 'ready' end as state,
              null::text as reason, j.created_at, null::timestamptz as ended_at, j.tags, j.payload::jsonb, j.metadata, j.errors
         from rowlock.job j
        where walk_ids.live and j.id < below
        order by j.id desc limit most)
      union all
      (select d.id, d.priority, d.died_at, d.queue, d.kind, 'dead'::text, d.reason, d.created_at, d.died_at, d.tags, d.payload, d.metadata, d.errors
         from rowlock.dead d
        where walk_ids.dead and d.id < below
        order by d.id desc limit most)
      union all
      (select f.id, f.priority, f.finished_at, f.queue, f.kind, f.outcome, null::text, f.created_at, f.finished_at, f.tags, f.payload,
              f.metadata, f.errors
         from rowlock.finished f
        where walk_ids.finished and f.id < below and f.finished_at >= from_day and f.finished_at < to_day
        order by f.id desc limit most)
    ) u
   order by u.id desc
   limit most;
end $$;

-- Live jobs of one queue by the time that they are due, latest first, of all priorities together.
create or replace function rowlock.walk_due(of_queue text, before_at timestamptz, before_id bigint, from_at timestamptz, now timestamptz, most integer)
  returns table (
    id bigint, priority smallint, at timestamptz, queue text, kind text, state text, reason text, created_at timestamptz,
    ended_at timestamptz, tags text[], payload jsonb, metadata jsonb, errors jsonb
  )
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_material = off
  set jit = off
as $$
#variable_conflict use_column
begin
  return query
  select s.*
    from unnest('{4,3,2,1,0,-1,-2,-3,-4}'::smallint[]) as p (priority),
         lateral (
           select j.id, j.priority::smallint, j.run_at::timestamptz as at, j.queue::text, j.kind::text,
                  case when j.lease_until > walk_due.now then 'running' when j.run_at > walk_due.now then 'scheduled' else 'ready' end,
                  null::text, j.created_at, null::timestamptz, j.tags, j.payload::jsonb, j.metadata, j.errors
             from rowlock.job j
            where rowlock.line(j.queue, j.priority) = rowlock.line(of_queue, p.priority) and j.queue = of_queue and j.priority = p.priority
              and (j.run_at, j.id) < (before_at, before_id) and j.run_at > from_at
            order by j.run_at desc, j.id desc
            limit most
         ) s
   order by s.at desc, s.id desc
   limit most;
end $$;

-- Jobs of one queue in the order of claiming, which is where the running ones are: at the front, however many wait behind them.
create or replace function rowlock.walk_front(
  of_queue text, from_priority smallint, after_at timestamptz, after_id bigint, now timestamptz, most integer
) returns table (
  id bigint, priority smallint, at timestamptz, queue text, kind text, state text, reason text, created_at timestamptz,
  ended_at timestamptz, tags text[], payload jsonb, metadata jsonb, errors jsonb
)
  language plpgsql stable
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
begin
  return query
  select s.*
    from unnest('{4,3,2,1,0,-1,-2,-3,-4}'::smallint[]) as p (priority),
         lateral (
           select j.id, j.priority::smallint, j.run_at::timestamptz as at, j.queue::text, j.kind::text,
                  case when j.lease_until > walk_front.now then 'running' else 'ready' end,
                  null::text, j.created_at, null::timestamptz, j.tags, j.payload::jsonb, j.metadata, j.errors
             from rowlock.job j
            where rowlock.line(j.queue, j.priority) = rowlock.line(of_queue, p.priority) and j.queue = of_queue and j.priority = p.priority and j.run_at <= walk_front.now
              and (j.run_at, j.id) > (case when p.priority = from_priority then after_at else '-infinity' end,
                                      case when p.priority = from_priority then after_id else 0 end)
            order by j.run_at, j.id
            limit most
         ) s
   where p.priority <= from_priority
   limit most;
end $$;

-- The dead of one queue, latest first.
create or replace function rowlock.walk_dead(of_queue text, before_at timestamptz, before_id bigint, from_at timestamptz, most integer)
  returns table (
    id bigint, priority smallint, at timestamptz, queue text, kind text, state text, reason text, created_at timestamptz,
    ended_at timestamptz, tags text[], payload jsonb, metadata jsonb, errors jsonb
  )
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set jit = off
as $$
#variable_conflict use_column
begin
  return query
  select d.id, d.priority, d.died_at, d.queue, d.kind, 'dead', d.reason, d.created_at, d.died_at, d.tags, d.payload, d.metadata, d.errors
    from rowlock.dead d
   where d.queue = of_queue and (d.died_at, d.id) < (before_at, before_id) and d.died_at >= from_at
   order by d.died_at desc, d.id desc
   limit most;
end $$;

-- A time in a filter; null when it is not there.
create or replace function rowlock.filter_time(filter jsonb, part text) returns timestamptz
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if jsonb_typeof(filter -> part) not in ('string', 'null') then
    perform rowlock.refuse(part, filter ->> part, 'is no time, such as "2030-01-31T12:00:00Z"');
  end if;
  return (filter ->> part)::timestamptz;
exception when datetime_field_overflow or invalid_datetime_format or invalid_text_representation then
  perform rowlock.refuse(part, filter ->> part, 'is no time, such as "2030-01-31T12:00:00Z"');
end $$;

-- A misspelt filter must not find everything.
create or replace function rowlock.check_filter(filter jsonb) returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  c_states constant text := 'scheduled, ready, running, done, cancelled, expired, dead';
  v_key   text;
  v_value jsonb;
  v_state jsonb;
begin
  if filter is null or jsonb_typeof(filter) <> 'object' then
    perform rowlock.refuse('filter', filter::text, 'must be a JSON object');
  end if;
  for v_key, v_value in select key, value from jsonb_each(filter) loop
    continue when v_value = 'null';
    if v_key in ('queue', 'kind', 'tag', 'reason', 'error') and jsonb_typeof(v_value) <> 'string' then
      perform rowlock.refuse(v_key, v_value::text, 'is no text');
    end if;
    case v_key
      when 'states' then
        if jsonb_typeof(v_value) <> 'array' then
          perform rowlock.refuse(v_key, v_value::text, 'must be a list of states: known are ' || c_states);
        end if;
        for v_state in select e from jsonb_array_elements(v_value) e loop
          if jsonb_typeof(v_state) <> 'string' or v_state #>> '{}' <> all (string_to_array(c_states, ', ')) then
            perform rowlock.refuse('state', v_state #>> '{}', 'is no state of a job: known are ' || c_states);
          end if;
        end loop;
      when 'queue', 'kind', 'tag' then
        perform rowlock.check_name(v_key, v_value #>> '{}');
      when 'reason' then
        if v_value #>> '{}' not in ('failed', 'poison', 'refused') then
          perform rowlock.refuse(v_key, v_value #>> '{}', 'is no reason to die: known are failed, poison, refused');
        end if;
      when 'error' then
        if v_value = '""' then
          perform rowlock.refuse(v_key, '', 'is empty: leave it out, or give a text to look for');
        end if;
      when 'payload', 'metadata' then
        perform rowlock.check_paths(v_key, v_value);
      when 'created_after', 'created_before', 'ended_after', 'ended_before' then
        perform rowlock.filter_time(filter, v_key);
      else
        perform rowlock.refuse('filter', v_key, 'is unknown: known are states, queue, kind, tag, reason, error, payload, metadata, '
          'created_after, created_before, ended_after, ended_before');
    end case;
  end loop;
  if rowlock.filter_time(filter, 'created_after') >= rowlock.filter_time(filter, 'created_before') then
    perform rowlock.refuse('created_before', filter ->> 'created_before', format('does not come after created_after, %s', filter ->> 'created_after'));
  elsif rowlock.filter_time(filter, 'ended_after') >= rowlock.filter_time(filter, 'ended_before') then
    perform rowlock.refuse('ended_before', filter ->> 'ended_before', format('does not come after ended_after, %s', filter ->> 'ended_after'));
  end if;
end $$;

-- Jobs that fit a filter, wherever they are. The filter is JSON, and each part of it may be left out:
--   states    a list of scheduled, ready, running, done, cancelled, expired, dead
--   queue, kind, tag
--   reason    why it is dead: failed, poison, refused
--   error     a text in one of its errors, in upper or lower case
--   payload, metadata   {path: value}, as in check_paths
--   created_after, created_before, ended_after, ended_before   from the one on, before the other; ended: finished or died
-- For example:
--   select * from rowlock.find_jobs('{"states": ["dead"], "queue": "mail", "payload": {"user.id": 7}}')
--
-- Order: newest id first. But of one queue, live jobs (if only such are wanted) by the time they are due, latest first, and dead ones
-- (if only they are) by their death. Scheduled jobs of all queues (if only they are wanted) come queue by queue; and so do
-- running ones, in the order of claiming: they are looked for among the first 10,000 due jobs of each queue.
--
-- Returns the columns of find_job, max_jobs rows at most, and then one row with id null that says how it went:
--   next     null when there is nothing more; else what to pass as from_next, with the same filter, to go on
--   visited  how many rows were looked at
--   cut      whether jobs that fit may have been missed: it stopped for its bound (max_visits, max_ms), or a queue is too
--            long to look for all that run
create or replace function rowlock.find_jobs(
  filter jsonb default '{}', max_jobs integer default 50, from_next jsonb default null,
  max_visits integer default 100000, max_ms integer default 500
) returns table (
  place text, state text, id bigint, queue text, kind text, priority smallint, payload jsonb,
  attempt integer, failures smallint, crashes smallint, max_attempts smallint, crashed boolean,
  created_at timestamptz, run_at timestamptz, started_at timestamptz, ended_at timestamptz, lease_until timestamptz,
  expires_at timestamptz, cancel_at timestamptz, timeout_ms bigint, reason text, unique_key text, backoff jsonb, tags text[],
  metadata jsonb, trace text, errors jsonb, result jsonb, progress jsonb, worker bigint, worker_name text, worker_host text,
  next jsonb, visited bigint, cut boolean
)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
#variable_conflict use_column
declare
  c_began    constant timestamptz := clock_timestamp();  -- how long this takes is measured, not decided: never the test clock
  c_front    constant integer := 10000;
  c_begin    constant timestamptz := '1999-12-31 00:00:00+00';  -- before all jobs
  c_end      constant timestamptz := '3000-01-01 00:00:00+00';  -- after all jobs
  v_now      timestamptz := rowlock.clock();
  v_states   text[] := '{scheduled,ready,running,done,cancelled,expired,dead}';
  v_of       text;
  v_kind     text;
  v_tag      text;
  v_reason   text;
  v_error    text;
  v_payload  jsonb;
  v_metadata jsonb;
  v_created_after  timestamptz;
  v_created_before timestamptz;
  v_ended_after    timestamptz;
  v_ended_before   timestamptz;
  v_walk     text;
  v_first_at timestamptz;  -- where a walk through a queue begins
  v_first_id bigint;
  -- Where the walk has come to; which of these count depends on the walk.
  v_queue    text;
  v_priority smallint := 4;
  v_at       timestamptz;
  v_id       bigint;
  v_chunk    record;
  v_ids      bigint[] := '{}';
  v_left     integer := max_jobs;
  v_visit    integer := greatest(max_jobs, 100);
  v_visited  integer := 0;
  v_steps    integer := 0;
  v_more     boolean := true;
  v_cut      boolean := false;
begin
  perform rowlock.check_filter(filter);
  perform rowlock.check_count('max_jobs', max_jobs, 1000);
  perform rowlock.check_count('max_visits', max_visits, 10000000);
  perform rowlock.check_count('max_ms', max_ms, 600000);
  v_of := filter ->> 'queue';
  v_kind := filter ->> 'kind';
  v_tag := filter ->> 'tag';
  v_reason := filter ->> 'reason';
  v_error := lower(filter ->> 'error');
  v_payload := nullif(filter -> 'payload', 'null');
  v_metadata := nullif(filter -> 'metadata', 'null');
  v_created_after := coalesce(rowlock.filter_time(filter, 'created_after'), '-infinity');
  v_created_before := coalesce(rowlock.filter_time(filter, 'created_before'), 'infinity');
  v_ended_after := rowlock.filter_time(filter, 'ended_after');
  v_ended_before := rowlock.filter_time(filter, 'ended_before');
  v_states := array(select s from unnest(v_states) s
                     where (coalesce(filter -> 'states', 'null') = 'null' or filter -> 'states' ? s)
                       and (v_reason is null or s = 'dead')
                       and (num_nonnulls(v_ended_after, v_ended_before) = 0 or s in ('done', 'cancelled', 'expired', 'dead')));
  v_walk := case when v_states = '{running}' then 'front'
                 when v_states = '{scheduled}' or v_of is not null and v_states <@ '{scheduled,ready,running}' then 'due'
                 when v_of is not null and v_states = '{dead}' then 'dead'
                 else 'ids' end;

  v_first_at := case when v_walk = 'front' then c_begin
                     when v_walk = 'due' and 'scheduled' <> all (v_states) then v_now + interval '1 microsecond'
                     when v_walk = 'dead' then least(v_ended_before, c_end)
                     else c_end end;
  v_first_id := case v_walk when 'front' then 0 when 'ids' then 9223372036854775807 else -9223372036854775808 end;
  if from_next is null then
    v_queue := coalesce(v_of, case when v_walk in ('front', 'due') then (select q.name from rowlock.queue q order by q.name limit 1) end);
    v_at := v_first_at;
    v_id := v_first_id;
  else
    if from_next ->> 'walk' is distinct from v_walk or v_of <> from_next ->> 'queue' then
      perform rowlock.refuse('from_next', from_next ->> 'walk', 'belongs to a search with another filter');
    end if;
    v_id := rowlock.next_number(from_next, 'id');
    if v_walk <> 'ids' then
      v_queue := from_next ->> 'queue';
      v_priority := least(greatest(rowlock.next_number(from_next, 'priority'), -4), 4);
      v_at := rowlock.next_time(from_next, 'at');
    end if;
  end if;

  while v_more and v_left > 0 and v_states <> '{}' and (v_walk = 'ids' or v_queue is not null) loop
    -- The first step is always taken, or a loop of calls would never come to an end.
    if v_visited >= max_visits or v_steps > 0 and clock_timestamp() > c_began + make_interval(secs => max_ms / 1000.0) then
      v_cut := true;
      exit;
    end if;
    v_steps := v_steps + 1;
    -- Running jobs are looked for in one queue after the other, so that a long one does not hide the others.
    v_visit := least(case when v_walk = 'front' then c_front else v_visit end, max_visits - v_visited);
    with seen as (
      select * from rowlock.walk_ids(v_id, v_states && '{scheduled,ready,running}', 'dead' = any (v_states), v_states && '{done,cancelled,expired}',
          coalesce(rowlock.day_begins(rowlock.history_day(v_ended_after)), '-infinity'),
          coalesce(rowlock.day_begins(rowlock.history_day(v_ended_before) + 1), 'infinity'), v_now, v_visit)
       where v_walk = 'ids'
      union all
      select * from rowlock.walk_due(v_queue, v_at, v_id, case when v_states = '{scheduled}' then v_now else '-infinity' end, v_now, v_visit)
       where v_walk = 'due'
      union all
      select * from rowlock.walk_front(v_queue, v_priority, v_at, v_id, v_now, v_visit) where v_walk = 'front'
      union all
      select * from rowlock.walk_dead(v_queue, v_at, v_id, coalesce(v_ended_after, '-infinity'), v_visit) where v_walk = 'dead'
    ), judged as (
      select s.id, s.priority, s.at,
             s.state = any (v_states) and (v_of is null or s.queue = v_of) and (v_kind is null or s.kind = v_kind)
             and (v_tag is null or v_tag = any (s.tags)) and (v_reason is null or s.reason = v_reason)
             and s.created_at >= v_created_after and s.created_at < v_created_before
             and (v_ended_after is null or s.ended_at >= v_ended_after) and (v_ended_before is null or s.ended_at < v_ended_before)
             -- Spelt out rather than called: a function that cannot be inlined costs ten times as much as the row.
             and (v_error is null or exists (select from jsonb_array_elements(s.errors) e where position(v_error in lower(e ->> 'error')) > 0))
             and (v_payload is null or not exists (
               select from jsonb_each(v_payload) w, coalesce(s.payload #> string_to_array(w.key, '.'), s.payload -> w.key) as found
                where not coalesce(found = w.value or jsonb_typeof(w.value) = 'string' and found #>> '{}' = w.value #>> '{}', false)))
             and (v_metadata is null or not exists (
               select from jsonb_each(v_metadata) w, coalesce(s.metadata #> string_to_array(w.key, '.'), s.metadata -> w.key) as found
                where not coalesce(found = w.value or jsonb_typeof(w.value) = 'string' and found #>> '{}' = w.value #>> '{}', false))) as fits
        from seen s
    )
    select count(*)::integer as seen, (array_agg(j.id))[count(*)] as id, (array_agg(j.at))[count(*)] as at,
           (array_agg(j.priority))[count(*)] as priority,
           (count(*) filter (where j.fits))::integer as fit, coalesce(array_agg(j.id) filter (where j.fits), '{}') as ids,
           array_agg(j.at) filter (where j.fits) as ats, array_agg(j.priority) filter (where j.fits) as priorities
      into v_chunk
      from judged j;
    v_visited := v_visited + v_chunk.seen;
    v_ids := v_ids || v_chunk.ids[: v_left];
    if v_chunk.fit >= v_left then
      -- Full. There is more unless the chunk was the last one and ends with what was taken.
      v_more := v_chunk.fit > v_left or v_chunk.seen >= v_visit or v_walk in ('front', 'due') and v_of is null;
      v_id := v_chunk.ids[v_left];
      v_at := v_chunk.ats[v_left];
      v_priority := v_chunk.priorities[v_left];
      exit;
    end if;
    v_left := v_left - v_chunk.fit;
    if v_chunk.seen > 0 then
      v_id := v_chunk.id;
      v_at := v_chunk.at;
      v_priority := v_chunk.priority;
    end if;
    if v_walk = 'front' and v_chunk.seen >= c_front then
      v_cut := true;
    elsif v_chunk.seen >= v_visit then
      v_visit := least(2 * v_visit, 2000);
      continue;
    end if;
    -- This was all, or all of this queue.
    v_more := v_of is null and v_walk in ('front', 'due');
    if v_more then
      select q.name into v_queue from rowlock.queue q where q.name > v_queue order by q.name limit 1;
      v_more := v_queue is not null;
      v_priority := 4;
      v_at := v_first_at;
      v_id := v_first_id;
    end if;
  end loop;

  return query
  select f.*, null::jsonb, null::bigint, null::boolean
    from unnest(v_ids) with ordinality as i (id, n), lateral rowlock.find_job(i.id) f
   order by i.n;
  id := null;
  visited := v_visited;
  cut := v_cut;
  next := case when not v_more or v_states = '{}' or v_walk <> 'ids' and v_queue is null then null
               when v_walk = 'ids' then jsonb_build_object('walk', v_walk, 'id', v_id)
               else jsonb_build_object('walk', v_walk, 'queue', v_queue, 'priority', v_priority, 'at', v_at, 'id', v_id) end;
  return next;
end $$;
