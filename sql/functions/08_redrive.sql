-- Dead letters, many at once: redrive and discard by filter. The habits are those of 08_manage.sql.

-- Whether one of a job's errors holds this text, in upper or lower case.
create or replace function rowlock.error_holds(errors jsonb, needle text) returns boolean
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select exists (select from jsonb_array_elements(errors) e where position(lower(needle) in lower(e ->> 'error')) > 0)
$$;

-- Whether a payload or metadata has all these values, {path: value} as in check_paths.
create or replace function rowlock.paths_hold(document jsonb, wanted jsonb) returns boolean
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select not exists (
    select from jsonb_each(wanted) w, coalesce(document #> string_to_array(w.key, '.'), document -> w.key) as found
     where not coalesce(found = w.value or jsonb_typeof(w.value) = 'string' and found #>> '{}' = w.value #>> '{}', false))
$$;

-- Finds and locks a batch of the dead: up to max_jobs that fit the filter, queue by queue, in each in the order in which
-- they died, passing over locked ones. It looks at 100,000 rows at most, so that a filter which few fit is answered in
-- many short calls rather than a long one. With ids it takes those of them that fit, and all in one call.
create or replace function rowlock.dead_batch(
  queue text, kind text, reason text, error text, tag text, payload jsonb, metadata jsonb,
  died_after timestamptz, died_before timestamptz, ids bigint[], max_jobs integer,
  inout next jsonb, out found_queues text[], out found_ids bigint[]
)
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
  c_visit_max constant integer := 100000;
  v_after     timestamptz := coalesce(died_after, '-infinity');
  v_before    timestamptz := coalesce(died_before, 'infinity');
  v_queue     text := coalesce(next ->> 'queue', dead_batch.queue);
  v_at        timestamptz := coalesce(rowlock.next_time(next, 'died_at'), '-infinity');
  v_id        bigint := coalesce(rowlock.next_number(next, 'id'), 0);
  v_chunk     record;
  v_visit     integer;
  v_visited   integer := 0;
begin
  perform rowlock.check_count('max_jobs', max_jobs, 10000);
  if dead_batch.queue is not null then
    perform rowlock.check_name('queue', dead_batch.queue);
  end if;
  if dead_batch.kind is not null then
    perform rowlock.check_name('kind', dead_batch.kind);
  end if;
  if tag is not null then
    perform rowlock.check_name('tag', tag);
  end if;
  perform rowlock.check_paths('payload', dead_batch.payload);
  perform rowlock.check_paths('metadata', dead_batch.metadata);
  if dead_batch.reason not in ('failed', 'poison', 'refused') then
    perform rowlock.refuse('reason', dead_batch.reason, 'is no reason to die: known are failed, poison, refused');
  elsif error = '' then
    perform rowlock.refuse('error', error, 'is empty: leave it out, or give a text to look for');
  elsif died_after >= died_before then
    perform rowlock.refuse('died_before', died_before::text, format('does not come after died_after, %s', died_after));
  elsif dead_batch.queue <> v_queue then
    perform rowlock.refuse('next', v_queue, 'belongs to a call for another queue');
  end if;
  found_queues := '{}';
  found_ids := '{}';

  if ids is not null then
    perform rowlock.check_ids(ids);
    with locked as materialized (
      select d.queue, d.died_at, d.id
        from (select distinct u from unnest(dead_batch.ids) u) as i (id) join rowlock.dead d on d.id = i.id
       where (dead_batch.queue is null or d.queue = dead_batch.queue)
         and (dead_batch.kind is null or d.kind = dead_batch.kind)
         and (dead_batch.reason is null or d.reason = dead_batch.reason)
         and d.died_at >= v_after and d.died_at < v_before
         and (error is null or rowlock.error_holds(d.errors, error))
         and (tag is null or tag = any (d.tags))
         and (dead_batch.payload is null or rowlock.paths_hold(d.payload, dead_batch.payload))
         and (dead_batch.metadata is null or rowlock.paths_hold(d.metadata, dead_batch.metadata))
       order by d.id
         for update of d skip locked
    )
    select coalesce(array_agg(l.queue order by l.queue, l.died_at, l.id), '{}'), coalesce(array_agg(l.id order by l.queue, l.died_at, l.id), '{}')
      into found_queues, found_ids
      from locked l;
    next := null;
    return;
  end if;

  if v_queue is null then
    select d.queue into v_queue from rowlock.dead d order by d.queue limit 1;
  end if;
  while v_queue is not null loop
    loop
      v_visit := least(1000, c_visit_max - v_visited);
      with seen as materialized (
        select d.died_at, d.id,
               (dead_batch.kind is null or d.kind = dead_batch.kind) and (dead_batch.reason is null or d.reason = dead_batch.reason)
               and (error is null or rowlock.error_holds(d.errors, error)) and (tag is null or tag = any (d.tags))
               and (dead_batch.payload is null or rowlock.paths_hold(d.payload, dead_batch.payload))
               and (dead_batch.metadata is null or rowlock.paths_hold(d.metadata, dead_batch.metadata)) as fits
          from rowlock.dead d
         where d.queue = v_queue and (d.died_at, d.id) > (v_at, v_id) and d.died_at >= v_after and d.died_at < v_before
         order by d.died_at, d.id
         limit v_visit
      ), picked as materialized (
        select s.died_at, s.id
          from seen s join rowlock.dead d on d.id = s.id
         where s.fits and d.queue = v_queue
         order by s.died_at, s.id
         limit max_jobs - cardinality(found_ids)
           for update of d skip locked
      )
      select (select count(*) from seen) as seen, count(*) as picked, coalesce(array_agg(p.id order by p.died_at, p.id), '{}') as ids,
             (select s.died_at from seen s order by s.died_at desc, s.id desc limit 1) as seen_at,
             (select s.id from seen s order by s.died_at desc, s.id desc limit 1) as seen_id,
             max(p.died_at) as picked_at, (array_agg(p.id order by p.died_at desc, p.id desc))[1] as picked_id
        into v_chunk
        from picked p;
      found_ids := found_ids || v_chunk.ids;
      found_queues := found_queues || array_fill(v_queue, array[cardinality(v_chunk.ids)]);
      v_visited := v_visited + v_chunk.seen;
      if cardinality(found_ids) >= max_jobs then
        next := jsonb_build_object('queue', v_queue, 'died_at', v_chunk.picked_at, 'id', v_chunk.picked_id);
        return;
      end if;
      exit when v_chunk.seen < v_visit;
      v_at := v_chunk.seen_at;
      v_id := v_chunk.seen_id;
      if v_visited >= c_visit_max then
        next := jsonb_build_object('queue', v_queue, 'died_at', v_at, 'id', v_id);
        return;
      end if;
    end loop;
    exit when dead_batch.queue is not null;
    select d.queue into v_queue from rowlock.dead d where d.queue > v_queue order by d.queue limit 1;
    v_at := '-infinity';
    v_id := 0;
  end loop;
  next := null;
end $$;

-- Puts dead jobs that fit the filter back to work: by queue, kind, reason, a text in one of their errors, a tag, values in the payload or
-- metadata ({path: value}, as in check_paths), the time of death (from died_after, before died_before), ids. No filter: all of them. `rate` spreads them out, so many per second, beginning
-- at start_at or now; the calls of a loop carry on where the last one stopped:
--   select redriven, next from rowlock.redrive(queue => 'mail', rate => 50, next => :next)   -- until next is null
-- duplicates: how many stay dead because their unique key is taken.
create or replace function rowlock.redrive(
  queue       text default null,
  kind        text default null,
  reason      text default null,
  error       text default null,
  tag         text default null,
  payload     jsonb default null,
  metadata    jsonb default null,
  died_after  timestamptz default null,
  died_before timestamptz default null,
  ids         bigint[] default null,
  rate        double precision default null,
  start_at    timestamptz default null,
  max_jobs    integer default 1000,
  inout next  jsonb default null,
  out redriven   bigint,
  out duplicates bigint
)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now   timestamptz := rowlock.stamp();
  v_start timestamptz;
  v_batch record;
  v_each  record;
  v_done  integer;
begin
  perform rowlock.check_rate(rate);
  perform rowlock.check_time('start_at', redrive.start_at);
  v_start := greatest(coalesce(rowlock.next_time(next, 'start_at'), redrive.start_at), v_now);
  v_batch := rowlock.dead_batch(redrive.queue, redrive.kind, redrive.reason, error, tag, redrive.payload, redrive.metadata, died_after, died_before, ids, max_jobs, next);
  redriven := 0;
  duplicates := 0;
  for v_each in
    select f.queue, array_agg(f.id order by f.n) as ids,
           array_agg(v_start + case when rate is null then interval '0' else make_interval(secs => (f.n - 1) / rate) end order by f.n) as run_ats
      from unnest(v_batch.found_queues, v_batch.found_ids) with ordinality as f (queue, id, n)
     group by f.queue order by f.queue
  loop
    perform rowlock.check_time('start_at', v_each.run_ats[cardinality(v_each.run_ats)]);
    v_done := cardinality(rowlock.revive_dead(v_each.queue, v_each.ids, v_each.run_ats));
    redriven := redriven + v_done;
    duplicates := duplicates + cardinality(v_each.ids) - v_done;
    -- None of them runs before now, so they lie ahead of the cursors as newly enqueued jobs do.
    if v_done > 0 then
      perform rowlock.ring((rowlock.ensure_queue(v_each.queue)).no, v_each.queue, v_each.run_ats[1], v_now);
    end if;
  end loop;
  next := v_batch.next || jsonb_build_object('start_at',
    v_start + case when rate is null then interval '0' else make_interval(secs => cardinality(v_batch.found_ids) / rate) end);
end $$;

-- Deletes dead jobs that fit the filter, which is that of redrive. It must be given: died_before => 'infinity' means all.
create or replace function rowlock.discard(
  queue       text default null,
  kind        text default null,
  reason      text default null,
  error       text default null,
  tag         text default null,
  payload     jsonb default null,
  metadata    jsonb default null,
  died_after  timestamptz default null,
  died_before timestamptz default null,
  ids         bigint[] default null,
  max_jobs    integer default 1000,
  inout next  jsonb default null,
  out discarded bigint
)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_batch record;
  v_each  record;
begin
  if num_nonnulls(discard.queue, discard.kind, discard.reason, error, tag, nullif(discard.payload, '{}'), nullif(discard.metadata, '{}'), died_after, died_before, ids) = 0 then
    perform rowlock.refuse('filter', null, 'would discard every dead job: if that is meant, say died_before => ''infinity''');
  end if;
  v_batch := rowlock.dead_batch(discard.queue, discard.kind, discard.reason, error, tag, discard.payload, discard.metadata, died_after, died_before, ids, max_jobs, next);
  for v_each in
    select f.queue, array_agg(f.id) as ids from unnest(v_batch.found_queues, v_batch.found_ids) as f (queue, id) group by f.queue
  loop
    delete from rowlock.dead d where d.queue = v_each.queue and d.id = any (v_each.ids);
  end loop;
  discarded := cardinality(v_batch.found_ids);
  next := v_batch.next;
end $$;
