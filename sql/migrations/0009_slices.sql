-- Where the full scan of a queue may stop for a while (functions/07_sweep.sql): a place in the order of claims for about every 30,000 jobs that were claimed. Written by claims, and forgotten
-- by the scan when there is little between two of them. Few rows, which are never updated: nothing piles up here when something holds vacuum back.
create table rowlock.milestone (
  queue    text        not null,
  priority smallint    not null,
  run_at   timestamptz not null,
  id       bigint      not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, vacuum_truncate = off);
create index milestone_place on rowlock.milestone (queue, priority desc, run_at, id);

-- More numbers that must not be rows: where each scan goes on, for each of the groups of queues in 0001, and when the house was last kept.
do $$
begin
  for n in 0 .. 31 loop
    execute format('create sequence rowlock.slice_%s minvalue 0 start 0', n);
  end loop;
end $$;
create sequence rowlock.kept_house minvalue 0 start 0;

-- Postgres does not replace a function that takes or returns something else than before.
do $$
declare
  v_old regprocedure;
begin
  for v_old in
    select p.oid from pg_proc p where p.pronamespace = '@schema'::regnamespace and p.proname in ('look', 'look_ahead', 'claim_batch', 'rewind')
  loop
    execute format('drop function %s', v_old);
  end loop;
end $$;
