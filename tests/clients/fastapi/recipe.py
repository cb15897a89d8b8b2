import os
from typing import Annotated

import psycopg
from fastapi import FastAPI
from psycopg.rows import dict_row
from pydantic import BaseModel, PlainSerializer, WithJsonSchema

# An int in Python and a string in JSON. Strings and numbers are read.
Id = Annotated[int, PlainSerializer(str, when_used="json"), WithJsonSchema({"type": "string"})]


class Order(BaseModel):
    id: Id
    item: str


app = FastAPI()


@app.post("/orders")
def store(item: str) -> Order:
    with psycopg.connect(os.environ["DATABASE_URL"], row_factory=dict_row) as connection:
        return connection.execute("INSERT INTO orders (item) VALUES (%s) RETURNING id, item", [item]).fetchone()


@app.get("/orders/{id}")
def read(id: Id) -> Order | None:
    with psycopg.connect(os.environ["DATABASE_URL"], row_factory=dict_row) as connection:
        return connection.execute("SELECT id, item FROM orders WHERE id = %s", [id]).fetchone()
