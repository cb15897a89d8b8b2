//! How a value becomes bytes of a fixed length, field by field, and is read back (`page.rs`).
//!
//! Nothing here depends on how Rust lays a type out. What is read back may be anything: bytes that
//! no value has are refused.

/// A value that has a form in bytes.
pub(crate) trait Bytes: Sized {
    /// How many bytes it has.
    const LENGTH: usize;

    /// Writes it at the front of `to`, which has room for it, and moves on behind it.
    fn put(&self, to: &mut &mut [u8]);

    /// Reads it from the front of `from`, and moves on behind it. Returns `None` for what no value
    /// has written.
    fn read(from: &mut &[u8]) -> Option<Self>;
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Bytes for $integer {
            const LENGTH: usize = size_of::<$integer>();

            fn put(&self, to: &mut &mut [u8]) {
                let (front, rest) = std::mem::take(to).split_at_mut(Self::LENGTH);
                front.copy_from_slice(&self.to_le_bytes());
                *to = rest;
            }

            fn read(from: &mut &[u8]) -> Option<Self> {
                let (front, rest) = from.split_first_chunk()?;
                *from = rest;
                Some(Self::from_le_bytes(*front))
            }
        }
    )*};
}

integers!(u8, u64, i64, u128);

/// A value that is not there has as many bytes, all zero.
impl<T: Bytes> Bytes for Option<T> {
    const LENGTH: usize = 1 + T::LENGTH;

    fn put(&self, to: &mut &mut [u8]) {
        u8::from(self.is_some()).put(to);
        match self {
            Some(value) => value.put(to),
            None => (0..T::LENGTH).for_each(|_| 0_u8.put(to)),
        }
    }

    fn read(from: &mut &[u8]) -> Option<Self> {
        match u8::read(from)? {
            0 => {
                let (front, rest) = from.split_at_checked(T::LENGTH)?;
                *from = rest;
                front.iter().all(|byte| *byte == 0).then_some(None)
            }
            1 => T::read(from).map(Some),
            _ => None,
        }
    }
}

impl<T: Bytes + Copy + Default, const N: usize> Bytes for [T; N] {
    const LENGTH: usize = N * T::LENGTH;

    fn put(&self, to: &mut &mut [u8]) {
        self.iter().for_each(|value| value.put(to));
    }

    fn read(from: &mut &[u8]) -> Option<Self> {
        let mut values = [T::default(); N];
        for value in &mut values {
            *value = T::read(from)?;
        }
        Some(values)
    }
}

/// Gives a struct a form in bytes: its fields, in this order. A field that is left out does not
/// compile.
macro_rules! bytes {
    ($name:ty { $($field:ident: $type:ty),* $(,)? }) => {
        impl $crate::fleet::bytes::Bytes for $name {
            const LENGTH: usize = 0 $(+ <$type as $crate::fleet::bytes::Bytes>::LENGTH)*;

            fn put(&self, to: &mut &mut [u8]) {
                let Self { $($field),* } = self;
                $(<$type as $crate::fleet::bytes::Bytes>::put($field, to);)*
            }

            fn read(from: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: <$type as $crate::fleet::bytes::Bytes>::read(from)?),* })
            }
        }
    };
}
pub(crate) use bytes;

#[cfg(test)]
mod tests {
    use super::*;

    fn through<T: Bytes>(value: &T) -> (Vec<u8>, Option<T>) {
        let mut bytes = vec![0xff; T::LENGTH];
        let mut to = &mut bytes[..];
        value.put(&mut to);
        assert!(to.is_empty());
        let read = T::read(&mut &bytes[..]);
        (bytes, read)
    }

    #[test]
    fn a_value_is_read_back_and_has_the_same_length_whether_it_is_there_or_not() {
        assert_eq!(through(&-2_i64), (vec![0xfe, 255, 255, 255, 255, 255, 255, 255], Some(-2)));
        let values = [Some(7_u64), None, Some(u64::MAX)];
        let (bytes, read) = through(&values);
        assert_eq!((bytes.len(), read), (27, Some(values)));
    }

    #[test]
    fn bytes_that_no_value_has_are_refused() {
        for bytes in [&[2, 0][..], &[0, 1], &[0], &[1], &[]] {
            assert_eq!(Option::<u8>::read(&mut &bytes[..]), None, "{bytes:?}");
        }
    }
}
