//! The servers that are measured: as `initdb` leaves them, but for what would add chance to the
//! figures.

use cluster::{Builder, Server};

/// Describes a server that draws with the default layout.
pub fn drawing() -> Builder {
    steady(Server::drawing())
}

/// Describes a server with another layout, one without a worker field.
pub fn with_layout(layout: &str) -> Builder {
    steady(Server::builder().set("layout", layout))
}

/// Describes a server that knows nothing of the extension.
pub fn without_library() -> Builder {
    steady(Server::builder().without_preload())
}

/// Nothing in the background (autovacuum, timed checkpoints, parallel workers), nothing compiled on
/// the way, and memory for what is sorted and kept. `fsync` stays on.
fn steady(builder: Builder) -> Builder {
    builder
        .config("autovacuum", "off")
        .config("checkpoint_timeout", "1h")
        .config("max_wal_size", "8GB")
        .config("shared_buffers", "512MB")
        .config("work_mem", "256MB")
        .config("maintenance_work_mem", "512MB")
        .config("jit", "off")
        .config("max_parallel_workers_per_gather", "0")
}
