//! Defines the rows of a format. A row is the path of a value and the meaning of the value.

use super::errors::{ERROR_ROWS, ErrorField};

/// Maximum number of rows of one format. The scanner uses one bit of a `u128` for each row.
const MAX_ROWS: usize = 128;

/// Maximum number of steps in a path.
const MAX_STEPS: usize = 8;

/// Number of hash buckets for keys. With 16 buckets, a key is compared with about one other key of the largest format.
const BUCKETS: usize = 16;

/// Suffix of a path whose objects and lists are passed on as JSON text.
const AS_TEXT: &str = "{}";

/// A path and the meaning of its value, such as `("usage.input_tokens", Field::Count(Counter::Input))`.
///
/// A path is a list of keys from the root, separated by dots. `a|b` matches the keys `a` and `b`, and `*` matches every
/// element of a list. The empty path is the root. A path that ends in `{}` passes on an object or a list as compact
/// JSON text.
pub type Row<F> = (&'static str, F);

/// All rows of a format. If several rows have the same path, all of them apply.
#[derive(Debug)]
pub struct Paths<F: 'static> {
    /// Rows of another format that this format extends. They apply before `own`.
    base: &'static [Row<F>],
    own: &'static [Row<F>],
    errors: &'static [Row<ErrorField>],
    /// Top-level keys that contain a wrapped object. The wrapped object is read as if it were the root.
    wrappers: &'static [&'static str],
    index: Index,
}

/// Properties of all rows, computed at compile time. The scanner needs them for every key and every open row.
#[derive(Clone, Copy, Debug)]
struct Index {
    /// For each row, the byte offset in the path at which each step ends. 0 means that the path has no such step.
    ends: [[u8; MAX_STEPS]; MAX_ROWS],
    /// For each depth and each hash, the rows whose step at this depth has a key with this hash.
    by_hash: [[u128; BUCKETS]; MAX_STEPS],
    /// For each depth, the rows whose step at this depth is `*`.
    elements: [u128; MAX_STEPS],
    /// For each depth, the rows whose path continues after this step.
    longer: [u128; MAX_STEPS],
    /// For each depth, the rows whose step at this depth is the same as that of the row before. A format lists rows of one
    /// object together, so that a key is compared once for all of them.
    repeats: [u128; MAX_STEPS],
    /// Rows with a step that matches several keys (`a|b`).
    alternatives: u128,
    /// Rows whose value is delivered as text (`{}`).
    as_text: u128,
    /// Rows whose path is the root.
    at_root: u128,
    /// All other rows.
    below_root: u128,
    /// Rows of the format, without the rows for errors.
    own: u128,
}

impl Index {
    const EMPTY: Self = Self {
        ends: [[0; MAX_STEPS]; MAX_ROWS],
        by_hash: [[0; BUCKETS]; MAX_STEPS],
        elements: [0; MAX_STEPS],
        longer: [0; MAX_STEPS],
        repeats: [0; MAX_STEPS],
        alternatives: 0,
        as_text: 0,
        at_root: 0,
        below_root: 0,
        own: 0,
    };

    /// Adds the path of `row` to the index. A path with too many steps is a compile error.
    #[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
    const fn add(&mut self, row: usize, path: &str) {
        assert!(row < MAX_ROWS, "more rows than the scanner has bits");
        let (bytes, bit) = (path.as_bytes(), 1 << row);
        let mut length = bytes.len();
        if length >= AS_TEXT.len() && bytes[length - 1] == b'}' {
            length -= AS_TEXT.len();
            self.as_text |= bit;
        }
        assert!(length < 256, "offsets have eight bits");
        let (mut at, mut step, mut start) = (0, 0, 0);
        while at < length {
            at += 1;
            let is_end = at == length || bytes[at] == b'.';
            if !is_end && bytes[at] != b'|' {
                continue;
            }
            if at == start + 1 && bytes[start] == b'*' {
                self.elements[step] |= bit;
            } else {
                self.by_hash[step][hash(bytes, start, at)] |= bit;
            }
            start = at + 1;
            if !is_end {
                self.alternatives |= bit;
                continue;
            }
            #[expect(clippy::cast_possible_truncation, reason = "less than 256")]
            let end = at as u8;
            self.ends[row][step] = end;
            if at < length {
                self.longer[step] |= bit;
            }
            step += 1;
        }
        if path.is_empty() {
            self.at_root |= bit;
        } else {
            self.below_root |= bit;
        }
    }

    /// Records the steps of `path`, which is the path of `row`, that are the same as those of the row before.
    #[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
    const fn mark_repeats(&mut self, row: usize, before: &str, path: &str) {
        let (before, path) = (before.as_bytes(), path.as_bytes());
        let (mut step, mut start, mut start_before) = (0, 0, 0);
        while step < MAX_STEPS && self.ends[row][step] != 0 && self.ends[row - 1][step] != 0 {
            let (end, end_before) =
                (self.ends[row][step] as usize, self.ends[row - 1][step] as usize);
            let mut is_same = end - start == end_before - start_before;
            let mut at = 0;
            while is_same && at < end - start {
                is_same = path[start + at] == before[start_before + at];
                at += 1;
            }
            if is_same {
                self.repeats[step] |= 1 << row;
            }
            (start, start_before) = (end + 1, end_before + 1);
            step += 1;
        }
    }
}

/// Returns the bucket of the key between two offsets.
#[expect(clippy::indexing_slicing, reason = "callers pass offsets of a key that is not empty")]
const fn hash(bytes: &[u8], start: usize, end: usize) -> usize {
    let (first, last) = (bytes[start] as usize, bytes[end - 1] as usize);
    (end - start + first + 3 * last) % BUCKETS
}

/// The rows that match the path to a value.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Matches {
    /// Rows that match so far and have further steps.
    pub open: u128,
    /// Rows whose path ends here.
    pub ended: u128,
    /// Whether an object or a list at this path is passed on as text.
    pub is_raw: bool,
    /// Whether the value is the root or is read as if it were the root.
    pub is_root: bool,
    /// Whether a key on the path is a repetition of the key before it.
    pub is_repeated: bool,
}

impl<F: Copy> Paths<F> {
    pub const fn new(own: &'static [Row<F>]) -> Self {
        let paths = Self { own, base: &[], errors: &[], wrappers: &[], index: Index::EMPTY };
        paths.indexed()
    }

    /// Adds the rows of another format.
    pub const fn extends(self, base: &'static [Row<F>]) -> Self {
        Self { base, ..self }.indexed()
    }

    /// Adds the rows for error objects of all formats.
    pub const fn with_errors(self) -> Self {
        Self { errors: ERROR_ROWS, ..self }.indexed()
    }

    /// Adds the rows for error objects without the top-level `type`, which is the type of the message in a stream.
    pub const fn with_errors_of_message(self) -> Self {
        Self { errors: ERROR_ROWS.split_at(ERROR_ROWS.len() - 1).0, ..self }.indexed()
    }

    /// Reads an object under one of these top-level keys as if it were the root.
    pub const fn unwraps(self, wrappers: &'static [&'static str]) -> Self {
        Self { wrappers, ..self }
    }

    #[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
    const fn indexed(mut self) -> Self {
        let (base, own) = (self.base.len(), self.own.len());
        self.index = Index::EMPTY;
        let (mut row, mut before) = (0, "");
        while row < base + own + self.errors.len() {
            let path = if row < base {
                self.base[row].0
            } else if row < base + own {
                self.own[row - base].0
            } else {
                self.errors[row - base - own].0
            };
            self.index.add(row, path);
            if row < base + own {
                self.index.own |= 1 << row;
            }
            if row > 0 {
                self.index.mark_repeats(row, before, path);
            }
            before = path;
            row += 1;
        }
        self
    }

    /// Returns the rows that match the root.
    pub const fn root(&self) -> Matches {
        let (open, ended) = (self.index.below_root, self.index.at_root);
        Matches { open, ended, is_raw: false, is_root: true, is_repeated: false }
    }

    /// Returns the rows that match a key of `object`. `depth` is the number of steps from the root to the object.
    pub fn key(&self, object: Matches, depth: usize, key: &str) -> Matches {
        let open = object.open;
        let is_wrapper = depth == 0 && self.wrappers.contains(&key);
        let found = if is_wrapper { self.root() } else { Matches::default() };
        let found = Matches { is_repeated: object.is_repeated, ..found };
        let bytes = key.as_bytes();
        let Some(by_hash) = self.index.by_hash.get(depth).filter(|_| !bytes.is_empty()) else {
            return found;
        };
        let mut candidates = by_hash.get(hash(bytes, 0, bytes.len())).map_or(0, |rows| open & rows);
        let repeats = self.index.repeats.get(depth).copied().unwrap_or(0);
        let mut rows = 0;
        while candidates != 0 {
            let row = candidates.trailing_zeros();
            let same = run(repeats, row);
            if usize::try_from(row).is_ok_and(|row| self.has_key(row, depth, key)) {
                rows |= candidates & same;
            }
            candidates &= !same;
        }
        self.matches(rows, depth, found)
    }

    /// Returns whether the step at `depth` of a row's path is `key`, or has `key` as an alternative.
    fn has_key(&self, row: usize, depth: usize, key: &str) -> bool {
        self.nth_step(row, depth).is_some_and(|step| {
            let has_alternatives = self.index.alternatives & 1 << row != 0;
            let mut keys = step.as_bytes().split(|byte| *byte == b'|');
            step == key || has_alternatives && keys.any(|known| known == key.as_bytes())
        })
    }

    /// Returns the rows that match an element of `list`. `depth` is the number of steps from the root to the list.
    pub fn element(&self, list: Matches, depth: usize) -> Matches {
        let found = Matches { is_repeated: list.is_repeated, ..Matches::default() };
        self.matches(self.elements(list.open, depth), depth, found)
    }

    /// Returns the rows among `open` that continue with the elements of a list.
    pub fn elements(&self, open: u128, depth: usize) -> u128 {
        self.index.elements.get(depth).map_or(0, |elements| open & elements)
    }

    /// Returns whether a row in `rows` belongs to the format, and not to the errors of all formats.
    pub const fn has_own(&self, rows: u128) -> bool {
        rows & self.index.own != 0
    }

    /// Adds `rows` to `found`. All of these rows match the step at `depth`.
    fn matches(&self, rows: u128, depth: usize, found: Matches) -> Matches {
        let longer = self.index.longer.get(depth).map_or(0, |longer| rows & longer);
        let ended = rows & !longer;
        Matches {
            open: found.open | longer,
            ended: found.ended | ended,
            is_raw: found.is_raw || ended & self.index.as_text != 0,
            is_root: found.is_root,
            is_repeated: found.is_repeated,
        }
    }

    /// Returns the rows that match a top-level key.
    pub fn root_key(&self, key: &str) -> Matches {
        self.key(self.root(), 0, key)
    }

    /// Returns the fields of the rows in `ended`, whose paths end here.
    pub fn fields(&self, ended: u128) -> impl Iterator<Item = F> + '_ {
        bits(ended).map_while(|row| self.field(row)).map(|(_, field)| *field)
    }

    /// Returns the error fields of the rows in `ended`.
    pub fn error_fields(&self, ended: u128) -> impl Iterator<Item = ErrorField> + '_ {
        let first = self.base.len() + self.own.len();
        let rows = u32::try_from(first).ok().and_then(|first| ended.checked_shr(first));
        bits(rows.unwrap_or(0)).filter_map(|row| self.errors.get(row)).map(|(_, field)| *field)
    }

    /// Returns the step at `depth` of a row's path.
    fn nth_step(&self, row: usize, depth: usize) -> Option<&'static str> {
        let ends = self.index.ends.get(row)?;
        let end = |step: usize| ends.get(step).map_or(0, |&end| usize::from(end));
        let start = if depth == 0 { 0 } else { end(depth - 1) + 1 };
        self.path(row).get(start..end(depth))
    }

    fn path(&self, row: usize) -> &'static str {
        if let Some((path, _)) = self.field(row) {
            return path;
        }
        let row = row - self.base.len() - self.own.len();
        self.errors.get(row).map_or("", |(path, _)| *path)
    }

    fn field(&self, row: usize) -> Option<&'static Row<F>> {
        let own = || self.own.get(row.checked_sub(self.base.len())?);
        self.base.get(row).or_else(own)
    }
}

impl Matches {
    /// Returns whether no row reads the value or anything inside it.
    pub const fn is_none(self) -> bool {
        self.open == 0 && self.ended == 0
    }
}

/// Returns the bits of `row` and of the rows directly after it that are in `repeats`.
const fn run(repeats: u128, row: u32) -> u128 {
    let later = (repeats >> row >> 1).trailing_ones();
    (u128::MAX >> (u128::BITS - 1 - later)) << row
}

/// Returns the indices of the bits that are set.
fn bits(mut set: u128) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = usize::try_from(set.trailing_zeros()).unwrap_or(MAX_ROWS);
        (set != 0).then(|| {
            set &= set - 1;
            lowest
        })
    })
}
