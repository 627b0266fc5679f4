-- Wallpapers, from the intent to upload one to the picture that is processed. May be applied over and over.

create table if not exists wallpapers (
  id                 text primary key constraint wallpapers_id check (id like 'wlpr\_%'),
  user_id            text not null,
  upload_state       text not null default 'initiated'
                     constraint wallpapers_state check
                       (upload_state in ('initiated', 'uploading', 'stored', 'processing', 'completed', 'failed')),
  state_changed_at   timestamptz not null default now(),
  upload_attempts    int not null default 0 constraint wallpapers_attempts check (upload_attempts >= 0),
  processing_error   text,
  duplicate_of       text references wallpapers on delete set null,
  content_hash       text,
  file_type          text,
  mime_type          text,
  file_size_bytes    bigint,
  width              int,
  height             int,
  storage_key        text,
  storage_bucket     text,
  original_filename  text,
  uploaded_at        timestamptz,
  created_at         timestamptz not null default now(),
  -- An event is published when a row goes to `processing`: never about a picture that nothing is known of.
  constraint wallpapers_described check (
    upload_state not in ('processing', 'completed')
    or num_nulls(content_hash, file_type, mime_type, file_size_bytes, width, height, storage_key, storage_bucket, uploaded_at) = 0
  )
);

-- One picture per user and content.
create unique index if not exists wallpapers_content on wallpapers (user_id, content_hash)
 where upload_state in ('stored', 'processing', 'completed');

-- A user's own, the latest first.
create index if not exists wallpapers_of_user on wallpapers (user_id, id);

-- Asked whenever a row is deleted.
create index if not exists wallpapers_duplicates on wallpapers (duplicate_of) where duplicate_of is not null;

-- What the sweeps walk: the longest unchanged of each state first.
create index if not exists wallpapers_unchanged on wallpapers (upload_state, state_changed_at, id);

-- For people: what waits, and for how long. What was set aside: `trueup reconcilers quarantine list`.
create or replace view waiting_wallpapers as
select id, user_id, upload_state, upload_attempts, now() - state_changed_at as unchanged_for
  from wallpapers
 where upload_state in ('initiated', 'uploading', 'stored', 'processing')
 order by state_changed_at;
