-- How a schedule was, one version after another, as far as it matters since a moment.
select version, since, state, spec from {schema}.schedule_versions
 where name = %(name)s
   and since >= coalesce((select max(since) from {schema}.schedule_versions where name = %(name)s and since <= %(since)s), '-infinity')
 order by version;
