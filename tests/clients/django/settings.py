import os

INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "shop"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.environ["PGHOST"],
        "PORT": os.environ["PGPORT"],
        "USER": os.environ["PGUSER"],
        "PASSWORD": os.environ["PGPASSWORD"],
        "NAME": os.environ["PGDATABASE"],
    }
}
# The value that `startproject` writes.
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
