"""Checks which id SQLAlchemy takes for which row, in how many statements, and how it reflects the table."""

from datetime import UTC, datetime

from sqlalchemy import BigInteger, Column, MetaData, Table, Text, event, func, insert, inspect, select, text
from sqlalchemy.orm import Session

from recipe import Line, Order, engine, ids

statements = []


@event.listens_for(engine, "before_cursor_execute")
def count(connection, cursor, statement, parameters, context, executemany):
    statements.append(statement)


def inserted(into):
    """Returns how many statements have inserted into a table since the last call."""
    number = sum(statement.startswith(f"INSERT INTO {into} ") for statement in statements)
    statements.clear()
    return number


with Session(engine) as session:
    stored = session.execute(select(Order.item, Order.id).order_by(Order.id)).all()
    assert stored == list(zip(["tea", "coffee", "cocoa"], ids)), stored
    assert min(ids) > 2**53 and session.get(Order, ids[0]).item == "tea"
    assert [len(order.lines) for order in session.scalars(select(Order))] == [2, 2, 2]

# A thousand objects in one statement, each with the id of its own row.
with Session(engine, expire_on_commit=False) as session:
    statements.clear()
    orders = [Order(item=f"item {n}") for n in range(1000)]
    session.add_all(orders)
    session.commit()
    assert inserted("orders") == 1
    items = dict(session.execute(select(Order.id, Order.item)).all())
    assert all(items[order.id] == order.item for order in orders)
    assert [order.id for order in orders] == sorted(order.id for order in orders)

# The same without objects.
with engine.begin() as connection:
    statements.clear()
    rows = [{"item": f"item {n}"} for n in range(1000, 2000)]
    returned = connection.execute(insert(Order).returning(Order.item, sort_by_parameter_order=True), rows)
    assert [item for [item] in returned] == [row["item"] for row in rows]
    assert inserted("orders") == 1

# If SQLAlchemy does not know that a default ascends, it keeps the order, too, but with a statement for each row.
plain_id = Column("id", BigInteger, primary_key=True, server_default=text("snowflake_next()"))
plain = Table("plain", MetaData(), plain_id, Column("item", Text))
plain.create(engine)
with engine.begin() as connection:
    statements.clear()
    rows = [{"item": f"item {n}"} for n in range(20)]
    returned = connection.execute(insert(plain).returning(plain.c.item, sort_by_parameter_order=True), rows)
    assert [item for [item] in returned] == [row["item"] for row in rows]
    assert inserted("plain") == 20

# Ids before the insert: a parent and its children refer to each other before they are stored.
with Session(engine) as session:
    n = 3
    drawn = session.scalars(select(func.snowflake_batch(n))).all()
    assert len(drawn) == n and drawn == sorted(drawn) and type(drawn[0]) is int
    order_id, *line_ids = drawn
    session.execute(insert(Order), [{"id": order_id, "item": "milk"}])
    session.execute(insert(Line), [{"id": line_id, "order_id": order_id} for line_id in line_ids])
    assert [line.id for line in session.get(Order, order_id).lines] == line_ids
    session.rollback()

# Conditions on the time.
with Session(engine) as session:
    time_of = func.snowflake_timestamp(Order.id)
    newest = select(func.max(time_of)).scalar_subquery()
    assert session.scalar(select(func.count(Order.id)).where(time_of <= newest)) == 2003
    assert session.scalar(select(func.count(Order.id)).where(time_of < datetime(2025, 1, 1, tzinfo=UTC))) == 0

# The tables that create_all() made are the same after they were reflected and created again.
def columns():
    found = {name: inspect(engine).get_columns(name) for name in ["orders", "lines", "plain"]}
    return {name: [(c["name"], str(c["type"]), c["nullable"], c["default"]) for c in found[name]] for name in found}


made = columns()
assert made["orders"] == [("id", "BIGINT", False, "snowflake_next()"), ("item", "VARCHAR", False, None)]
assert made["lines"][1] == ("order_id", "BIGINT", False, None), "a foreign key has the type of the key"
assert made["plain"][0] == made["orders"][0]
reflected = MetaData()
reflected.reflect(engine)
reflected.drop_all(engine)
reflected.create_all(engine)
assert columns() == made
with engine.begin() as connection:
    assert connection.scalar(text("SELECT count(*) FROM pg_depend WHERE deptype = 'a' AND objid IN (SELECT seqrelid FROM pg_sequence)")) == 0
    assert connection.scalar(insert(reflected.tables["orders"]).values(item="tea").returning(text("id"))) > max(ids)
