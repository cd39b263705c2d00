-- No two entries of this index are the same, because each ends with the id of its job. Before Postgres splits a full page it looks for such as are, to store them
-- once: in vain here, and 3 % of the time of a COPY.
alter index rowlock.job_claim set (deduplicate_items = off);
