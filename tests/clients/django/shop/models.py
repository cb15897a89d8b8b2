from django.db import models


class Order(models.Model):
    item = models.TextField()


class Line(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
