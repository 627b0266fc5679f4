case when (h.key in (select key from changed)) is true then 'changed'
                   when not h.there and exists (select from {table} as t where {t_is_h}) then 'busy'
                   when (h.key in (select key from there where as_left)) is true then 'undone'
                   when (h.key in (select key from there where chosen)) is true then 'contested'
                   else 'conflict' end
