-- For this transaction only: the server checks from time to time whether its client is still connected, even during a statement, so that
-- the locks of a killed client end with it. Refused where the server's platform cannot tell.
select set_config('client_connection_check_interval', %(every)s::text, true);
