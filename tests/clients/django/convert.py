"""Gives a model that has a BigAutoField the recipe's field: `convert.py before`, then `convert.py after`, as two releases of a program."""

import os
import sys
from pathlib import Path

import django
from django.core.management import call_command
from django.db import connection, models

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
django.setup()

from shop.models import SnowflakeField  # noqa: E402, once there are settings

is_converted = sys.argv[1] == "after"


class Customer(models.Model):
    id = SnowflakeField(primary_key=True) if is_converted else models.BigAutoField(primary_key=True)

    class Meta:
        app_label = "shop"


class Address(models.Model):
    customer = models.ForeignKey(Customer, on_delete=models.CASCADE)

    class Meta:
        app_label = "shop"


call_command("makemigrations", "shop", "--name", sys.argv[1])
if is_converted:
    # What is added by hand to what Django has written, which changes nothing in the database.
    [migration] = Path("shop/migrations").glob("*_after.py")
    convert = """    migrations.RunSQL("SELECT snowflake_convert('shop_customer', 'id')"),\n    ]"""
    migration.write_text(convert.join(migration.read_text().rsplit("]", 1)))
call_command("migrate")
call_command("makemigrations", "--check")

ids = [customer.id for customer in Customer.objects.bulk_create([Customer() for n in range(3)])]
Address.objects.create(customer_id=ids[2])
stored = list(Customer.objects.order_by("id").values_list("id", flat=True))
if is_converted:
    assert stored == [1, 2, 3] + ids and min(ids) > 2**53, stored
    assert list(Address.objects.order_by("id").values_list("customer_id", flat=True)) == [3, ids[2]]
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_serial_sequence('shop_customer', 'id')")
        assert cursor.fetchone() == (None,), "the sequence is gone"
else:
    assert stored == ids == [1, 2, 3], stored
