-- Bundles: one lease for many jobs.
--
-- Writing a lease into each row is most of what a claim costs (1.5 µs of 2.4 for each job), and a job that is over in a moment needs none of its own. So in a
-- flood of short jobs a claim locks the rows, which is a third of that, and writes one row with their ids. Whoever needs to know more of one of the jobs
-- has its lease written first (write_leases): an acknowledgement other than success, a renewal, somebody who cancels or deletes it. The worker does so for all that are not
-- over after a second, and anybody does when the bundle's lease has run out (settle_bundles).
--
-- What keeps two from taking the same row. Whoever takes a row, one way or the other, locks or writes it first and then, in a statement of its own, looks whether it is in
-- somebody's bundle (not_bundled). A claim that is still under way has the row locked; one that is over shows its bundle to every statement that begins after it.
-- So nothing depends on turns or on the places where claims stop: those only keep them out of each other's way. It does depend on statements that see what is committed
-- when they begin: at the isolation levels above that, jobs of queues that can have bundles are neither claimed nor managed (check_isolation).
--
-- A job is in a bundle as long as its row says nothing of a lease since then: who has one of its own, or had, was claimed at that time or later. (Where the clock has been set back,
-- a job may have been claimed in what is the future now. It goes into no bundle.)
--
-- A bundle holds nothing but jobs of priority 0 that were free, have no unique key and do not expire: what becomes of those while they wait is decided by others, who
-- would have to ask here each time. Views show jobs of a bundle as ready: for that second, or for the rest of the lease if the worker has died.

create or replace function rowlock.check_isolation(queue text) returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_queue rowlock.queue;
begin
  if current_setting('transaction_isolation') in ('read committed', 'read uncommitted') then
    return;
  end if;
  v_queue := rowlock.look_up_queue(queue);
  if v_queue.retention = interval '0' and v_queue.kinds = '{}' then
    raise exception 'rowlock: jobs of a queue without history are claimed, cancelled and deleted at isolation level read committed only, not at %',
        current_setting('transaction_isolation')
      using errcode = '0A000';
  end if;
end $$;

-- Whether there is a bundle that ends at or behind the given place in the queue, and holds one of these jobs if they are given.
create or replace function rowlock.any_bundle(queue text, at timestamptz, id bigint, ids bigint[] default null) returns boolean
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
  perform rowlock.check_isolation(queue);
  return exists (select from rowlock.bundle b
                  where b.queue = any_bundle.queue and (b.last_at, b.last_id) >= (at, any_bundle.id)
                    and (any_bundle.ids is null or b.ids && any_bundle.ids));
end $$;

-- Reads what is at these places. By itself, because only here are index scans off: a plan for a table that was empty when it was made would rather walk over all of it than look at so many places.
create or replace function rowlock.read_places(queue text, tids tid[], out places tid[], out ids bigint[], out claimed_ats timestamptz[])
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_indexscan = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set jit = off
as $$
#variable_conflict use_column
begin
  select array_agg(j.ctid), array_agg(j.id), array_agg(j.claimed_at) into places, ids, claimed_ats
    from rowlock.job j
   where j.ctid = any (tids) and j.queue = read_places.queue;
end $$;

-- Those of the places where no row of a bundle is, in their order; the caller has locked the rows, and not written them. Only bundles that end at or behind the given place in the queue are looked at.
create or replace function rowlock.not_bundled(queue text, at timestamptz, id bigint, tids tid[]) returns tid[]
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_indexscan = on
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_hashjoin = on -- the caller's settings reach to here, and something has to be on
  set enable_nestloop = off
  set enable_mergejoin = off
  set jit = off
as $$
#variable_conflict use_column
declare
  v_read record;
begin
  if tids is null or tids = '{}' then
    return tids;
  end if;
  if not rowlock.any_bundle(queue, at, not_bundled.id) then
    return tids;
  end if;
  v_read := rowlock.read_places(queue, tids);
  return array(select t.tid
                 from unnest(tids) with ordinality as t (tid, n)
                 left join (select j.tid
                              from unnest(v_read.places, v_read.ids, v_read.claimed_ats) as j (tid, id, claimed_at)
                              join (select b.claimed_at, u.id
                                      from (select b.claimed_at, b.ids from rowlock.bundle b where b.queue = not_bundled.queue and (b.last_at, b.last_id) >= (at, not_bundled.id)) b,
                                           unnest(b.ids) as u (id)) b on b.id = j.id and j.claimed_at < b.claimed_at) b on b.tid = t.tid
                where b.tid is null
                order by t.n);
end $$;

-- Whether whoever left this sign in the xmax of a row is gone. A sign may stand for several at once and then be another number than that of a transaction, and this be wrong: it is only a hint.
create or replace function rowlock.is_over(xid xid) returns boolean
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  c_next constant bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  v_full bigint := c_next >> 32 << 32 | xid::text::bigint;  -- with the upper half, which is not in the row
begin
  if v_full >= c_next then
    v_full := v_full - 4294967296;
  end if;
  -- What is newer than the snapshot looks as if it were very old.
  return v_full > greatest(c_next - 2147483648, 2) and pg_xact_status(v_full::text::xid8) is distinct from 'in progress';
end $$;

-- Looks ahead in a flood: the next `most` rows of a queue that do not run, in order and from a position in each priority on; plain: whether each of them may go into a bundle, but for
-- those that somebody has locked, or had (signs: who). It is rowlock.look (04_claim.sql) without all that only the others need.
--
-- What runs is passed over, as look does: a full scan may have taken a single job from where all the others are about to claim, and for want of that one nobody got a bundle for half a second.
create or replace function rowlock.look_ahead(
  queue text, after_at timestamptz[], after_id bigint[], until_at timestamptz, most integer, now timestamptz, kinds text[],
  out tids tid[], out ids bigint[], out plain boolean, out signs xid[]
)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_indexscan = on
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_material = off
  set jit = off
as $$
#variable_conflict use_column
declare
  c_priority constant smallint[] := '{4,3,2,1,0,-1,-2,-3,-4}';
begin
  select array_agg(s.tid), array_agg(s.id), bool_and(s.plain), array_agg(s.xmax) filter (where s.sign)
    into tids, ids, plain, signs
    from (select l.*
            from unnest(c_priority, after_at, after_id) as c (priority, at, id),
                 lateral (
                   select j.ctid as tid, j.id, j.xmax, j.xmax <> '0' and j.xmax <> j.xmin as sign,
                          c.priority = 0 and j.lease_until = '-infinity' and j.claimed_at < now and (look_ahead.kinds is null or j.kind = any (look_ahead.kinds))
                            and j.cancel_at is null and j.expires_at is null and j.unique_key is null as plain
                     from rowlock.job j
                    where rowlock.line(j.queue, j.priority) = rowlock.line(look_ahead.queue, c.priority) and j.queue = look_ahead.queue and j.priority = c.priority
                      and (j.run_at, j.id) > (c.at, c.id) and j.run_at <= look_ahead.until_at and j.lease_until <= now
                    order by j.run_at, j.id
                    limit most
                 ) l
           limit most) s;
end $$;

-- What a worker asks in a flood of short jobs: takes up to n jobs of one queue as a bundle. Where that cannot be (no history may be kept, nothing be set for single kinds,
-- and the next jobs all have to be like most, and some number) it takes none, and claim_batch does.
--
-- It follows the claim before it, and its turn is over before it locks the rows: see claim_batch, also on the commit. after_at and after_id: the nine cursors; until_at: it takes nothing that
-- was due later. Returns rows as claim_batch does, and in the last of them bundle, whether it took any, few, whether it did not only because there are too few, and left, how many
-- it saw and did not take.
--
-- What it has not seen because it was not committed yet, nobody who goes on from there will see. So it says how far it would have seen everything: xid, its transaction, which has got its number after the time
-- in clock was taken, and oldest, the first transaction that was not over when it began to look. Jobs bear the time of a transaction that has its number already (stamp). So once oldest has
-- come as far as the xid of an earlier claim, all jobs are there that were due by the clock of that one, but for those that were given an earlier time than their own, and a claim until then leaves none behind.
create or replace function rowlock.claim_bundle(
  queue text, n integer, worker bigint, token bigint, lease_ms integer default null, kinds text[] default null,
  after_at timestamptz[] default null, after_id bigint[] default null, until_at timestamptz default null
) returns table (id bigint, tid tid, kind text, payload jsonb, run_at timestamptz, rest record)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_indexscan = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set jit = off
  set lock_timeout = '200ms'
as $$
#variable_conflict use_column
declare
  c_least   constant integer := 10;  -- of fewer it is not worth it,
  c_most    constant integer := 2700; -- and of more too long to read for who looks for one of them
  v_queue   rowlock.queue;
  v_now     timestamptz;
  v_lease   timestamptz;
  v_at      timestamptz[] := coalesce(after_at, array_fill('-infinity'::timestamptz, array[9]));
  v_id      bigint[] := coalesce(after_id, array_fill(0::bigint, array[9]));
  v_last    record;               -- where the claim before this one stopped, and whose it was
  v_xid     xid8;
  v_oldest  xid8;
  v_ahead   record;               -- what it sees,
  v_seen    integer := 0;         -- and how many
  v_tids    tid[];                -- where that is which it takes,
  v_ids     bigint[];             -- and which it is
  v_few     boolean := false;
  v_head_at timestamptz;          -- the first of them,
  v_head_id bigint;
  v_tail_at timestamptz;          -- and the last
  v_tail_id bigint;
  v_rows    integer := 0;
begin
  perform set_config('synchronous_commit', 'off', true);
  if claim_bundle.token is null or claim_bundle.token = 0 then
    perform rowlock.refuse('token', claim_bundle.token::text, 'is no token: make a random number for each claim');
  elsif n is null or n not between 1 and 3000 then
    perform rowlock.refuse('n', n::text, 'must be a number from 1 to 3000');
  elsif cardinality(v_at) <> 9 or cardinality(v_id) <> 9 then
    perform rowlock.refuse('after_at', cardinality(v_at)::text, 'entries, and after_id: each must have nine');
  end if;
  v_queue := rowlock.ensure_queue(claim_bundle.queue);
  perform rowlock.check_isolation(claim_bundle.queue);
  if not v_queue.paused and v_queue.kinds = '{}' and v_queue.retention = interval '0' and v_queue.no >= 0 then
    begin
      perform pg_advisory_xact_lock(hashtextextended('@schema' || ' claim ' || claim_bundle.queue, 0));
      v_now := rowlock.clock();
      -- On a standby there are none, and what follows says so better.
      v_xid := case when not pg_is_in_recovery() then pg_current_xact_id() end;
      v_oldest := pg_snapshot_xmin(pg_current_snapshot());
      v_last := rowlock.last_stop(v_queue.no, v_now);
      if (v_last.at, v_last.id) > (v_at[5], v_id[5]) then
        v_at[5] := v_last.at;
        v_id[5] := v_last.id;
      end if;
      v_ahead := rowlock.look_ahead(claim_bundle.queue, v_at, v_id, least(v_now, claim_bundle.until_at), least(n, c_most), v_now, claim_bundle.kinds);
      v_seen := coalesce(cardinality(v_ahead.tids), 0);
      v_few := v_ahead.plain is not false and v_seen < c_least;
      if v_ahead.plain and not v_few then
        v_head_id := v_ahead.ids[1];
        v_tail_id := v_ahead.ids[cardinality(v_ahead.ids)];
        select j.run_at into v_head_at from rowlock.job j where j.ctid = v_ahead.tids[1] and j.queue = claim_bundle.queue and j.id = v_head_id;
        select j.run_at into v_tail_at from rowlock.job j where j.ctid = v_ahead.tids[cardinality(v_ahead.tids)] and j.queue = claim_bundle.queue and j.id = v_tail_id;
        -- Somebody may have put them elsewhere meanwhile; what is locked right now would be left behind; and what is in somebody's bundle bears a sign of that.
        if v_head_at is not null and v_tail_at is not null
           and (v_ahead.signs is null
                or not exists (select from (select distinct u.sign::text from unnest(v_ahead.signs) as u (sign)) u where not rowlock.is_over(u.sign::xid))
                   and not rowlock.any_bundle(claim_bundle.queue, v_head_at, v_head_id, v_ahead.ids)) then
          v_tids := v_ahead.tids;
          v_ids := v_ahead.ids;
          perform rowlock.stopped_at(v_queue.no, worker, v_tail_at, v_tail_id);
        end if;
      end if;
      raise exception 'the turn is over' using errcode = 'RL002';
    exception
      when sqlstate 'RL002' then null;
      when lock_not_available then null;
    end;
  end if;

  if v_tids is not null then
    return query
      select j.id, j.ctid, j.kind::text, j.payload::jsonb, j.run_at::timestamptz,
        case
          when j.attempt > 0 or j.failures > 0 or j.created_at <> j.run_at or num_nonnulls(j.max_attempts, j.timeout_ms, j.tags, j.metadata, j.trace) > 0
          then row(j.priority::smallint, j.attempt + 1, j.failures, j.crashes, coalesce(j.max_attempts, v_queue.max_attempts),
                   j.created_at, j.timeout_ms, j.tags, j.metadata, j.trace)
        end
        from rowlock.job j
       -- Somebody may have changed a row since the look, or put another job in its place.
       where j.ctid = any (v_tids) and j.queue = claim_bundle.queue and j.priority = 0 and (j.run_at, j.id) between (v_head_at, v_head_id) and (v_tail_at, v_tail_id)
         and j.lease_until = '-infinity' and j.claimed_at < v_now and j.cancel_at is null and j.expires_at is null and j.unique_key is null
         for update skip locked;
    get diagnostics v_rows = row_count;
    if v_rows < cardinality(v_tids) then
      select array_agg(j.ctid), array_agg(j.id) into v_tids, v_ids
        from rowlock.job j
       where j.ctid = any (v_tids) and j.queue = claim_bundle.queue and j.xmax = pg_current_xact_id()::xid;
    end if;
    if v_rows <> coalesce(cardinality(v_ids), 0) or rowlock.not_bundled(claim_bundle.queue, v_head_at, v_head_id, v_tids) <> v_tids then
      raise exception 'others have claimed some of these jobs' using errcode = '40001';
    end if;
  end if;

  payload := jsonb_build_object('queue', claim_bundle.queue, 'clock', coalesce(v_now, rowlock.clock()), 'parked', 0, 'more', false, 'caught_up', v_rows > 0,
    'bundle', v_rows > 0, 'few', v_few, 'left', v_seen - v_rows, 'xid', v_xid::text::bigint, 'oldest', v_oldest::text::bigint);
  if v_rows > 0 then
    v_lease := v_now + make_interval(secs => coalesce(claim_bundle.lease_ms, v_queue.lease_ms) / 1000.0);
    insert into rowlock.bundle (token, queue, worker, lease_until, claimed_at, last_at, last_id, ids)
    values (claim_bundle.token, claim_bundle.queue, claim_bundle.worker, v_lease, v_now, v_tail_at, v_tail_id, v_ids);
    if rowlock.is_milestone(v_rows) then
      insert into rowlock.milestone (queue, priority, run_at, id) values (claim_bundle.queue, 0, v_tail_at, v_tail_id);
    end if;
    payload := payload || jsonb_build_object('lease_until', v_lease, 'max_attempts', v_queue.max_attempts, 'mark', rowlock.mark(pg_current_xact_id()::xid));
    if v_last.worker <> worker & 7 then
      payload := payload || jsonb_build_object('other', v_last.worker);
    end if;
  end if;
  return next;
end $$;

-- Writes the bundle's lease into those of its jobs that are at these places, where the caller has locked what is there. They are running jobs like any other then. Returns how many.
create or replace function rowlock.write_lease(bundle rowlock.bundle, tids tid[]) returns bigint
  language sql volatile
  set search_path = pg_catalog, pg_temp
  set enable_indexscan = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
  with written as (
    update rowlock.job j
       set lease_until = bundle.lease_until, claimed_at = bundle.claimed_at, token = bundle.token, lease_by = bundle.worker, attempt = j.attempt + 1
     where j.ctid = any (tids) and j.queue = bundle.queue and j.id = any (bundle.ids) and j.token = 0 and j.claimed_at < bundle.claimed_at
    returning 1
  )
  select count(*) from written
$$;

-- Locks jobs of one queue, in the order of their ids and as far as nobody else has. Returns which, where they are, and when the first of them was due.
create or replace function rowlock.lock_jobs(queue text, ids bigint[], out locked bigint[], out tids tid[], out since timestamptz)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_indexscan = on
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_material = off
  set jit = off
as $$
#variable_conflict use_column
begin
  select array_agg(l.id), array_agg(l.tid), min(l.run_at) into locked, tids, since
    from (select u.id from unnest(ids) as u (id) order by u.id) i,
         lateral (select j.id, j.ctid as tid, j.run_at
                    from rowlock.job j
                   where j.id between i.id and i.id and j.queue = lock_jobs.queue
                   order by j.id
                     for update skip locked) l;
end $$;

-- Locks these jobs of one queue, as far as nobody else has, and writes the leases of those that are in a bundle: in one of these, or in any. Returns which it has locked: no other may be
-- taken for what it seems to be.
create or replace function rowlock.write_leases(queue text, ids bigint[], tokens bigint[] default null) returns bigint[]
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_indexscan = on
  set enable_seqscan = off
  set enable_bitmapscan = off
  set jit = off
as $$
#variable_conflict use_column
declare
  v_mine   record;
  v_tokens bigint[] := tokens;
  v_bundle rowlock.bundle;
begin
  v_mine := rowlock.lock_jobs(queue, ids);
  if v_mine.locked is null then
    return '{}';
  end if;
  -- Statements of their own: they see whoever has been here before the rows were locked.
  if v_tokens is null then
    perform rowlock.check_isolation(queue);
    v_tokens := array(select b.token from rowlock.bundle b where b.queue = write_leases.queue and b.last_at >= v_mine.since);
  end if;
  for v_bundle in select b.* from rowlock.bundle b where b.token = any (v_tokens) loop
    if v_bundle.queue = write_leases.queue and v_bundle.ids && write_leases.ids then
      perform rowlock.write_lease(v_bundle, v_mine.tids);
    end if;
  end loop;
  return v_mine.locked;
end $$;

-- Bundles whose lease has run out, of one queue or of all: what is left of their jobs gets that lease, so that the next claim sees a crash. A bundle with a job that somebody else has
-- locked (its handler's own transaction, perhaps) stays: nobody can take that job anyway. Returns how many jobs and bundles that concerned.
create or replace function rowlock.settle_bundles(queue text default null) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_custom_plan
  set enable_indexscan = on
  set enable_seqscan = off
  set enable_bitmapscan = off
  set jit = off
as $$
#variable_conflict use_column
declare
  v_bundle rowlock.bundle;
  v_did    bigint := 0;
begin
  for v_bundle in
    select b.* from rowlock.bundle b
     where (settle_bundles.queue is null or b.queue = settle_bundles.queue) and b.lease_until <= rowlock.clock()
       for update skip locked
  loop
    v_did := v_did + rowlock.write_lease(v_bundle, (rowlock.lock_jobs(v_bundle.queue, v_bundle.ids)).tids);
    if not rowlock.is_needed(v_bundle) then
      delete from rowlock.bundle b where b.token = v_bundle.token;
      v_did := v_did + 1;
    end if;
  end loop;
  return v_did;
end $$;

-- Whether there are jobs that have no lease but this one.
create or replace function rowlock.is_needed(bundle rowlock.bundle) returns boolean
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_indexscan = on
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_material = off
  set jit = off
as $$
begin
  return exists (
    select from unnest(bundle.ids) as i (id),
           lateral (select from rowlock.job j
                     where j.id between i.id and i.id and j.queue = bundle.queue and j.token = 0 and j.claimed_at < bundle.claimed_at
                     order by j.id) l);
end $$;

create or replace function rowlock.is_bundle(token bigint) returns boolean
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_indexscan = on
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
begin
  return exists (select from rowlock.bundle b where b.token = is_bundle.token);
end $$;

-- The worker has said how all jobs of these bundles went, or has had their leases written.
create or replace function rowlock.close_bundles(tokens bigint[]) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_indexscan = on
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_sort = off
as $$
#variable_conflict use_column
declare
  v_mine bigint[];
begin
  -- Somebody may just be at one whose lease has run out. Nobody who acknowledges jobs has to wait for that.
  v_mine := array(select b.token from rowlock.bundle b where b.token = any (tokens) for update skip locked);
  delete from rowlock.bundle b where b.token = any (v_mine);
end $$;
