-- The jobs that a holder has claimed and not finished, including those it does not know of (a claim's reply may be lost). Index: jobs_held.
select id, term from {schema}.jobs where holder = %(holder)s and state = 'running' order by rank, id;
