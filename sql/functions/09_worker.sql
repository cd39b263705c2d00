-- Workers: who works, where, on what. Only for people to look at: no decision about a job rests on these rows, so they are
-- written with asynchronous commits, and a worker whose row was forgotten goes on working.

-- Returns the worker's id. Two workers may have the same name; each has its own id. An empty list of kinds means all.
create or replace function rowlock.register_worker(
  name text, host text, pid integer, version text, queues text[], kinds text[], concurrency integer, details jsonb default null
) returns bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  v_now timestamptz := rowlock.clock();
  v_id  bigint;
begin
  perform set_config('synchronous_commit', 'off', true);
  perform rowlock.check_name('name', name), rowlock.check_name('host', host), rowlock.check_name('version', version);
  if pid is null then
    perform rowlock.refuse('pid', null, 'is missing');
  end if;
  perform rowlock.check_count('concurrency', concurrency, 1000000);
  perform rowlock.check_worker(queues, details);
  perform rowlock.check_name('kind', k) from unnest(kinds) k;
  insert into rowlock.worker as w (started_at, seen_at, name, host, pid, version, queues, kinds, concurrency, details)
  values (v_now, v_now, name, host, pid, version, coalesce(queues, '{}'), coalesce(kinds, '{}'), concurrency, details)
  returning w.id into v_id;
  return v_id;
end $$;

create or replace function rowlock.check_worker(queues text[], details jsonb) returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if cardinality(queues) > 10000 then
    perform rowlock.refuse('queues', cardinality(queues)::text, 'entries are too many: at most 10000');
  elsif octet_length(details::text) > 65536 then
    perform rowlock.refuse('details', format('%s bytes', octet_length(details::text)), 'is too large: at most 65536 bytes are allowed');
  end if;
  perform rowlock.check_name('queue', q) from unnest(queues) q;
end $$;

-- Says that the worker lives; every few seconds. What is null stays as it was. False: its row was forgotten, register again.
create or replace function rowlock.heartbeat(
  worker bigint, running integer, state text default null, queues text[] default null, details jsonb default null
) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := rowlock.clock();
begin
  perform set_config('synchronous_commit', 'off', true);
  if heartbeat.running < 0 then
    perform rowlock.refuse('running', heartbeat.running::text, 'is negative');
  elsif heartbeat.state not in ('running', 'draining', 'stopped') then
    perform rowlock.refuse('state', heartbeat.state, 'is no state of a worker: known are running, draining, stopped');
  end if;
  perform rowlock.check_worker(heartbeat.queues, heartbeat.details);
  update rowlock.worker w
     set seen_at = v_now, running = coalesce(heartbeat.running, w.running), state = coalesce(heartbeat.state, w.state),
         queues = coalesce(heartbeat.queues, w.queues), details = coalesce(heartbeat.details, w.details)
   where w.id = heartbeat.worker;
  return found;
end $$;

-- The worker has stopped. Its row stays for a while, so that people still see who ran a job. False: there was no row.
create or replace function rowlock.unregister_worker(worker bigint) returns boolean
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
  select rowlock.heartbeat(worker, 0, 'stopped')
$$;

-- Deletes the rows of workers that were last seen longer ago than this. Returns how many.
create or replace function rowlock.forget_workers(older_than interval default '1 day') returns bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_cut  timestamptz;
  v_gone bigint;
begin
  perform rowlock.check_age(older_than);
  v_cut := rowlock.clock() - older_than;
  delete from rowlock.worker w
   where w.id in (select o.id from rowlock.worker o where o.seen_at < v_cut limit 10000 for update skip locked);
  get diagnostics v_gone = row_count;
  return v_gone;
end $$;

create or replace function rowlock.check_age(older_than interval) returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if older_than is null or older_than not between interval '0' and interval '3650 days' then
    perform rowlock.refuse('older_than', older_than::text, 'is out of range: it must be from 0 to 3650 days');
  end if;
end $$;
