// Inserts orders, and prints them as JSON.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
)

// Order is a row. JavaScript reads its id as a string.
type Order struct {
	ID   int64  `json:"id,string"`
	Item string `json:"item"`
}

func run(ctx context.Context) error {
	db, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close(ctx)

	insert := "INSERT INTO orders (item) VALUES ($1) RETURNING id, item"
	rows, err := db.Query(ctx, insert, "tea")
	if err != nil {
		return err
	}
	orders, err := pgx.CollectRows(rows, pgx.RowToStructByName[Order])
	if err != nil {
		return err
	}

	// A batch is one round trip. Its results come in the order of its statements.
	batch := &pgx.Batch{}
	for _, item := range []string{"coffee", "cocoa"} {
		batch.Queue(insert, item).QueryRow(func(row pgx.Row) error {
			var order Order
			err := row.Scan(&order.ID, &order.Item)
			orders = append(orders, order)
			return err
		})
	}
	if err := db.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}

	// COPY draws ids for the column that it leaves out.
	items := [][]any{{"milk"}, {"sugar"}}
	if _, err := db.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"item"}, pgx.CopyFromRows(items)); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(orders)
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
