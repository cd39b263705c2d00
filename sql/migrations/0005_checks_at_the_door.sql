-- What a job must be is checked when a value comes in, not whenever a row is written.
--
-- Check constraints of a table are read from the catalog and made ready by every statement that writes to it, and evaluated for every row:
-- 15 of the 28 µs that a single INSERT takes, and a claim, which changes none of these columns, paid for them too. Those of a domain are kept
-- ready by the session, and evaluated only where a value becomes one of the domain. They have the names that they had.
create domain rowlock.job_queue as text constraint job_queue_length check (octet_length(value) between 1 and 200);
create domain rowlock.job_kind as text constraint job_kind_length check (octet_length(value) between 1 and 200);
create domain rowlock.job_priority as smallint constraint job_priority_range check (value between -4 and 4);
create domain rowlock.job_payload as jsonb constraint job_payload_object check (jsonb_typeof(value) = 'object');
create domain rowlock.job_time as timestamptz
  constraint job_run_at_finite check (value between '2000-01-01 00:00:00+00' and '2999-12-31 00:00:00+00');

-- A column that a view shows cannot change its type. The view stays, with its columns and its rights and whatever is built on it, and looks
-- nowhere until the functions of this version are installed, in the same transaction.
do $$
declare
  v_nothing text;
begin
  if to_regclass('rowlock.jobs') is not null then
    select string_agg(format('null::%s as %I', format_type(a.atttypid, a.atttypmod), a.attname), ', ' order by a.attnum)
      into v_nothing
      from pg_attribute a
     where a.attrelid = to_regclass('rowlock.jobs') and a.attnum > 0;
    execute 'create or replace view rowlock.jobs as select ' || v_nothing;
  end if;
end $$;

-- The table is written anew: nobody can use the queue meanwhile, some seconds for each million of jobs that wait.
alter table rowlock.job
  drop constraint job_queue_length,
  drop constraint job_kind_length,
  drop constraint job_priority_range,
  drop constraint job_payload_object,
  drop constraint job_run_at_finite,
  alter column queue type rowlock.job_queue,
  alter column kind type rowlock.job_kind,
  alter column priority type rowlock.job_priority,
  alter column payload type rowlock.job_payload,
  alter column run_at type rowlock.job_time;

-- Its statistics went with the old types.
analyze rowlock.job;

-- What they did is done by others now.
do $$
declare
  v_old regprocedure;
begin
  for v_old in
    select p.oid from pg_proc p where p.pronamespace = '@schema'::regnamespace and p.proname in ('finish_untouched', 'stopped_at')
  loop
    execute format('drop function %s', v_old);
  end loop;
end $$;
