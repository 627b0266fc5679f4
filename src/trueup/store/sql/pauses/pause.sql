-- Pauses a queue or a kind; one that is paused already keeps its time and reason, and no row comes back.
insert into {schema}.pauses (what, name, paused_at, paused_by, reason)
values (%(what)s::text, %(name)s::text, {now}, %(by)s::text, %(reason)s::text)
on conflict (what, name) do nothing
returning name;
