-- Queues: their settings, pausing, and the list of them.

-- The settings of a queue; makes its row when there is none yet. Some callers run with index scans off.
create or replace function rowlock.ensure_queue(name text) returns rowlock.queue
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set enable_indexscan = on
as $$
declare
  v_queue rowlock.queue;
begin
  select q.* into v_queue from rowlock.queue q where q.name = ensure_queue.name;
  if found then
    return v_queue;
  end if;
  perform rowlock.check_name('queue', name);
  -- Two transactions may name the same new queue at once. An insert would make the second wait until the first has
  -- committed, however long that takes. So only one tries; the other goes on with the defaults, and should the first
  -- roll back, the next caller (or rowlock.maintain) makes the row.
  if not pg_is_in_recovery() and pg_try_advisory_xact_lock(hashtextextended('@schema' || ' queue ' || name, 0)) then
    insert into rowlock.queue (name) values (name) on conflict do nothing returning * into v_queue;
    if found then
      perform pg_notify('@schema', 'queue ' || name);
      return v_queue;
    end if;
  end if;
  -- The row may be somebody else's and not visible yet.
  return rowlock.look_up_queue(name);
end $$;

-- The row of a queue, without making one: what is said about jobs of a queue that there is not makes no queue. Stands in with the defaults
-- for a row that is not there, or not visible yet. Its bell is unknown, so -1 means "ring always".
create or replace function rowlock.look_up_queue(name text) returns rowlock.queue
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_indexscan = on
as $$
declare
  v_queue rowlock.queue;
begin
  select q.* into v_queue from rowlock.queue q where q.name = look_up_queue.name;
  if found then
    return v_queue;
  end if;
  perform rowlock.check_name('queue', name);
  v_queue.name := name;
  v_queue.no := -1;
  v_queue.paused := false;
  v_queue.lease_ms := 30000;
  v_queue.max_attempts := 5;
  v_queue.backoff := '{"type": "exponential", "base_ms": 60000, "factor": 2, "max_ms": 86400000, "jitter": 0.1}';
  v_queue.retention := '7 days';
  v_queue.max_payload_bytes := 1048576;
  v_queue.kinds := '{}';
  return v_queue;
end $$;

-- Something came up in this queue that lies behind the cursors, from this time on or, if it is null, nobody knows where: tells the workers, and sets back the place where the last claim stopped
-- (04_claim.sql), so that whoever follows does not pass it. Not further than needed: before it may lie all that was finished since vacuum last came by, and each worker would walk over that.
create or replace function rowlock.rewind(queue text, since timestamptz default null) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_indexscan = on
as $$
declare
  v_no   integer;
  v_last record;
begin
  select q.no into v_no from rowlock.queue q where q.name = rewind.queue;
  v_last := rowlock.last_stop(v_no, 'infinity');
  if since > '-infinity' then
    if (v_last.at, v_last.id) > (since, 0) then
      perform rowlock.stopped_at(v_no, v_last.worker, since, 0);
    end if;
    perform pg_notify('@schema', format('since %s %s', queue, (extract(epoch from since) * 1000000)::bigint));
  else
    if v_last.at is not null then
      perform setval(('rowlock.cursor_at_' || v_no % 32)::regclass, v_no / 32 & 255);
    end if;
    perform pg_notify('@schema', 'rewind ' || queue);
  end if;
end $$;

-- Changes settings of a queue, given as JSON: lease_ms, max_attempts, max_crashes, backoff, retention (an interval as
-- text, '0' for no history), max_payload_bytes, paused, and kinds {kind: {paused, max_attempts, backoff, timeout_ms}}. What is
-- not named stays; a kind set to null is forgotten, and so is max_crashes. Returns the settings as they are then.
create or replace function rowlock.set_queue(name text, settings jsonb) returns jsonb
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_key text;
  v_value jsonb;
  v_queue rowlock.queue;
  v_was rowlock.queue;
begin
  if settings is null or jsonb_typeof(settings) <> 'object' then
    perform rowlock.refuse('settings', settings::text, 'must be a JSON object');
  end if;
  perform rowlock.ensure_queue(name);
  -- ensure_queue does not wait for another transaction that is making the same row; here its end has to be waited for.
  insert into rowlock.queue (name)
  select set_queue.name where not exists (select from rowlock.queue q where q.name = set_queue.name)
  on conflict do nothing;
  select q.* into strict v_queue from rowlock.queue q where q.name = set_queue.name for update;
  v_was := v_queue;
  for v_key, v_value in select key, value from jsonb_each(settings) loop
    case v_key
      when 'paused' then
        if jsonb_typeof(v_value) <> 'boolean' then
          perform rowlock.refuse('paused', v_value::text, 'is neither true nor false');
        end if;
        v_queue.paused := v_value::boolean;
      when 'lease_ms' then
        v_queue.lease_ms := rowlock.whole_number(v_key, v_value, 1000, 86400000);
      when 'max_attempts' then
        v_queue.max_attempts := rowlock.whole_number(v_key, v_value, 1, 1000);
      when 'max_crashes' then
        v_queue.max_crashes := rowlock.whole_number(v_key, nullif(v_value, 'null'), 1, 1000);
      when 'max_payload_bytes' then
        v_queue.max_payload_bytes := rowlock.whole_number(v_key, v_value, 1024, 268435456);
      when 'backoff' then
        if v_value = 'null' then
          perform rowlock.refuse('backoff', 'null', 'must be a JSON object with a "type"');
        end if;
        perform rowlock.check_backoff(v_value);
        v_queue.backoff := v_value;
      when 'retention' then
        begin
          v_queue.retention := (v_value #>> '{}')::interval;
        exception when others then
          perform rowlock.refuse('retention', v_value #>> '{}', 'is no interval, such as ''7 days'' or ''0''');
        end;
        if v_queue.retention is null or v_queue.retention not between interval '0' and interval '3650 days' then
          perform rowlock.refuse('retention', v_value #>> '{}', 'is out of range: it must be from 0 to 3650 days');
        end if;
      when 'kinds' then
        v_queue.kinds := rowlock.merge_kinds(v_queue.kinds, v_value);
      else
        perform rowlock.refuse('setting', v_key, 'is unknown: known are paused, lease_ms, max_attempts, max_crashes, '
          'max_payload_bytes, backoff, retention, kinds');
    end case;
  end loop;
  update rowlock.queue q
     set paused = v_queue.paused, lease_ms = v_queue.lease_ms, max_attempts = v_queue.max_attempts,
         max_crashes = v_queue.max_crashes, max_payload_bytes = v_queue.max_payload_bytes, backoff = v_queue.backoff,
         retention = v_queue.retention, kinds = v_queue.kinds
   where q.name = set_queue.name and v_queue is distinct from v_was;
  if v_queue.kinds is distinct from v_was.kinds then
    -- What was passed over while its kind was paused lies behind the cursors.
    perform rowlock.rewind(name);
  elsif v_was.paused and not v_queue.paused then
    -- Whoever sleeps on this queue looks again. Nobody looks into a paused queue, so no cursor has moved, and the pause has put nothing behind them: setting them back would
    -- make every worker walk over all that was finished since vacuum last came by. What came up there meanwhile (leases that ran out, late commits) is left to the scans, as ever.
    perform pg_notify('@schema', 'ring ' || name);
  end if;
  return to_jsonb(v_queue) - 'no';
end $$;

-- A whole number out of JSON, within bounds. null stays null.
create or replace function rowlock.whole_number(what text, value jsonb, least_allowed numeric, most_allowed numeric) returns bigint
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if jsonb_typeof(value) <> 'number' or value::numeric <> trunc(value::numeric)
     or value::numeric not between least_allowed and most_allowed then
    perform rowlock.refuse(what, value #>> '{}', format('must be a whole number from %s to %s', least_allowed, most_allowed));
  end if;
  return value::numeric::bigint;
end $$;

create or replace function rowlock.merge_kinds(kinds jsonb, changes jsonb) returns jsonb
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_kind text;
  v_key text;
  v_change jsonb;
  v_value jsonb;
  v_merged jsonb;
begin
  if jsonb_typeof(changes) <> 'object' then
    perform rowlock.refuse('kinds', changes::text, 'must be a JSON object {kind: settings}');
  end if;
  for v_kind, v_change in select key, value from jsonb_each(changes) loop
    perform rowlock.check_name('kind', v_kind);
    if v_change = 'null' then
      kinds := kinds - v_kind;
      continue;
    end if;
    if jsonb_typeof(v_change) <> 'object' then
      perform rowlock.refuse('kinds', v_change::text, 'must be the settings of a kind as a JSON object, or null');
    end if;
    for v_key, v_value in select key, value from jsonb_each(v_change) loop
      case v_key
        when 'paused' then
          if jsonb_typeof(v_value) not in ('boolean', 'null') then
            perform rowlock.refuse('paused', v_value::text, 'is neither true nor false');
          end if;
        when 'max_attempts' then
          perform rowlock.whole_number(v_key, nullif(v_value, 'null'), 1, 1000);
        when 'timeout_ms' then
          perform rowlock.whole_number(v_key, nullif(v_value, 'null'), 1, 2592000000);
        when 'backoff' then
          perform rowlock.check_backoff(nullif(v_value, 'null'));
        else
          perform rowlock.refuse('setting', v_key, 'is no setting of a kind: known are paused, max_attempts, backoff, timeout_ms');
      end case;
    end loop;
    v_merged := jsonb_strip_nulls(coalesce(kinds -> v_kind, '{}') || v_change);
    kinds := case when v_merged = '{}' then kinds - v_kind else kinds || jsonb_build_object(v_kind, v_merged) end;
  end loop;
  return kinds;
end $$;

-- Pause and resume a whole queue, or one kind in it. A paused queue still takes jobs and finishes those that run.
create or replace function rowlock.pause(queue text, kind text default null) returns void
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
  select rowlock.set_queue(queue, case when kind is null then '{"paused": true}'::jsonb
                                       else jsonb_build_object('kinds', jsonb_build_object(kind, '{"paused": true}'::jsonb)) end)
$$;

create or replace function rowlock.resume(queue text, kind text default null) returns void
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
  select rowlock.set_queue(queue, case when kind is null then '{"paused": false}'::jsonb
                                       else jsonb_build_object('kinds', jsonb_build_object(kind, '{"paused": null}'::jsonb)) end)
$$;

-- The names of the queues, for workers that subscribe by pattern.
create or replace function rowlock.queue_names() returns setof text
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select name from rowlock.queue order by name limit 10000
$$;
