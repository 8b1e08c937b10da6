//! Numbers as bytes: small ones take one byte (LEB128), differences are folded so that small negative
//! ones are small too.

/// Bytes that end early, or a number that no writer wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged;

/// Appends a number, seven bits a byte, the lowest first.
pub(super) fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// A difference as a number: small for small ones of either sign.
pub(super) fn fold(from: u64, to: u64) -> u64 {
    let change = to.wrapping_sub(from) as i64;
    ((change << 1) ^ (change >> 63)) as u64
}

/// Where a difference leads.
pub(super) fn unfold(from: u64, folded: u64) -> u64 {
    let change = (folded >> 1) as i64 ^ -((folded & 1) as i64);
    from.wrapping_add(change as u64)
}

/// First trained token, with 0 for none (`u32::MAX`).
pub(super) fn first_up(first_trained: u32) -> u32 {
    first_trained.wrapping_add(1)
}

/// What [`first_up`] was made from.
pub(super) fn first_down(first: u32) -> u32 {
    first.wrapping_sub(1)
}

/// Appends the difference of two numbers.
pub(super) fn put_change(bytes: &mut Vec<u8>, from: u64, to: u64) {
    put(bytes, fold(from, to));
}

/// Takes numbers off the front.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl Bytes<'_> {
    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One byte.
    pub(super) fn byte(&mut self) -> Result<u8, Damaged> {
        let (first, rest) = self.0.split_first().ok_or(Damaged)?;
        self.0 = rest;
        Ok(*first)
    }

    /// A number that [`put`] wrote.
    pub(super) fn number(&mut self) -> Result<u64, Damaged> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Damaged)
    }

    /// A number of 32 bits that [`put`] wrote.
    pub(super) fn small(&mut self) -> Result<u32, Damaged> {
        u32::try_from(self.number()?).map_err(|_| Damaged)
    }

    /// The number that [`put_change`] went to.
    pub(super) fn changed(&mut self, from: u64) -> Result<u64, Damaged> {
        Ok(unfold(from, self.number()?))
    }

    /// As [`Bytes::changed`], 32 bits.
    pub(super) fn small_changed(&mut self, from: u32) -> Result<u32, Damaged> {
        u32::try_from(self.changed(u64::from(from))?).map_err(|_| Damaged)
    }

    /// So many bytes as they are.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or(Damaged)?;
        self.0 = rest;
        Ok(*first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(numbers in proptest::collection::vec(any::<u64>(), 0..20), shift in 0u32..64) {
            let (mut bytes, mut last) = (Vec::new(), 0);
            for number in numbers.iter().map(|number| number >> shift) {
                put(&mut bytes, number);
                put_change(&mut bytes, last, number);
                last = number;
            }
            let (mut read, mut last) = (Bytes(&bytes), 0);
            for number in numbers.iter().map(|number| number >> shift) {
                prop_assert_eq!(read.number(), Ok(number));
                last = read.changed(last).unwrap();
                prop_assert_eq!(last, number);
            }
            prop_assert!(read.is_empty());
            prop_assert_eq!(read.number(), Err(Damaged));
        }
    }
}
