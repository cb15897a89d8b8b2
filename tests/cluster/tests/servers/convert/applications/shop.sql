-- A shop after JPA, GitLab and ora2pg: one sequence for all tables, sequences that no column owns,
-- partitions, and keys in columns without a foreign key.
CREATE SEQUENCE hibernate_sequence START 1000;
CREATE TABLE customers (id bigint PRIMARY KEY, name text);
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT nextval('hibernate_sequence'), customer bigint NOT NULL REFERENCES customers);
CREATE TABLE lines (id integer PRIMARY KEY DEFAULT nextval('hibernate_sequence'), order_id bigint NOT NULL REFERENCES orders);
INSERT INTO customers VALUES (-1, 'guest'), (1, 'ada');
INSERT INTO orders VALUES (1, 1);

-- ora2pg makes the sequences of Oracle, and no column owns them.
CREATE SEQUENCE invoices_seq;
CREATE TABLE invoices (id bigint PRIMARY KEY DEFAULT nextval('invoices_seq'), order_id bigint NOT NULL REFERENCES orders);
CREATE SEQUENCE tickets_seq AS integer;
CREATE DOMAIN ticket AS bigint CONSTRAINT ticket_short CHECK (VALUE BETWEEN -1 AND 999999999);
CREATE TABLE tickets (id ticket PRIMARY KEY DEFAULT nextval('tickets_seq'), text text);
INSERT INTO tickets VALUES (-1, 'none');

-- As GitLab: partitions, each inserted into also directly, and one sequence for both levels.
CREATE SEQUENCE events_id_seq;
CREATE TABLE events (id bigint NOT NULL DEFAULT nextval('events_id_seq'), month integer NOT NULL, order_id integer, note text,
    PRIMARY KEY (id, month)) PARTITION BY LIST (month);
CREATE TABLE events_1 PARTITION OF events FOR VALUES IN (1);
CREATE TABLE events_rest PARTITION OF events DEFAULT PARTITION BY RANGE (id);
CREATE TABLE events_rest_all PARTITION OF events_rest DEFAULT;

CREATE TABLE payments (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, invoice bigint REFERENCES invoices, "orderId" integer);
CREATE TABLE shipments (id serial PRIMARY KEY, line integer REFERENCES lines, stock integer NOT NULL DEFAULT 1);
CREATE TABLE totals (shipment integer PRIMARY KEY, n integer NOT NULL);
CREATE VIEW open_orders AS SELECT o.id, c.name, count(l.id) AS lines FROM orders o JOIN customers c ON c.id = o.customer
    LEFT JOIN lines l ON l.order_id = o.id GROUP BY o.id, c.name;

CREATE FUNCTION count_shipment() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO totals VALUES (1, 1) ON CONFLICT (shipment) DO UPDATE SET n = totals.n + 1;
    RETURN new;
END $$;
CREATE TRIGGER counted BEFORE INSERT ON shipments FOR EACH ROW WHEN (new.id > 0) EXECUTE FUNCTION count_shipment();
CREATE PROCEDURE pay(paid bigint) LANGUAGE plpgsql AS $$
DECLARE
    payment_id integer;
BEGIN
    INSERT INTO payments (invoice) VALUES (paid) RETURNING id INTO payment_id;
END $$;

-- ---
ALTER DOMAIN ticket DROP CONSTRAINT ticket_short; -- breaks: ticket_short
-- ---
INSERT INTO customers SELECT nextval('hibernate_sequence'), 'bo';
INSERT INTO orders (customer) VALUES (1);
INSERT INTO orders (id, customer) SELECT nextval('hibernate_sequence'), max(id) FROM customers;
WITH o AS (INSERT INTO orders (customer) VALUES (-1) RETURNING id) SELECT id FROM o;
INSERT INTO lines (order_id) SELECT max(id) FROM orders;
INSERT INTO lines (order_id) SELECT id FROM open_orders ORDER BY id DESC LIMIT 1;
INSERT INTO invoices (order_id) SELECT max(id) FROM orders;
INSERT INTO invoices (order_id) SELECT order_id FROM lines ORDER BY id DESC LIMIT 1;
INSERT INTO tickets (text) VALUES ('printer');
INSERT INTO events (month, note) VALUES (1, 'opened');
INSERT INTO events (month) VALUES (2);
INSERT INTO events_1 (month) VALUES (1);
INSERT INTO events (month, order_id) SELECT 1, max(id) FROM orders; -- breaks: app.events.order_id
INSERT INTO payments (invoice) SELECT max(id) FROM invoices;
INSERT INTO payments ("orderId") SELECT max(id) FROM orders; -- breaks: app.payments."orderId"
CALL pay(NULL); -- breaks: app.pay(bigint)
INSERT INTO shipments (line) SELECT max(id) FROM lines;
INSERT INTO totals SELECT max(id), 1 FROM shipments ON CONFLICT (shipment) DO UPDATE SET n = totals.n + 1; -- breaks: app.totals.shipment
SELECT o.name, count(*) FROM open_orders o GROUP BY o.name;
SELECT nextval('shipments_id_seq'); -- breaks: app.shipments_id_seq
UPDATE orders SET customer = -1 WHERE id = (SELECT max(id) FROM orders);
DELETE FROM events WHERE month = 2 AND note = 'closed';
