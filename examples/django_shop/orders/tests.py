from unittest import mock

from django.core import mail
from django.test import SimpleTestCase, TestCase

from orders import views
from orders.jobs import charge
from orders.models import Order
from orders.reconcilers import ship
from trueup.django.testing import assert_enqueued, assert_not_enqueued, run_jobs


class PlacingAnOrder(TestCase):
    def place(self):
        given = {"email": "ada@example.com", "total": "12.50"}
        return self.client.post("/orders/", given, content_type="application/json")

    def test_an_order_is_charged_and_its_receipt_is_sent(self):
        order_id = self.place().json()["order"]
        assert_enqueued(charge, order_id=order_id, times=1)
        run_jobs()
        self.assertEqual(Order.objects.get().state, Order.State.PAID)
        self.assertEqual([message.to for message in mail.outbox], [["ada@example.com"]])

    def test_an_order_that_cannot_be_placed_leaves_no_job(self):
        self.client.raise_request_exception = False
        with mock.patch.object(views, "JsonResponse", side_effect=RuntimeError("after everything was written")):
            self.assertEqual(self.place().status_code, 500)
        self.assertFalse(Order.objects.exists())
        assert_not_enqueued(charge)

    def test_charging_twice_sends_one_receipt(self):
        order_id = self.place().json()["order"]
        charge.enqueue_sync(order_id)
        run_jobs()
        self.assertEqual(len(mail.outbox), 1)

    def test_a_paid_order_is_shipped(self):
        order = Order(pk=7, email="ada@example.com", total=1, state=Order.State.PAID)
        self.assertEqual(ship(order).state, Order.State.SHIPPED)


class WithoutADatabase(SimpleTestCase):
    def test_nothing_is_enqueued_in_the_projects_own_database(self):
        with self.assertRaisesMessage(
            AssertionError, "Database queries to 'default' are not allowed in SimpleTestCase"
        ):
            charge.enqueue_sync(1)
