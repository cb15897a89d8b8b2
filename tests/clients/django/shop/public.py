from django.db import models
from django.db.models import Func, Value


class Conceal(Func):
    function = "snowflake_conceal"
    output_field = models.TextField()

    def __init__(self, id, prefix):
        super().__init__(id, Value(prefix))


class Reveal(Func):
    """The id, for a filter. In an insert, say required=True: another text is an error then."""

    function = "snowflake_reveal"
    output_field = models.BigIntegerField()

    def __init__(self, public_id, prefix, required=False):
        super().__init__(Value(public_id), Value(prefix), Value(required))
