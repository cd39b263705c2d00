-- A job that is inserted straight into the table gets its time as rowlock.stamp gives it (functions/01_common.sql): when its transaction has a number. (That function is not there yet when the first steps are taken.)
alter table rowlock.job
  alter column run_at set default case when pg_current_xact_id() is not null then clock_timestamp() end;
