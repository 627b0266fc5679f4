(%(only)s::bigint[] is null or j.id = any(%(only)s::bigint[]))
