-- What has to happen at the end of every installation and upgrade, when all functions are there.

-- Functions are open to everybody by default in Postgres. Here nothing is: see 13_roles.sql for who gets what. Roles that
-- were given access before an upgrade get the functions that came with it.
do $$
declare
  v_old regprocedure;
begin
  -- A function whose arguments have changed since the last version is another one to Postgres: the old one would stay beside it, and calls
  -- would be ambiguous. All of this version have just been made, by this transaction; what others made under other names is theirs.
  for v_old in
    select p.oid
      from pg_proc p
     where p.pronamespace = '@schema'::regnamespace and p.xmin <> pg_current_xact_id()::xid
       and exists (select from pg_proc n where n.pronamespace = p.pronamespace and n.proname = p.proname and n.xmin = pg_current_xact_id()::xid)
  loop
    execute format('drop routine %s', v_old);
  end loop;
  execute format('revoke all on schema %I from public', '@schema');
  execute format('revoke all on all tables in schema %I from public', '@schema');
  execute format('revoke all on all sequences in schema %I from public', '@schema');
  execute format('revoke all on all functions in schema %I from public', '@schema');
  perform rowlock.refresh_access();
  -- The first days of history must not depend on when a worker first starts.
  perform rowlock.make_partitions();
end $$;
