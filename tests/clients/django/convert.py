"""Changes an application's keys from BigAutoField to the recipe's field: `convert.py before`, then `convert.py after`, like two releases
of a program."""

import os
import sys
from pathlib import Path

import django
from django.apps import apps
from django.core.management import call_command
from django.db import connection, models

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
django.setup()

is_converted = sys.argv[1] == "after"
migrations = Path("shop/migrations")
if not is_converted:
    (migrations / "0001_extension.py").unlink()
    apps.get_app_config("shop").default_auto_field = "django.db.models.BigAutoField"


class Customer(models.Model):
    class Meta:
        app_label = "shop"


class Address(models.Model):
    customer = models.ForeignKey(Customer, on_delete=models.CASCADE)

    class Meta:
        app_label = "shop"


call_command("makemigrations", "shop", "--name", sys.argv[1])
if is_converted:
    # Added by hand to Django's migration, which leaves the sequences in place.
    [migration] = migrations.glob("*_after.py")
    written = migration.read_text()
    assert written.count("migrations.AlterField(") == 2, written
    extension = "    operations = [\n        CreateExtension('snowflake_id'),\n"
    convert = "".join(
        f"""    migrations.RunSQL("SELECT snowflake_convert('shop_{name}', 'id')"),\n    """ for name in ["customer", "address"]
    )
    written = written.replace("    operations = [\n", extension)
    written = f"{convert}]".join(written.rsplit("]", 1))
    migration.write_text("from django.contrib.postgres.operations import CreateExtension\n" + written)
call_command("migrate")
call_command("makemigrations", "--check")

ids = [customer.id for customer in Customer.objects.bulk_create([Customer() for n in range(3)])]
address = Address.objects.create(customer_id=ids[2])
stored = list(Customer.objects.order_by("id").values_list("id", flat=True))
if is_converted:
    assert stored == [1, 2, 3] + ids and min(ids) > 2**53, stored
    assert list(Address.objects.order_by("id").values_list("id", "customer_id")) == [(1, 3), (address.id, ids[2])]
    assert address.id > ids[2]
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_serial_sequence('shop_customer', 'id')")
        assert cursor.fetchone() == (None,), "the sequence is gone"
else:
    assert stored == ids == [1, 2, 3] and address.id == 1, stored
