-- The full scan: finds what lies behind the cursors (jobs whose transaction committed late, released jobs, expired leases).
--
-- Workers call it about once a second for each of their queues while they have a free slot. In the whole fleet one at a
-- time scans a queue, and at most about once a second; less often as it gets dearer, so that all scans together stay below
-- 1 % of one core: after a scan of d ms the next is due in max(1000, 100 d) ms. The time of the next one is kept in a
-- sequence, outside of MVCC.
--
-- Neither the lock nor the time carries correctness. Two queues may share a sequence, and the cheap scans of one could keep
-- the other waiting for ever: with overdue = true (a worker says so when it could not scan a queue for long) a time that is
-- less than two seconds away is ignored. One further away is the price of a dear scan, and is respected.

-- Returns rows as claim_batch does. Its last row has more = null when it was not this caller's turn.
create or replace function rowlock.sweep(
  from_queue text, want integer, worker bigint, token bigint, lease_ms integer default null, kinds text[] default null,
  overdue boolean default false
) returns table (
  queue text, id bigint, kind text, payload jsonb, priority smallint, attempt integer, failures smallint, crashes smallint,
  max_attempts smallint, run_at timestamptz, created_at timestamptz, lease_until timestamptz, tid tid, timeout_ms bigint,
  expires_at timestamptz, tags text[], metadata jsonb, trace text,
  cursor_at timestamptz[], cursor_id bigint[], parked integer, more boolean, clock timestamptz
)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  c_began constant timestamptz := clock_timestamp();  -- how long a scan takes is measured, not decided: never the test clock
  v_due   regclass := ('rowlock.sweep_' || greatest((rowlock.ensure_queue(from_queue)).no, 0) % 32)::regclass;
  v_job   record;
  v_left  integer := want;
  v_parked integer := 0;
  v_at    timestamptz[];
  v_id    bigint[];
  v_more  boolean;
  v_put_away integer := 0;
  v_clock timestamptz;
begin
  perform set_config('synchronous_commit', 'off', true);
  if sweep.token is null or sweep.token = 0 then
    perform rowlock.refuse('token', sweep.token::text, 'is no token: make a random number for each claim');
  end if;
  if pg_sequence_last_value(v_due) > extract(epoch from c_began) * 1000 + (case when overdue then 2000 else 0 end)
     or not pg_try_advisory_xact_lock(hashtextextended('@schema' || ' sweep ' || from_queue, 0)) then
    queue := from_queue;
    parked := 0;
    return next;
    return;
  end if;
  -- Others may skip this round from now on, not only when it is over.
  perform setval(v_due, (extract(epoch from c_began) * 1000)::bigint + 1000);

  -- claim_batch visits a bounded number of rows; go on from where it stopped until there is nothing more or no more room. It takes no turn:
  -- over a million dead rows this takes a while, and claims would wait for it.
  loop
    for v_job in
      select * from rowlock.claim_batch(array[from_queue], array[v_left], v_left, worker, sweep.token, sweep.lease_ms, sweep.kinds, true, v_at, v_id,
                                        turn => false)
    loop
      if v_job.id is null then
        v_at := v_job.cursor_at;
        v_id := v_job.cursor_id;
        v_parked := v_parked + v_job.parked;
        v_put_away := v_job.parked;
        v_more := v_job.more;
        v_clock := v_job.clock;
        continue;
      end if;
      v_left := v_left - 1;
      queue := v_job.queue; id := v_job.id; kind := v_job.kind; payload := v_job.payload; priority := v_job.priority;
      attempt := v_job.attempt; failures := v_job.failures; crashes := v_job.crashes; max_attempts := v_job.max_attempts;
      run_at := v_job.run_at; created_at := v_job.created_at; lease_until := v_job.lease_until; tid := v_job.tid;
      timeout_ms := v_job.timeout_ms; expires_at := v_job.expires_at; tags := v_job.tags; metadata := v_job.metadata;
      trace := v_job.trace;
      return next;
    end loop;
    -- What was put away took room that something else may need.
    exit when v_left <= 0 or v_put_away = 0 and (not v_more or v_at is null);
  end loop;

  perform setval(v_due, (extract(epoch from clock_timestamp()) * 1000
    + greatest(1000, 100 * extract(epoch from clock_timestamp() - c_began) * 1000))::bigint);
  queue := from_queue; id := null; kind := null; payload := null; priority := null; attempt := null; failures := null;
  crashes := null; max_attempts := null; run_at := null; created_at := null; lease_until := null; tid := null;
  timeout_ms := null; expires_at := null; tags := null; metadata := null; trace := null;
  parked := v_parked; more := v_left <= 0; clock := v_clock;
  return next;
end $$;
