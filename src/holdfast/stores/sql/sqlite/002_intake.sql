-- Which conversation a run belongs to, as it was when it was accepted; for lists.
alter table run add column session text not null default '';
create index session_run on run (session, key) where session != '';

-- Requests that are to be taken in once: by whom, under which key, and what was asked. They outlive
-- the runs they led to, for a while.
create table once (
    principal text not null,
    key text not null,
    fingerprint text not null,
    run text not null,
    at real not null,
    primary key (principal, key)
) without rowid;

create index once_at on once (at);
