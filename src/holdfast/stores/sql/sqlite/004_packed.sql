-- What runs of one kind all begin with: instructions and tools. It stands once, and their first
-- events are packed against it.
create table base (
    key integer primary key,
    sha256 text not null unique,
    body blob not null,
    pressed integer not null default 0
);

-- A row may hold many events of a run that has ended, packed: so many, up to its own seq. Its at
-- and sum are the last one's; the sums between follow from the bodies.
alter table event add column packed integer not null default 0;
alter table event add column base integer references base (key);
create index event_base on event (base) where base is not null;

-- Whether the run has been packed: 1 if so, 2 if it is damaged and was left as it is.
alter table run add column packed integer not null default 0;
create index unpacked_run on run (key) where place = 'ended' and packed = 0;

-- Whether the body is compressed.
alter table blob add column pressed integer not null default 0;

-- A conversation that came with a run: a row a message, and each names the row before it. The run
-- uses the last one, so one that comes again, longer by a message, is one more row.
create table link (
    key integer primary key,
    sha256 text not null unique,
    body blob not null,
    pressed integer not null default 0,
    before integer references link (key)
);

create index link_before on link (before) where before is not null;

create table link_use (
    run integer not null references run (key),
    link integer not null references link (key),
    primary key (run, link)
) without rowid;

create index link_used on link_use (link);

-- The pictures in a message.
create table link_blob (
    link integer not null references link (key),
    sha256 text not null references blob (sha256),
    primary key (link, sha256)
) without rowid;

create index link_blob_used on link_blob (sha256);
