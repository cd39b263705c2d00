-- Once: what an earlier attempt of a job already did outside this database. A handler asks before it charges a card and
-- writes down the answer after; the next attempt finds it there. Between the two the world may still be told twice: send
-- (job id, key) along as the idempotency key.

-- What is remembered: one row, or none. The value itself may be null.
create or replace function rowlock.once_get(queue text, job_id bigint, key text) returns table (value jsonb, done_at timestamptz)
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select o.value, o.done_at from rowlock.once o where o.queue = $1 and o.job_id = $2 and o.key = $3
$$;

-- Remembers new_value under the key. The first value wins: `value` is what is remembered, `first` whether that is new_value.
-- While another transaction is writing the same key, this one waits for its end.
create or replace function rowlock.once_put(queue text, job_id bigint, key text, new_value jsonb)
  returns table (value jsonb, first boolean)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := rowlock.clock();
begin
  perform rowlock.check_name('queue', once_put.queue), rowlock.check_name('key', once_put.key);
  if once_put.job_id is null then
    perform rowlock.refuse('job_id', null, 'is missing');
  elsif octet_length(new_value::text) > 1048576 then
    perform rowlock.refuse('new_value', format('%s bytes', octet_length(new_value::text)), 'is too large: at most 1048576 bytes are allowed');
  end if;
  -- The entry that stood in the way may be cleaned up before it is read: then try again.
  for v_round in 1 .. 3 loop
    insert into rowlock.once as o (queue, job_id, key, done_at, value)
    values (once_put.queue, once_put.job_id, once_put.key, v_now, new_value)
    on conflict do nothing;
    if found then
      return query select new_value, true;
      return;
    end if;
    return query select g.value, false from rowlock.once_get(once_put.queue, once_put.job_id, once_put.key) g;
    if found then
      return;
    end if;
  end loop;
  raise exception 'rowlock: the key % of job % was written by another transaction; try again', quote_literal(once_put.key), once_put.job_id
    using errcode = '40001';
end $$;

-- Forgets entries of jobs that are neither live nor dead (a dead one may be redriven) and that are older than this. Looks at
-- ten times as many entries as it may delete. Returns how many it deleted.
create or replace function rowlock.forget_once(older_than interval default '7 days', max_entries integer default 5000) returns bigint
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
  v_cut  timestamptz;
  v_gone bigint;
begin
  perform rowlock.check_age(older_than);
  perform rowlock.check_count('max_entries', max_entries, 1000000);
  v_cut := rowlock.clock() - older_than;
  with old as materialized (
    select o.queue, o.job_id, o.key from rowlock.once o where o.done_at < v_cut order by o.done_at limit 10 * max_entries
  ), over as materialized (
    select o.*
      from old o
     where not exists (select from rowlock.job j where j.queue = o.queue and j.id = o.job_id)
       and not exists (select from rowlock.dead d where d.queue = o.queue and d.id = o.job_id)
     limit max_entries
  )
  delete from rowlock.once o using over v where o.queue = v.queue and o.job_id = v.job_id and o.key = v.key;
  get diagnostics v_gone = row_count;
  return v_gone;
end $$;
