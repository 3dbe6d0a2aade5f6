//! Reads choices from the beginning of an input, so that one byte array selects the operation and its subject.

/// Reads an input. After the end of the input, every choice is the first option.
#[derive(Clone, Debug)]
pub struct Script<'a> {
    rest: &'a [u8],
}

impl<'a> Script<'a> {
    pub const fn new(input: &'a [u8]) -> Self {
        Self { rest: input }
    }

    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(b'0')
    }

    /// Returns a small number. `0` is zero, so that inputs can be written by hand.
    pub fn digit(&mut self) -> u8 {
        self.byte().wrapping_sub(b'0')
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.digit()) % from.len()]
    }

    pub fn flag(&mut self) -> bool {
        self.digit() % 2 == 1
    }

    /// Returns as many bytes as the preceding byte states.
    pub fn short(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte());
        self.bytes(length)
    }

    /// Returns as many bytes as the two preceding bytes state, in big-endian order.
    pub fn long(&mut self) -> &'a [u8] {
        let length = u16::from_be_bytes([self.byte(), self.byte()]);
        self.bytes(usize::from(length))
    }

    /// Returns the piece sizes of a body.
    pub fn cuts(&mut self) -> [usize; 2] {
        [self.digit(), self.digit()].map(|size| usize::from(size) + 1)
    }

    pub const fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    pub const fn rest(self) -> &'a [u8] {
        self.rest
    }

    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        bytes
    }
}

/// Asserts that a body yields the same result as a whole, byte by byte, and in pieces of these alternating sizes.
pub fn however_cut<T: PartialEq + std::fmt::Debug>(
    body: &[u8],
    cuts: [usize; 2],
    read: impl Fn(&[&[u8]]) -> T,
) -> T {
    let whole = read(&[body]);
    let cut = read(&in_pieces(body, cuts));
    assert_eq!(cut, whole, "split at {cuts:?}");
    let cut = read(&in_pieces(body, [1, 1]));
    assert_eq!(cut, whole, "split at every byte");
    whole
}

pub fn in_pieces(body: &[u8], cuts: [usize; 2]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    let mut rest = body;
    for size in cuts.into_iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at(size.min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}
