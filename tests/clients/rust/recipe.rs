//! Inserts orders, and prints their ids.

use std::io::Write;

use postgres::{Client, NoTls};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut client = Client::connect(&std::env::var("DATABASE_URL")?, NoTls)?;

    let tea: i64 = client.query_one("INSERT INTO orders (item) VALUES ($1) RETURNING id", &[&"tea"])?.get(0);
    println!("tea {tea}");

    // Many rows in one statement: inserted in the order of `items`, they get ascending ids, which
    // come back in that order.
    let items = vec!["coffee", "cocoa", "milk"];
    let insert = "INSERT INTO orders (item) SELECT item FROM unnest($1::text[]) WITH ORDINALITY t(item, n) ORDER BY n
                  RETURNING id";
    for (row, item) in client.query(insert, &[&items])?.iter().zip(&items) {
        println!("{item} {}", row.get::<_, i64>(0));
    }

    // COPY draws ids for the column that it leaves out.
    let mut copy = client.copy_in("COPY orders (item) FROM STDIN")?;
    copy.write_all(b"sugar\nhoney\n")?;
    copy.finish()?;
    Ok(())
}
