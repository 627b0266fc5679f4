-- Which transaction this is: another moment means that the first one has ended. Raises when it has failed. Not its number: a
-- transaction that has one holds back vacuum while its handler waits for something else.
select transaction_timestamp()::text;
