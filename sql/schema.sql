-- The schema after all migrations, as pg_dump of PostgreSQL 15 writes it, without the partitions of days and the
-- bodies of functions. Nobody runs it: it shows in a diff what a migration does to tables and signatures.
-- Written by ROWLOCK_UPDATE_SCHEMA=1 cargo test -p rowlock --test it sql::dump

CREATE SCHEMA rowlock;

CREATE DOMAIN rowlock.job_kind AS text
	CONSTRAINT job_kind_length CHECK (((octet_length(VALUE) >= 1) AND (octet_length(VALUE) <= 200)));

CREATE DOMAIN rowlock.job_payload AS jsonb
	CONSTRAINT job_payload_object CHECK ((jsonb_typeof(VALUE) = 'object'::text));

CREATE DOMAIN rowlock.job_priority AS smallint
	CONSTRAINT job_priority_range CHECK (((VALUE >= '-4'::integer) AND (VALUE <= 4)));

CREATE DOMAIN rowlock.job_queue AS text
	CONSTRAINT job_queue_length CHECK (((octet_length(VALUE) >= 1) AND (octet_length(VALUE) <= 200)));

CREATE DOMAIN rowlock.job_time AS timestamp with time zone
	CONSTRAINT job_run_at_finite CHECK (((VALUE >= '2000-01-01 00:00:00+00'::timestamp with time zone) AND (VALUE <= '2999-12-31 00:00:00+00'::timestamp with time zone)));

CREATE FUNCTION rowlock.access_functions(access text) RETURNS text[]
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.add_error(errors jsonb, attempt integer, at timestamp with time zone, worker bigint, error text) RETURNS jsonb
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.announce(queue text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.any_bundle(queue text, at timestamp with time zone, id bigint, ids bigint[] DEFAULT NULL::bigint[]) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.archive_batch(place text, ended_before timestamp with time zone, of_queue text DEFAULT NULL::text, max_jobs integer DEFAULT 1000, max_bytes integer DEFAULT 4194304, from_next jsonb DEFAULT NULL::jsonb) RETURNS TABLE(id bigint, ended_at timestamp with time zone, line text, next jsonb)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET "TimeZone" TO 'UTC'
    AS …;

CREATE FUNCTION rowlock.archive_done(place text, ids bigint[], ended_ats timestamp with time zone[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.archive_table(name text) RETURNS regclass
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.arm(queues text[], for_ms integer, OUT xid bigint, OUT next_at timestamp with time zone) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.backoff_ms(policy jsonb, failures integer, luck double precision) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.cancel(ids bigint[]) RETURNS TABLE(id bigint, answer text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.check_ack(ids bigint[], tokens bigint[], others integer[] DEFAULT '{}'::integer[]) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.check_age(older_than interval) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.check_backoff(policy jsonb) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.check_count(what text, value bigint, most bigint) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.check_delay(delay_ms bigint) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.check_filter(filter jsonb) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.check_ids(ids bigint[]) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.check_isolation(queue text) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.check_items(kinds text[], payloads jsonb[], priorities integer[], run_ats timestamp with time zone[], max_payload_bytes integer) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.check_name(what text, value text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.check_options(options jsonb, now timestamp with time zone) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.check_paths(what text, wanted jsonb) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.check_payload(payload jsonb, max_bytes integer) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.check_rate(rate double precision) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.check_role(role_name text) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.check_time(what text, value timestamp with time zone) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.check_worker(queues text[], details jsonb) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.claim(queues text[] DEFAULT '{default}'::text[], n integer DEFAULT 1, lease_ms integer DEFAULT NULL::integer, kinds text[] DEFAULT NULL::text[], worker bigint DEFAULT 0) RETURNS TABLE(queue text, id bigint, token bigint, kind text, payload jsonb, priority smallint, attempt integer, failures smallint, crashes smallint, max_attempts smallint, run_at timestamp with time zone, created_at timestamp with time zone, lease_until timestamp with time zone, tid text, timeout_ms bigint, expires_at timestamp with time zone, tags text[], metadata jsonb, trace text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.claim_batch(queues text[], wants integer[], want integer, worker bigint, token bigint, lease_ms integer DEFAULT NULL::integer, kinds text[] DEFAULT NULL::text[], suspects boolean DEFAULT true, after_at timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], after_id bigint[] DEFAULT NULL::bigint[], look_back_ms integer DEFAULT 0, follow boolean[] DEFAULT NULL::boolean[], turn boolean DEFAULT true, until_at timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], until_id bigint[] DEFAULT NULL::bigint[]) RETURNS TABLE(id bigint, tid tid, kind text, payload jsonb, run_at timestamp with time zone, rest record)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET lock_timeout TO '200ms'
    AS …;

CREATE FUNCTION rowlock.claim_bundle(queue text, n integer, worker bigint, token bigint, lease_ms integer DEFAULT NULL::integer, kinds text[] DEFAULT NULL::text[], after_at timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], after_id bigint[] DEFAULT NULL::bigint[], until_at timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS TABLE(id bigint, tid tid, kind text, payload jsonb, run_at timestamp with time zone, rest record)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET lock_timeout TO '200ms'
    AS …;

CREATE FUNCTION rowlock.claim_fresh(queue text, n integer, worker bigint, token bigint, lease_ms integer DEFAULT NULL::integer, kinds text[] DEFAULT NULL::text[], after_at timestamp with time zone[] DEFAULT NULL::timestamp with time zone[]) RETURNS TABLE(id bigint, tid tid, kind text, payload jsonb, run_at timestamp with time zone, rest record)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    SET jit TO 'off'
    SET lock_timeout TO '200ms'
    AS …;

CREATE FUNCTION rowlock.clear_history(source regclass, archive regclass, condition text, from_at timestamp with time zone, to_at timestamp with time zone, queues text[]) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.clock() RETURNS timestamp with time zone
    LANGUAGE sql PARALLEL SAFE
    RETURN clock_timestamp();

CREATE FUNCTION rowlock.close_bundles(tokens bigint[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_sort TO 'off'
    AS …;

CREATE FUNCTION rowlock.complete(queue text, ids bigint[], tokens bigint[], tids text[] DEFAULT NULL::text[], results jsonb[] DEFAULT NULL::jsonb[], ran_ms integer[] DEFAULT NULL::integer[], OUT done bigint[], OUT lost bigint[], OUT busy bigint[]) RETURNS record
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.complete_batch(queue text, ids bigint[], tokens bigint[], tids tid[] DEFAULT NULL::tid[], results jsonb[] DEFAULT NULL::jsonb[], ran_ms integer[] DEFAULT NULL::integer[], runs integer[] DEFAULT NULL::integer[], marks bigint[] DEFAULT NULL::bigint[], OUT done bigint[], OUT lost bigint[], OUT busy bigint[]) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.complete_untouched(queue text, tids tid[], runs integer[], tokens bigint[], marks bigint[], closed bigint[] DEFAULT NULL::bigint[]) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.copy_finished(queue text, ids bigint[], run_ats timestamp with time zone[], from_at timestamp with time zone, to_at timestamp with time zone, mark text, now timestamp with time zone) RETURNS TABLE(id bigint, new_id bigint)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.day_begins(day date) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN ((day)::timestamp without time zone AT TIME ZONE 'UTC'::text);

CREATE FUNCTION rowlock.dead_batch(queue text, kind text, reason text, error text, tag text, payload jsonb, metadata jsonb, died_after timestamp with time zone, died_before timestamp with time zone, ids bigint[], max_jobs integer, INOUT next jsonb, OUT found_queues text[], OUT found_ids bigint[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.delete(ids bigint[]) RETURNS TABLE(id bigint, answer text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.depth(queue text, cap integer DEFAULT 10000, OUT ready bigint, OUT running bigint, OUT scheduled bigint, OUT dead bigint, OUT capped boolean, OUT oldest_ready_at timestamp with time zone) RETURNS record
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.disarm(queues text[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.discard(queue text DEFAULT NULL::text, kind text DEFAULT NULL::text, reason text DEFAULT NULL::text, error text DEFAULT NULL::text, tag text DEFAULT NULL::text, payload jsonb DEFAULT NULL::jsonb, metadata jsonb DEFAULT NULL::jsonb, died_after timestamp with time zone DEFAULT NULL::timestamp with time zone, died_before timestamp with time zone DEFAULT NULL::timestamp with time zone, ids bigint[] DEFAULT NULL::bigint[], max_jobs integer DEFAULT 1000, INOUT next jsonb DEFAULT NULL::jsonb, OUT discarded bigint) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS …;

CREATE FUNCTION rowlock.drop_partition(partition text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS …;

CREATE FUNCTION rowlock.drop_partitions(archive text DEFAULT NULL::text, max_rows integer DEFAULT 20000) RETURNS TABLE(partition text, answer text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.enqueue(kind text, payload jsonb DEFAULT '{}'::jsonb, queue text DEFAULT 'default'::text, priority integer DEFAULT 0, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, delay interval DEFAULT NULL::interval, max_attempts integer DEFAULT NULL::integer, timeout interval DEFAULT NULL::interval, expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone, tags text[] DEFAULT NULL::text[], metadata jsonb DEFAULT NULL::jsonb, unique_key text DEFAULT NULL::text, on_conflict text DEFAULT 'keep'::text, backoff jsonb DEFAULT NULL::jsonb, trace text DEFAULT NULL::text, OUT id bigint, OUT duplicate boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.enqueue_batch(queue text, kinds text[], payloads jsonb[], priorities integer[] DEFAULT NULL::integer[], run_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], delays_ms bigint[] DEFAULT NULL::bigint[], options jsonb[] DEFAULT NULL::jsonb[]) RETURNS TABLE(id bigint, duplicate boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.enqueue_many(jobs jsonb) RETURNS TABLE(n integer, id bigint, duplicate boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.enqueue_plain(queue text, kind text, payload jsonb, priority integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.enqueue_with_options(queue text, kinds text[], payloads jsonb[], priorities integer[], run_ats timestamp with time zone[], options jsonb[], now timestamp with time zone) RETURNS TABLE(id bigint, duplicate boolean)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE SEQUENCE rowlock.queue_no
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE rowlock.queue (
    name text NOT NULL,
    no integer DEFAULT nextval('rowlock.queue_no'::regclass) NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    lease_ms integer DEFAULT 30000 NOT NULL,
    max_attempts smallint DEFAULT 5 NOT NULL,
    max_crashes smallint,
    backoff jsonb DEFAULT '{"type": "exponential", "factor": 2, "jitter": 0.1, "max_ms": 86400000, "base_ms": 60000}'::jsonb NOT NULL,
    retention interval DEFAULT '7 days'::interval NOT NULL,
    max_payload_bytes integer DEFAULT 1048576 NOT NULL,
    kinds jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT queue_kinds_object CHECK ((jsonb_typeof(kinds) = 'object'::text)),
    CONSTRAINT queue_lease CHECK (((lease_ms >= 1000) AND (lease_ms <= 86400000))),
    CONSTRAINT queue_max_attempts CHECK (((max_attempts >= 1) AND (max_attempts <= 1000))),
    CONSTRAINT queue_max_crashes CHECK (((max_crashes >= 1) AND (max_crashes <= 1000))),
    CONSTRAINT queue_max_payload CHECK (((max_payload_bytes >= 1024) AND (max_payload_bytes <= 268435456))),
    CONSTRAINT queue_name_length CHECK (((octet_length(name) >= 1) AND (octet_length(name) <= 200))),
    CONSTRAINT queue_retention CHECK (((retention >= '00:00:00'::interval) AND (retention <= '3650 days'::interval)))
);

CREATE FUNCTION rowlock.ensure_queue(name text) RETURNS rowlock.queue
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_indexscan TO 'on'
    AS …;

CREATE FUNCTION rowlock.error_holds(errors jsonb, needle text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.extend(queue text, ids bigint[], tokens bigint[], lease_ms integer DEFAULT NULL::integer, OUT done bigint[], OUT lost bigint[], OUT busy bigint[], OUT tids text[], OUT cancelled bigint[]) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.fail(queue text, ids bigint[], tokens bigint[], errors text[], retry_ms bigint[] DEFAULT NULL::bigint[], fates text[] DEFAULT NULL::text[], OUT done bigint[], OUT lost bigint[], OUT busy bigint[], OUT dead bigint[]) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.fate(lease_until timestamp with time zone, kind text, cancel_at timestamp with time zone, expires_at timestamp with time zone, crashes smallint, max_attempts smallint, now timestamp with time zone, kinds text[], paused text[], suspects boolean, max_crashes smallint, kind_settings jsonb, queue_attempts smallint) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN (lease_until > now) THEN 0 WHEN ((kind <> ALL (kinds)) OR (kind = ANY (paused))) THEN 0 WHEN (cancel_at IS NOT NULL) THEN 2 WHEN (expires_at <= now) THEN 3 WHEN (lease_until = '-infinity'::timestamp with time zone) THEN 1 WHEN ((crashes + 1) >= COALESCE((max_crashes)::integer, GREATEST(2, (COALESCE(max_attempts, (((kind_settings -> kind) ->> 'max_attempts'::text))::smallint, queue_attempts))::integer))) THEN 4 WHEN suspects THEN 1 ELSE 0 END;

CREATE FUNCTION rowlock.filter_time(filter jsonb, part text) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.find_job(job_id bigint) RETURNS TABLE(place text, state text, id bigint, queue text, kind text, priority smallint, payload jsonb, attempt integer, failures smallint, crashes smallint, max_attempts smallint, crashed boolean, created_at timestamp with time zone, run_at timestamp with time zone, started_at timestamp with time zone, ended_at timestamp with time zone, lease_until timestamp with time zone, expires_at timestamp with time zone, cancel_at timestamp with time zone, timeout_ms bigint, reason text, unique_key text, backoff jsonb, tags text[], metadata jsonb, trace text, errors jsonb, result jsonb, progress jsonb, worker bigint, worker_name text, worker_host text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.find_jobs(filter jsonb DEFAULT '{}'::jsonb, max_jobs integer DEFAULT 50, from_next jsonb DEFAULT NULL::jsonb, max_visits integer DEFAULT 100000, max_ms integer DEFAULT 500) RETURNS TABLE(place text, state text, id bigint, queue text, kind text, priority smallint, payload jsonb, attempt integer, failures smallint, crashes smallint, max_attempts smallint, crashed boolean, created_at timestamp with time zone, run_at timestamp with time zone, started_at timestamp with time zone, ended_at timestamp with time zone, lease_until timestamp with time zone, expires_at timestamp with time zone, cancel_at timestamp with time zone, timeout_ms bigint, reason text, unique_key text, backoff jsonb, tags text[], metadata jsonb, trace text, errors jsonb, result jsonb, progress jsonb, worker bigint, worker_name text, worker_host text, next jsonb, visited bigint, cut boolean)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.finish_done(queue text, ids bigint[], tokens bigint[], tids tid[], results jsonb[], ran_ms integer[], keep boolean, untouched boolean, now timestamp with time zone) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'on'
    SET enable_nestloop TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.forget_milestone(queue text, ord integer, at timestamp with time zone, id bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.forget_once(older_than interval DEFAULT '7 days'::interval, max_entries integer DEFAULT 5000) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.forget_workers(older_than interval DEFAULT '1 day'::interval) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.grant_access(role_name text, access text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.heal_queues(max_ms integer DEFAULT 500) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.heartbeat(worker bigint, running integer, state text DEFAULT NULL::text, queues text[] DEFAULT NULL::text[], details jsonb DEFAULT NULL::jsonb) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.history_day(at timestamp with time zone) RETURNS date
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN ((at AT TIME ZONE 'UTC'::text))::date;

CREATE FUNCTION rowlock.history_days() RETURNS TABLE(day date, partition text)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.history_reach(now timestamp with time zone, reach interval, most integer) RETURNS interval
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.history_slice(from_at timestamp with time zone, to_at timestamp with time zone, most integer, OUT until timestamp with time zone, OUT rows bigint) RETURNS record
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.hold(queue text, ids bigint[], tokens bigint[], OUT held integer[], OUT tids tid[], OUT lost bigint[], OUT busy bigint[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.is_armed(queue_no integer, until timestamp with time zone) RETURNS boolean
    LANGUAGE sql
    RETURN ((queue_no < 0) OR ((pg_sequence_last_value((('rowlock.bell_'::text || (queue_no % 32)))::regclass))::numeric > (EXTRACT(epoch FROM until) * (1000)::numeric)));

CREATE FUNCTION rowlock.is_bundle(token bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS …;

CREATE FUNCTION rowlock.is_milestone(jobs integer) RETURNS boolean
    LANGUAGE sql
    RETURN ((random() * (30000)::double precision) < (jobs)::double precision);

CREATE TABLE rowlock.bundle (
    token bigint NOT NULL,
    queue text NOT NULL,
    worker bigint NOT NULL,
    lease_until timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone NOT NULL,
    last_at timestamp with time zone NOT NULL,
    last_id bigint NOT NULL,
    ids bigint[] NOT NULL
)
WITH (toast_tuple_target='8160', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='0', vacuum_truncate=off);
ALTER TABLE ONLY rowlock.bundle ALTER COLUMN ids SET STORAGE EXTERNAL;

CREATE FUNCTION rowlock.is_needed(bundle rowlock.bundle) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.is_over(xid xid) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.is_sound(queue text, kind text, payload jsonb, priority integer) RETURNS boolean
    LANGUAGE sql STABLE
    RETURN ((queue <> ''::text) AND (octet_length(queue) <= 200) AND (kind <> ''::text) AND (octet_length(kind) <= 200) AND (kind !~ '[[:cntrl:]]'::text) AND ((priority >= '-4'::integer) AND (priority <= 4)) AND (jsonb_typeof(payload) = 'object'::text) AND (pg_column_size(payload) <= 65536) AND (octet_length((payload)::text) <= 65536));

CREATE SEQUENCE rowlock.job_id
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE rowlock.job (
    id bigint DEFAULT nextval('rowlock.job_id'::regclass) NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    run_at rowlock.job_time DEFAULT 
CASE
    WHEN (pg_current_xact_id() IS NOT NULL) THEN clock_timestamp()
    ELSE NULL::timestamp with time zone
END NOT NULL,
    lease_until timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    token bigint DEFAULT 0 NOT NULL,
    lease_by bigint DEFAULT 0 NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    failures smallint DEFAULT 0 NOT NULL,
    crashes smallint DEFAULT 0 NOT NULL,
    priority rowlock.job_priority DEFAULT 0 NOT NULL,
    queue rowlock.job_queue DEFAULT 'default'::text NOT NULL,
    kind rowlock.job_kind NOT NULL,
    payload rowlock.job_payload NOT NULL,
    max_attempts smallint,
    timeout_ms bigint,
    expires_at timestamp with time zone,
    cancel_at timestamp with time zone,
    unique_key text,
    backoff jsonb,
    tags text[],
    metadata jsonb,
    trace text,
    errors jsonb,
    progress jsonb
)
WITH (fillfactor='45', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000', autovacuum_vacuum_insert_scale_factor='0', autovacuum_vacuum_insert_threshold='500000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='100000', autovacuum_vacuum_cost_delay='0', vacuum_truncate=off);

CREATE FUNCTION rowlock.job_options(j rowlock.job) RETURNS jsonb
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.last_stop(queue_no integer, now timestamp with time zone, OUT at timestamp with time zone, OUT id bigint, OUT worker bigint) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.line(queue text, priority smallint) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (((hashtextextended(queue, (0)::bigint) >> 5) << 4) - priority);

CREATE FUNCTION rowlock.lock_holder(job_id bigint, OUT locked boolean, OUT holder jsonb) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.lock_jobs(queue text, ids bigint[], OUT locked bigint[], OUT tids tid[], OUT since timestamp with time zone) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.lock_places(queue text, tids tid[], most integer, OUT locked tid[], OUT tried integer) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.longest_retention() RETURNS interval
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.look(queue text, after_at timestamp with time zone[], after_id bigint[], until_at timestamp with time zone[], until_id bigint[], most integer, now timestamp with time zone, kinds text[], paused text[], suspects boolean, max_crashes smallint, kind_settings jsonb, queue_attempts smallint, OUT take tid[], OUT other tid[], OUT clean boolean, OUT settled boolean, OUT seen integer, OUT seen_ord bigint[], OUT seen_at timestamp with time zone[], OUT seen_id bigint[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.look_ahead(queue text, after_at timestamp with time zone[], after_id bigint[], until_at timestamp with time zone, most integer, now timestamp with time zone, kinds text[], OUT tids tid[], OUT ids bigint[], OUT plain boolean, OUT signs xid[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.look_up_queue(name text) RETURNS rowlock.queue
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_indexscan TO 'on'
    AS …;

CREATE FUNCTION rowlock.maintain() RETURNS TABLE(step text, did bigint, detail text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.maintain_if_due(every_ms integer) RETURNS TABLE(step text, did bigint, detail text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.make_partition(day date, move_limit integer) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS …;

CREATE FUNCTION rowlock.make_partitions(days_ahead integer DEFAULT 7, move_limit integer DEFAULT 50000) RETURNS TABLE(partition text, answer text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.mark(xid xid) RETURNS bigint
    LANGUAGE sql
    RETURN (((pg_relation_filenode('rowlock.job'::regclass))::bigint << 32) | ((xid)::text)::bigint);

CREATE FUNCTION rowlock.merge_kinds(kinds jsonb, changes jsonb) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.milestones(queue text, front_at timestamp with time zone, front_id bigint, OUT ord integer[], OUT at timestamp with time zone[], OUT id bigint[], OUT head_at timestamp with time zone[], OUT head_id bigint[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.next_number(next jsonb, part text) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.next_time(next jsonb, part text) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.not_bundled(queue text, at timestamp with time zone, id bigint, tids tid[]) RETURNS tid[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'on'
    SET enable_nestloop TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.oldest_xid() RETURNS bigint
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.once_get(queue text, job_id bigint, key text) RETURNS TABLE(value jsonb, done_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.once_put(queue text, job_id bigint, key text, new_value jsonb) RETURNS TABLE(value jsonb, first boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.park_finished(queue text, tids tid[], outcome text, now timestamp with time zone) RETURNS integer
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_indexscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS …;

CREATE FUNCTION rowlock.park_poison(queue text, tids tid[], now timestamp with time zone) RETURNS integer
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_indexscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS …;

CREATE FUNCTION rowlock.paths_hold(document jsonb, wanted jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.pause(queue text, kind text DEFAULT NULL::text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.progress(queue text, id bigint, token bigint, progress jsonb) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_indexscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS …;

CREATE FUNCTION rowlock.purge(queue text, kind text DEFAULT NULL::text, state text DEFAULT NULL::text, max_jobs integer DEFAULT 1000, INOUT next jsonb DEFAULT NULL::jsonb, OUT purged bigint) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.queue_names() RETURNS SETOF text
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.read_places(queue text, tids tid[], OUT places tid[], OUT ids bigint[], OUT claimed_ats timestamp with time zone[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.redrive(queue text DEFAULT NULL::text, kind text DEFAULT NULL::text, reason text DEFAULT NULL::text, error text DEFAULT NULL::text, tag text DEFAULT NULL::text, payload jsonb DEFAULT NULL::jsonb, metadata jsonb DEFAULT NULL::jsonb, died_after timestamp with time zone DEFAULT NULL::timestamp with time zone, died_before timestamp with time zone DEFAULT NULL::timestamp with time zone, ids bigint[] DEFAULT NULL::bigint[], rate double precision DEFAULT NULL::double precision, start_at timestamp with time zone DEFAULT NULL::timestamp with time zone, max_jobs integer DEFAULT 1000, INOUT next jsonb DEFAULT NULL::jsonb, OUT redriven bigint, OUT duplicates bigint) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.refresh_access() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.refuse(what text, value text, rule text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.register_worker(name text, host text, pid integer, version text, queues text[], kinds text[], concurrency integer, details jsonb DEFAULT NULL::jsonb) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.release(queue text, ids bigint[], tokens bigint[], OUT done bigint[], OUT lost bigint[], OUT busy bigint[]) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.replay(queue text, finished_after timestamp with time zone, finished_before timestamp with time zone DEFAULT NULL::timestamp with time zone, kind text DEFAULT NULL::text, outcome text DEFAULT 'done'::text, rate double precision DEFAULT NULL::double precision, start_at timestamp with time zone DEFAULT NULL::timestamp with time zone, max_jobs integer DEFAULT 1000, INOUT next jsonb DEFAULT NULL::jsonb, OUT replayed bigint, OUT duplicates bigint) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.resume(queue text, kind text DEFAULT NULL::text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.retain(batch integer DEFAULT 5000, max_ms integer DEFAULT 1000, OUT deleted bigint, OUT behind boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.retry(ids bigint[]) RETURNS TABLE(id bigint, new_id bigint, answer text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.revive_dead(queue text, ids bigint[], run_ats timestamp with time zone[]) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.revoke_access(role_name text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.rewind(queue text, since timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_indexscan TO 'on'
    AS …;

CREATE FUNCTION rowlock.ring(queue_no integer, queue text, due timestamp with time zone, now timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.say_count(n bigint, noun text) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.say_span(span interval) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.say_when(at timestamp with time zone, now timestamp with time zone) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.scan(from_queue text, want integer, worker bigint, token bigint, lease_ms integer, kinds text[], slice record, front_at timestamp with time zone, front_id bigint) RETURNS TABLE(id bigint, tid tid, kind text, payload jsonb, run_at timestamp with time zone, rest record)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.scan_for() RETURNS interval
    LANGUAGE sql IMMUTABLE
    RETURN '00:00:00.005'::interval;

CREATE FUNCTION rowlock.serves(subscribed text[], queue text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.set_queue(name text, settings jsonb) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.settle_bundles(queue text DEFAULT NULL::text) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_indexscan TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.slice(after_ord integer, after_at timestamp with time zone, after_id bigint, until_ord integer, until_at timestamp with time zone, until_id bigint, head_at timestamp with time zone[], head_id bigint[], OUT from_at timestamp with time zone[], OUT from_id bigint[], OUT to_at timestamp with time zone[], OUT to_id bigint[]) RETURNS record
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.snooze(queue text, ids bigint[], tokens bigint[], delay_ms bigint[], OUT done bigint[], OUT lost bigint[], OUT busy bigint[]) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.stamp() RETURNS timestamp with time zone
    LANGUAGE sql
    RETURN CASE WHEN (pg_is_in_recovery() OR (pg_current_xact_id() IS NOT NULL)) THEN rowlock.clock() ELSE NULL::timestamp with time zone END;

CREATE FUNCTION rowlock.start_archive() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.stats(queue text DEFAULT NULL::text) RETURNS TABLE(name text, paused boolean, ready bigint, running bigint, scheduled bigint, dead bigint, capped boolean, oldest_wait_ms bigint, finished_minute bigint, finished_hour bigint, estimated boolean, sampled bigint, wait_p50_ms bigint, wait_p95_ms bigint, wait_p99_ms bigint, run_p50_ms bigint, run_p95_ms bigint, run_p99_ms bigint)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    SET work_mem TO '16MB'
    AS …;

CREATE FUNCTION rowlock.stopped_at(queue_no integer, worker bigint, at timestamp with time zone, id bigint) RETURNS boolean
    LANGUAGE sql
    RETURN ((setval((('rowlock.cursor_at_'::text || (queue_no % 32)))::regclass, ((((((EXTRACT(epoch FROM (at - '2000-01-01 00:00:00+00'::timestamp with time zone)) * (1000000)::numeric))::bigint & '4503599627370495'::bigint) << 11) | ((worker & (7)::bigint) << 8)) | (((queue_no / 32) & 255))::bigint)) > 0) AND (setval((('rowlock.cursor_id_'::text || (queue_no % 32)))::regclass, id) > 0));

CREATE FUNCTION rowlock.sweep(from_queue text, want integer, worker bigint, token bigint, lease_ms integer DEFAULT NULL::integer, kinds text[] DEFAULT NULL::text[], overdue boolean DEFAULT false) RETURNS TABLE(id bigint, tid tid, kind text, payload jsonb, run_at timestamp with time zone, rest record)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.transaction_holder(xids text[]) RETURNS jsonb
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.unregister_worker(worker bigint) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.vet(queue text, kind text, payload jsonb, priority integer) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.walk_dead(of_queue text, before_at timestamp with time zone, before_id bigint, from_at timestamp with time zone, most integer) RETURNS TABLE(id bigint, priority smallint, at timestamp with time zone, queue text, kind text, state text, reason text, created_at timestamp with time zone, ended_at timestamp with time zone, tags text[], payload jsonb, metadata jsonb, errors jsonb)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.walk_due(of_queue text, before_at timestamp with time zone, before_id bigint, from_at timestamp with time zone, now timestamp with time zone, most integer) RETURNS TABLE(id bigint, priority smallint, at timestamp with time zone, queue text, kind text, state text, reason text, created_at timestamp with time zone, ended_at timestamp with time zone, tags text[], payload jsonb, metadata jsonb, errors jsonb)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.walk_front(of_queue text, from_priority smallint, after_at timestamp with time zone, after_id bigint, now timestamp with time zone, most integer) RETURNS TABLE(id bigint, priority smallint, at timestamp with time zone, queue text, kind text, state text, reason text, created_at timestamp with time zone, ended_at timestamp with time zone, tags text[], payload jsonb, metadata jsonb, errors jsonb)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.walk_ids(below bigint, live boolean, dead boolean, finished boolean, from_day timestamp with time zone, to_day timestamp with time zone, now timestamp with time zone, most integer) RETURNS TABLE(id bigint, priority smallint, at timestamp with time zone, queue text, kind text, state text, reason text, created_at timestamp with time zone, ended_at timestamp with time zone, tags text[], payload jsonb, metadata jsonb, errors jsonb)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    AS …;

CREATE FUNCTION rowlock.whole_number(what text, value jsonb, least_allowed numeric, most_allowed numeric) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;

CREATE FUNCTION rowlock.why(job_id bigint) RETURNS TABLE(code text, sentence text, detail jsonb)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET "TimeZone" TO 'UTC'
    AS …;

CREATE FUNCTION rowlock.write_lease(bundle rowlock.bundle, tids tid[]) RETURNS bigint
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_indexscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS …;

CREATE FUNCTION rowlock.write_leases(queue text, ids bigint[], tokens bigint[] DEFAULT NULL::bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_indexscan TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS …;

CREATE SEQUENCE rowlock.bell_0
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_1
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_10
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_11
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_12
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_13
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_14
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_15
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_16
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_17
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_18
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_19
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_2
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_20
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_21
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_22
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_23
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_24
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_25
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_26
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_27
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_28
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_29
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_3
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_30
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_31
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_4
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_5
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_6
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_7
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_8
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.bell_9
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_0
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_1
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_10
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_11
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_12
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_13
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_14
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_15
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_16
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_17
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_18
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_19
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_2
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_20
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_21
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_22
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_23
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_24
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_25
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_26
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_27
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_28
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_29
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_3
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_30
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_31
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_4
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_5
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_6
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_7
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_8
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_at_9
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_0
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_1
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_10
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_11
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_12
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_13
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_14
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_15
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_16
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_17
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_18
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_19
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_2
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_20
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_21
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_22
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_23
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_24
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_25
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_26
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_27
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_28
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_29
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_3
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_30
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_31
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_4
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_5
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_6
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_7
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_8
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.cursor_id_9
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE TABLE rowlock.dead (
    id bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    run_at timestamp with time zone NOT NULL,
    died_at timestamp with time zone NOT NULL,
    worker bigint NOT NULL,
    attempt integer NOT NULL,
    failures smallint NOT NULL,
    crashes smallint NOT NULL,
    priority smallint NOT NULL,
    queue text NOT NULL,
    kind text NOT NULL,
    reason text NOT NULL,
    payload jsonb NOT NULL,
    errors jsonb,
    tags text[],
    metadata jsonb,
    options jsonb,
    CONSTRAINT dead_reason CHECK ((reason = ANY (ARRAY['failed'::text, 'poison'::text, 'refused'::text])))
);

CREATE TABLE rowlock.finished (
    id bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    run_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    worker bigint NOT NULL,
    attempt integer NOT NULL,
    failures smallint NOT NULL,
    crashes smallint NOT NULL,
    priority smallint NOT NULL,
    queue text NOT NULL,
    kind text NOT NULL,
    outcome text NOT NULL,
    payload jsonb NOT NULL,
    result jsonb,
    errors jsonb,
    tags text[],
    metadata jsonb,
    options jsonb,
    CONSTRAINT finished_outcome CHECK ((outcome = ANY (ARRAY['done'::text, 'cancelled'::text, 'expired'::text])))
)
PARTITION BY RANGE (finished_at);

CREATE TABLE rowlock.finished_default (
    id bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    run_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    worker bigint NOT NULL,
    attempt integer NOT NULL,
    failures smallint NOT NULL,
    crashes smallint NOT NULL,
    priority smallint NOT NULL,
    queue text NOT NULL,
    kind text NOT NULL,
    outcome text NOT NULL,
    payload jsonb NOT NULL,
    result jsonb,
    errors jsonb,
    tags text[],
    metadata jsonb,
    options jsonb,
    CONSTRAINT finished_outcome CHECK ((outcome = ANY (ARRAY['done'::text, 'cancelled'::text, 'expired'::text])))
);

CREATE SEQUENCE rowlock.worker_id
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE rowlock.worker (
    id bigint DEFAULT nextval('rowlock.worker_id'::regclass) NOT NULL,
    started_at timestamp with time zone NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    running integer DEFAULT 0 NOT NULL,
    state text DEFAULT 'running'::text NOT NULL,
    name text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    queues text[] NOT NULL,
    kinds text[] NOT NULL,
    concurrency integer NOT NULL,
    details jsonb,
    CONSTRAINT worker_state CHECK ((state = ANY (ARRAY['running'::text, 'draining'::text, 'stopped'::text])))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='500', vacuum_truncate=off);

CREATE VIEW rowlock.jobs AS
 SELECT j.id,
    (j.queue)::text AS queue,
    (j.kind)::text AS kind,
        CASE
            WHEN (j.lease_until > c.now) THEN 'running'::text
            WHEN ((j.run_at)::timestamp with time zone > c.now) THEN 'scheduled'::text
            ELSE 'ready'::text
        END AS state,
    ((j.lease_until > '-infinity'::timestamp with time zone) AND (j.lease_until <= c.now)) AS crashed,
    (j.priority)::smallint AS priority,
    (j.payload)::jsonb AS payload,
    j.attempt,
    j.failures,
    j.crashes,
    j.max_attempts,
    j.created_at,
    (j.run_at)::timestamp with time zone AS run_at,
    NULLIF(j.claimed_at, '-infinity'::timestamp with time zone) AS started_at,
    NULLIF(j.lease_until, '-infinity'::timestamp with time zone) AS lease_until,
    j.expires_at,
    j.cancel_at,
    j.timeout_ms,
    j.unique_key,
    j.backoff,
    j.tags,
    j.metadata,
    j.trace,
    j.errors,
    j.progress,
    NULLIF(j.lease_by, 0) AS worker,
    w.name AS worker_name,
    w.host AS worker_host
   FROM ((rowlock.job j
     CROSS JOIN ( SELECT rowlock.clock() AS now
         OFFSET 0) c)
     LEFT JOIN rowlock.worker w ON ((w.id = j.lease_by)));

CREATE SEQUENCE rowlock.kept_house
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE TABLE rowlock.migration (
    version integer NOT NULL,
    name text NOT NULL,
    functions text NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE rowlock.milestone (
    queue text NOT NULL,
    priority smallint NOT NULL,
    run_at timestamp with time zone NOT NULL,
    id bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', vacuum_truncate=off);

CREATE TABLE rowlock.once (
    queue text NOT NULL,
    job_id bigint NOT NULL,
    key text NOT NULL,
    done_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    value jsonb
);

CREATE VIEW rowlock.queues AS
 SELECT q.name,
    q.paused,
    d.ready,
    d.running,
    d.scheduled,
    d.dead,
    d.capped,
    d.oldest_ready_at,
    (rowlock.clock() - d.oldest_ready_at) AS oldest_wait,
    ARRAY( SELECT k.key
           FROM jsonb_each(q.kinds) k(key, value)
          WHERE ((k.value -> 'paused'::text) = 'true'::jsonb)
          ORDER BY k.key) AS paused_kinds,
    q.retention,
    q.lease_ms,
    q.max_attempts,
    q.max_crashes,
    q.backoff,
    q.max_payload_bytes,
    q.kinds,
    q.created_at
   FROM rowlock.queue q,
    LATERAL rowlock.depth(q.name) d(ready, running, scheduled, dead, capped, oldest_ready_at);

CREATE TABLE rowlock.retained (
    queue text NOT NULL,
    upto timestamp with time zone NOT NULL
)
WITH (fillfactor='50');

CREATE SEQUENCE rowlock.slice_0
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_1
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_10
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_11
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_12
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_13
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_14
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_15
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_16
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_17
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_18
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_19
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_2
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_20
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_21
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_22
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_23
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_24
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_25
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_26
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_27
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_28
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_29
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_3
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_30
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_31
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_4
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_5
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_6
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_7
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_8
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.slice_9
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_0
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_1
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_10
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_11
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_12
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_13
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_14
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_15
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_16
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_17
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_18
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_19
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_2
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_20
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_21
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_22
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_23
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_24
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_25
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_26
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_27
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_28
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_29
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_3
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_30
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_31
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_4
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_5
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_6
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_7
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_8
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE SEQUENCE rowlock.sweep_9
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE TABLE rowlock.table_batch (
    source text NOT NULL,
    batch_id bigint NOT NULL,
    started_at timestamp with time zone NOT NULL,
    keys text[] NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', vacuum_truncate=off);
ALTER TABLE ONLY rowlock.table_batch ALTER COLUMN keys SET STORAGE MAIN;

CREATE TABLE rowlock.table_failure (
    source text NOT NULL,
    row_key text NOT NULL,
    failures integer NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    retry_at timestamp with time zone NOT NULL,
    failed_at timestamp with time zone NOT NULL,
    error text NOT NULL
);

CREATE VIEW rowlock.workers AS
 SELECT w.id,
    w.name,
    w.host,
    w.pid,
    w.version,
    w.state,
    ((w.state <> 'stopped'::text) AND (w.seen_at > (c.now - '00:00:40'::interval))) AS alive,
    w.running,
    w.concurrency,
    w.queues,
    w.kinds,
    w.started_at,
    w.seen_at,
    w.details
   FROM (rowlock.worker w
     CROSS JOIN ( SELECT rowlock.clock() AS now
         OFFSET 0) c);

ALTER TABLE ONLY rowlock.finished ATTACH PARTITION rowlock.finished_default DEFAULT;

ALTER TABLE ONLY rowlock.bundle
    ADD CONSTRAINT bundle_pkey PRIMARY KEY (token);

ALTER TABLE ONLY rowlock.dead
    ADD CONSTRAINT dead_pkey PRIMARY KEY (id);

ALTER TABLE ONLY rowlock.job
    ADD CONSTRAINT job_pkey PRIMARY KEY (id);

ALTER TABLE ONLY rowlock.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (version);

ALTER TABLE ONLY rowlock.once
    ADD CONSTRAINT once_pkey PRIMARY KEY (queue, job_id, key);

ALTER TABLE ONLY rowlock.queue
    ADD CONSTRAINT queue_pkey PRIMARY KEY (name);

ALTER TABLE ONLY rowlock.retained
    ADD CONSTRAINT retained_pkey PRIMARY KEY (queue);

ALTER TABLE ONLY rowlock.table_batch
    ADD CONSTRAINT table_batch_pkey PRIMARY KEY (source, batch_id);

ALTER TABLE ONLY rowlock.table_failure
    ADD CONSTRAINT table_failure_pkey PRIMARY KEY (source, row_key);

ALTER TABLE ONLY rowlock.worker
    ADD CONSTRAINT worker_pkey PRIMARY KEY (id);

CREATE INDEX bundle_last ON rowlock.bundle USING btree (queue, last_at, last_id);

CREATE INDEX dead_queue ON rowlock.dead USING btree (queue, died_at, id);

CREATE INDEX finished_at ON ONLY rowlock.finished USING brin (finished_at) WITH (pages_per_range='32', autosummarize='on');

CREATE INDEX finished_default_finished_at_idx ON rowlock.finished_default USING brin (finished_at) WITH (pages_per_range='32', autosummarize='on');

CREATE INDEX finished_id ON ONLY rowlock.finished USING btree (id);

CREATE INDEX finished_default_id_idx ON rowlock.finished_default USING btree (id);

CREATE INDEX job_claim ON rowlock.job USING btree (((((hashtextextended((queue)::text, (0)::bigint) >> 5) << 4) - (priority)::smallint)), run_at, id) WITH (deduplicate_items=off);

CREATE UNIQUE INDEX job_unique ON rowlock.job USING btree (queue, unique_key) WHERE (unique_key IS NOT NULL);

CREATE INDEX milestone_place ON rowlock.milestone USING btree (queue, priority DESC, run_at, id);

CREATE INDEX once_done_at ON rowlock.once USING btree (done_at);

CREATE INDEX table_failure_alone ON rowlock.table_failure USING btree (source, retry_at) WHERE (crashes > 0);

ALTER INDEX rowlock.finished_at ATTACH PARTITION rowlock.finished_default_finished_at_idx;

ALTER INDEX rowlock.finished_id ATTACH PARTITION rowlock.finished_default_id_idx;
