"""Checks that ids are strings in the JSON of an application, exact in both directions."""

import asyncio
import json

from recipe import Order, app


def request(method, path, query=""):
    """Sends a request, as a web server does, and returns the body of the response."""
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": []}
    messages = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        messages.append(message)

    asyncio.run(app(scope, receive, send))
    assert messages[0]["status"] == 200, messages
    return b"".join(message["body"] for message in messages[1:]).decode()


stored = request("POST", "/orders", "item=tea")
order = json.loads(stored)
assert type(order["id"]) is str and int(order["id"]) > 2**53 and order["item"] == "tea", stored
assert request("GET", f"/orders/{order['id']}") == stored

# In Python it is a number. A client may send either.
assert Order.model_validate_json(stored).id == int(order["id"])
assert Order.model_validate_json('{"id": 249498276909305861, "item": "tea"}').id == 249498276909305861
assert Order(id=5, item="tea").model_dump() == {"id": 5, "item": "tea"}

assert request("GET", "/orders/1") == "null"

described = json.loads(request("GET", "/openapi.json"))
schemas = [described["components"]["schemas"]["Order"]["properties"]["id"]]
schemas += [parameter["schema"] for parameter in described["paths"]["/orders/{id}"]["get"]["parameters"]]
assert [schema["type"] for schema in schemas] == ["string", "string"], schemas
