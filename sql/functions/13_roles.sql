-- Who may do what. Nothing here is open to PUBLIC (99_install.sql revokes it). A role is given one or more of four kinds of
-- access; whoever has a function needs no rights on the tables behind it.
--   producer  enqueue, and COPY into `job`
--   worker    producer, and claim, acknowledge, wait, register, remember, maintain, and see how full the queues are
--   reader    look at everything: views, stats, tables. Payloads too
--   admin     all of the above, and manage jobs, queues and access
-- What stands in no list is internal: the functions in the lists reach it with the owner's rights.

-- The functions of one kind of access, without those of the kinds that it contains.
create or replace function rowlock.access_functions(access text) returns text[]
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select case access
    when 'producer' then '{clock, stamp, enqueue, enqueue_plain, enqueue_batch, enqueue_many, ensure_queue, announce}'::text[]
    when 'worker' then '{claim, claim_batch, claim_fresh, claim_bundle, close_bundles, sweep, complete, complete_batch, complete_untouched, fail, snooze, release, extend, progress, arm, disarm, oldest_xid, queue_names,
                         register_worker, heartbeat, unregister_worker, once_get, once_put, maintain, maintain_if_due, depth}'
    when 'reader' then '{clock, line, find_job, find_jobs, why, depth, stats}'
    when 'admin' then '{set_queue, pause, resume, cancel, retry, delete, redrive, discard, purge, replay, archive_batch, archive_done,
                        make_partitions, drop_partitions, retain, start_archive, heal_queues, forget_workers, forget_once, grant_access, revoke_access}'
  end
$$;

-- Gives a role access: producer, worker, reader or admin. Safe to repeat, and kinds add up.
create or replace function rowlock.grant_access(role_name text, access text) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_parts text[];
  v_part  text;
  v_names text[];
  v_oid   oid;
begin
  perform rowlock.check_role(role_name);
  v_parts := case access when 'producer' then '{producer}'::text[] when 'worker' then '{producer, worker}' when 'reader' then '{reader}'
                         when 'admin' then '{producer, worker, reader, admin}' end;
  if v_parts is null then
    perform rowlock.refuse('access', access, 'is no kind of access: known are producer, worker, reader, admin');
  end if;
  -- Two grants at once would trip over each other in the catalog.
  perform pg_advisory_xact_lock(hashtextextended('@schema' || ' access', 0));
  execute format('grant usage on schema %I to %I', '@schema', role_name);
  -- Which version this is: the first thing that a program asks.
  execute format('grant select on rowlock.migration to %I', role_name);
  foreach v_part in array v_parts loop
    v_names := rowlock.access_functions(v_part);
    for v_oid in
      select p.oid from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = '@schema' and p.proname = any (v_names)
    loop
      execute format('grant execute on function %s to %I', v_oid::regprocedure, role_name);
    end loop;
    case v_part
      when 'producer' then
        execute format('grant insert on rowlock.job to %I', role_name);
        execute format('grant usage on sequence rowlock.job_id to %I', role_name);
      when 'worker' then
        -- Which queues there are, to subscribe by pattern, and how full, for metrics; and the memory of the tables that are worked as queues.
        execute format('grant select on rowlock.queue, rowlock.queues to %I', role_name);
        execute format('grant select, insert, update, delete on rowlock.table_failure, rowlock.table_batch to %I', role_name);
      when 'reader' then
        execute format('grant select on rowlock.job, rowlock.finished, rowlock.finished_default, rowlock.dead, rowlock.queue, rowlock.worker, rowlock.once, '
          'rowlock.retained, rowlock.table_failure, rowlock.table_batch, rowlock.jobs, rowlock.queues, rowlock.workers to %I', role_name);
      else
        null;
    end case;
  end loop;
end $$;

-- Takes all access to this schema from a role.
create or replace function rowlock.revoke_access(role_name text) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform rowlock.check_role(role_name);
  perform pg_advisory_xact_lock(hashtextextended('@schema' || ' access', 0));
  execute format('revoke all on all functions in schema %I from %I', '@schema', role_name);
  execute format('revoke all on all tables in schema %I from %I', '@schema', role_name);
  execute format('revoke all on all sequences in schema %I from %I', '@schema', role_name);
  execute format('revoke all on schema %I from %I', '@schema', role_name);
end $$;

create or replace function rowlock.check_role(role_name text) returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if not exists (select from pg_roles r where r.rolname = role_name) then
    perform rowlock.refuse('role_name', role_name, 'is no role of this server');
  elsif role_name = current_user then
    perform rowlock.refuse('role_name', role_name, 'owns all of this already');
  end if;
end $$;

-- Gives every role that has access the functions that were added since: run at the end of an upgrade. A role is taken to
-- have a kind of access when it holds what is hardest to come by without it, so a role that somebody gave a single function
-- by hand keeps just that.
create or replace function rowlock.refresh_access() returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_each record;
begin
  for v_each in
    with execute_on as (
      select a.grantee, p.proname
        from pg_proc p join pg_namespace n on n.oid = p.pronamespace, aclexplode(p.proacl) a
       where n.nspname = '@schema' and a.privilege_type = 'EXECUTE' and a.grantee <> p.proowner
    ), held as (
      select a.grantee, 'producer' as access
        from pg_class c, aclexplode(c.relacl) a
       where c.oid = 'rowlock.job'::regclass and a.privilege_type = 'INSERT' and a.grantee <> c.relowner
         and exists (select from execute_on e where e.grantee = a.grantee and e.proname = 'enqueue_batch')
      union
      select e.grantee, 'worker' from execute_on e join execute_on f using (grantee) where e.proname = 'heartbeat' and f.proname = 'maintain'
      union
      select a.grantee, 'reader'
        from pg_class c, aclexplode(c.relacl) a
       where c.oid = 'rowlock.finished'::regclass and a.privilege_type = 'SELECT' and a.grantee <> c.relowner
         and exists (select from execute_on e where e.grantee = a.grantee and e.proname = 'stats')
      union
      select e.grantee, 'admin' from execute_on e where e.proname = 'grant_access'
    )
    select distinct r.rolname, h.access from held h join pg_roles r on r.oid = h.grantee
  loop
    perform rowlock.grant_access(v_each.rolname, v_each.access);
  end loop;
end $$;
