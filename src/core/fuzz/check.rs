//! Checks what must hold when any bytes are read as a layout. The fuzzer and `tests/corpus.rs` both
//! run it.

use snowflake_core::id::layout::{Field, Layout, MAX_TEXT};
use snowflake_core::id::spelling::MAX_QUOTED;

/// Panics if reading `bytes` as a layout breaks a promise.
///
/// An error is one short line. A layout can be parsed from what it prints, and its least and
/// largest id can be composed.
pub fn layout(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let layout = match Layout::parse(text) {
        Ok(layout) => layout,
        Err(error) => {
            let message = error.to_string();
            assert!(message.chars().count() <= 100 + MAX_QUOTED && !message.contains(['\n', '\r']), "{message:?}");
            return;
        }
    };
    let print = layout.to_string();
    assert!(print.len() < MAX_TEXT, "{print:?}");
    assert_eq!(Layout::parse(&print), Ok(layout), "{print:?}");

    assert_eq!(layout.fields().map(|field| field.bits).sum::<u32>(), layout.max_id().count_ones());
    for (id, tick) in [(0, 0), (layout.max_id(), layout.last_tick())] {
        let parts = layout.parts(id).unwrap();
        let number = |field| layout.max_of(field).map(|max| if id == 0 { 0 } else { max as u32 });
        let (datacenter, worker) = (number(Field::Datacenter), number(Field::Worker));
        assert_eq!((parts.tick, parts.datacenter, parts.worker), (tick, datacenter, worker));
        assert_eq!(Some(parts.sequence), number(Field::Sequence));
        assert_eq!(parts.created_at_ms, layout.start_of_ms(tick));
        let numbers = (datacenter.map(i64::from), worker.map(i64::from), i64::from(parts.sequence));
        assert_eq!(layout.compose(Some(parts.created_at_ms), numbers.0, numbers.1, numbers.2), Ok(id));
    }
    assert!(layout.parts(-1).is_err());
    assert!(layout.max_id() == i64::MAX || layout.parts(layout.max_id() + 1).is_err());
}
