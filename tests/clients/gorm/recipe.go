// Stores an order with its lines, and prints orders as JSON.
package main

import (
	"encoding/json"
	"log"
	"os"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

// Order is a row. JavaScript reads its id as a string.
type Order struct {
	ID    int64  `gorm:"autoIncrement:false;default:snowflake_next()" json:"id,string"`
	Item  string `json:"item"`
	Lines []Line `json:"-"`
}

// Line belongs to an order.
type Line struct {
	ID      int64 `gorm:"autoIncrement:false;default:snowflake_next()" json:"id,string"`
	OrderID int64 `json:"order_id,string"`
}

func main() {
	db, err := gorm.Open(postgres.Open(os.Getenv("DATABASE_URL")))
	if err != nil {
		log.Fatal(err)
	}
	if err := db.AutoMigrate(&Order{}, &Line{}); err != nil {
		log.Fatal(err)
	}
	tea := Order{Item: "tea", Lines: []Line{{}, {}}}
	if err := db.Create(&tea).Error; err != nil {
		log.Fatal(err)
	}
	others := []Order{{Item: "coffee"}, {Item: "cocoa"}}
	if err := db.Create(&others).Error; err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(append([]Order{tea}, others...)); err != nil {
		log.Fatal(err)
	}
}
