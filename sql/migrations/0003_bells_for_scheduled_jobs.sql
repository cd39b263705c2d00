-- The bell also rings for jobs that are scheduled for the next seconds, so idle workers need not look every second.

-- Its function takes one more argument now.
drop function if exists rowlock.ring(integer, text, timestamptz);

-- At the end of each round vacuum gives empty pages at the end of a table back to the system, and locks everybody out while it does.
-- A queue needs the same pages again in a moment. (Who has had a backlog of millions and wants the space back: vacuum (truncate on).)
alter table rowlock.job set (vacuum_truncate = off);
alter table rowlock.worker set (vacuum_truncate = off);
alter table rowlock.table_batch set (vacuum_truncate = off);
