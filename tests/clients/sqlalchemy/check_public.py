"""Checks that a program sees public ids alone, and that any other text is refused."""

from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from public import Order, engine, public_id

assert public_id.startswith("ord_") and len(public_id) == 30, public_id
with Session(engine) as session:
    assert session.get(Order, public_id).item == "tea"
    [id] = session.execute(text("SELECT id FROM orders")).one()
    assert type(id) is int and session.scalar(text("SELECT snowflake_conceal(:id, 'ord')"), {"id": id}) == public_id
    assert session.scalars(select(Order).where(Order.id.in_([public_id]))).one().item == "tea"
    try:
        session.scalar(select(Order.item).where(Order.id == "ord_no_such_id"))
    except DBAPIError as error:
        assert error.orig.sqlstate == "22023" and "no_such" not in error.orig.diag.message_primary
    else:
        raise AssertionError("it is no public id")
