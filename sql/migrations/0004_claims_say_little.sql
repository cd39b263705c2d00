-- No table changes. What claim_batch and sweep return has changed, and a build must not be served by functions of another shape: by this step it
-- knows. Postgres replaces a function only by one that returns the same, so the old ones go first. So does complete_batch, which takes more
-- arguments now: beside the old one, a call with as many as that took would mean either.
do $$
declare
  v_old regprocedure;
begin
  for v_old in
    select p.oid from pg_proc p where p.pronamespace = '@schema'::regnamespace and p.proname in ('claim_batch', 'sweep', 'complete_batch')
  loop
    execute format('drop function %s', v_old);
  end loop;
end $$;
