-- Whether the catch-all partition has rows of that day. Then the day cannot be made any more: they stay there, and go by age.
select exists (select from {schema}.{rest} where {column} >= {first} and {column} < {last});
