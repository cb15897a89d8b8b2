import os

INSTALLED_APPS = ["shop"]
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
DEFAULT_AUTO_FIELD = "shop.models.SnowflakeField"
