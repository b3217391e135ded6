-- Conversations. `state` is what their journal adds up to, and the columns are what lists go by;
-- `name` is in small letters, to be found by.
create table session (
    key integer primary key,
    id text not null unique,
    name text not null,
    pinned integer not null,
    archived integer not null,
    moved_at real not null,
    deleted_at real,
    state blob not null,
    sum blob not null
);

create index session_order on session (pinned, moved_at, id) where deleted_at is null;
create index session_deleted on session (deleted_at) where deleted_at is not null;

-- As `event`, for sessions.
create table session_event (
    session integer not null references session (key),
    seq integer not null,
    at real not null,
    body blob not null,
    sum blob not null,
    primary key (session, seq)
) without rowid;

-- A run's place in its session, from 1. One that waits for its turn there is behind.
alter table run add column ordinal integer not null default 0;
create index session_place on run (session, ordinal) where session != '';
