-- Workers of one queue start where the last claim stopped (see claim.sql). Two more numbers that must not be rows, for each of the
-- groups of queues in 0001: the time (and the mark of the queue) and the id of that place.
do $$
begin
  for n in 0 .. 31 loop
    execute format('create sequence rowlock.cursor_at_%s minvalue 0 start 0', n);
    execute format('create sequence rowlock.cursor_id_%s minvalue 0 start 0', n);
  end loop;
end $$;

-- Postgres does not replace a function whose columns have other types, and nobody calls the other one any more.
drop function if exists rowlock.sweep(text, integer, bigint, bigint, integer, text[], boolean);
drop function if exists rowlock.claim_queue(text, integer, bigint, bigint, integer, text[], boolean, timestamptz[], bigint[], integer);
