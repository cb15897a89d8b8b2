// Inserts an order, and finds it by its public id.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
)

func run(ctx context.Context) error {
	db, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close(ctx)

	var publicID string
	insert := "INSERT INTO orders (item) VALUES ($1) RETURNING snowflake_conceal(id, 'ord')"
	if err := db.QueryRow(ctx, insert, "tea").Scan(&publicID); err != nil {
		return err
	}
	for _, text := range []string{publicID, "ord_no_such_id"} {
		var item string
		find := "SELECT item FROM orders WHERE id = snowflake_reveal($1, 'ord')"
		err := db.QueryRow(ctx, find, text).Scan(&item)
		if errors.Is(err, pgx.ErrNoRows) {
			item = "404"
		} else if err != nil {
			return err
		}
		fmt.Println(item)
	}
	return nil
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
