-- Creates a row for each lane; workers lock it to claim through the lane.
insert into {schema}.lanes (lane) select unnest(%(lanes)s::text[]) on conflict do nothing;
