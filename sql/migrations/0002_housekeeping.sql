-- What housekeeping has to remember or to find quickly (see 10_once.sql and 11_history.sql).

-- How far the history of a queue has been cleared, where the queue keeps it for a shorter time than others: everything
-- that finished before `upto` is gone. Written by maintenance, about once a minute at most, never by a job.
create table rowlock.retained (
  queue text        not null primary key,
  upto  timestamptz not null
) with (fillfactor = 50);

create index once_done_at on rowlock.once (done_at);
