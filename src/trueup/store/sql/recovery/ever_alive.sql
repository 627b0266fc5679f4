-- Whether any worker has ever been alive.
select exists (select from {schema}.fleet) or exists (select from {schema}.workers) or exists (select from {schema}.downtimes);
