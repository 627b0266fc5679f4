(%(kind)s::text is null or kind = %(kind)s::text) and (%(queue)s::text is null or queue = %(queue)s::text)
    and (%(schedule)s::text is null or schedule = %(schedule)s::text) and attempt >= %(min_attempts)s::int
    and (%(arguments)s::text is null or args @> %(arguments)s::text::jsonb)
    and (%(error_contains)s::text is null
         or strpos(lower((errors -> -1) ->> 'type'::text) || ': '::text || lower((errors -> -1) ->> 'message'::text), lower(%(error_contains)s::text)) > 0)
    and (%(older_than_s)s::float8 is null or enqueued_at < {now} - make_interval(secs => %(older_than_s)s::float8))
