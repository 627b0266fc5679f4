-- The advisory key of a name.
select hashtextextended(%(name)s, 0);
