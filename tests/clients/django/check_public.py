"""Checks that queries show public ids, find rows by them, and refuse another text where one is required."""

import os

import django
from django.core.management import call_command
from django.db import DataError, connection, transaction
from django.test.utils import CaptureQueriesContext

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
django.setup()

from shop.models import Line, Order  # noqa: E402, once there are settings
from shop.public import Conceal, Reveal  # noqa: E402

call_command("makemigrations", "shop", verbosity=0)
call_command("migrate", verbosity=0)

tea = Order.objects.create(item="tea")
Order.objects.create(item="coffee")
shown = Order.objects.annotate(public_id=Conceal("id", "ord"))
public_id = shown.get(item="tea").public_id
assert public_id.startswith("ord_") and len(public_id) == 30, public_id
assert Order.objects.get(id=Reveal(public_id, "ord")) == tea
assert list(Order.objects.filter(id__in=[Reveal(public_id, "ord"), Reveal("x", "ord")])) == [tea]
assert not Order.objects.filter(id=Reveal("ord_no_such_id", "ord")).exists()

with CaptureQueriesContext(connection) as queries:
    line = Line.objects.create(order_id=Reveal(public_id, "ord", required=True))
assert len(queries) == 1
line.refresh_from_db()
assert line.order == tea
try:
    with transaction.atomic():
        Line.objects.create(order_id=Reveal("ord_no_such_id", "ord", required=True))
except DataError as error:
    assert error.__cause__.sqlstate == "22023" and "no_such" not in error.__cause__.diag.message_primary
else:
    raise AssertionError("it is no public id")
