// Decodes ids of the default layout by the expressions of docs/decode.md: the first id of
// 2026-11-20, then of each argument the time and the worker number.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	fmt.Println((time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC).UnixMilli() - 1735689600000) << 22)
	for _, argument := range os.Args[1:] {
		id, err := strconv.ParseInt(argument, 10, 64)
		if err != nil {
			panic(err)
		}
		t := time.UnixMilli((id>>22) + 1735689600000)
		fmt.Println(t.UTC().Format("2006-01-02T15:04:05.000Z"), id >> 12 & 1023)
	}
}
