//! A number that stands for a text. Databases hold such numbers, so what it is never changes.

/// Returns the FNV-1a of bytes, with 64 bits (Fowler, Noll and Vo).
///
/// ```
/// assert_eq!(snowflake_core::id::fnv::fnv1a(b"foobar"), 0x8594_4171_F739_67E8);
/// ```
#[inline]
pub fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, step)
}
