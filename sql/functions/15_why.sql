-- Why is this job not running? What the person on call asks first, answered with evidence.

-- A span of time for people: '3 minutes'.
create or replace function rowlock.say_span(span interval) returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select case when s < 1 then 'less than a second'
              when s < 2 then 'a second'
              when s < 120 then trunc(s)::text || ' seconds'
              when s < 7200 then trunc(s / 60)::text || ' minutes'
              when s < 172800 then trunc(s / 3600)::text || ' hours'
              else trunc(s / 86400)::text || ' days' end
    from (select abs(extract(epoch from span)) as s) x
$$;

-- A moment for people, as seen from now: '3 minutes ago', 'in 2 hours'.
create or replace function rowlock.say_when(at timestamptz, now timestamptz) returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select case when at <= now then rowlock.say_span(now - at) || ' ago' else 'in ' || rowlock.say_span(at - now) end
$$;

-- '1 job', '7 jobs'.
create or replace function rowlock.say_count(n bigint, noun text) returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select n || ' ' || noun || case when n = 1 then '' else 's' end
$$;

-- Whether a worker that subscribed to these names and patterns (with *) serves the queue.
create or replace function rowlock.serves(subscribed text[], queue text) returns boolean
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select queue = any (subscribed)
      or exists (select from unnest(subscribed) s
                  where position('*' in s) > 0
                    and queue like replace(replace(replace(replace(s, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%'))
$$;

-- Whether an open transaction holds the row of a live job, so that claims pass over it; and who that is, as far as it can be
-- seen: pid, user, application, state, since, query; or gid, for a prepared transaction. locked is null where it cannot be
-- tried: on a standby, or in a read-only transaction.
create or replace function rowlock.lock_holder(job_id bigint, out locked boolean, out holder jsonb)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set jit = off
as $$
declare
  v_xmax text;
begin
  if pg_is_in_recovery() or current_setting('transaction_read_only')::boolean then
    return;
  end if;
  -- The lock is only tried: the error that ends the block gives it back at once, also inside a longer transaction.
  begin
    perform from rowlock.job j where j.id = job_id for update skip locked;
    locked := not found;
    raise exception 'tried' using errcode = 'RL001';
  exception
    when sqlstate 'RL001' then null;
    when serialization_failure then return;
  end;
  if not locked then
    return;
  end if;
  select j.xmax::text into v_xmax from rowlock.job j where j.id = job_id;
  if not found then  -- gone in this moment
    locked := false;
    return;
  end if;

  -- Row locks are not listed anywhere, but the row names the transaction that holds it, or the group of them.
  holder := rowlock.transaction_holder(array[v_xmax]);
  if holder is null then
    begin
      holder := rowlock.transaction_holder(array(select m.xid::text from pg_get_multixact_members(v_xmax::xid) m));
    exception when others then
      null;  -- not the number of a group
    end;
  end if;
end $$;

-- The session, or prepared transaction, in which one of these transactions is open.
create or replace function rowlock.transaction_holder(xids text[]) returns jsonb
  language sql volatile
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_strip_nulls(jsonb_build_object(
           'pid', l.pid, 'user', a.usename, 'application', nullif(a.application_name, ''), 'state', a.state,
           'since', coalesce(a.xact_start, p.prepared), 'query', left(a.query, 300), 'gid', p.gid))
    from pg_locks l
    left join pg_stat_activity a on a.pid = l.pid
    left join pg_prepared_xacts p on p.transaction::text = l.transactionid::text
   where l.locktype = 'transactionid' and l.transactionid::text = any (xids) and l.granted and l.mode = 'ExclusiveLock'
   limit 1
$$;

-- The reasons, the one that matters most first; never none. code is for programs, sentence for people, detail the evidence:
--   not_found           no such job, or its history has been cleared
--   done, cancelled, expired, dead   it has ended so
--   running             by which worker, since when, until when the lease holds
--   cancel_asked        it runs, but has been asked to stop
--   locked              an open transaction holds its row: which
--   cancel_pending, expiry_passed    the next worker to meet it ends it instead of running it
--   queue_paused, kind_paused
--   scheduled           it is for later: when, and whether it waits so long because it failed
--   lease_expired       its worker died under it or lost its connection, and no other has taken it over yet
--   no_worker           no live worker serves its queue
--   no_worker_for_kind  those that do, do not know its kind
--   workers_full        those that know it have no free slot
--   behind              how many waiting jobs come before it, counted up to 10,000
--   ready               nothing is in its way
-- Workers count as they last reported, some seconds ago; programs that claim without registering as a worker are not seen.
create or replace function rowlock.why(job_id bigint) returns table (code text, sentence text, detail jsonb)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_material = off
  set jit = off
  set timezone = 'UTC'
as $$
declare
  c_ahead_max constant integer := 10000;
  v_now     timestamptz := rowlock.clock();
  v_job     record;
  v_queue   rowlock.queue;
  v_worker  record;
  v_lock    record;
  v_workers record;
  v_ahead   record;
  v_error   text;
  v_free    boolean := true;  -- nothing found yet that keeps it from running
begin
  if job_id is null then
    perform rowlock.refuse('job_id', null, 'is missing');
  end if;
  select f.* into v_job from rowlock.find_job(job_id) f;
  if v_job.id is null then
    return query select 'not_found', format('There is no job %s: it never was, or its history has been cleared.', job_id), '{}'::jsonb;
    return;
  end if;

  if v_job.place = 'finished' then
    return query select v_job.state,
      case v_job.state
        when 'done' then format('It is done: it finished %s, in attempt %s.', rowlock.say_when(v_job.ended_at, v_now), v_job.attempt)
        when 'cancelled' then format('It was cancelled %s.', rowlock.say_when(v_job.ended_at, v_now))
        else format('It expired before it could start: it was put away %s.', rowlock.say_when(v_job.ended_at, v_now)) end,
      jsonb_build_object('ended_at', v_job.ended_at, 'attempt', v_job.attempt, 'worker', v_job.worker_name);
    return;
  elsif v_job.place = 'dead' then
    v_error := v_job.errors -> -1 ->> 'error';
    return query select 'dead',
      format('It died %s: %s.%s Redrive or retry it to run it again.', rowlock.say_when(v_job.ended_at, v_now),
        case v_job.reason
          when 'failed' then format('it failed %s, of %s that it may', rowlock.say_count(v_job.failures, 'time'), v_job.max_attempts)
          when 'poison' then format('its worker died or lost its connection under it %s', rowlock.say_count(v_job.crashes, 'time'))
          else 'its handler said that it must not be tried again' end,
        case when v_error is null then '' else format(' Its last error: %s.', rtrim(left(split_part(v_error, E'\n', 1), 200), '.')) end),
      jsonb_build_object('reason', v_job.reason, 'ended_at', v_job.ended_at, 'failures', v_job.failures, 'crashes', v_job.crashes,
        'error', v_error);
    return;
  end if;

  select w.* into v_worker from rowlock.workers w where w.id = v_job.worker;
  if v_job.state = 'running' then
    return query select 'running',
      format('It is running: %s has it since %s, its lease holds until %s.%s',
        coalesce(format('worker %s on %s', v_worker.name, v_worker.host), 'a caller without a name'),
        rowlock.say_when(v_job.started_at, v_now), rowlock.say_when(v_job.lease_until, v_now),
        case when v_worker.alive = false then format(' That worker was last seen %s; when the lease ends, another takes the job over.',
          rowlock.say_when(v_worker.seen_at, v_now)) else '' end),
      jsonb_build_object('worker', v_job.worker, 'worker_name', v_worker.name, 'worker_host', v_worker.host, 'worker_pid', v_worker.pid,
        'worker_alive', v_worker.alive, 'started_at', v_job.started_at, 'lease_until', v_job.lease_until, 'attempt', v_job.attempt);
    if v_job.cancel_at is not null then
      return query select 'cancel_asked', format('It was asked to stop %s; its handler has not done so yet.', rowlock.say_when(v_job.cancel_at, v_now)),
        jsonb_build_object('cancel_at', v_job.cancel_at);
    end if;
    return;
  end if;

  v_lock := rowlock.lock_holder(job_id);
  if v_lock.locked then
    v_free := false;
    return query select 'locked',
      'An open transaction holds its row, and claims pass over it' || coalesce(': ' ||
        case when v_lock.holder ? 'gid' then format('the prepared transaction %s, open for %s.', v_lock.holder ->> 'gid',
               rowlock.say_span(clock_timestamp() - (v_lock.holder ->> 'since')::timestamptz))
             else format('process %s (%s), open for %s%s.', v_lock.holder ->> 'pid',
               concat_ws(', ', v_lock.holder ->> 'user', v_lock.holder ->> 'application', v_lock.holder ->> 'state'),
               rowlock.say_span(clock_timestamp() - (v_lock.holder ->> 'since')::timestamptz),
               ', last said: ' || left(rtrim(regexp_replace(v_lock.holder ->> 'query', '\s+', ' ', 'g'), '; '), 100)) end, '.'),
      coalesce(v_lock.holder, '{}');
  end if;
  if v_job.cancel_at is not null then
    v_free := false;
    return query select 'cancel_pending',
      format('It was asked to stop %s, and is no longer running: the next worker to meet it ends it as cancelled.', rowlock.say_when(v_job.cancel_at, v_now)),
      jsonb_build_object('cancel_at', v_job.cancel_at);
  elsif v_job.expires_at <= v_now then
    v_free := false;
    return query select 'expiry_passed',
      format('It expired %s: the next worker to meet it ends it as expired.', rowlock.say_when(v_job.expires_at, v_now)),
      jsonb_build_object('expires_at', v_job.expires_at);
  end if;

  select q.* into v_queue from rowlock.queue q where q.name = v_job.queue;
  if v_queue.paused then
    v_free := false;
    return query select 'queue_paused', format('Its queue %s is paused. Resume it to go on.', v_job.queue), jsonb_build_object('queue', v_job.queue);
  end if;
  if v_queue.kinds -> v_job.kind -> 'paused' = 'true' then
    v_free := false;
    return query select 'kind_paused', format('Its kind %s is paused in queue %s. Resume it to go on.', v_job.kind, v_job.queue),
      jsonb_build_object('queue', v_job.queue, 'kind', v_job.kind);
  end if;
  if v_job.state = 'scheduled' then
    v_free := false;
    v_error := v_job.errors -> -1 ->> 'error';
    return query select 'scheduled',
      format('It is scheduled %s, at %s%s.', rowlock.say_when(v_job.run_at, v_now), to_char(v_job.run_at, 'YYYY-MM-DD HH24:MI:SS "UTC"'),
        case when v_job.failures > 0 then format(': it failed %s, of %s that it may, and waits for its next attempt',
               rowlock.say_count(v_job.failures, 'time'), v_job.max_attempts)
             else '' end),
      jsonb_build_object('run_at', v_job.run_at, 'failures', v_job.failures, 'max_attempts', v_job.max_attempts, 'error', v_error);
  elsif v_job.crashed then
    v_free := false;
    return query select 'lease_expired',
      format('Its lease expired %s: %s died or lost its connection. ', rowlock.say_when(v_job.lease_until, v_now),
          coalesce(format('worker %s on %s', v_worker.name, v_worker.host), 'its worker'))
        || case when v_job.crashes + 1 >= coalesce(v_queue.max_crashes, v_job.max_attempts)
                then format('That was crash %s, of %s that it may: the next worker to meet it parks it among the dead, as poison.',
                       v_job.crashes + 1, coalesce(v_queue.max_crashes, v_job.max_attempts))
                else format('That was crash %s, of %s that it may: a worker with a free slot takes it over.',
                       v_job.crashes + 1, coalesce(v_queue.max_crashes, v_job.max_attempts)) end,
      jsonb_build_object('lease_until', v_job.lease_until, 'worker', v_job.worker, 'worker_name', v_worker.name,
        'crashes', v_job.crashes + 1, 'max_crashes', coalesce(v_queue.max_crashes, v_job.max_attempts));
  end if;

  select count(*) filter (where w.state = 'running') as workers,
         count(*) filter (where w.state = 'draining') as draining,
         count(*) filter (where w.state = 'running' and w.knows) as knowing,
         coalesce(sum(w.concurrency) filter (where w.state = 'running' and w.knows), 0) as concurrency,
         coalesce(sum(w.running) filter (where w.state = 'running' and w.knows), 0) as running,
         coalesce(sum(greatest(w.concurrency - w.running, 0)) filter (where w.state = 'running' and w.knows), 0) as free
    into v_workers
    from (select w.state, w.concurrency, w.running, w.kinds = '{}' or v_job.kind = any (w.kinds) as knows
            from rowlock.workers w
           where w.alive and rowlock.serves(w.queues, v_job.queue)) w;
  if v_workers.workers = 0 then
    v_free := false;
    select w.name, w.host, w.seen_at into v_worker from rowlock.workers w where rowlock.serves(w.queues, v_job.queue) order by w.seen_at desc limit 1;
    return query select 'no_worker',
      format('No live worker serves queue %s', v_job.queue)
        || case when v_workers.draining > 0 then format('; %s are shutting down', v_workers.draining)
                when v_worker.name is not null then format('; the last was %s on %s, seen %s', v_worker.name, v_worker.host, rowlock.say_when(v_worker.seen_at, v_now))
                else '' end || '.',
      jsonb_build_object('queue', v_job.queue, 'draining', v_workers.draining, 'last_worker', v_worker.name, 'last_seen_at', v_worker.seen_at);
  elsif v_workers.knowing = 0 then
    v_free := false;
    return query select 'no_worker_for_kind',
      format('Queue %s has %s, but none knows kind %s.', v_job.queue, rowlock.say_count(v_workers.workers, 'live worker'), v_job.kind),
      jsonb_build_object('queue', v_job.queue, 'kind', v_job.kind, 'workers', v_workers.workers, 'kinds', to_jsonb(array(
        select distinct k from rowlock.workers w, unnest(w.kinds) k
         where w.alive and w.state = 'running' and rowlock.serves(w.queues, v_job.queue) order by k limit 100)));
  elsif v_workers.free = 0 and v_job.state <> 'scheduled' then
    v_free := false;
    return query select 'workers_full',
      format('All slots are taken: the %s that could run it, with room for %s, had %s running when last heard of.',
        rowlock.say_count(v_workers.knowing, 'live worker'), rowlock.say_count(v_workers.concurrency, 'job'), v_workers.running),
      jsonb_build_object('workers', v_workers.knowing, 'running', v_workers.running, 'concurrency', v_workers.concurrency);
  end if;

  if v_job.state <> 'scheduled' then
    -- Running jobs are passed over on the way; looking at twice as many rows as are counted is enough for most fleets.
    select least(count(*) filter (where a.waiting), c_ahead_max) as jobs,
           count(*) filter (where a.waiting) > c_ahead_max or count(*) >= 2 * c_ahead_max as capped
      into v_ahead
      from (select s.waiting
              from unnest('{4,3,2,1,0,-1,-2,-3,-4}'::smallint[]) as p (priority),
                   lateral (select j.lease_until <= v_now as waiting
                              from rowlock.job j
                             where rowlock.line(j.queue, j.priority) = rowlock.line(v_job.queue, p.priority) and j.queue = v_job.queue and j.priority = p.priority and j.run_at <= v_now
                               and (j.run_at, j.id) < (case when p.priority = v_job.priority then v_job.run_at else 'infinity' end,
                                                       case when p.priority = v_job.priority then v_job.id else 0 end)
                             order by j.run_at, j.id
                             limit 2 * c_ahead_max) s
             where p.priority >= v_job.priority
             limit 2 * c_ahead_max) a;
    if v_ahead.jobs > 0 then
      v_free := false;
      return query select 'behind',
        format('%s%s of queue %s %s before it.', case when v_ahead.capped then 'At least ' else '' end,
          rowlock.say_count(v_ahead.jobs, 'waiting job'), v_job.queue, case when v_ahead.jobs = 1 then 'comes' else 'come' end),
        jsonb_build_object('jobs', v_ahead.jobs, 'capped', v_ahead.capped);
    end if;
  end if;

  if v_free then
    return query select 'ready', 'Nothing is in its way: the next worker with a free slot takes it.',
      jsonb_build_object('run_at', v_job.run_at, 'workers', v_workers.knowing, 'free', v_workers.free);
  end if;
end $$;
