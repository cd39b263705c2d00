-- Postgres replaces a function only by one that returns the same. Those that returned something else in an older version go first.
do $$
declare
  v_old regprocedure;
begin
  for v_old in
    select p.oid
      from pg_proc p
     where p.pronamespace = '@schema'::regnamespace and p.proname in ('claim_batch', 'sweep') and p.proargnames @> '{cursor_at}'
  loop
    execute format('drop function %s', v_old);
  end loop;
end $$;
