// Draws in vain, because the test has set the clock back, and tells that from other errors.
package main

import (
	"context"
	"errors"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func main() {
	ctx := context.Background()
	db, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	_, err = db.Exec(ctx, "INSERT INTO orders (item) VALUES ('late')")
	var refusal *pgconn.PgError
	if !errors.As(err, &refusal) || refusal.Code != "58000" || refusal.Hint == "" {
		log.Fatalf("the draw should be refused: %v", err)
	}
	// The connection can be used again, and so can a COPY that is refused.
	_, err = db.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"item"}, pgx.CopyFromRows([][]any{{"late"}}))
	if !errors.As(err, &refusal) || refusal.Code != "58000" {
		log.Fatalf("the COPY should be refused: %v", err)
	}
	var count int
	if err := db.QueryRow(ctx, "SELECT count(*) FROM orders").Scan(&count); err != nil || count != 5 {
		log.Fatalf("%d orders, %v", count, err)
	}
}
