//! The servers that are measured: as `initdb` leaves them, except for what would add randomness to
//! the figures.

use cluster::{Builder, Fleet, Server};

/// Describes a server that draws with the default layout.
pub fn drawing() -> Builder {
    steady(Server::drawing())
}

/// Describes a server with another layout, one without a worker field.
pub fn with_layout(layout: &str) -> Builder {
    steady(Server::builder().set("layout", layout))
}

/// Describes a server that leases its number from a fleet's registry.
pub fn leasing(fleet: &Fleet) -> Builder {
    steady(fleet.member())
}

/// Describes a server without the extension's library.
pub fn without_library() -> Builder {
    steady(Server::builder().without_preload())
}

/// No background work (autovacuum, timed checkpoints, parallel workers), no JIT, and enough memory
/// for sorts and caches.
fn steady(builder: Builder) -> Builder {
    builder
        .like_outside_of_tests()
        .config("autovacuum", "off")
        .config("checkpoint_timeout", "1h")
        .config("max_wal_size", "8GB")
        .config("shared_buffers", "512MB")
        .config("work_mem", "256MB")
        .config("maintenance_work_mem", "512MB")
        .config("jit", "off")
        .config("max_parallel_workers_per_gather", "0")
}
