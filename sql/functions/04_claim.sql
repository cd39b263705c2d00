-- Claim: take up to n jobs and lease them. One path for fresh jobs, retries that are due, and jobs whose lease expired: no
-- reaper, nothing else that has to run. (And a short cut for what has just come into a quiet queue: claim_fresh.)

-- What a live row that is due is to this caller: 0 nothing (it runs, or is not for this caller), 1 to be taken, 2 cancelled,
-- 3 expired, 4 poison. It is inlined wherever it is used (so it has no SET clause), and costs what is written in it.
create or replace function rowlock.fate(
  lease_until timestamptz, kind text, cancel_at timestamptz, expires_at timestamptz, crashes smallint, max_attempts smallint,
  now timestamptz, kinds text[], paused text[], suspects boolean, max_crashes smallint, kind_settings jsonb, queue_attempts smallint
) returns integer
  language sql immutable parallel safe
  return case
    when lease_until > now then 0
    when kind <> all (kinds) or kind = any (paused) then 0
    when cancel_at is not null then 2
    when expires_at <= now then 3
    when lease_until = '-infinity' then 1
    -- The lease expired under this job: its worker may have died of it. Such a job is only taken into a free slot, never ahead
    -- of one, so that the next death is not blamed on jobs that merely waited. One crash proves nothing: the job may have waited
    -- in its worker's buffer.
    when crashes + 1 >= coalesce(max_crashes, greatest(2, coalesce(max_attempts, (kind_settings -> kind ->> 'max_attempts')::smallint, queue_attempts))) then 4
    when suspects then 1
    else 0
  end;

-- Visits live rows of one queue that are due, in order and from one position in each priority to another; at most `most` of them. take: where
-- those are that the caller may take; other: those that are to be put away (fate above 1); clean: whether nobody has locked any of
-- them (but for whoever wrote it, who often locks it first); settled: whether none was passed over that another caller might take;
-- seen: all, by the number of their priority, time and id.
create or replace function rowlock.look(
  queue text, after_at timestamptz[], after_id bigint[], until_at timestamptz[], until_id bigint[], most integer,
  now timestamptz, kinds text[], paused text[], suspects boolean, max_crashes smallint, kind_settings jsonb, queue_attempts smallint,
  out take tid[], out other tid[], out clean boolean, out settled boolean, out seen integer, out seen_ord bigint[], out seen_at timestamptz[], out seen_id bigint[]
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
  select array_agg(s.tid) filter (where s.fate = 1), array_agg(s.tid) filter (where s.fate > 1),
         bool_and(s.clean), bool_and(s.settled), count(*), array_agg(s.ord), array_agg(s.run_at), array_agg(s.id)
    into take, other, clean, settled, seen, seen_ord, seen_at, seen_id
    from (select l.*, l.fate > 0 or l.runs as settled
            from unnest(c_priority, after_at, after_id, until_at, until_id) with ordinality as c (priority, at, id, until_at, until_id, ord),
                 lateral (
                   select c.ord, j.run_at::timestamptz as run_at, j.id, j.ctid as tid, j.xmax = 0 or j.xmax = j.xmin as clean, j.lease_until > now as runs,
                          rowlock.fate(j.lease_until, j.kind, j.cancel_at, j.expires_at, j.crashes, j.max_attempts,
                            now, look.kinds, paused, suspects, look.max_crashes, kind_settings, queue_attempts) as fate
                     from rowlock.job j
                    where rowlock.line(j.queue, j.priority) = rowlock.line(look.queue, c.priority) and j.queue = look.queue and j.priority = c.priority
                      and (j.run_at, j.id) > (c.at, c.id) and (j.run_at, j.id) <= (least(c.until_at, now), c.until_id)
                    order by j.run_at, j.id
                    limit most
                 ) l
           limit most) s;
end $$;

-- Says where claims of a queue may go on, in priority 0, and who says so: see claim_batch. Sequences take numbers, so the time is one of
-- microseconds since 2000 (52 bits, which lasts to 2142), three bits of the worker's number, and a mark of the queue, because queues share them. Like the next one it is inlined
-- (so it has no SET clause): calling it would cost more than what it does.
create or replace function rowlock.stopped_at(queue_no integer, worker bigint, at timestamptz, id bigint) returns boolean
  language sql volatile
  return setval(('rowlock.cursor_at_' || queue_no % 32)::regclass,
                (((extract(epoch from at - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint & 4503599627370495) << 11)
                  | ((worker & 7) << 8) | (queue_no / 32 & 255)) > 0
         and setval(('rowlock.cursor_id_' || queue_no % 32)::regclass, id) > 0;

-- Where the last claim of a queue stopped, and three bits of whose it was; all null if nobody knows.
create or replace function rowlock.last_stop(queue_no integer, now timestamptz, out at timestamptz, out id bigint, out worker bigint)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_last bigint;
begin
  if queue_no >= 0 then
    v_last := pg_sequence_last_value(('rowlock.cursor_at_' || queue_no % 32)::regclass);
  end if;
  if v_last & 255 = queue_no / 32 & 255 and v_last >> 11 > 0 then
    at := timestamptz '2000-01-01 00:00:00+00' + (v_last >> 11) * interval '1 microsecond';
    id := pg_sequence_last_value(('rowlock.cursor_id_' || queue_no % 32)::regclass);
    worker := v_last >> 8 & 7;
    if at > now then
      -- The clock was set back; what is written there means nothing.
      at := null;
      id := null;
      worker := null;
    end if;
  end if;
end $$;

-- Whether a claim that took so many jobs is to leave a milestone for the full scans (07_sweep.sql): about every 30,000 jobs. It is inlined, too.
create or replace function rowlock.is_milestone(jobs integer) returns boolean
  language sql volatile
  return random() * 30000 < jobs;

-- What a transaction has written into the table of jobs, as a number: the table's file, which a rewrite of the table changes, and the transaction.
create or replace function rowlock.mark(xid xid) returns bigint
  language sql volatile
  return pg_relation_filenode('rowlock.job'::regclass)::bigint << 32 | xid::text::bigint;

-- Puts jobs that killed their workers too often among the dead. The rows are locked by the caller. (On the settings: 05_ack.sql.)
create or replace function rowlock.park_poison(queue text, tids tid[], now timestamptz) returns integer
  language sql volatile
  set search_path = pg_catalog, pg_temp
  set enable_indexscan = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
  with gone as (
    delete from rowlock.job j where j.ctid = any (tids) and j.queue = park_poison.queue returning j
  ), kept as (
    insert into rowlock.dead (id, created_at, run_at, died_at, worker, attempt, failures, crashes, priority, queue, kind, reason,
                              payload, errors, tags, metadata, options)
    select (j).id, (j).created_at, (j).run_at, now, (j).lease_by, (j).attempt, (j).failures, (j).crashes + 1, (j).priority, (j).queue,
           (j).kind, 'poison', (j).payload,
           rowlock.add_error((j).errors, (j).attempt, (j).lease_until, (j).lease_by,
             format('poison: the lease expired under this job %s times; it is parked, not tried again', (j).crashes + 1)),
           (j).tags, (j).metadata, rowlock.job_options(j)
      from gone
    returning 1
  )
  select count(*)::integer from gone
$$;

-- Ends jobs without running them: past their expiry, or cancelled. The rows are locked by the caller.
create or replace function rowlock.park_finished(queue text, tids tid[], outcome text, now timestamptz) returns integer
  language sql volatile
  set search_path = pg_catalog, pg_temp
  set enable_indexscan = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
  with gone as (
    delete from rowlock.job j where j.ctid = any (tids) and j.queue = park_finished.queue returning j
  ), kept as (
    insert into rowlock.finished (id, created_at, run_at, started_at, finished_at, worker, attempt, failures, crashes, priority, queue,
                                  kind, outcome, payload, errors, tags, metadata, options)
    select (j).id, (j).created_at, (j).run_at, nullif((j).claimed_at, '-infinity'), now, (j).lease_by, (j).attempt, (j).failures, (j).crashes, (j).priority,
           (j).queue, (j).kind, park_finished.outcome, (j).payload, (j).errors, (j).tags, (j).metadata, rowlock.job_options(j)
      from gone
     where (select q.retention from rowlock.ensure_queue(park_finished.queue) q) > interval '0'
    returning 1
  )
  select count(*)::integer from gone
$$;

-- Locks so many at the most of the rows at these places, as far as nobody else has. Returns where those are, and how many of the places it has tried: those after that are as they were.
--
-- One scan for all of them takes them as they lie on disk, which is cheaper but no order to leave some out by.
create or replace function rowlock.lock_places(queue text, tids tid[], most integer, out locked tid[], out tried integer)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_indexscan = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_material = off
  set jit = off
as $$
#variable_conflict use_column
begin
  tried := cardinality(tids);
  if tried <= most then
    locked := array(select j.ctid from rowlock.job j where j.ctid = any (tids) and j.queue = lock_places.queue for update skip locked);
    return;
  end if;
  select coalesce(array_agg(l.tid), '{}'), case when count(*) = most then max(l.n) else tried end
    into locked, tried
    from (select l.tid, t.n
            from unnest(tids) with ordinality as t (tid, n),
                 lateral (select j.ctid as tid from rowlock.job j where j.ctid = t.tid and j.queue = lock_places.queue for update skip locked) l
           limit most) l;
end $$;

-- What the library calls, and what the other claims are made of: takes jobs of several queues in the given order, at most wants[i]
-- from queues[i] and want in all. after_at and after_id, the cursors, hold nine entries for each queue, or are null; so do until_at and until_id, where it goes no further.
--
-- How it looks for jobs. Each of the nine priorities is probed by equality, highest first, from its own cursor: the last
-- (run_at, id) that this caller has seen there. Without a cursor the scan walks over every dead row that vacuum has not
-- removed yet, and when some long transaction holds vacuum back, those are all jobs finished since it began: 8.7k, 3.1k,
-- 2.0k jobs/s in three rounds of 100k, against 67k, 66k, 78k with one. A cursor is only a hint; what lies behind it (rows
-- that committed late, released rows, expired leases) is found by full scans (07_sweep.sql). look_back_ms moves the
-- start back a little, for rows whose transactions commit out of order; and who looks further back may visit more of what is leased.
--
-- With `follow` (for each queue) a claim starts where the last one of the same queue stopped, whoever made it, if that is further:
-- else each of n workers walks over what the other n - 1 have taken. That place, of priority 0 only, is kept in two sequences outside of
-- MVCC, marked with the number of the queue because queues share them, and written only by who has the turn and left nothing
-- behind that another caller might take. It is a hint like the caller's own. Who was told to look behind its cursor does not follow, until it has caught up.
-- Who has just started does: it would walk over all that was finished since vacuum last came by, 0.3 s for 600,000 jobs.
--
-- How it takes them. A first statement (look) visits a bounded number of live rows in order and notes where the ones to take
-- are; the last one writes the leases of those that are still what they were, which is a HOT update: no index mentions what it
-- changes. It goes by `ctid = any (array)`, one TID scan for all: a join with a TID scan inside, one for each row, takes three
-- times as long. In between the rows are locked with SKIP LOCKED, so that no claim ever waits for another, unless that is
-- known to be needless: claims of one queue take turns, and whose turn it is meets nobody. That saves a write-ahead record of 54
-- bytes for each job and a tenth of the time. A turn is over as soon as it is known that all rows seen will be taken, and the others told to
-- begin behind them: then one claim looks while another writes. Who sees rows before that place, because it was told to look there, locks them.
-- The turn is an advisory lock and carries nothing: who does not get it soon (its holder may be frozen), or does not ask for it (turn = false),
-- locks rows instead, and should two meet all the same, one waits, looks again and leaves the row alone. Rows that somebody else has locked (a
-- transaction that changes a waiting job) show it in their xmax; they too are locked first. Whoever does so in the instant between the look and
-- the write makes the claim wait for lock_timeout, fail and be tried again.
--
-- The plans cannot flip. The statistics of a queue table are always wrong, so the choice is not left to them: no sequential or
-- bitmap scans, no sorts, no hash or merge joins, one generic plan; the claim index for looking, and no index for taking.
--
-- A claim need not survive a crash of Postgres: losing one is a redelivery, which at-least-once allows, and the random token
-- keeps the forgotten holder out. So it commits asynchronously, and then the disk is not on its path. set_config reaches to
-- the end of the caller's transaction (a SET clause on the function would be undone before the commit): claim alone in a
-- transaction of its own, never beside an acknowledgement.
--
-- Returns for each queue its jobs in no particular order, with little of each: rest is null for a job like most, and holds what is
-- different about any other (priority, attempt, failures, crashes, max_attempts, created_at, timeout_ms, tags, metadata, trace). Each column
-- costs Postgres and the reader alike; 23 of them were a sixth of the claim. It gives the place of a row as it is, for those who complete it: as text
-- it costs a twentieth of the whole.
--
-- Then one row with id null, whose payload says how the claim of that queue went: queue; clock, the database's time; parked, how many jobs
-- were put away instead of returned (poison, expired, cancelled), in which case it is worth claiming again; more, whether it stopped
-- for its own bound; caught_up, whether it came at least as far as the claim before it, and took all that it saw and may; locked, only
-- where it is so, that it passed over rows that somebody had locked, or changed meanwhile, and may give free again. If there are jobs: lease_until and max_attempts, of those without a rest, and mark, by which complete_untouched knows what this claim has written (null where a history is kept). For who
-- follows: other, if the claim before it was another worker's, that one's number (its last three bits: of eight, one passes for this one). For who does not: last_at and last_id, where the claim
-- before it stopped. When rows were passed over that the jobs returned do not show: cursor_at and cursor_id,
-- where it stopped in each priority. Queues that were not reached have none.
create or replace function rowlock.claim_batch(
  queues       text[],
  wants        integer[],
  want         integer,
  worker       bigint,
  token        bigint,
  lease_ms     integer default null,
  kinds        text[] default null,
  suspects     boolean default true,
  after_at     timestamptz[] default null,
  after_id     bigint[] default null,
  look_back_ms integer default 0,
  follow       boolean[] default null,
  turn         boolean default true,
  until_at     timestamptz[] default null,
  until_id     bigint[] default null
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
  c_worth_it  constant integer := 20; -- for fewer jobs a turn is not given back early
  v_all       integer := want;    -- how many are still wanted,
  v_left      integer;            -- and how many of them from this queue,
  v_wanted    integer;            -- of so many
  v_name      text;
  v_queue     rowlock.queue;
  v_now       timestamptz;
  v_lease     timestamptz;
  v_token     bigint := claim_batch.token;
  v_attempts  smallint;           -- of v_queue: variables are cheaper to read than fields
  v_crashes   smallint;
  v_kinds     jsonb;
  v_paused    text[];
  v_at        timestamptz[];      -- where the scan starts
  v_id        bigint[];
  v_until_at  timestamptz[];      -- and where it ends
  v_until_id  bigint[];
  v_visit     integer;            -- how many rows it may visit now,
  v_visit_max integer;            -- in all,
  v_visited   integer;            -- and has
  v_look      record;             -- what it saw
  v_turn      boolean;            -- whether it is this claim's turn in the queue,
  v_over      boolean;            -- or was, and the next one begins behind
  v_sure      integer;            -- so many of the rows seen
  v_first     bigint;             -- the first row in priority 0
  v_alone     boolean;            -- whether nobody else can be about to write these rows
  v_take      tid[];              -- those of them to take,
  v_step      integer;            -- so many at a time
  v_try       tid[];              -- now,
  v_tried     integer;            -- and how many those are
  v_locked    tid[];
  v_theirs    boolean;            -- whether somebody else was just taking them
  v_poison    tid[];
  v_expired   tid[];
  v_cancelled tid[];
  v_taken     integer;            -- how many of them are taken or put away
  v_rows      integer;
  v_parked    integer;
  v_end_at    timestamptz[];      -- where it stopped, if the jobs do not show that
  v_end_id    bigint[];
  v_follow    boolean;            -- whether to start where the last claim stopped, and say where this one does
  v_settled   boolean;
  v_passed    boolean;            -- whether it passed over rows that somebody held
  v_last      record;             -- where the last one stopped, and whose it was
  v_ahead     boolean;            -- whether this one went further
begin
  perform set_config('synchronous_commit', 'off', true);
  if claim_batch.token is null or claim_batch.token = 0 then
    perform rowlock.refuse('token', claim_batch.token::text, 'is no token: make a random number for each claim');
  elsif queues is null or cardinality(queues) is distinct from cardinality(wants) or want is null then
    perform rowlock.refuse('queues', queues::text, 'must come with as many wants, and a want for all');
  elsif num_nonnulls(after_at, after_id) = 1 or cardinality(after_at) <> 9 * cardinality(queues) or cardinality(after_id) <> 9 * cardinality(queues) then
    perform rowlock.refuse('after_at', cardinality(after_at)::text, 'entries, and after_id: each must have nine for each queue');
  elsif num_nonnulls(until_at, until_id) = 1 or cardinality(until_at) <> 9 * cardinality(queues) or cardinality(until_id) <> 9 * cardinality(queues) then
    perform rowlock.refuse('until_at', cardinality(until_at)::text, 'entries, and until_id: each must have nine for each queue');
  end if;
  for n in 1 .. cardinality(queues) loop
    exit when v_all <= 0;
    v_name := queues[n];
    v_left := least(wants[n], v_all);
    v_wanted := v_left;
    v_queue := rowlock.ensure_queue(v_name);
    v_visit := greatest(v_left, 100);
    v_visit_max := greatest(2000, 2 * v_left, 50 * least(look_back_ms, 1000));
    v_visited := 0;
    v_parked := 0;
    v_end_at := null;
    v_end_id := null;
    v_settled := true;
    v_passed := false;
    v_turn := false;
    v_over := false;
    v_theirs := false;
    v_step := v_left;
    v_until_at := coalesce(until_at[9 * n - 8 : 9 * n], array_fill('infinity'::timestamptz, array[9]));
    v_until_id := coalesce(until_id[9 * n - 8 : 9 * n], array_fill(9223372036854775807, array[9]));
    if v_queue.paused or v_left <= 0 then
      payload := jsonb_build_object('queue', v_name, 'clock', rowlock.clock(), 'parked', 0, 'more', false);
      return next;
      continue;
    end if;
    v_attempts := v_queue.max_attempts;
    v_crashes := v_queue.max_crashes;
    v_kinds := nullif(v_queue.kinds, '{}');  -- null is cheaper to look things up in
    v_paused := null;
    if v_kinds is not null then
      v_paused := nullif(array(select k.key from jsonb_each(v_kinds) k where k.value -> 'paused' = 'true'), '{}');
    end if;

    begin
      if turn then
        v_turn := pg_try_advisory_xact_lock(hashtextextended('@schema' || ' claim ' || v_name, 0));
        -- Wait only while holding no other turn, so that nobody waits in a circle.
        if not v_turn and n = 1 then
          begin
            perform pg_advisory_xact_lock(hashtextextended('@schema' || ' claim ' || v_name, 0));
            v_turn := true;
          exception
            when lock_not_available then null;
          end;
        end if;
      end if;
      v_now := rowlock.clock();
      v_lease := v_now + make_interval(secs => coalesce(claim_batch.lease_ms, v_queue.lease_ms) / 1000.0);
      v_last := rowlock.last_stop(v_queue.no, v_now);
      v_follow := false;
      if after_at is null then
        v_at := array_fill('-infinity'::timestamptz, array[9]);
        v_id := array_fill(0::bigint, array[9]);
      else
        v_at := after_at[9 * n - 8 : 9 * n];
        v_id := after_id[9 * n - 8 : 9 * n];
        v_follow := v_queue.no >= 0 and follow[n] is true;
        if v_follow and (v_last.at, v_last.id) > (v_at[5], v_id[5]) then
          v_at[5] := v_last.at;
          v_id[5] := v_last.id;
        end if;
        if look_back_ms > 0 then
          select array_agg(least(c.at, v_now - make_interval(secs => look_back_ms / 1000.0))), array_agg(case when c.at < v_now - make_interval(secs => look_back_ms / 1000.0) then c.id else 0 end)
            into v_at, v_id
            from unnest(v_at, v_id) as c (at, id);
        end if;
      end if;
      v_look := rowlock.look(v_name, v_at, v_id, v_until_at, v_until_id, v_visit, v_now, claim_batch.kinds, v_paused, suspects, v_crashes, v_kinds, v_attempts);
      -- What will be taken is known, and it is all that lies before some place: the next one may begin there, while this one writes. An exception is what gives a lock back early.
      v_sure := least(v_look.seen, v_left);
      if v_turn and v_follow and v_sure >= c_worth_it and cardinality(v_look.take) = v_look.seen and v_look.clean
         and v_look.seen_ord[1] = 5 and v_look.seen_ord[v_look.seen] = 5
         and ((v_look.seen_at[1], v_look.seen_id[1]) > (v_last.at, v_last.id)) is not false then
        if v_sure < v_look.seen then
          -- The others are not its own any more, and it has not seen them.
          v_visit := v_sure;
          v_look.seen := v_sure;
          v_look.take := v_look.take[: v_sure];
          v_look.seen_ord := v_look.seen_ord[: v_sure];
          v_look.seen_at := v_look.seen_at[: v_sure];
          v_look.seen_id := v_look.seen_id[: v_sure];
        end if;
        perform rowlock.stopped_at(v_queue.no, worker, v_look.seen_at[v_sure], v_look.seen_id[v_sure]);
        raise exception 'the turn is over' using errcode = 'RL002';
      end if;
    exception
      when sqlstate 'RL002' then
        v_over := true;
    end;

    loop
      v_take := v_look.take;
      -- Behind the place where the last claim stopped, rows may be under way to somebody whose turn is over.
      v_first := array_position(v_look.seen_ord, 5);
      v_alone := v_turn and v_look.clean and (v_last.at is null or v_first is null or (v_look.seen_at[v_first], v_look.seen_id[v_first]) > (v_last.at, v_last.id));
      if v_alone and v_first is not null then
        v_alone := not rowlock.any_bundle(v_name, v_look.seen_at[v_first], v_look.seen_id[v_first]);
      end if;
      if not v_alone then
        v_take := rowlock.not_bundled(v_name, v_at[5], v_id[5], v_take);
      end if;
      v_taken := 0;
      v_step := case when v_alone then v_left else greatest(v_step, v_left) end;
      while v_left > 0 and v_take <> '{}' loop
        v_try := v_take[: v_step];
        v_tried := cardinality(v_try);
        if not v_alone then
          select l.locked, l.tried into v_locked, v_tried from rowlock.lock_places(v_name, v_try, v_left) l;
          -- Again, now that they are locked. If somebody has put some into a bundle since, this is where the others claim right now: what comes next is theirs, and locking
          -- it would only make it dearer for them.
          v_try := rowlock.not_bundled(v_name, v_at[5], v_id[5], v_locked);
          v_theirs := v_try <> v_locked;
        end if;
        v_take := v_take[v_tried + 1 :];
        return query
          update rowlock.job j
             set lease_until = v_lease, claimed_at = v_now, token = v_token, lease_by = worker, attempt = j.attempt + 1,
                 crashes = case when j.lease_until = '-infinity' then j.crashes else j.crashes + 1 end,
                 errors = case when j.lease_until = '-infinity' then j.errors
                               else rowlock.add_error(j.errors, j.attempt, j.lease_until, j.lease_by, 'the lease expired: the worker died or lost its connection') end
           -- Somebody may have changed a row since the look, or put another job in its place.
           where j.ctid = any (v_try) and j.queue = v_name and j.run_at <= v_now
             and rowlock.fate(j.lease_until, j.kind, j.cancel_at, j.expires_at, j.crashes, j.max_attempts,
                   v_now, claim_batch.kinds, v_paused, suspects, v_crashes, v_kinds, v_attempts) = 1
          returning j.id, j.ctid, j.kind::text, j.payload::jsonb, j.run_at::timestamptz,
            case
              when j.attempt > 1 or j.priority <> 0 or j.failures > 0 or j.created_at <> j.run_at or v_kinds is not null
                or num_nonnulls(j.max_attempts, j.timeout_ms, j.tags, j.metadata, j.trace) > 0
              then row(j.priority::smallint, j.attempt, j.failures, j.crashes, coalesce(j.max_attempts, (v_kinds -> j.kind ->> 'max_attempts')::smallint, v_attempts),
                       j.created_at, coalesce(j.timeout_ms, (v_kinds -> j.kind ->> 'timeout_ms')::bigint), j.tags, j.metadata, j.trace)
            end;
        get diagnostics v_rows = row_count;
        -- There was none when it began to write. One that there is now was made by somebody who did not see that.
        if v_alone and v_first is not null and rowlock.any_bundle(v_name, v_look.seen_at[v_first], v_look.seen_id[v_first], v_look.seen_id) then
          raise exception 'others have claimed some of these jobs' using errcode = '40001';
        end if;
        -- What somebody else holds may come back: whoever holds it may fail.
        v_passed := v_passed or v_rows <> v_tried;
        v_taken := v_taken + v_rows;
        v_left := v_left - v_rows;
        v_all := v_all - v_rows;
        exit when v_theirs;
        -- Where others hold most of them it takes longer steps: one at a time past a thousand took a tenth of a second.
        v_step := case when not v_alone and v_rows < v_tried / 2.0 then greatest(v_left, 4 * least(v_step, 1000)) else v_left end;
      end loop;

      if v_look.other is not null then
        select array_agg(o.tid) filter (where o.fate = 2), array_agg(o.tid) filter (where o.fate = 3), array_agg(o.tid) filter (where o.fate = 4)
          into v_cancelled, v_expired, v_poison
          from (select l.ctid as tid,
                       rowlock.fate(l.lease_until, l.kind, l.cancel_at, l.expires_at, l.crashes, l.max_attempts,
                         v_now, claim_batch.kinds, v_paused, suspects, v_crashes, v_kinds, v_attempts) as fate
                  from rowlock.job l
                 where l.ctid = any (v_look.other) and l.queue = v_name and l.run_at <= v_now
                   for update skip locked) o;
        v_rows := rowlock.park_poison(v_name, v_poison, v_now) + rowlock.park_finished(v_name, v_expired, 'expired', v_now)
          + rowlock.park_finished(v_name, v_cancelled, 'cancelled', v_now);
        v_parked := v_parked + v_rows;
        v_taken := v_taken + v_rows;
      end if;

      v_settled := v_settled and not v_passed and v_look.settled is not false and coalesce(v_take, '{}') = '{}';
      exit when v_left <= 0 or v_theirs;
      v_visited := v_visited + v_look.seen;
      if v_look.seen > v_taken then
        -- Go on behind the last row seen in each priority.
        select array_agg(coalesce(v_look.seen_at[s.last], v_at[p]) order by p), array_agg(coalesce(v_look.seen_id[s.last], v_id[p]) order by p)
          into v_end_at, v_end_id
          from generate_series(1, 9) p
          left join (select u.ord, max(u.i) as last from unnest(v_look.seen_ord) with ordinality as u (ord, i) group by u.ord) s on s.ord = p;
        v_at := v_end_at;
        v_id := v_end_id;
      end if;
      exit when v_look.seen < v_visit;              -- nothing left to look at
      exit when v_end_at is null or v_visited >= v_visit_max;
      v_visit := least(2 * v_visit, 1000);
      v_turn := v_turn and not v_over;
      v_look := rowlock.look(v_name, v_at, v_id, v_until_at, v_until_id, v_visit, v_now, claim_batch.kinds, v_paused, suspects, v_crashes, v_kinds, v_attempts);
    end loop;
    v_ahead := v_look.seen_ord[v_look.seen] = 5 and ((v_look.seen_at[v_look.seen], v_look.seen_id[v_look.seen]) > (v_last.at, v_last.id)) is not false;
    if v_follow and v_turn and v_settled and v_ahead and not v_over then
      perform rowlock.stopped_at(v_queue.no, worker, v_look.seen_at[v_look.seen], v_look.seen_id[v_look.seen]);
    end if;
    -- Who does not follow does not sweep either, and would leave them for ever.
    if follow is not null and v_look.seen > 0 and rowlock.is_milestone(v_wanted - v_left) then
      insert into rowlock.milestone (queue, priority, run_at, id)
      values (v_name, 5 - v_look.seen_ord[v_look.seen], v_look.seen_at[v_look.seen], v_look.seen_id[v_look.seen]);
    end if;
    payload := jsonb_build_object('queue', v_name, 'clock', v_now, 'parked', v_parked, 'more', v_visited >= v_visit_max,
      'caught_up', coalesce(v_take, '{}') = '{}' and (v_ahead or v_look.seen < v_visit or v_look.seen_ord[v_look.seen] > 5));
    -- Most claims of an idle queue need no more than that.
    if v_left < v_wanted then
      payload := payload || jsonb_build_object('lease_until', v_lease, 'max_attempts', v_attempts,
        'mark', case when v_queue.retention = interval '0' then rowlock.mark(pg_current_xact_id_if_assigned()::xid) end);
    end if;
    if v_passed then
      payload := payload || '{"locked": true}';
    end if;
    if v_follow and v_last.worker <> worker & 7 then
      payload := payload || jsonb_build_object('other', v_last.worker);
    end if;
    if not v_follow and v_last.at is not null then
      payload := payload || jsonb_build_object('last_at', v_last.at, 'last_id', v_last.id);
    end if;
    if v_end_at is not null then
      payload := payload || jsonb_build_object('cursor_at', v_end_at, 'cursor_id', v_end_id);
    end if;
    return next;
  end loop;
end $$;

-- What a worker asks first when somebody has rung: takes up to n jobs of one queue that have become due within the last second, in few statements.
-- What came before that, or is in any way unusual, it leaves alone: claim_batch follows. On an idle server each statement counts, and
-- claim_batch, which knows all cases, takes 0.9 ms there for one job; this takes 0.5.
--
-- It locks the rows that it takes, so it needs no turn and is in nobody's way; and since nobody else can change them then, it need not look at
-- them again. after_at, if not null, are nine times, as of claim_batch. Returns rows as claim_batch does.
create or replace function rowlock.claim_fresh(
  queue text, n integer, worker bigint, token bigint, lease_ms integer default null, kinds text[] default null, after_at timestamptz[] default null
) returns table (id bigint, tid tid, kind text, payload jsonb, run_at timestamptz, rest record)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set jit = off
  set lock_timeout = '200ms'
as $$
#variable_conflict use_column
declare
  c_priority constant smallint[] := '{4,3,2,1,0,-1,-2,-3,-4}';
  v_now   timestamptz := rowlock.clock();
  v_lease timestamptz;
  v_queue rowlock.queue;
  v_tids  tid[];
  v_rows  integer;
begin
  perform set_config('synchronous_commit', 'off', true);
  if claim_fresh.token is null or claim_fresh.token = 0 then
    perform rowlock.refuse('token', claim_fresh.token::text, 'is no token: make a random number for each claim');
  elsif n is null or n not between 1 and 1000 then
    perform rowlock.refuse('n', n::text, 'must be a number from 1 to 1000');
  end if;
  payload := jsonb_build_object('queue', claim_fresh.queue, 'clock', v_now, 'parked', 0, 'more', false);
  select q.* into v_queue from rowlock.queue q where q.name = claim_fresh.queue;
  if v_queue.paused is distinct from false or v_queue.kinds <> '{}' then
    return next;
    return;
  end if;
  v_lease := v_now + make_interval(secs => coalesce(claim_fresh.lease_ms, v_queue.lease_ms) / 1000.0);
  v_tids := array(
    select l.ctid
      from unnest(c_priority, after_at) as c (priority, at),
           lateral (
             select f.ctid
               from rowlock.job f
              where rowlock.line(f.queue, f.priority) = rowlock.line(claim_fresh.queue, c.priority) and f.queue = claim_fresh.queue and f.priority = c.priority
                and f.run_at >= greatest(c.at, v_now - interval '1 s') and f.run_at <= v_now
                and f.lease_until = '-infinity' and (claim_fresh.kinds is null or f.kind = any (claim_fresh.kinds))
                and f.cancel_at is null and (f.expires_at is null or f.expires_at > v_now)
              order by f.run_at, f.id
              limit n
                for update skip locked
           ) l
     limit n);
  if v_tids <> '{}' then
    -- Somebody may have put them into a bundle before they were locked.
    v_tids := rowlock.not_bundled(claim_fresh.queue, v_now - interval '1 s', 0, v_tids);
  end if;
  return query
    update rowlock.job j
       set lease_until = v_lease, claimed_at = v_now, token = claim_fresh.token, lease_by = worker, attempt = j.attempt + 1
     where j.ctid = any (v_tids)
    returning j.id, j.ctid, j.kind::text, j.payload::jsonb, j.run_at::timestamptz,
      case
        when j.attempt > 1 or j.priority <> 0 or j.failures > 0 or j.created_at <> j.run_at
          or num_nonnulls(j.max_attempts, j.timeout_ms, j.tags, j.metadata, j.trace) > 0
        then row(j.priority::smallint, j.attempt, j.failures, j.crashes, coalesce(j.max_attempts, v_queue.max_attempts),
                 j.created_at, j.timeout_ms, j.tags, j.metadata, j.trace)
      end;
  get diagnostics v_rows = row_count;
  if v_rows > 0 then
    if rowlock.is_milestone(v_rows) then
      insert into rowlock.milestone (queue, priority, run_at, id) values (claim_fresh.queue, 0, v_now, 0);
    end if;
    payload := payload || jsonb_build_object('lease_until', v_lease, 'max_attempts', v_queue.max_attempts,
      'mark', case when v_queue.retention = interval '0' then rowlock.mark(pg_current_xact_id_if_assigned()::xid) end);
  end if;
  return next;
end $$;

-- The simple form, for people and for workers in other languages:
--   select * from rowlock.claim('{mail,default}', 10)
-- Give complete or fail the queue, id and token of what it returns. Call it in a transaction of its own (autocommit).
create or replace function rowlock.claim(
  queues   text[] default '{default}',
  n        integer default 1,
  lease_ms integer default null,
  kinds    text[] default null,
  worker   bigint default 0
) returns table (
  queue text, id bigint, token bigint, kind text, payload jsonb, priority smallint, attempt integer, failures smallint, crashes smallint,
  max_attempts smallint, run_at timestamptz, created_at timestamptz, lease_until timestamptz, tid text, timeout_ms bigint,
  expires_at timestamptz, tags text[], metadata jsonb, trace text
)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_indexscan = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set jit = off
as $$
#variable_conflict use_column
declare
  v_token bigint;
  v_queue rowlock.queue;
  v_name  text;
  v_left  integer := n;
  v_tids  tid[];
  v_end   jsonb;
  v_at    timestamptz[];
  v_id    bigint[];
begin
  if n is null or n not between 1 and 10000 then
    perform rowlock.refuse('n', n::text, 'is out of range: claim from 1 to 10000 jobs at a time');
  elsif queues is null or cardinality(queues) = 0 or array_position(queues, null) is not null then
    perform rowlock.refuse('queues', queues::text, 'must name at least one queue');
  elsif claim.lease_ms not between 1000 and 86400000 then
    perform rowlock.refuse('lease_ms', claim.lease_ms::text, 'is out of range: it must be from 1000 to 86400000');
  end if;
  perform set_config('synchronous_commit', 'off', true);
  -- 62 random bits from a source that nobody can predict; never 0, which means "not leased".
  v_token := (('x' || translate(left(gen_random_uuid()::text, 19), '-', ''))::bit(64)::bigint & 4611686018427387903) | 1;
  foreach v_name in array queues loop
    v_at := null;
    v_id := null;
    v_queue := rowlock.ensure_queue(v_name);
    -- This caller keeps no cursor, so when claim_batch stops at its bound (behind thousands of running jobs, say), go on from there.
    loop
      select array_agg(c.tid) filter (where c.id is not null), (array_agg(c.payload) filter (where c.id is null))[1]
        into v_tids, v_end
        from rowlock.claim_batch(array[v_name], array[v_left], v_left, worker, v_token, claim.lease_ms, kinds, true, v_at, v_id) c;
      if v_tids is not null then
        v_left := v_left - cardinality(v_tids);
        return query
          select j.queue::text, j.id, j.token, j.kind::text, j.payload::jsonb, j.priority::smallint, j.attempt, j.failures, j.crashes,
                 coalesce(j.max_attempts, (v_queue.kinds -> j.kind ->> 'max_attempts')::smallint, v_queue.max_attempts),
                 j.run_at::timestamptz, j.created_at, j.lease_until, j.ctid::text, coalesce(j.timeout_ms, (v_queue.kinds -> j.kind ->> 'timeout_ms')::bigint),
                 j.expires_at, j.tags, j.metadata, j.trace
            from rowlock.job j
           where j.ctid = any (v_tids) and j.queue = v_name
           order by j.priority desc, j.run_at, j.id;
      end if;
      exit when v_left <= 0;
      if v_end ? 'cursor_at' then
        v_at := array(select jsonb_array_elements_text(v_end -> 'cursor_at')::timestamptz);
        v_id := array(select jsonb_array_elements_text(v_end -> 'cursor_id')::bigint);
      end if;
      if v_end ->> 'parked' = '0' and (v_end -> 'more' = 'false' or not v_end ? 'cursor_at') then
        -- Jobs of a worker that died may be in a bundle, into which no claim looks.
        exit when rowlock.settle_bundles(v_name) = 0;
        v_at := null;
        v_id := null;
      end if;
    end loop;
    exit when v_left <= 0;
  end loop;
end $$;
