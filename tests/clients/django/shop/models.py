from django.db import models


class SnowflakeField(models.BigAutoField):
    def db_type_suffix(self, connection):
        return "DEFAULT snowflake_next()"


class Order(models.Model):
    id = SnowflakeField(primary_key=True)
    item = models.TextField()


class Line(models.Model):
    id = SnowflakeField(primary_key=True)
    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
