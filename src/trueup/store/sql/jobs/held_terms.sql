-- What a holder has claimed and not finished, whether it knows of it or not (a claim's reply may be lost). Index: jobs_held.
select id, term from {schema}.jobs where holder = %(holder)s and state = 'running' order by rank, id;
