-- Enqueue: one job, many jobs, and what the library's batches use. All of them run in the caller's transaction: the jobs
-- exist exactly if it commits.

-- Payloads and metadata may hold secrets, so the errors about them, which end up in logs, never quote them.
create or replace function rowlock.check_payload(payload jsonb, max_bytes integer) returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_bytes integer;
begin
  if payload is null or jsonb_typeof(payload) <> 'object' then
    perform rowlock.refuse('payload', coalesce(jsonb_typeof(payload), 'null'), 'is not a JSON object');
  end if;
  -- The limit is on the text, which is what people can count and what a worker gets. The stored form says nothing of it: it may be compressed, and
  -- 1e131071 is a digit there.
  begin
    v_bytes := octet_length(payload::text);
  exception when program_limit_exceeded then
    perform rowlock.refuse('payload', 'over a gigabyte', format('is too large: this queue takes at most %s bytes', max_bytes));
  end;
  if v_bytes > max_bytes then
    perform rowlock.refuse('payload', format('%s bytes', v_bytes), format('is too large: this queue takes at most %s bytes', max_bytes));
  end if;
end $$;

-- The rarer settings of a job, as they come in JSON. Refuses unknown names: a misspelt option must not be ignored.
create or replace function rowlock.check_options(options jsonb, now timestamptz) returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_key text;
  v_value jsonb;
  v_tag jsonb;
begin
  if jsonb_typeof(options) <> 'object' then
    perform rowlock.refuse('options', options::text, 'must be a JSON object');
  end if;
  for v_key, v_value in select key, value from jsonb_each(options) loop
    continue when v_value = 'null';
    case v_key
      when 'max_attempts' then
        perform rowlock.whole_number(v_key, v_value, 1, 1000);
      when 'timeout_ms' then
        perform rowlock.whole_number(v_key, v_value, 1, 2592000000);
      when 'expires_at' then
        perform rowlock.check_time(v_key, (v_value #>> '{}')::timestamptz);
        if (v_value #>> '{}')::timestamptz <= now then
          perform rowlock.refuse(v_key, v_value #>> '{}', 'has passed: such a job would never run');
        end if;
      when 'expires_in_ms' then
        perform rowlock.whole_number(v_key, v_value, 1, 28401840000000);
      when 'tags' then
        if jsonb_typeof(v_value) <> 'array' then
          perform rowlock.refuse(v_key, v_value::text, 'must be a list of texts');
        elsif jsonb_array_length(v_value) > 32 then
          perform rowlock.refuse(v_key, v_value::text, format('has %s entries: at most 32 are allowed', jsonb_array_length(v_value)));
        end if;
        for v_tag in select e from jsonb_array_elements(v_value) e loop
          if jsonb_typeof(v_tag) <> 'string' then
            perform rowlock.refuse('tag', v_tag::text, 'is no text');
          end if;
          perform rowlock.check_name('tag', v_tag #>> '{}');
        end loop;
      when 'metadata' then
        if jsonb_typeof(v_value) <> 'object' then
          perform rowlock.refuse(v_key, jsonb_typeof(v_value), 'is not a JSON object');
        elsif octet_length(v_value::text) > 65536 then
          perform rowlock.refuse(v_key, format('%s bytes', octet_length(v_value::text)), 'is too large: at most 65536 bytes are allowed');
        end if;
      when 'unique_key' then
        if jsonb_typeof(v_value) <> 'string' or octet_length(v_value #>> '{}') not between 1 and 500 then
          perform rowlock.refuse(v_key, v_value #>> '{}', 'must be a text of 1 to 500 bytes');
        end if;
      when 'on_conflict' then
        if v_value #>> '{}' not in ('keep', 'replace') then
          perform rowlock.refuse(v_key, v_value #>> '{}', 'is neither keep nor replace');
        end if;
      when 'backoff' then
        perform rowlock.check_backoff(v_value);
      when 'trace' then
        if jsonb_typeof(v_value) <> 'string' or octet_length(v_value #>> '{}') > 200 then
          perform rowlock.refuse(v_key, v_value #>> '{}', 'must be a text of at most 200 bytes');
        end if;
      else
        perform rowlock.refuse('option', v_key, 'is unknown: known are max_attempts, timeout_ms, expires_at, expires_in_ms, tags, metadata, '
          'unique_key, on_conflict, backoff, trace');
    end case;
  end loop;
end $$;

create or replace function rowlock.check_delay(delay_ms bigint) returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if delay_ms < 0 then
    perform rowlock.refuse('delay_ms', delay_ms::text, 'is negative');
  elsif delay_ms > 28401840000000 then
    perform rowlock.refuse('delay_ms', delay_ms::text, 'is too long: a job may be put off for at most 900 years');
  end if;
end $$;

-- Whether one look is enough to see that a job breaks no rule of all queues and is not large; if not, it is worth asking which (vet). The text of a payload
-- is looked at only if what is stored is not large either: what is stored in 64 kB has less than a gigabyte of it. It is inlined (so it has no SET clause).
create or replace function rowlock.is_sound(queue text, kind text, payload jsonb, priority integer) returns boolean
  language sql stable
  return queue <> '' and octet_length(queue) <= 200 and kind <> '' and octet_length(kind) <= 200 and kind !~ '[[:cntrl:]]'
    and priority between -4 and 4 and jsonb_typeof(payload) = 'object' and pg_column_size(payload) <= 65536
    and octet_length(payload::text) <= 65536;

-- Refuses a job that breaks a rule, and says which. Makes the queue, if there is none of this name, and gives its number.
create or replace function rowlock.vet(queue text, kind text, payload jsonb, priority integer) returns integer
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_queue rowlock.queue := rowlock.ensure_queue(queue);
begin
  perform rowlock.check_name('kind', kind);
  perform rowlock.check_payload(payload, v_queue.max_payload_bytes);
  if priority is null or priority not between -4 and 4 then
    perform rowlock.refuse('priority', priority::text, 'is out of range: it must be from -4 to 4');
  end if;
  return v_queue.no;
end $$;

-- Whether somebody waits for the bell of a queue, or may, until after this time. It is inlined (so it has no SET clause).
create or replace function rowlock.is_armed(queue_no integer, until timestamptz) returns boolean
  language sql volatile
  return queue_no < 0 or pg_sequence_last_value(('rowlock.bell_' || queue_no % 32)::regclass) > extract(epoch from until) * 1000;

-- Tells whoever waits for jobs of this queue, if anybody does, that there is one; or, if it is due later but before they ask again,
-- that they had better ask. A NOTIFY takes one lock for the whole server until the commit is over, so a busy queue must not
-- pay for it: it is sent only while some worker has armed the bell (06_wake.sql). Must come after the insert: see there why.
create or replace function rowlock.ring(queue_no integer, queue text, due timestamptz, now timestamptz) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  if rowlock.is_armed(queue_no, greatest(due, now)) then
    perform pg_notify('@schema', case when due <= now then 'ring ' else 'schedule ' end || queue);
  end if;
end $$;

-- Tells the workers of a queue that jobs were put there by COPY, straight into the table. Call it in the same transaction,
-- after the COPY. Nobody knows when those are due, so whoever waits is told to look and to ask.
create or replace function rowlock.announce(queue text) returns void
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
  with q as materialized (select (rowlock.ensure_queue(queue)).no, rowlock.clock() as now)
  select rowlock.ring(no, queue, due, now) from q, lateral (values (now), (now + interval '1 ms')) as d (due)
$$;

-- Refuses the first of these items of a batch that breaks a rule. One pass finds out whether there is one that may, and only then it is worth asking which:
-- a payload is suspected for its size before it is measured, so all items have to be asked, not only the first suspect.
create or replace function rowlock.check_items(
  kinds text[], payloads jsonb[], priorities integer[], run_ats timestamptz[], max_payload_bytes integer
) returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform
    from (select unnest(kinds) as kind, unnest(payloads) as payload, unnest(priorities) as priority, unnest(run_ats) as run_at) i
   where kind is null or kind = '' or octet_length(kind) > 200
      or payload is null or jsonb_typeof(payload) <> 'object' or pg_column_size(payload) > max_payload_bytes / 4
      or priority not between -4 and 4
      or run_at not between '2000-01-01 00:00:00+00' and '2999-12-31 00:00:00+00'
   limit 1;
  if found or array_to_string(kinds, '') ~ '[[:cntrl:]]' then
    perform rowlock.check_name('kind', k) from unnest(kinds) k;
    perform rowlock.refuse('priority', p::text, 'is out of range: it must be from -4 to 4') from unnest(priorities) p where p not between -4 and 4;
    perform rowlock.check_time('run_at', r) from unnest(run_ats) r;
    perform rowlock.check_payload(p, max_payload_bytes) from unnest(payloads) p;
  end if;
end $$;

-- The whole of enqueueing, for jobs of one queue given as parallel arrays: what the library calls. A payload is measured only if much is stored; who does not know
-- what is in it, where a number of eight characters may stand for a hundred thousand digits, calls enqueue or enqueue_many. All but the first three
-- may be null, and so may their elements; of run_at and delay_ms the first that is there counts. Answers in the order of the
-- input.
create or replace function rowlock.enqueue_batch(
  queue      text,
  kinds      text[],
  payloads   jsonb[],
  priorities integer[] default null,
  run_ats    timestamptz[] default null,
  delays_ms  bigint[] default null,
  options    jsonb[] default null
) returns table (id bigint, duplicate boolean)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now   timestamptz := rowlock.stamp();
  v_queue rowlock.queue := rowlock.ensure_queue(enqueue_batch.queue);
  v_rows  integer;
  v_due   timestamptz;            -- of the first
begin
  if kinds is null or cardinality(kinds) is distinct from cardinality(payloads)
     or cardinality(priorities) <> cardinality(kinds) or cardinality(run_ats) <> cardinality(kinds)
     or cardinality(delays_ms) <> cardinality(kinds) or cardinality(options) <> cardinality(kinds) then
    perform rowlock.refuse('kinds', cardinality(kinds)::text, 'entries, but the other arrays have another length');
  end if;

  if delays_ms is not null then
    perform rowlock.check_delay(d) from unnest(delays_ms) d where d not between 0 and 1000;
    run_ats := array(select coalesce(run_ats[n], v_now + delays_ms[n] * interval '1 ms') from generate_subscripts(delays_ms, 1) n);
  end if;

  -- What can be said of all items together is asked first; whether one is too large, only if all of them together are.
  if options is not null or pg_column_size(payloads) > v_queue.max_payload_bytes / 4
     or array_to_string(kinds, '') ~ '[[:cntrl:]]' then
    perform rowlock.check_items(kinds, payloads, priorities, run_ats, v_queue.max_payload_bytes);
  end if;

  if options is null then
    -- What breaks another rule is left out, and then all is refused: that is cheaper than looking at the items before. (The unnests stand in a
    -- select list because there they are not stored first, as they are in FROM.)
    return query
      insert into rowlock.job (queue, kind, payload, priority, created_at, run_at)
      select enqueue_batch.queue, i.kind, i.payload, coalesce(i.priority, 0), v_now, coalesce(i.run_at, v_now)
        from (select unnest(kinds) as kind, unnest(payloads) as payload, unnest(priorities) as priority, unnest(run_ats) as run_at) i
       where i.kind <> '' and octet_length(i.kind) <= 200 and jsonb_typeof(i.payload) = 'object'
         and (i.priority between -4 and 4) is not false
         and (i.run_at between '2000-01-01 00:00:00+00' and '2999-12-31 00:00:00+00') is not false
      returning job.id, false;
    get diagnostics v_rows = row_count;
    if v_rows is distinct from cardinality(kinds) then
      perform rowlock.check_items(kinds, payloads, priorities, run_ats, v_queue.max_payload_bytes);
      raise exception 'rowlock: % of % jobs were left out of a batch, and no rule says why', cardinality(kinds) - v_rows, cardinality(kinds)
        using errcode = 'internal_error';
    end if;
  else
    return query
      select e.id, e.duplicate
        from rowlock.enqueue_with_options(enqueue_batch.queue, kinds, payloads, priorities, run_ats, options, v_now) e;
  end if;

  v_due := case when run_ats is null then v_now else (select min(coalesce(r, v_now)) from unnest(run_ats) r) end;
  if rowlock.is_armed(v_queue.no, greatest(v_due, v_now)) then
    perform rowlock.ring(v_queue.no, enqueue_batch.queue, v_due, v_now);
  end if;
end $$;

-- The slower half of enqueue_batch: options, and with them unique keys.
create or replace function rowlock.enqueue_with_options(
  queue text, kinds text[], payloads jsonb[], priorities integer[], run_ats timestamptz[], options jsonb[], now timestamptz
) returns table (id bigint, duplicate boolean)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_ids      bigint[];
  v_found    bigint[];
  v_missing  integer[];
  v_cancelled tid[];
begin
  perform rowlock.check_options(o, now) from unnest(options) o where o is not null;

  v_ids := array(select nextval('rowlock.job_id') from generate_series(1, cardinality(kinds)));
  v_missing := array(select generate_series(1, cardinality(kinds)));
  v_found := array_fill(null::bigint, array[cardinality(kinds)]);

  -- Twice in a thousand years the job that stood in the way finishes between the insert and the look-up: then try again.
  for v_round in 1 .. 10 loop
    -- In the order of the keys, so that two callers with the same keys wait for each other instead of deadlocking. Within
    -- one key the first item of the batch wins.
    with item as (
      select i.n, v_ids[i.n] as id, kinds[i.n] as kind, payloads[i.n] as payload, coalesce(priorities[i.n], 0) as priority,
             coalesce(run_ats[i.n], now) as run_at, coalesce(options[i.n], '{}') as o
        from unnest(v_missing) as i (n)
       order by coalesce(options[i.n], '{}') ->> 'unique_key' nulls first, i.n
    ), added as (
      insert into rowlock.job (id, queue, kind, payload, priority, created_at, run_at, max_attempts, timeout_ms, expires_at,
                               unique_key, backoff, tags, metadata, trace)
      select item.id, enqueue_with_options.queue, kind, payload, priority, now, run_at,
             (o ->> 'max_attempts')::smallint, (o ->> 'timeout_ms')::bigint, coalesce((o ->> 'expires_at')::timestamptz, now + (o ->> 'expires_in_ms')::bigint * interval '1 ms'),
             o ->> 'unique_key', nullif(o -> 'backoff', 'null'),
             case when jsonb_typeof(o -> 'tags') = 'array' and o -> 'tags' <> '[]'
                  then array(select jsonb_array_elements_text(o -> 'tags')) end,
             nullif(o -> 'metadata', 'null'), o ->> 'trace'
        from item
      on conflict (queue, unique_key) where unique_key is not null do nothing
      returning job.id
    )
    select array(select case when v_ids[n] in (select a.id from added a) then v_ids[n] else v_found[n] end
                   from generate_series(1, cardinality(v_ids)) n)
      into v_found;

    v_missing := array(select n from generate_series(1, cardinality(v_ids)) n where v_found[n] is null);
    exit when v_missing = '{}';

    -- A job that somebody asked to cancel and nobody runs stands in nobody's way: it ends here, and the next round inserts.
    v_cancelled := array(select j.ctid from rowlock.job j
                          where j.queue = enqueue_with_options.queue and j.cancel_at is not null and j.lease_until <= now
                            and j.unique_key in (select options[n] ->> 'unique_key' from unnest(v_missing) n)
                            for update skip locked);
    if v_cancelled <> '{}' then
      perform rowlock.park_finished(enqueue_with_options.queue, v_cancelled, 'cancelled', now);
      continue;
    end if;

    -- Debounce: the waiting job becomes the new one, in all but its id. A running one is left alone and answered as a duplicate.
    -- One whose lease has run out is taken from its holder, who would otherwise finish what it has never seen.
    update rowlock.job j
       set payload = i.payload, run_at = i.run_at, kind = i.kind, priority = i.priority,
           max_attempts = (i.o ->> 'max_attempts')::smallint, timeout_ms = (i.o ->> 'timeout_ms')::bigint,
           expires_at = i.expires_at, backoff = nullif(i.o -> 'backoff', 'null'), tags = i.tags,
           metadata = nullif(i.o -> 'metadata', 'null'), trace = i.o ->> 'trace',
           crashes = case when j.lease_until = '-infinity' then j.crashes else j.crashes + 1 end,
           lease_until = '-infinity', token = 0, progress = null
      from (select distinct on (options[n] ->> 'unique_key') options[n] ->> 'unique_key' as unique_key, payloads[n] as payload,
                   kinds[n] as kind, coalesce(priorities[n], 0) as priority, coalesce(run_ats[n], now) as run_at, options[n] as o,
                   coalesce((options[n] ->> 'expires_at')::timestamptz,
                            now + (options[n] ->> 'expires_in_ms')::bigint * interval '1 ms') as expires_at,
                   case when jsonb_typeof(options[n] -> 'tags') = 'array' and options[n] -> 'tags' <> '[]'
                        then array(select jsonb_array_elements_text(options[n] -> 'tags')) end as tags
              from unnest(v_missing) n where options[n] ->> 'on_conflict' = 'replace'
             order by options[n] ->> 'unique_key', n desc) i
     where j.queue = enqueue_with_options.queue and j.unique_key = i.unique_key and j.lease_until <= now;

    select array(select coalesce(v_found[n], (select j.id from rowlock.job j
                                               where j.queue = enqueue_with_options.queue and j.unique_key = options[n] ->> 'unique_key'))
                   from generate_series(1, cardinality(v_ids)) n)
      into v_found;
    v_missing := array(select n from generate_series(1, cardinality(v_ids)) n where v_found[n] is null);
    exit when v_missing = '{}';
  end loop;
  if v_missing <> '{}' then
    raise exception 'rowlock: the unique key % in queue % keeps changing hands; try again',
      quote_literal(options[v_missing[1]] ->> 'unique_key'), quote_literal(enqueue_with_options.queue)
      using errcode = '40001';
  end if;
  return query select v_found[n], v_found[n] <> v_ids[n] from generate_series(1, cardinality(v_ids)) n;
end $$;

-- One job. `select * from rowlock.enqueue('email', '{"to": "a@b.c"}', queue => 'mail', delay => '5 minutes')`
-- unique_key: at most one live job with this key in the queue; on_conflict says what happens to the second: 'keep' answers
-- with the first one's id and duplicate = true, 'replace' makes the first, while it waits, the new one in all but its id.
create or replace function rowlock.enqueue(
  kind         text,
  payload      jsonb default '{}',
  queue        text default 'default',
  priority     integer default 0,
  run_at       timestamptz default null,
  delay        interval default null,
  max_attempts integer default null,
  timeout      interval default null,
  expires_at   timestamptz default null,
  tags         text[] default null,
  metadata     jsonb default null,
  unique_key   text default null,
  on_conflict  text default 'keep',
  backoff      jsonb default null,
  trace        text default null,
  out id        bigint,
  out duplicate boolean
)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  v_now     timestamptz := rowlock.stamp();
  v_no      integer;
  v_options jsonb;
begin
  if rowlock.is_sound(queue, kind, payload, priority) is not true then
    v_no := rowlock.vet(queue, kind, payload, priority);
  end if;
  if num_nonnulls(run_at, delay) > 0 then
    if run_at is not null and delay is not null then
      perform rowlock.refuse('delay', delay::text, 'and run_at are both given: say one of them');
    elsif delay < interval '0' then
      perform rowlock.refuse('delay', delay::text, 'is negative');
    elsif delay > interval '900 years' then
      perform rowlock.refuse('delay', delay::text, 'is too long: run_at must lie before the year 3000');
    end if;
    perform rowlock.check_time('run_at', run_at);
  end if;
  run_at := coalesce(run_at, v_now + delay, v_now);
  if on_conflict not in ('keep', 'replace') then
    perform rowlock.refuse('on_conflict', on_conflict, 'is neither keep nor replace');
  end if;

  if num_nonnulls(max_attempts, timeout, expires_at, tags, metadata, unique_key, backoff, trace) = 0 then
    insert into rowlock.job as j (queue, kind, payload, priority, created_at, run_at)
    values (queue, kind, payload, priority, v_now, run_at)
    returning j.id, false, coalesce(v_no, (select q.no from rowlock.queue q where q.name = queue and q.max_payload_bytes >= 65536))
      into id, duplicate, v_no;
    if v_no is null then
      v_no := rowlock.vet(queue, kind, payload, priority);
    end if;
  else
    v_no := coalesce(v_no, rowlock.vet(queue, kind, payload, priority));
    v_options := jsonb_strip_nulls(jsonb_build_object('max_attempts', max_attempts,
      'timeout_ms', (extract(epoch from timeout) * 1000)::bigint, 'expires_at', expires_at, 'tags', to_jsonb(tags),
      'unique_key', unique_key, 'on_conflict', on_conflict, 'backoff', backoff, 'trace', trace))
      || case when metadata is null then '{}' else jsonb_build_object('metadata', metadata) end;
    select e.id, e.duplicate into id, duplicate
      from rowlock.enqueue_with_options(queue, array[kind], array[payload], array[priority], array[run_at], array[v_options], v_now) e;
  end if;

  if rowlock.is_armed(v_no, greatest(run_at, v_now)) then
    perform rowlock.ring(v_no, queue, run_at, v_now);
  end if;
end $$;

-- One job without options, due now, as most are: what the library calls for it. Each statement of a function costs about as much as
-- writing the row, and each table that it looks into a quarter of that, so there is one statement, and it looks the queue up once: behind the insert, which is undone
-- if the payload turns out to be too large for this queue. (A queue that takes what is_sound lets through has no more to say.)
create or replace function rowlock.enqueue_plain(queue text, kind text, payload jsonb, priority integer) returns bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  v_now timestamptz := rowlock.stamp();
  v_id  bigint;
  v_no  integer;
begin
  if rowlock.is_sound(queue, kind, payload, priority) is not true then
    v_no := rowlock.vet(queue, kind, payload, priority);
  end if;
  insert into rowlock.job as j (queue, kind, payload, priority, created_at, run_at)
  values (queue, kind, payload, priority, v_now, v_now)
  returning j.id, coalesce(v_no, (select q.no from rowlock.queue q where q.name = queue and q.max_payload_bytes >= 65536))
    into v_id, v_no;
  if v_no is null then
    v_no := rowlock.vet(queue, kind, payload, priority);
  end if;
  if rowlock.is_armed(v_no, v_now) then
    perform rowlock.ring(v_no, queue, v_now, v_now);
  end if;
  return v_id;
end $$;

-- Many jobs of any queues in one statement, as a JSON list:
--   select * from rowlock.enqueue_many('[{"kind": "email", "payload": {"to": "a@b.c"}, "queue": "mail", "delay_ms": 5000}, ...]')
-- Names: kind, payload, queue, priority, run_at, delay_ms, and the options of check_options. Answers in the order of the list.
create or replace function rowlock.enqueue_many(jobs jsonb) returns table (n integer, id bigint, duplicate boolean)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now     timestamptz := rowlock.stamp();
  v_bad     jsonb;
  v_bad_key text;
  v_each    record;
  v_is_large boolean;
  v_max     integer;
begin
  if jobs is null or jsonb_typeof(jobs) <> 'array' then
    perform rowlock.refuse('jobs', coalesce(jsonb_typeof(jobs), 'null'), 'is not a JSON list of objects');
  elsif jsonb_array_length(jobs) > 10000 then
    perform rowlock.refuse('jobs', jsonb_array_length(jobs)::text, 'entries are too many for one call: at most 10000');
  end if;
  select e into v_bad from jsonb_array_elements(jobs) e where jsonb_typeof(e) <> 'object' limit 1;
  if found then
    perform rowlock.refuse('jobs', jsonb_typeof(v_bad), 'stands in the list, where only JSON objects may');
  end if;
  select e into v_bad from jsonb_array_elements(jobs) e where e ? 'run_at' and e ? 'delay_ms' and e -> 'run_at' <> 'null' and e -> 'delay_ms' <> 'null' limit 1;
  if found then
    perform rowlock.refuse('delay_ms', v_bad ->> 'delay_ms', 'and run_at are both given: say one of them');
  end if;
  select t.key, t.value into v_bad_key, v_bad
    from jsonb_array_elements(jobs) e, jsonb_each(e) t
   where t.key in ('kind', 'queue', 'run_at') and jsonb_typeof(t.value) not in ('string', 'null') limit 1;
  if found then
    perform rowlock.refuse(v_bad_key, v_bad::text, 'is no text');
  end if;
  perform rowlock.whole_number('delay_ms', e -> 'delay_ms', 0, 28401840000000), rowlock.whole_number('priority', e -> 'priority', -4, 4)
     from jsonb_array_elements(jobs) e
    where e -> 'delay_ms' <> 'null' or e -> 'priority' <> 'null';

  -- enqueue_batch goes by what is stored, which says little of what is given back (check_payload).
  v_is_large := pg_column_size(jobs) > 65536 or octet_length(jobs::text) > 65536;
  for v_each in
    select coalesce(e ->> 'queue', 'default') as queue, array_agg(i::integer order by i) as ns,
           array_agg(e ->> 'kind' order by i) as kinds,
           array_agg(coalesce(e -> 'payload', '{}') order by i) as payloads,
           array_agg((e ->> 'priority')::integer order by i) as priorities,
           array_agg(coalesce((e ->> 'run_at')::timestamptz, v_now + (e ->> 'delay_ms')::bigint * interval '1 ms') order by i) as run_ats,
           array_agg(nullif(e - '{queue,kind,payload,priority,run_at,delay_ms}'::text[], '{}') order by i) as options
      from jsonb_array_elements(jobs) with ordinality as l (e, i)
     group by 1 order by 1
  loop
    if v_is_large then
      v_max := (rowlock.ensure_queue(v_each.queue)).max_payload_bytes;
      perform rowlock.check_payload(p, v_max) from unnest(v_each.payloads) p where pg_column_size(p) > 65536 or octet_length(p::text) > v_max;
    end if;
    return query
      select v_each.ns[b.i], b.id, b.duplicate
        from rowlock.enqueue_batch(v_each.queue, v_each.kinds, v_each.payloads, v_each.priorities, v_each.run_ats, null,
               case when array_length(array_remove(v_each.options, null), 1) > 0 then v_each.options end)
             with ordinality as b (id, duplicate, i);
  end loop;
end $$;
