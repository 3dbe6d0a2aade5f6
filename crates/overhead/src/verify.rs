//! Compares a received response with the expected one, and reads the timestamps of its chunks.

use crate::exchange::{Chunk, Exchange, STAMP_DIGITS};

/// A byte of the response is not the expected one, or the response has another length.
#[derive(Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Offset in the response.
    pub offset: usize,
}

/// The state of one response.
#[derive(Debug, Default)]
pub struct Verifier {
    offset: usize,
    chunk: usize,
    stamp: u64,
}

impl Verifier {
    /// Compares the next received bytes. Calls `on_chunk` for each chunk that ends in them, with the time at which the
    /// backend wrote the chunk, if the chunk has a timestamp.
    pub fn receive(
        &mut self,
        exchange: &Exchange,
        mut data: &[u8],
        mut on_chunk: impl FnMut(Option<u64>),
    ) -> Result<(), Mismatch> {
        while !data.is_empty() {
            let chunk = *exchange.chunks.get(self.chunk).ok_or(Mismatch { offset: self.offset })?;
            let (end, is_stamp) = self.section(chunk);
            let (now, later) = data.split_at(data.len().min(end - self.offset));
            if is_stamp {
                self.read_digits(now)?;
            } else if exchange.response.get(self.offset..self.offset + now.len()) != Some(now) {
                return Err(Mismatch { offset: self.offset });
            }
            self.offset += now.len();
            data = later;
            if self.offset == chunk.end {
                on_chunk(chunk.stamp.map(|_| self.stamp));
                self.chunk += 1;
                self.stamp = 0;
            }
        }
        Ok(())
    }

    /// Returns an error if bytes are missing.
    pub fn finish(&self, exchange: &Exchange) -> Result<(), Mismatch> {
        if self.offset == exchange.response.len() {
            Ok(())
        } else {
            Err(Mismatch { offset: self.offset })
        }
    }

    /// Returns the end of the bytes that are all of one kind, and whether they are the digits of a timestamp.
    fn section(&self, chunk: Chunk) -> (usize, bool) {
        match chunk.stamp {
            Some(stamp) if self.offset < stamp => (stamp, false),
            Some(stamp) if self.offset < stamp + STAMP_DIGITS => (stamp + STAMP_DIGITS, true),
            Some(_) | None => (chunk.end, false),
        }
    }

    fn read_digits(&mut self, digits: &[u8]) -> Result<(), Mismatch> {
        for digit in digits {
            if !digit.is_ascii_digit() {
                return Err(Mismatch { offset: self.offset });
            }
            self.stamp = self.stamp.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange() -> Exchange {
        Exchange::new("tokens=2".parse().unwrap()).unwrap()
    }

    /// Returns the response with the timestamps 1, 2, 3, …
    fn stamped(exchange: &Exchange) -> Vec<u8> {
        let mut response = exchange.response.to_vec();
        for (number, stamp) in exchange.chunks.iter().filter_map(|it| it.stamp).enumerate() {
            response[stamp..stamp + STAMP_DIGITS]
                .copy_from_slice(format!("{:020}", number + 1).as_bytes());
        }
        response
    }

    #[test]
    fn timestamps_are_read_wherever_the_response_is_split() {
        let exchange = exchange();
        let response = stamped(&exchange);
        for split in 0..=response.len() {
            let (mut verifier, mut stamps) = (Verifier::default(), Vec::new());
            for part in [&response[..split], &response[split..]] {
                verifier.receive(&exchange, part, |stamp| stamps.push(stamp)).unwrap();
            }
            verifier.finish(&exchange).unwrap();
            assert_eq!(stamps, [Some(1), Some(2), Some(3), Some(4), None]);
        }
    }

    #[test]
    fn every_changed_byte_is_found() {
        let exchange = exchange();
        let response = stamped(&exchange);
        for changed in 0..response.len() {
            let mut response = response.clone();
            response[changed] ^= 0x80;
            let found = Verifier::default().receive(&exchange, &response, |_| ());
            assert!(found.is_err(), "byte {changed}");
        }
    }

    #[test]
    fn missing_and_additional_bytes_are_found() {
        let exchange = exchange();
        let mut response = stamped(&exchange);
        response.push(b' ');
        let found = Verifier::default().receive(&exchange, &response, |_| ());
        assert_eq!(found, Err(Mismatch { offset: response.len() - 1 }));
        response.truncate(response.len() - 2);
        let mut verifier = Verifier::default();
        verifier.receive(&exchange, &response, |_| ()).unwrap();
        assert_eq!(verifier.finish(&exchange), Err(Mismatch { offset: response.len() }));
    }
}
