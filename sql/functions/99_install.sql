-- What has to happen at the end of every installation and upgrade, when all functions are there.

-- Functions are open to everybody by default in Postgres. Here nothing is: see 13_roles.sql for who gets what. Roles that
-- were given access before an upgrade get the functions that came with it.
do $$
begin
  execute format('revoke all on schema %I from public', '@schema');
  execute format('revoke all on all tables in schema %I from public', '@schema');
  execute format('revoke all on all sequences in schema %I from public', '@schema');
  execute format('revoke all on all functions in schema %I from public', '@schema');
  perform rowlock.refresh_access();
  -- The first days of history must not depend on when a worker first starts.
  perform rowlock.make_partitions();
end $$;
