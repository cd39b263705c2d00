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

-- Returns rows as claim_batch does; there is no "more" in its last one when it was not this caller's turn, and it is true if there was no room for all that lies behind the claims.
create or replace function rowlock.sweep(
  from_queue text, want integer, worker bigint, token bigint, lease_ms integer default null, kinds text[] default null,
  overdue boolean default false
) returns table (id bigint, tid tid, kind text, payload jsonb, run_at timestamptz, rest record)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  c_began  constant timestamptz := clock_timestamp();  -- how long a scan takes is measured, not decided: never the test clock
  c_no     constant integer := (rowlock.ensure_queue(from_queue)).no;
  c_front  constant record := rowlock.last_stop(c_no, rowlock.clock());  -- where claims stand as it begins
  v_due    regclass := ('rowlock.sweep_' || greatest(c_no, 0) % 32)::regclass;
  v_front  record;                -- and now
  v_passed boolean := false;      -- whether what they have under way was passed over,
  v_lower  text;                  -- and where it was in lower priorities then
  v_job    record;
  v_left   integer := want;
  v_end    jsonb;
  v_lease  jsonb := '{}';         -- what holds for the jobs found
  v_parked integer := 0;
  v_at     timestamptz[];
  v_id     bigint[];
begin
  perform set_config('synchronous_commit', 'off', true);
  if sweep.token is null or sweep.token = 0 then
    perform rowlock.refuse('token', sweep.token::text, 'is no token: make a random number for each claim');
  end if;
  if pg_sequence_last_value(v_due) > extract(epoch from c_began) * 1000 + (case when overdue then 2000 else 0 end)
     or not pg_try_advisory_xact_lock(hashtextextended('@schema' || ' sweep ' || from_queue, 0)) then
    payload := jsonb_build_object('queue', from_queue);
    return next;
    return;
  end if;
  -- Others may skip this round from now on, not only when it is over.
  perform setval(v_due, (extract(epoch from c_began) * 1000)::bigint + 1000);
  perform rowlock.settle_bundles(from_queue);

  -- claim_batch visits a bounded number of rows; go on from where it stopped until there is nothing more or no more room. It takes no turn:
  -- over a million dead rows this takes a while, and claims would wait for it.
  loop
    for v_job in
      select * from rowlock.claim_batch(array[from_queue], array[v_left], v_left, worker, sweep.token, sweep.lease_ms, sweep.kinds, true, v_at, v_id,
                                        turn => false)
    loop
      if v_job.id is null then
        v_end := v_job.payload;
        continue;
      end if;
      v_left := v_left - 1;
      id := v_job.id; tid := v_job.tid; kind := v_job.kind; payload := v_job.payload; run_at := v_job.run_at; rest := v_job.rest;
      return next;
    end loop;
    if v_end ? 'mark' then
      -- A later claim that brings none does not say it.
      v_lease := jsonb_build_object('lease_until', v_end -> 'lease_until', 'max_attempts', v_end -> 'max_attempts', 'mark', v_end -> 'mark');
    end if;
    v_parked := v_parked + coalesce((v_end ->> 'parked')::integer, 0);
    -- What was put away took room that something else may need.
    exit when v_left <= 0 or v_end ->> 'parked' = '0' and (v_end -> 'more' = 'false' or not v_end ? 'cursor_at');
    v_at := null;
    v_id := null;
    if v_end ? 'cursor_at' then
      v_at := array(select jsonb_array_elements_text(v_end -> 'cursor_at')::timestamptz);
      v_id := array(select jsonb_array_elements_text(v_end -> 'cursor_id')::bigint);
      -- It has come to where claims were when it began, and they have gone on: what lies between is theirs, and is left to the next scan if they leave some of it. It would follow
      -- them for as long as they find jobs, and get hardly any of what they lock. So it looks once at what lies ahead of them, and at lower priorities if that is nothing.
      if v_passed then
        exit when v_lower = row(v_at[6 :], v_id[6 :])::text;
        v_at[5] := 'infinity';
      elsif (v_at[5], v_id[5]) >= (c_front.at, c_front.id) then
        v_front := rowlock.last_stop(c_no, rowlock.clock());
        if (v_front.at, v_front.id) > (c_front.at, c_front.id) then
          v_passed := true;
          v_lower := row(v_at[6 :], v_id[6 :])::text;
          if (v_front.at, v_front.id) > (v_at[5], v_id[5]) then
            v_at[5] := v_front.at;
            v_id[5] := v_front.id;
          end if;
        end if;
      end if;
    end if;
  end loop;

  perform setval(v_due, (extract(epoch from clock_timestamp()) * 1000
    + greatest(1000, 100 * extract(epoch from clock_timestamp() - c_began) * 1000))::bigint);
  id := null; tid := null; kind := null; run_at := null; rest := null;
  payload := jsonb_build_object('queue', from_queue, 'clock', v_end -> 'clock', 'parked', v_parked, 'more', v_left <= 0 and not v_passed) || v_lease;
  return next;
end $$;
