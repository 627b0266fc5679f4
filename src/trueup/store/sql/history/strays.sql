-- Whether the catch-all partition has rows of that day. Then the day can no longer be created: they stay there, and are deleted by age.
select exists (select from {schema}.{rest} where {column} >= {first} and {column} < {last});
