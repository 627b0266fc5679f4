-- Rates that calls share (`app.rate`): when the next one may begin. Only adds.
create table {schema}.rates (
  name     text primary key,
  next_at  timestamptz not null
) with (fillfactor = 50);
