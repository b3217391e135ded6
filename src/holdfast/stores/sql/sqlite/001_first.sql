-- Every run that was ever accepted. `place` says where it is when nobody is looking:
-- ready (to be claimed from ready_at on; timed if that is what it rests for), held (by a worker), resting (until a wish) or ended.
create table run (
    key integer primary key,
    id text not null unique,
    place text not null,
    epoch integer not null default 0,
    accepted_at real not null,
    ready_at real,
    ready_in real,
    timed integer not null default 0
);

-- What has not ended is what a start has to look at; there is little of it.
create index live_run on run (key) where place != 'ended';

-- Rows are appended in the order of their commits and never change. `sum` chains them: it is
-- made of the sum before, the place, the time and the body. A long body stands among the blobs.
create table event (
    run integer not null references run (key),
    seq integer not null,
    at real not null,
    body blob,
    long text references blob (sha256),
    sum blob not null
);

create unique index event_place on event (run, seq);
create index event_long on event (long) where long is not null;

create table blob (
    sha256 text primary key,
    body blob not null
) without rowid;

-- Which run needs which blob; a blob that no run needs can go.
create table blob_use (
    sha256 text not null references blob (sha256),
    run integer not null references run (key),
    primary key (sha256, run)
) without rowid;
