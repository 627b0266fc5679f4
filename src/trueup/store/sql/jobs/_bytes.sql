case when pg_column_size(j.args) < 2000 then pg_column_size(j.args) else octet_length(j.args::text) end
