-- Queued jobs of kinds that no longer have a lane of their own go back to their queue's lane. Index: jobs_ready.
update {schema}.jobs set lane = queue where state = 'queued' and lane = any(%(lanes)s::text[]) and lane <> queue;
