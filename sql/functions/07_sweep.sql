-- The full scan: finds what lies behind the cursors (jobs whose transaction committed late, released jobs, expired leases).
--
-- Workers call it about once a second for each of their queues while they have a free slot. In the whole fleet one at a
-- time scans a queue, and at most about once a second; less often as it gets dearer, so that all scans together stay below
-- 1 % of one core: after d ms of it the next is due in max(1000, 100 d) ms. The time of the next one is kept in a
-- sequence, outside of MVCC.
--
-- It goes by slices. Where something holds vacuum back it walks over every job finished since, 0.1 to 0.25 s for each million of them, and an index scan does not come back from
-- dead rows: all of it at once is felt by whoever works on the same core. So claims leave milestones, about every 30,000 jobs. Each scan goes from one to the next, as far as it comes in a few milliseconds; the next one goes on from there, and
-- begins anew after the last. And each looks at what lies behind the last ones, where claims are: what was committed late is most likely there. In this order, because where claims are there is
-- always something to take when a queue is full. A milestone is forgotten when there is little on both sides of it. Where there is none (those rows were purged, say) a slice is as dear as it is, and the
-- rest after it as long.
--
-- Neither the lock, nor the time, nor the milestones carry correctness. Two queues may share a sequence, and the cheap scans of one could keep
-- the other waiting for ever: with overdue = true (a worker says so when it could not scan a queue for long) a time that is
-- less than two seconds away is ignored. One further away is the price of a dear scan, and is respected. Such a worker also
-- goes on for longer: those whose turn it was may have other kinds, and have passed over what this one is after.

-- The milestones of a queue, in the order of claims; ord: the number of their priority, 1 for the highest. head_at and head_id: the last one of each priority, for priority 0 the last before
-- the given place.
create or replace function rowlock.milestones(
  queue text, front_at timestamptz, front_id bigint,
  out ord integer[], out at timestamptz[], out id bigint[], out head_at timestamptz[], out head_id bigint[]
)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_indexscan = on
  set enable_seqscan = off
  set enable_bitmapscan = off
  set jit = off
as $$
#variable_conflict use_column
begin
  select coalesce(array_agg(5 - m.priority), '{}'), array_agg(m.run_at), array_agg(m.id) into ord, at, id
    from (select m.priority, m.run_at, m.id
            from rowlock.milestone m
           where m.queue = milestones.queue
           order by m.priority desc, m.run_at, m.id
           limit 10000) m;
  select array_agg(coalesce(at[h.n], '-infinity') order by p.ord), array_agg(coalesce(id[h.n], 0) order by p.ord) into head_at, head_id
    from generate_series(1, 9) as p (ord)
    left join (select m.ord, max(m.n) as n
                 from unnest(ord, at, id) with ordinality as m (ord, at, id, n)
                where m.ord <> 5 or front_at is null or (m.at, m.id) <= (front_at, front_id)
                group by m.ord) h on h.ord = p.ord;
end $$;

create or replace function rowlock.forget_milestone(queue text, ord integer, at timestamptz, id bigint) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_indexscan = on
  set enable_seqscan = off
  set enable_bitmapscan = off
  set jit = off
as $$
#variable_conflict use_column
begin
  delete from rowlock.milestone m
   where m.queue = forget_milestone.queue and m.priority = 5 - ord and m.run_at = at and m.id = forget_milestone.id;
end $$;

-- How long a scan goes on beginning other slices. It is inlined (so it has no SET clause).
create or replace function rowlock.scan_for() returns interval
  language sql immutable
  return interval '5 ms';

-- Where a slice begins and ends, as claim_batch is told it: between two milestones, of which the first may be null, and in each priority before the last milestone of that (head_at and head_id): what
-- lies behind those is always scanned, and where claims are there is always something to take.
create or replace function rowlock.slice(
  after_ord integer, after_at timestamptz, after_id bigint, until_ord integer, until_at timestamptz, until_id bigint, head_at timestamptz[], head_id bigint[],
  out from_at timestamptz[], out from_id bigint[], out to_at timestamptz[], out to_id bigint[]
)
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select array_agg(case when p < after_ord or p > until_ord then 'infinity' when p = after_ord then after_at else '-infinity' end order by p),
         array_agg(case when p = after_ord then after_id else 0 end order by p),
         array_agg(case when p = until_ord and (until_at, until_id) < (head_at[p], head_id[p]) then until_at else head_at[p] end order by p),
         array_agg(case when p = until_ord and (until_at, until_id) < (head_at[p], head_id[p]) then until_id else head_id[p] end order by p)
    from generate_series(1, 9) p
$$;

-- Scans one slice. front_at and front_id: where claims stood when the whole scan began. Returns rows as claim_batch does; more: whether there was no room for all that lies behind the claims.
create or replace function rowlock.scan(
  from_queue text, want integer, worker bigint, token bigint, lease_ms integer, kinds text[], slice record,
  front_at timestamptz, front_id bigint
) returns table (id bigint, tid tid, kind text, payload jsonb, run_at timestamptz, rest record)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  c_no     constant integer := (rowlock.ensure_queue(from_queue)).no;
  v_front  record;                -- where claims stand now
  v_passed boolean := false;      -- whether what they have under way was passed over,
  v_lower  text;                  -- and where it was in lower priorities then
  v_job    record;
  v_left   integer := want;
  v_end    jsonb;
  v_lease  jsonb := '{}';         -- what holds for the jobs found
  v_parked integer := 0;
  v_at     timestamptz[] := slice.from_at;
  v_id     bigint[] := slice.from_id;
begin
  -- claim_batch visits a bounded number of rows; go on from where it stopped until there is nothing more or no more room. It takes no turn:
  -- over dead rows this takes a while, and claims would wait for it.
  loop
    for v_job in
      select * from rowlock.claim_batch(array[from_queue], array[v_left], v_left, worker, scan.token, scan.lease_ms, scan.kinds, true, v_at, v_id,
                                        turn => false, until_at => slice.to_at, until_id => slice.to_id)
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
    v_at := slice.from_at;
    v_id := slice.from_id;
    if v_end ? 'cursor_at' then
      v_at := array(select jsonb_array_elements_text(v_end -> 'cursor_at')::timestamptz);
      v_id := array(select jsonb_array_elements_text(v_end -> 'cursor_id')::bigint);
      -- It has come to where claims were when it began, and they have gone on: what lies between is theirs, and is left to the next scan if they leave some of it. It would follow
      -- them for as long as they find jobs, and get hardly any of what they lock. So it looks once at what lies ahead of them, and at lower priorities if that is nothing.
      if v_passed then
        exit when v_lower = row(v_at[6 :], v_id[6 :])::text;
        v_at[5] := 'infinity';
      elsif slice.from_at[5] < 'infinity' and (v_at[5], v_id[5]) >= (front_at, front_id) then
        v_front := rowlock.last_stop(c_no, rowlock.clock());
        if (v_front.at, v_front.id) > (front_at, front_id) then
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
  id := null; tid := null; kind := null; run_at := null; rest := null;
  payload := jsonb_build_object('queue', from_queue, 'clock', v_end -> 'clock', 'parked', v_parked, 'more', v_left <= 0 and not v_passed) || v_lease;
  return next;
end $$;

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
  c_little constant interval := '2 ms';   -- two slices that take no longer become one
  c_many   constant integer := 50;        -- with more milestones than this there may be new ones faster than it comes to them
  c_queue  constant rowlock.queue := rowlock.ensure_queue(from_queue);
  c_front  constant record := rowlock.last_stop(c_queue.no, rowlock.clock());  -- where claims stand as it begins
  c_no     constant integer := greatest(c_queue.no, 0);
  c_due    constant regclass := ('rowlock.sweep_' || c_no % 32)::regclass;
  c_next   constant regclass := ('rowlock.slice_' || c_no % 32)::regclass;
  c_whose  constant bigint := ((c_no / 32 & 255) << 8) | (hashtextextended(coalesce(sweep.kinds::text, ''), 0) & 255);  -- the queue, and what is looked for in it
  c_for    constant interval := rowlock.scan_for() * case when overdue then 5 else 1 end;
  v_stone  record;                -- the milestones,
  v_stones integer;               -- and how many there are
  v_slice  integer;               -- the slice that is scanned now: up to this milestone, from the one before; 0 for the rest, behind the last of each priority
  v_next   integer;               -- the one that is next,
  v_done   integer := 0;          -- and how many have been scanned
  v_span   record;                -- from where to where it goes,
  v_since  timestamptz;           -- since when,
  v_took   interval;              -- how long that took,
  v_before interval;              -- and the one before it,
  v_last   interval;              -- and the last before the rest
  v_gone   integer := 0;          -- milestones before the next one that are forgotten now
  v_job    record;
  v_left   integer := want;
  v_end    jsonb := '{"parked": 0}';
begin
  perform set_config('synchronous_commit', 'off', true);
  if sweep.token is null or sweep.token = 0 then
    perform rowlock.refuse('token', sweep.token::text, 'is no token: make a random number for each claim');
  end if;
  if pg_sequence_last_value(c_due) > extract(epoch from c_began) * 1000 + (case when overdue then 2000 else 0 end)
     or not pg_try_advisory_xact_lock(hashtextextended('@schema' || ' sweep ' || from_queue, 0)) then
    payload := jsonb_build_object('queue', from_queue);
    return next;
    return;
  end if;
  -- Others may skip this round from now on, not only when it is over.
  perform setval(c_due, (extract(epoch from c_began) * 1000)::bigint + 1000);
  perform rowlock.settle_bundles(from_queue);

  v_stone := rowlock.milestones(from_queue, c_front.at, c_front.id);
  -- In a paused queue nothing is looked at, and that says nothing of what there is.
  v_stones := case when c_queue.paused then 0 else cardinality(v_stone.ord) end;
  v_slice := 0;
  if v_stones > 0 then
    v_next := pg_sequence_last_value(c_next) >> 16;
    if v_next is null or (pg_sequence_last_value(c_next) & 65535) <> c_whose then
      -- Another queue goes by the same sequence, or somebody who passes over what this caller is after. So that each slice has its turn some time:
      v_next := floor(random() * v_stones);
    end if;
    v_next := v_next % v_stones + 1;
    -- So that each has its turn, however fast the last ones go away from here: one anywhere, then those that are next.
    v_slice := case when v_stones > c_many then 1 + floor(random() * v_stones) else v_next end;
  end if;
  loop
    v_since := clock_timestamp();
    if v_slice = 0 then
      select v_stone.head_at as from_at, v_stone.head_id as from_id, null::timestamptz[] as to_at, null::bigint[] as to_id into v_span;
    else
      v_span := rowlock.slice(v_stone.ord[v_slice - 1], v_stone.at[v_slice - 1], v_stone.id[v_slice - 1],
                              v_stone.ord[v_slice], v_stone.at[v_slice], v_stone.id[v_slice], v_stone.head_at, v_stone.head_id);
    end if;
    for v_job in
      select * from rowlock.scan(from_queue, v_left, worker, sweep.token, sweep.lease_ms, sweep.kinds, v_span, c_front.at, c_front.id)
    loop
      if v_job.id is null then
        v_end := v_end || v_job.payload || jsonb_build_object('parked', (v_end ->> 'parked')::integer + (v_job.payload ->> 'parked')::integer);
        continue;
      end if;
      v_left := v_left - 1;
      id := v_job.id; tid := v_job.tid; kind := v_job.kind; payload := v_job.payload; run_at := v_job.run_at; rest := v_job.rest;
      return next;
    end loop;
    v_took := clock_timestamp() - v_since;
    if v_slice = 0 then
      if v_left > 0 and v_took + v_last < c_little then
        perform rowlock.forget_milestone(from_queue, v_stone.ord[v_stones], v_stone.at[v_stones], v_stone.id[v_stones]);
      end if;
      exit;
    end if;
    if v_slice <> v_next then
      exit when v_left <= 0;
      v_slice := v_next;
      continue;
    end if;
    if v_left > 0 and v_took + v_before < c_little then
      perform rowlock.forget_milestone(from_queue, v_stone.ord[v_slice - 1], v_stone.at[v_slice - 1], v_stone.id[v_slice - 1]);
      v_gone := v_gone + 1;
      v_took := v_took + v_before;  -- they are one now
    end if;
    v_done := v_done + 1;
    v_before := v_took;
    v_next := v_slice + 1;
    if v_slice = v_stones then
      v_next := 1;
      v_last := v_took;
      v_before := null;
      v_gone := 0;
    end if;
    -- If there was no room for all of it, claims go on from there.
    exit when v_left <= 0;
    v_slice := case when v_done = v_stones or clock_timestamp() - c_began > c_for then 0 else v_next end;
  end loop;

  if v_stones > 0 then
    perform setval(c_next, ((v_next - v_gone - 1)::bigint << 16) | c_whose);
  end if;
  perform setval(c_due, (extract(epoch from clock_timestamp()) * 1000
    + greatest(1000, 100 * extract(epoch from clock_timestamp() - c_began) * 1000))::bigint);
  id := null; tid := null; kind := null; run_at := null; rest := null;
  payload := v_end;
  return next;
end $$;
