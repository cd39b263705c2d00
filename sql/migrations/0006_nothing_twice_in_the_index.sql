-- No two jobs have the same entry in this index, because each ends with the id. Before Postgres splits a full page it looks for equal ones, to store their key
-- once: in vain here (but for a job that moved because its page was full), and 3 % of the time of a COPY.
alter index rowlock.job_claim set (deduplicate_items = off);
