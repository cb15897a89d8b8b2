"""What `manage.py test` runs, in a database that it makes for itself."""

from django.db import connection
from django.test import TestCase

from shop.models import Order


class OrderTest(TestCase):
    def test_rows_have_ids_in_the_test_database(self):
        self.assertEqual(connection.settings_dict["NAME"], "test_app")
        order = Order.objects.create(item="tea")
        self.assertGreater(order.id, 2**53)
        self.assertGreater(order.lines.create().id, order.id)
