-- The doorbell: how an idle worker hears of a new job at once, without every enqueue paying for a NOTIFY.
--
-- A worker that has run dry polls for a moment, then arms the bell of its queues until some seconds ahead, and waits for NOTIFY
-- messages on the channel named as the schema, until it is time to arm again, or jobs come in a flood. An enqueue rings only while the bell is armed
-- (rowlock.ring). A job that is scheduled rings when it is stored, if it is due before the bell has to be armed again; a later
-- one is seen by whoever arms then.
--
-- Nobody may be missed. A producer that looked at the bell before it was armed, and commits after the worker's last look at
-- the table, rings nobody. So the worker arms, and then goes on polling until every transaction has ended that was in
-- progress when it armed (at most a second), and only then waits. A producer looks at the bell after its insert, which gave
-- it a transaction id: so if it looked too early, it was in progress.
--
-- Only workers disarm. A producer may roll back, and a sequence does not.
--
-- Messages on the channel: "ring QUEUE" there is something to do; "schedule QUEUE" there will be, soon; "disarm QUEUE" nobody rings
-- any more; "since QUEUE MICROSECONDS" (since 1970) something came up behind the cursors, not before this time; "rewind QUEUE" something did, nobody knows where; "queue NAME" a new queue; "cancel QUEUE ID" a running job is asked to stop.

-- Arms the bells of these queues. Returns a transaction id: when no older transaction is in progress (rowlock.oldest_xid), it
-- is safe to wait. next_at: when the next scheduled job of these queues is due.
create or replace function rowlock.arm(queues text[], for_ms integer, out xid bigint, out next_at timestamptz)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set jit = off
as $$
declare
  v_now  timestamptz := rowlock.clock();
  v_slot integer;
begin
  -- Setting a sequence needs no durability of its own.
  perform set_config('synchronous_commit', 'off', true);
  for v_slot in select distinct q.no % 32 from rowlock.queue q where q.name = any (queues) loop
    -- Never shorter than another worker wants it.
    perform setval(('rowlock.bell_' || v_slot)::regclass,
      greatest((extract(epoch from v_now) * 1000)::bigint + for_ms, pg_sequence_last_value(('rowlock.bell_' || v_slot)::regclass)));
  end loop;
  -- The xmax of a snapshot is one past the newest transaction that has *ended*: a producer that has an id but has not ended
  -- may lie at or above it. So end one here, made after the bells were set: a subtransaction that is given an id (a message in
  -- the write-ahead log does that, and leaves no row) and is rolled back. Whoever looked too early has a smaller id.
  begin
    perform pg_logical_emit_message(true, '@schema', '');
    raise exception using errcode = 'RL001';
  exception when sqlstate 'RL001' then
    null;
  end;
  xid := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  select min(n.run_at) into next_at
    from unnest(queues) as q (name),
         unnest('{4,3,2,1,0,-1,-2,-3,-4}'::smallint[]) as p (priority),
         lateral (select j.run_at from rowlock.job j
                   where rowlock.line(j.queue, j.priority) = rowlock.line(q.name, p.priority) and j.queue = q.name and j.priority = p.priority and j.run_at > v_now
                   order by j.run_at, j.id limit 1) n;
end $$;

-- For a worker in a flood: producers need not ring for a while. It silences the bell for others on the same queues too, so they are
-- told: they look, and arm again when they find nothing.
create or replace function rowlock.disarm(queues text[]) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_now   timestamptz := rowlock.clock();
  v_queue record;
begin
  perform set_config('synchronous_commit', 'off', true);
  for v_queue in select q.name, q.no from rowlock.queue q where q.no % 32 in (select o.no % 32 from rowlock.queue o where o.name = any (queues)) loop
    if rowlock.is_armed(v_queue.no, v_now) then
      perform pg_notify('@schema', 'disarm ' || v_queue.name);
    end if;
  end loop;
  for v_queue in select distinct q.no % 32 as slot from rowlock.queue q where q.name = any (queues) loop
    perform setval(('rowlock.bell_' || v_queue.slot)::regclass, 0);
  end loop;
end $$;

-- The oldest transaction in progress anywhere in the server.
create or replace function rowlock.oldest_xid() returns bigint
  language sql volatile
  set search_path = pg_catalog, pg_temp
as $$
  select pg_snapshot_xmin(pg_current_snapshot())::text::bigint
$$;
