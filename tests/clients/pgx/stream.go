// Reads orders in order, a page at a time.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
)

// deliver delivers the next orders, and returns how many there were.
func deliver(ctx context.Context, db *pgx.Conn) (count int, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		var last, id int64
		var item string
		reader := tx.QueryRow(ctx, "SELECT last FROM readers WHERE name = 'mail' FOR UPDATE")
		if err := reader.Scan(&last); err != nil {
			return err
		}
		next := "SELECT id, item FROM orders WHERE id > $1 AND id <= snowflake_settled() ORDER BY id LIMIT 100"
		rows, err := tx.Query(ctx, next, last)
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(rows, []any{&id, &item}, func() error {
			fmt.Println(id, item)
			count++
			return nil
		})
		if err != nil || count == 0 {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE readers SET last = $1 WHERE name = 'mail'", id)
		return err
	})
	return count, err
}

func main() {
	ctx := context.Background()
	db, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	for count := 1; count > 0; {
		if count, err = deliver(ctx, db); err != nil {
			log.Fatal(err)
		}
	}
}
