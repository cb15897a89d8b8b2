"""Runs the migrations, and checks the ids of the recipe's models, and of models written in other ways."""

import os

import django
from django.core.management import call_command
from django.db import connection, models
from django.db.models.expressions import DatabaseDefault
from django.test.utils import CaptureQueriesContext

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
django.setup()

from shop.fields import SnowflakeField  # noqa: E402, once there are settings
from shop.models import Line, Order  # noqa: E402


class Note(models.Model):
    """Declares its key itself, and has a join table that Django creates, which does not use the application's field."""

    id = SnowflakeField(primary_key=True)
    orders = models.ManyToManyField(Order)

    class Meta:
        app_label = "shop"


class Entry(models.Model):
    """Has a default that Django knows, instead of a key that the database draws."""

    id = models.BigIntegerField(
        primary_key=True, db_default=models.Func(function="snowflake_next", output_field=models.BigIntegerField())
    )
    text = models.TextField()

    class Meta:
        app_label = "shop"


call_command("makemigrations", "shop")
call_command("migrate")
# The migrations match the models.
call_command("makemigrations", "--check")

with connection.cursor() as cursor:
    cursor.execute(
        "SELECT c.relname, attname, format_type(atttypid, NULL), pg_get_expr(adbin, adrelid), attidentity"
        " FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid LEFT JOIN pg_attrdef ON (adrelid, adnum) = (attrelid, attnum)"
        " WHERE relkind = 'r' AND relname LIKE 'shop%' AND attname LIKE '%id' AND attnum > 0 ORDER BY 1, 2"
    )
    drawn = ("bigint", "snowflake_next()", "")
    assert cursor.fetchall() == [
        ("shop_entry", "id", *drawn),
        ("shop_line", "id", *drawn),
        ("shop_line", "order_id", "bigint", None, ""),
        ("shop_note", "id", *drawn),
        ("shop_note_orders", "id", "bigint", None, "d"),
        ("shop_note_orders", "note_id", "bigint", None, ""),
        ("shop_note_orders", "order_id", "bigint", None, ""),
        ("shop_order", "id", *drawn),
    ]
    cursor.execute(
        "SELECT relname FROM pg_attrdef JOIN pg_class c ON c.oid = adrelid"
        " WHERE pg_get_expr(adbin, adrelid) LIKE 'snowflake%' AND relname NOT LIKE 'shop%'"
    )
    assert cursor.fetchall() == [], "Django's own tables stay as they are"

# One object: the INSERT returns the id.
tea = Order(item="tea")
assert tea.id is None
with CaptureQueriesContext(connection) as queries:
    tea.save()
assert len(queries) == 1 and type(tea.id) is int and tea.id > 2**53
assert Order.objects.create(item="coffee").id > tea.id
assert Order.objects.get(item="tea") == tea and Order.objects.get_or_create(item="tea") == (tea, False)

# Many objects: one statement, and each object has the id of its own row.
orders = [Order(item=f"item {n}") for n in range(1000)]
with CaptureQueriesContext(connection) as queries:
    Order.objects.bulk_create(orders)
assert sum(query["sql"].startswith("INSERT") for query in queries) == 1
items = dict(Order.objects.values_list("id", "item"))
assert all(items[order.id] == order.item for order in orders)

# Foreign keys.
Line.objects.bulk_create([Line(order=order) for order in orders[:10]] + [Line(order=tea)])
assert tea.lines.count() == 1 and tea.lines.create().order_id == tea.id
assert set(Line.objects.filter(order__item="tea").values_list("order_id", flat=True)) == {tea.id}
note = Note.objects.create()
note.orders.add(tea)
assert note.id > tea.id and Order.objects.get(note=note) == tea
note.orders.clear()

# Ids before the insert: children refer to a parent that is not stored yet.
n = 3
with connection.cursor() as cursor:
    cursor.execute("SELECT snowflake_batch(%s)", [n])
    order_id, *line_ids = [drawn for (drawn,) in cursor.fetchall()]
milk = [Order(id=order_id, item="milk")]
lines = [Line(id=line_id, order_id=order_id) for line_id in line_ids]
Order.objects.bulk_create(milk)
Line.objects.bulk_create(lines)
assert list(Order.objects.get(item="milk").lines.order_by("id").values_list("id", flat=True)) == line_ids
Order.objects.filter(item="milk").delete()

# A dump has ids as numbers, and restores them. The sequences that Django would set afterwards do not exist and are not needed.
call_command("dumpdata", "shop.order", "--output=orders.json")
Line.objects.all().delete()
Order.objects.all().delete()
call_command("loaddata", "orders.json")
assert dict(Order.objects.values_list("id", "item")) == items
assert Order.objects.create(item="cocoa").id > max(items)

# Conditions on the time.
time_of = models.Func("id", function="snowflake_timestamp", output_field=models.DateTimeField())
timed = Order.objects.annotate(created_at=time_of)
assert timed.filter(created_at__gte=timed.get(id=tea.id).created_at).count() == len(items) + 1

# With db_default the key of an unsaved object is not None but a placeholder, and two such keys are equal. After save() and create() it
# has its id, but not after bulk_create() (Django 6.0 sets it there, too).
assert isinstance(Entry(text="a").id, DatabaseDefault) and Entry(text="a") == Entry(text="b")
assert type(Entry.objects.create(text="a").id) is int
entries = Entry.objects.bulk_create([Entry(text="b"), Entry(text="c")])
assert [type(entry.id) for entry in entries] == ([DatabaseDefault] * 2 if django.VERSION < (6,) else [int] * 2)
assert Entry.objects.count() == 3
try:
    Line.objects.create(order=Order(item="milk"))
except ValueError:
    pass
else:
    raise AssertionError("a line of an order that is not saved")
