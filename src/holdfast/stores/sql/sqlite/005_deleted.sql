-- When somebody deleted the run, and who. From then on nobody finds it by its id, and one that is in
-- no session goes altogether when its time has come.
alter table run add column deleted_at real;
alter table run add column deleted_by text not null default '';
create index deleted_run on run (deleted_at) where deleted_at is not null;
