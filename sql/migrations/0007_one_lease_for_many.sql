-- One lease for many jobs (functions/04_bundle.sql): jobs that were claimed together in a flood and are expected to be over in a moment. Their own rows are
-- only locked by that claim, not written; until its worker has said how they went, they are running because they are in here.
create table rowlock.bundle (
  token       bigint      not null primary key,  -- of the claim
  queue       text        not null,
  worker      bigint      not null,
  lease_until timestamptz not null,
  claimed_at  timestamptz not null,
  -- The last of the jobs, in the order in which they are claimed. Who claims behind it need not look at this bundle.
  last_at     timestamptz not null,
  last_id     bigint      not null,
  ids         bigint[]    not null               -- up to 900 fit into a page
) with (
  -- The ids stay in the row (7 kB) if they fit, and as they are: packing them would cost more than the claim.
  toast_tuple_target = 8160,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off
);
alter table rowlock.bundle alter column ids set storage external;
create index bundle_last on rowlock.bundle (queue, last_at, last_id);
