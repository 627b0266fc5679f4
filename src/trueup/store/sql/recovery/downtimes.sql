-- Downtimes that reach into the time between two moments, oldest first. Index: downtimes_pkey.
select since, until from {schema}.downtimes where until > %(since)s and since < %(until)s order by until;
