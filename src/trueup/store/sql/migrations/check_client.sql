-- For this transaction only: the server looks now and then whether its client is still there, also while it works, so that the locks of
-- a killed one go with it. Refused where the server's platform cannot tell.
select set_config('client_connection_check_interval', %(every)s::text, true);
