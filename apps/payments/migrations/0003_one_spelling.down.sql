drop index app.payment_requests_spelling;
