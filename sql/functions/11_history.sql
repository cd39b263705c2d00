-- Housekeeping: the days of history, retention, and what is left over. Any number of callers may run any of it anywhere and
-- at any time; there is no leader. The advisory locks only save work.
--
-- DDL on `finished` needs locks that every acknowledgement would queue behind. So it waits for a lock for 100 ms at most (the SET
-- clause, which ends with the function); what did not get its lock is said in the result and tried again next time. Nothing
-- depends on it: partitions are made a week ahead, and the default partition takes what no day takes.

-- Which day (UTC) a time belongs to, and when a day begins.
create or replace function rowlock.history_day(at timestamptz) returns date
  language sql immutable
  set search_path = pg_catalog, pg_temp
  return (at at time zone 'UTC')::date;

create or replace function rowlock.day_begins(day date) returns timestamptz
  language sql immutable
  set search_path = pg_catalog, pg_temp
  return day::timestamp at time zone 'UTC';

-- The days that have a partition. Partitions with other names are somebody else's and left alone.
create or replace function rowlock.history_days() returns table (day date, partition text)
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select to_date(substr(c.relname, 10), 'YYYYMMDD'), c.relname::text
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
   where i.inhparent = 'rowlock.finished'::regclass and c.relname ~ '^finished_[0-9]{8}$'
$$;

-- Makes the partition of one day. Returns how many rows it moved there out of the default partition. Raises what goes wrong.
create or replace function rowlock.make_partition(day date, move_limit integer) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '100ms'
as $$
declare
  v_name  text := 'finished_' || to_char(day, 'YYYYMMDD');
  v_begin timestamptz := rowlock.day_begins(day);
  v_end   timestamptz := rowlock.day_begins(day + 1);
  v_rows  bigint;
begin
  -- ATTACH would take these two anyway, in this order. From here on no row can arrive in the default partition. ONLY: without it
  -- LOCK locks all partitions.
  lock table only rowlock.finished in share update exclusive mode;
  lock table rowlock.finished_default in access exclusive mode;
  select count(*) into v_rows
    from (select from rowlock.finished_default f where f.finished_at >= v_begin and f.finished_at < v_end limit move_limit + 1) f;
  if v_rows > move_limit then
    raise exception 'more than % rows of this day are in finished_default; moving them would hold up acknowledgements for too long. '
      'They are kept and cleared there, or call make_partitions with a higher move_limit', move_limit
      using errcode = '54000';
  end if;
  -- A table of its own first: CREATE … PARTITION OF would need the strongest lock on the parent.
  execute format('create table rowlock.%I (like rowlock.finished including all excluding indexes)', v_name);
  if v_rows > 0 then
    execute format('with gone as (delete from rowlock.finished_default f where f.finished_at >= $1 and f.finished_at < $2 returning f.*)
                    insert into rowlock.%I select * from gone', v_name) using v_begin, v_end;
  end if;
  execute format('alter table rowlock.finished attach partition rowlock.%I for values from (%L) to (%L)', v_name,
    to_char(v_begin at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS+00'), to_char(v_end at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS+00'));
  return v_rows;
end $$;

-- Makes the partitions that are missing for today and the days ahead, and for past days of which rows are in the default
-- partition. Says what it did for each that was missing; answer begins with 'made', 'locked' (next time, then) or 'failed'.
create or replace function rowlock.make_partitions(days_ahead integer default 7, move_limit integer default 50000)
  returns table (partition text, answer text)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now  timestamptz := rowlock.clock();
  v_day  date;
  v_rows bigint;
begin
  if days_ahead is null or days_ahead not between 0 and 366 then
    perform rowlock.refuse('days_ahead', days_ahead::text, 'is out of range: it must be from 0 to 366');
  elsif move_limit is null or move_limit not between 0 and 1000000000 then
    perform rowlock.refuse('move_limit', move_limit::text, 'is out of range: it must be from 0 to 1000000000');
  end if;
  if not pg_try_advisory_xact_lock(hashtextextended('@schema' || ' partitions', 0)) then
    return;
  end if;
  -- The default partition is as good as empty; should it not be, its first rows say which days to begin with.
  for v_day in
    select d.day
      from (select rowlock.history_day(v_now) + n as day from generate_series(0, days_ahead) n
            union
            select rowlock.history_day(f.finished_at) from (select f.finished_at from rowlock.finished_default f limit 1000) f
             where f.finished_at < v_now and f.finished_at >= v_now - rowlock.longest_retention()) d
     where d.day not in (select h.day from rowlock.history_days() h)
     order by d.day
  loop
    partition := 'finished_' || to_char(v_day, 'YYYYMMDD');
    begin
      v_rows := rowlock.make_partition(v_day, move_limit);
      answer := case when v_rows = 0 then 'made' else format('made, and %s rows moved there', v_rows) end;
    exception
      when lock_not_available or deadlock_detected then
        answer := 'locked: ' || sqlerrm;
      when others then
        answer := 'failed: ' || sqlerrm;
    end;
    return next;
    exit when answer like 'locked%';  -- the others need the same locks
  end loop;
end $$;

create or replace function rowlock.longest_retention() returns interval
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select coalesce(max(q.retention), interval '7 days') from rowlock.queue q
$$;

-- Where history goes before it is deleted. From the moment that the table `archive` exists in this schema, drop_partitions
-- and retain move rows there instead of deleting them; rename or drop it to stop. (Files are the client's business.)
create or replace function rowlock.start_archive() returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if to_regclass('rowlock.archive') is null then
    create table rowlock.archive (like rowlock.finished including defaults including constraints);
    create index archive_id on rowlock.archive (id);
    create index archive_at on rowlock.archive using brin (finished_at) with (pages_per_range = 32, autosummarize = on);
  end if;
end $$;

-- Deletes rows of history; into an archive if there is one. `condition` is SQL with $1 .. $3: only this file writes it.
create or replace function rowlock.clear_history(
  source regclass, archive regclass, condition text, from_at timestamptz, to_at timestamptz, queues text[]
) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set jit = off
as $$
declare
  c_columns constant text := 'id, created_at, run_at, started_at, finished_at, worker, attempt, failures, crashes, priority, queue, kind, '
    'outcome, payload, result, errors, tags, metadata, options';
  v_rows bigint;
begin
  if archive is null then
    execute format('delete from %s f where %s', source, condition) using from_at, to_at, queues;
  else
    execute format('with gone as (delete from %s f where %s returning %s) insert into %s (%3$s) select %3$s from gone',
      source, condition, c_columns, archive) using from_at, to_at, queues;
  end if;
  get diagnostics v_rows = row_count;
  return v_rows;
end $$;

-- The table to archive to: the named one, else `archive`, else null. A named one must belong to the owner of these functions:
-- they write to it, and run its triggers, with the owner's rights.
create or replace function rowlock.archive_table(name text) returns regclass
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_table regclass;
begin
  if name is null then
    return to_regclass('rowlock.archive');
  end if;
  begin
    v_table := to_regclass(name);
  exception when others then
    v_table := null;  -- not even the form of a name
  end;
  if not exists (select from pg_class c
                  where c.oid = v_table and c.relkind in ('r', 'p') and pg_get_userbyid(c.relowner) = current_user) then
    perform rowlock.refuse('archive', name, format('is no table of %s; name it with its schema', current_user));
  end if;
  return v_table;
end $$;

create or replace function rowlock.drop_partition(partition text) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '100ms'
as $$
begin
  execute format('drop table rowlock.%I', partition);
end $$;

-- Drops the days that are older than the longest retention of any queue; nothing else has to read them. With an archive, the
-- rows of a day are moved there first, max_rows at most in one call, and the day is dropped by the call that finds it empty.
-- `archive` names a table with the columns of `finished`; without it the table `archive` is used, if there is one.
-- answer begins with 'dropped', 'archived' (rows; more to come), 'locked' (next time, then) or 'failed'.
create or replace function rowlock.drop_partitions(archive text default null, max_rows integer default 20000)
  returns table (partition text, answer text)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_archive regclass := rowlock.archive_table(archive);
  v_cut     timestamptz := rowlock.clock() - rowlock.longest_retention();
  v_days    text[];
  v_moved   bigint[] := '{}';
  v_left    bigint := max_rows;
begin
  perform rowlock.check_count('max_rows', max_rows, 10000000);
  if not pg_try_advisory_xact_lock(hashtextextended('@schema' || ' partitions', 0)) then
    return;
  end if;
  v_days := array(select h.partition from rowlock.history_days() h where rowlock.day_begins(h.day + 1) <= v_cut order by h.day);

  -- All moving comes before all dropping: the first drop locks `finished` until the transaction is over.
  if v_archive is not null then
    for n in 1 .. cardinality(v_days) loop
      begin
        -- By the index on id: it remembers which of its entries are dead, so what earlier calls moved is passed over quickly.
        v_moved := v_moved || rowlock.clear_history(format('rowlock.%I', v_days[n])::regclass, v_archive,
          format('f.ctid = any (array(select a.ctid from rowlock.%I a order by a.id limit %s))', v_days[n], v_left), null, null, null);
      exception when others then
        return query select v_days[n], 'failed: ' || sqlerrm;
        v_days := v_days[: n - 1];
        exit;
      end;
      v_left := v_left - v_moved[n];
      if v_left <= 0 then
        return query select v_days[n], format('archived: %s rows; more may be left', v_moved[n]);
        v_days := v_days[: n - 1];
        exit;
      end if;
    end loop;
  end if;

  for n in 1 .. cardinality(v_days) loop
    partition := v_days[n];
    begin
      perform rowlock.drop_partition(partition);
      answer := case when v_moved[n] > 0 then format('dropped, and %s rows archived', v_moved[n]) else 'dropped' end;
    exception
      when lock_not_available or deadlock_detected then
        answer := 'locked: ' || sqlerrm;
      when others then
        answer := 'failed: ' || sqlerrm;
    end;
    return next;
    -- Others would wait for the same lock, and acknowledgements behind each of them.
    exit when answer like 'locked%';
  end loop;
end $$;

-- Clears the history of queues that keep it for a shorter time than the longest, and what lies in the default partition for
-- longer than that. It walks through history in the order of time, in stretches of about `batch` rows of all queues, and
-- remembers for each queue how far it came (table `retained`): each row is visited once, not at every call. Queues with the
-- same retention walk together. Stops after max_ms; then behind says that there is more to do.
--
-- A row whose transaction committed after the walk had passed its time stays until its day is dropped.
create or replace function rowlock.retain(batch integer default 5000, max_ms integer default 1000, out deleted bigint, out behind boolean)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  c_began   constant timestamptz := clock_timestamp();  -- how long this takes is measured, not decided: never the test clock
  v_now     timestamptz := rowlock.clock();
  v_longest interval := rowlock.longest_retention();
  v_archive regclass := rowlock.archive_table(null);
  v_each    record;
  v_from    timestamptz;
  v_cut     timestamptz;
  v_length  interval;
  v_slice   record;
  v_rows    bigint;
begin
  perform rowlock.check_count('batch', batch, 1000000);
  perform rowlock.check_count('max_ms', max_ms, 600000);
  deleted := 0;
  behind := false;
  if not pg_try_advisory_xact_lock(hashtextextended('@schema' || ' retain', 0)) then
    return;
  end if;

  for v_each in
    select q.retention, r.upto, array_agg(q.name order by q.name) as queues
      from rowlock.queue q left join rowlock.retained r on r.queue = q.name
     where q.retention < v_longest
     group by q.retention, r.upto
     order by r.upto nulls first
  loop
    v_cut := v_now - v_each.retention;
    -- Before this, whole days are dropped.
    v_from := greatest(v_each.upto, v_now - v_longest - interval '1 day');
    v_length := v_cut - v_from;
    while v_from < v_cut loop
      if clock_timestamp() > c_began + make_interval(secs => max_ms / 1000.0) then
        behind := true;
        exit;
      end if;
      v_slice := rowlock.history_slice(v_from, least(v_cut, v_from + v_length), batch);
      if v_slice.rows > 0 then
        deleted := deleted + rowlock.clear_history('rowlock.finished', v_archive,
          'f.finished_at >= $1 and f.finished_at < $2 and f.queue = any ($3)', v_from, v_slice.until, v_each.queues);
      end if;
      v_length := (v_slice.until - v_from) * 4;
      v_from := v_slice.until;
    end loop;
    insert into rowlock.retained as r (queue, upto) select q, v_from from unnest(v_each.queues) q
    on conflict (queue) do update set upto = excluded.upto where r.upto < excluded.upto;
  end loop;

  -- Usually there is nothing: the first row that is old enough, or the end of an empty table, answers at once.
  loop
    v_rows := rowlock.clear_history('rowlock.finished_default', v_archive,
      format('f.ctid = any (array(select d.ctid from rowlock.finished_default d where d.finished_at < $2 limit %s))', batch),
      null, v_now - v_longest, null);
    deleted := deleted + v_rows;
    exit when v_rows < batch;
    if clock_timestamp() > c_began + make_interval(secs => max_ms / 1000.0) then
      behind := true;
      exit;
    end if;
  end loop;
end $$;

-- Makes the rows of queues that have live jobs but no row: jobs that came by COPY, or beside a transaction that rolled back
-- (see ensure_queue). Looks between the lines of those that have one, so that it never walks over the jobs of a queue, or over what they
-- leave behind until vacuum comes: with 300,000 dead rows it took 150 ms. Returns how many it made; after max_ms it leaves
-- the rest to the next call, which begins somewhere else, so that all have their turn.
create or replace function rowlock.heal_queues(max_ms integer default 500) returns bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set jit = off
as $$
declare
  c_began constant timestamptz := clock_timestamp();
  c_most  constant bigint := 9223372036854775807;
  c_known constant bigint[] := array(select rowlock.line(q.name, 4::smallint) from rowlock.queue q order by 1);   -- where each queue begins,
  c_last  constant bigint := rowlock.line('', -4::smallint) - rowlock.line('', 4::smallint);                      -- and how far it is to its last line
  c_gaps  constant integer := cardinality(c_known) + 1;
  c_start constant integer := floor(random() * c_gaps);
  v_gap   integer;
  v_after bigint;
  v_found text;
  v_made  bigint := 0;
begin
  perform rowlock.check_count('max_ms', max_ms, 600000);
  for v_round in 0 .. c_gaps - 1 loop
    v_gap := (c_start + v_round) % c_gaps;
    v_after := coalesce(c_known[v_gap] + c_last, -c_most);
    loop
      select j.queue into v_found
        from rowlock.job j
       where rowlock.line(j.queue, j.priority) > v_after and rowlock.line(j.queue, j.priority) < coalesce(c_known[v_gap + 1], c_most)
       order by rowlock.line(j.queue, j.priority)
       limit 1;
      exit when v_found is null;
      -- The lock is that of ensure_queue: whoever holds it makes the row, and an insert would wait for that transaction's end.
      if pg_try_advisory_xact_lock(hashtextextended('@schema' || ' queue ' || v_found, 0)) then
        insert into rowlock.queue (name) values (v_found) on conflict do nothing;
        if found then
          perform pg_notify('@schema', 'queue ' || v_found);
          v_made := v_made + 1;
        end if;
      end if;
      v_after := rowlock.line(v_found, -4::smallint);
      exit when v_made >= 1000 or clock_timestamp() > c_began + make_interval(secs => max_ms / 1000.0);
    end loop;
    exit when v_made >= 1000 or clock_timestamp() > c_began + make_interval(secs => max_ms / 1000.0);
  end loop;
  return v_made;
end $$;

-- All of the above, for workers to call about once a minute, each call in a transaction of its own. A step that fails says so
-- and does not stop the others. The steps that lock come last, and the one that locks most at the very end: locks last
-- until the transaction is over.
create or replace function rowlock.maintain() returns table (step text, did bigint, detail text)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if not pg_try_advisory_xact_lock(hashtextextended('@schema' || ' maintain', 0)) then
    return query select 'maintain', 0::bigint, 'left to another session that is at it';
    return;
  end if;
  foreach step in array array['heal_queues', 'settle_bundles', 'forget_workers', 'forget_once', 'retain', 'make_partitions', 'drop_partitions'] loop
    did := 0;
    detail := null;
    begin
      case step
        when 'heal_queues' then
          did := rowlock.heal_queues();
        when 'settle_bundles' then
          did := rowlock.settle_bundles();
        when 'forget_workers' then
          did := rowlock.forget_workers();
        when 'forget_once' then
          did := rowlock.forget_once();
        when 'retain' then
          select r.deleted, case when r.behind then 'not finished: more to delete next time' end into did, detail from rowlock.retain() r;
        when 'make_partitions' then
          select count(*) filter (where m.answer like 'made%'), string_agg(m.partition || ' ' || m.answer, '; ' order by m.partition)
            into did, detail from rowlock.make_partitions() m;
        when 'drop_partitions' then
          select count(*) filter (where d.answer like 'dropped%'), string_agg(d.partition || ' ' || d.answer, '; ' order by d.partition)
            into did, detail from rowlock.drop_partitions() d;
      end case;
    exception when others then
      did := 0;
      detail := 'failed: ' || sqlerrm;
    end;
    return next;
  end loop;
end $$;

-- The same, for the many workers of a queue: none has to do what another did within this time. When that was is kept in a sequence, outside of MVCC; it carries nothing.
create or replace function rowlock.maintain_if_due(every_ms integer) returns table (step text, did bigint, detail text)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  c_now constant bigint := extract(epoch from clock_timestamp()) * 1000;
begin
  perform rowlock.check_count('every_ms', every_ms, 86400000);
  -- Who set the clock back does not wait until it is what it was.
  if pg_sequence_last_value('rowlock.kept_house') between c_now - every_ms + 1 and c_now then
    return;
  end if;
  perform setval('rowlock.kept_house', c_now);
  return query select * from rowlock.maintain();
end $$;
