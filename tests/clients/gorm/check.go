// Checks that each object has the id of its row, that the schema has the default, and ids before the insert.
package main

import (
	"fmt"
	"log"
	"os"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

// Order is a row.
type Order struct {
	ID   int64 `gorm:"autoIncrement:false;default:snowflake_next()"`
	Item string
}

func check(holds bool, what string) {
	if !holds {
		log.Fatal(what)
	}
}

func main() {
	db, err := gorm.Open(postgres.Open(os.Getenv("DATABASE_URL")))
	check(err == nil, fmt.Sprint(err))

	var columns string
	db.Raw(`SELECT string_agg(concat_ws(' ', table_name, column_name, column_default), ', ' ORDER BY table_name DESC, column_name)
		FROM information_schema.columns WHERE table_name IN ('orders', 'lines') AND data_type = 'bigint'`).Scan(&columns)
	check(columns == "orders id snowflake_next(), lines id snowflake_next(), lines order_id", columns)
	var lines int64
	db.Raw("SELECT count(*) FROM lines JOIN orders o ON o.id = order_id WHERE item = 'tea' AND lines.id > o.id").Scan(&lines)
	check(lines == 2, "lines refer to their order")

	orders := make([]Order, 1000)
	for n := range orders {
		orders[n].Item = fmt.Sprintf("item %d", n)
	}
	check(db.Create(&orders).Error == nil, "many rows are one statement")
	seen := map[int64]bool{}
	for _, order := range orders {
		seen[order.ID] = true
	}
	check(len(seen) == 1000 && !seen[0], "each object has an id")
	for _, order := range []Order{orders[0], orders[17], orders[999]} {
		var found Order
		check(db.First(&found, order.ID).Error == nil && found == order, "each object has the id of its row")
	}

	// Ids before the insert.
	n := 3
	var ids []int64
	check(db.Raw("SELECT snowflake_batch(?)", n).Scan(&ids).Error == nil && len(ids) == n, "a batch is drawn")
	check(db.Create(&Order{ID: ids[0], Item: "milk"}).Error == nil, "an id may be given")
	var milk Order
	check(db.First(&milk, ids[0]).Error == nil && milk.Item == "milk", "and it is stored")
}
