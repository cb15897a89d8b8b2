from django.db import models


class SnowflakeField(models.BigAutoField):
    def db_type_suffix(self, connection):
        return "DEFAULT snowflake_next()"
