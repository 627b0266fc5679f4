drop table app.payment_request_settlements;
drop table app.payment_requests;
