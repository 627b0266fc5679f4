-- Which transaction this is: another moment means that the first one has ended. Raises when it has failed. Not its number: a
-- transaction that has one holds back vacuum while its handler waits for something else. Not a text that time zone and DateStyle
-- decide about: the handler may have set them.
select extract(epoch from transaction_timestamp())::text;
