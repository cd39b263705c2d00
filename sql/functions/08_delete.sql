-- Delete: jobs by id, wherever they are. The habits are those of 08_manage.sql.

-- Deletes jobs for good, without a trace: waiting ones, dead ones, and the history of finished ones. A running one is left
-- alone: cancel it first. answer: deleted; running; busy (locked by an open transaction: try again); not_found. One row per
-- id, in any order.
create or replace function rowlock.delete(ids bigint[]) returns table (id bigint, answer text)
  language plpgsql volatile security definer
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
  v_now    timestamptz := rowlock.clock();
  v_left   bigint[];
  v_each   record;
  v_mine   bigint[];
  v_locked record;
  v_busy   bigint[];
begin
  perform rowlock.check_ids(ids);
  v_left := array(select distinct u from unnest(ids) u);

  -- Live ones first: a job that dies or finishes meanwhile is then found where it went.
  for v_each in
    select j.queue, array_agg(j.id order by j.id) as ids
      from unnest(v_left) as i (id) join rowlock.job j on j.id = i.id
     group by j.queue order by j.queue
  loop
    v_mine := rowlock.write_leases(v_each.queue, v_each.ids);
    with locked as materialized (
      select j.id, j.lease_until > v_now as running
        from unnest(v_mine) as i (id) join rowlock.job j on j.id = i.id
       where j.queue = v_each.queue
       order by i.id
         for update of j skip locked
    )
    select coalesce(array_agg(l.id), '{}') as ids, coalesce(array_agg(l.id) filter (where l.running), '{}') as running,
           coalesce(array_agg(l.id) filter (where not l.running), '{}') as waiting
      into v_locked
      from locked l;
    delete from rowlock.job j where j.id = any (v_locked.waiting) and j.queue = v_each.queue;
    select coalesce(array_agg(j.id), '{}') into v_busy
      from (select unnest(v_each.ids) except select unnest(v_locked.ids)) as i (id) join rowlock.job j on j.id = i.id
     where j.queue = v_each.queue;
    return query select w, 'deleted' from unnest(v_locked.waiting) w;
    return query select r, 'running' from unnest(v_locked.running) r;
    return query select b, 'busy' from unnest(v_busy) b;
    v_left := array(select unnest(v_left) except select unnest(v_locked.ids) except select unnest(v_busy));
  end loop;

  for v_each in
    select d.queue, array_agg(d.id order by d.id) as ids
      from unnest(v_left) as i (id) join rowlock.dead d on d.id = i.id
     group by d.queue order by d.queue
  loop
    with locked as materialized (
      select d.id
        from unnest(v_each.ids) as i (id) join rowlock.dead d on d.id = i.id
       where d.queue = v_each.queue
       order by i.id
         for update of d skip locked
    )
    select coalesce(array_agg(l.id), '{}') as ids into v_locked from locked l;
    delete from rowlock.dead d where d.id = any (v_locked.ids) and d.queue = v_each.queue;
    select coalesce(array_agg(d.id), '{}') into v_busy
      from (select unnest(v_each.ids) except select unnest(v_locked.ids)) as i (id) join rowlock.dead d on d.id = i.id
     where d.queue = v_each.queue;
    return query select w, 'deleted' from unnest(v_locked.ids) w;
    return query select b, 'busy' from unnest(v_busy) b;
    v_left := array(select unnest(v_left) except select unnest(v_locked.ids) except select unnest(v_busy));
  end loop;

  for v_each in
    select f.queue, array_agg(f.id order by f.id) as ids
      from unnest(v_left) as i (id) join rowlock.finished f on f.id = i.id
     group by f.queue order by f.queue
  loop
    delete from rowlock.finished f where f.id = any (v_each.ids) and f.queue = v_each.queue;
    return query select w, 'deleted' from unnest(v_each.ids) w;
    v_left := array(select unnest(v_left) except select unnest(v_each.ids));
  end loop;

  return query select l, 'not_found' from unnest(v_left) l;
end $$;
