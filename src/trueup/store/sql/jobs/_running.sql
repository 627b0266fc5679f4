j.kind <> all(array(select p.name from {schema}.pauses as p where p.what = 'kind'))
