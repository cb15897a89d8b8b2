// Stores a question with 2,499 answers by one COPY.
package main

import (
	"context"
	"log"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

type batch struct {
	ids     []int64
	drawnAt time.Time
	err     error
}

// IDPool has ids drawn ahead. The next batch is drawn in the background when half of one is used.
type IDPool struct {
	URL    string
	Size   int
	MaxAge time.Duration

	mutex   sync.Mutex
	current batch
	next    chan batch
}

// Take returns an id that is at most MaxAge old. It waits only if no batch is ready.
func (pool *IDPool) Take() (int64, error) {
	pool.mutex.Lock()
	defer pool.mutex.Unlock()
	for len(pool.current.ids) == 0 || time.Since(pool.current.drawnAt) >= pool.MaxAge {
		if pool.next == nil {
			pool.draw()
		}
		pool.current, pool.next = <-pool.next, nil
		if pool.current.err != nil {
			return 0, pool.current.err
		}
	}
	id := pool.current.ids[0]
	pool.current.ids = pool.current.ids[1:]
	if pool.next == nil && len(pool.current.ids) <= pool.Size/2 {
		pool.draw()
	}
	return id, nil
}

func (pool *IDPool) draw() {
	next := make(chan batch, 1)
	pool.next = next
	go func() {
		drawn := batch{drawnAt: time.Now()}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		db, err := pgx.Connect(ctx, pool.URL)
		if err == nil {
			defer db.Close(ctx)
			rows, _ := db.Query(ctx, "SELECT snowflake_batch($1)", pool.Size)
			drawn.ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		drawn.err = err
		next <- drawn
	}()
}

func run(ctx context.Context) error {
	pool := &IDPool{URL: os.Getenv("DATABASE_URL"), Size: 1000, MaxAge: 30 * time.Second}
	question, err := pool.Take()
	if err != nil {
		return err
	}
	comments := [][]any{{question, nil, "tea or coffee?"}}
	for len(comments) < 2500 {
		id, err := pool.Take()
		if err != nil {
			return err
		}
		comments = append(comments, []any{id, question, "tea"})
	}

	db, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	_, err = db.CopyFrom(ctx, pgx.Identifier{"comments"}, []string{"id", "parent", "body"}, pgx.CopyFromRows(comments))
	return err
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
