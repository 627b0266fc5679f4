-- What a worker last found blocking its event loop: how many times so far, the handler, for how many seconds, and when. Only adds;
-- workers of an older release leave it null.
alter table {schema}.workers add column blocked jsonb;
