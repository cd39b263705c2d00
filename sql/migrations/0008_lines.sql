-- Three numbers of eight bytes instead of a text and three numbers: what is claimed next is found, and what comes in is put in its place, by comparing whole numbers that all entries
-- have at the same offset. Behind a text nothing has a fixed offset, and it was the first thing to be compared at every step down the index.
-- The first number is rowlock.line(queue, priority), written out: an index must not depend on a function that an upgrade may replace.
--
-- It is built while nobody can use the queue, about a second for each million of jobs that wait.
-- It may be missing: doctor knows such queues.
drop index if exists rowlock.job_claim;
create index job_claim on rowlock.job (((hashtextextended(queue, 0) >> 5 << 4) - priority), run_at, id) with (deduplicate_items = off);

-- The index has statistics of its own, as every index on an expression.
analyze rowlock.job;
