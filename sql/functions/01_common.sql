-- What the other files share: the clock, the rules for names and values, the arithmetic of retries.
--
-- Habits of all functions here:
--   * security definer with a pinned search_path: a role needs EXECUTE and nothing else (see 13_roles.sql).
--   * arguments and results are built-in types, so every driver can call them unprepared, also through a pooler.
--   * a bad value is refused with SQLSTATE 22023 and a message that names the value and the rule, and has changed nothing.

-- Every decision about time uses the database's clock through this one function, never a worker's. The test kit replaces
-- it to move time. It is inlined, so it costs nothing.
create or replace function rowlock.clock() returns timestamptz
  language sql volatile parallel safe
  return clock_timestamp();

-- The time that a job gets when it comes in, or has to be tried again. Its transaction has a number by then: so when all transactions up to a number are over, all jobs are there that came in before that number was given out, and
-- a claim that goes no further has seen everything (claim_bundle). On a standby there are no numbers, and what follows says so better. It is inlined, too.
create or replace function rowlock.stamp() returns timestamptz
  language sql volatile
  return case when pg_is_in_recovery() or pg_current_xact_id() is not null then rowlock.clock() end;

-- The line in which a job stands: the jobs of one queue and priority, in the order in which they become due. It is a number so that the claim index compares nothing but numbers
-- (migration 0008, which has the same expression: without it the index is not used). The lines of a queue are neighbours, higher priorities first; two queues
-- have the same with a probability of 2^-59, so whoever goes by the line names the queue and the priority too. It is inlined (so it has no SET clause).
create or replace function rowlock.line(queue text, priority smallint) returns bigint
  language sql immutable parallel safe
  return (hashtextextended(queue, 0) >> 5 << 4) - priority;

create or replace function rowlock.refuse(what text, value text, rule text) returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  -- The value may be a megabyte or hold control characters: show its beginning, readable.
  raise exception 'rowlock: % % %', what,
      quote_literal(left(regexp_replace(coalesce(value, 'null'), '[[:cntrl:]]', '?', 'g'), 60)), rule
    using errcode = '22023', column = what;
end $$;

-- Names of queues, kinds and tags.
create or replace function rowlock.check_name(what text, value text) returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if value is null or value = '' then
    perform rowlock.refuse(what, value, 'is empty: it needs 1 to 200 bytes');
  elsif octet_length(value) > 200 then
    perform rowlock.refuse(what, value, format('has %s bytes: at most 200 are allowed', octet_length(value)));
  elsif value ~ '[[:cntrl:]]' then
    perform rowlock.refuse(what, value, 'has a control character: only printable text is allowed');
  end if;
end $$;

create or replace function rowlock.check_time(what text, value timestamptz) returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if value not between '2000-01-01 00:00:00+00' and '2999-12-31 00:00:00+00' then
    perform rowlock.refuse(what, value::text, 'is out of range: it must lie between the years 2000 and 2999');
  end if;
end $$;

-- A backoff policy as JSON (null is fine: the next wider setting applies):
--   {"type": "exponential", "base_ms": 60000, "factor": 2, "max_ms": 86400000, "jitter": 0.1}
--   {"type": "linear", "base_ms": 60000, ...}   {"type": "fixed", "base_ms": 5000, ...}
--   {"type": "list", "ms": [1000, 5000, 60000], ...}   the last entry repeats
create or replace function rowlock.check_backoff(policy jsonb) returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_key text;
  v_limit constant numeric := 31536000000;  -- a year
begin
  if policy is null then
    return;
  end if;
  if jsonb_typeof(policy) <> 'object' then
    perform rowlock.refuse('backoff', policy::text, 'must be a JSON object with a "type"');
  end if;
  for v_key in select k from jsonb_object_keys(policy) as k loop
    if v_key not in ('type', 'base_ms', 'factor', 'max_ms', 'jitter', 'ms') then
      perform rowlock.refuse('backoff', v_key, 'is no setting of a backoff: known are type, base_ms, factor, max_ms, jitter, ms');
    end if;
    if v_key in ('base_ms', 'factor', 'max_ms', 'jitter') and jsonb_typeof(policy -> v_key) <> 'number' then
      perform rowlock.refuse('backoff', policy ->> v_key, format('is no number, as %s must be', v_key));
    end if;
  end loop;
  if coalesce(policy ->> 'type', '') not in ('exponential', 'linear', 'fixed', 'list') then
    perform rowlock.refuse('backoff', policy ->> 'type', 'is no type of backoff: known are exponential, linear, fixed, list');
  end if;
  if policy ->> 'type' = 'list' then
    if coalesce(jsonb_typeof(policy -> 'ms'), '') <> 'array' or jsonb_array_length(policy -> 'ms') not between 1 and 100
       or exists (select from jsonb_array_elements(policy -> 'ms') e
                  where jsonb_typeof(e) <> 'number' or e::numeric not between 0 and v_limit) then
      perform rowlock.refuse('backoff', policy ->> 'ms', 'must be a list of 1 to 100 delays in ms, each from 0 to a year');
    end if;
  elsif coalesce((policy ->> 'base_ms')::numeric, -1) not between 0 and v_limit then
    perform rowlock.refuse('backoff', policy ->> 'base_ms', 'is out of range: base_ms must be from 0 to a year');
  end if;
  if (policy ->> 'factor')::numeric not between 1 and 100 then
    perform rowlock.refuse('backoff', policy ->> 'factor', 'is out of range: factor must be from 1 to 100');
  end if;
  if (policy ->> 'max_ms')::numeric not between 0 and v_limit then
    perform rowlock.refuse('backoff', policy ->> 'max_ms', 'is out of range: max_ms must be from 0 to a year');
  end if;
  if (policy ->> 'jitter')::numeric not between 0 and 1 then
    perform rowlock.refuse('backoff', policy ->> 'jitter', 'is out of range: jitter must be from 0 to 1');
  end if;
end $$;

-- How long to wait after the given number of failures (1 = the first). `luck` in [0, 1) spreads the result by the policy's
-- jitter, a share of the delay to either side; the cap holds after the spreading.
create or replace function rowlock.backoff_ms(policy jsonb, failures integer, luck double precision) returns bigint
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select least(
    coalesce((policy ->> 'max_ms')::double precision, 86400000),
    -- Beyond 2^60 an exponential is past every cap, and past what a double should be asked for.
    least(case policy ->> 'type'
      when 'exponential' then (policy ->> 'base_ms')::double precision
        * power(coalesce((policy ->> 'factor')::double precision, 2), least(failures - 1, 60))
      when 'linear' then (policy ->> 'base_ms')::double precision * failures
      when 'list' then (policy -> 'ms' ->> least(failures, jsonb_array_length(policy -> 'ms')) - 1)::double precision
      else (policy ->> 'base_ms')::double precision
    end, 1e15)
    * (1 + coalesce((policy ->> 'jitter')::double precision, 0.1) * (2 * luck - 1))
  )::bigint
$$;

-- Appends an error to a job's list. Keeps the first and the newest when there are more than a hundred, and cuts long
-- texts: an error is read by people.
create or replace function rowlock.add_error(errors jsonb, attempt integer, at timestamptz, worker bigint, error text) returns jsonb
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select case when jsonb_array_length(coalesce(errors, '[]')) >= 100 then errors - 1 else coalesce(errors, '[]') end
    || jsonb_build_object('attempt', attempt, 'at', at, 'worker', worker, 'error',
         case when octet_length(error) > 16384 then left(error, 4096) || ' [cut: ' || octet_length(error) || ' bytes]' else error end)
$$;

-- The settings that a job carried, as kept in `finished` and `dead`; null when it had none.
create or replace function rowlock.job_options(j rowlock.job) returns jsonb
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select nullif(jsonb_strip_nulls(jsonb_build_object(
    'max_attempts', j.max_attempts, 'timeout_ms', j.timeout_ms, 'expires_at', j.expires_at, 'backoff', j.backoff,
    'unique_key', j.unique_key, 'trace', j.trace)), '{}')
$$;
