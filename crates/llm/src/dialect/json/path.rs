//! Defines the rows of a format: the paths of the values that it reads, each with the meaning of the value.

/// Maximum number of rows of one format. The scanner uses one bit of a `u128` for each row.
const MOST_ROWS: usize = 128;

/// Maximum number of steps in a path.
const MOST_STEPS: usize = 8;

/// Suffix of a path whose objects and lists are delivered as JSON text.
const AS_TEXT: &str = "{}";

/// A path and the meaning of the value at this path, such as `("usage.input_tokens", Field::Count(Counter::Input))`.
///
/// A path is a list of keys from the root, separated by dots. `a|b` matches the keys `a` and `b`, and `*` matches every
/// element of a list. The empty path is the root. A path that ends in `{}` delivers an object or a list as compact JSON
/// text.
pub type Row<F> = (&'static str, F);

/// All rows of a format. If several rows have the same path, all of them apply.
#[derive(Debug)]
pub struct Paths<F: 'static> {
    /// Rows of another format that this format extends. They apply first.
    base: &'static [Row<F>],
    own: &'static [Row<F>],
    errors: &'static [Row<ErrorField>],
    /// Keys of the root that contain a wrapped object. The object is read as if it were the root.
    wrappers: &'static [&'static str],
    index: Index,
}

/// Properties of all rows, computed at compile time. The scanner needs them for every key and every open row.
#[derive(Clone, Copy, Debug)]
struct Index {
    /// For each row, the offset at which each step of its path ends. 0 means that the path has no such step.
    ends: [[u8; MOST_STEPS]; MOST_ROWS],
    /// Rows with a step that matches several keys (`a|b`).
    alternatives: u128,
    /// Rows whose value is delivered as text (`{}`).
    as_text: u128,
    /// Rows whose path is the root.
    at_root: u128,
    /// All other rows.
    below_root: u128,
}

impl Index {
    const EMPTY: Self = Self {
        ends: [[0; MOST_STEPS]; MOST_ROWS],
        alternatives: 0,
        as_text: 0,
        at_root: 0,
        below_root: 0,
    };

    /// Adds the path of `row`. A path with too many steps is a compile error.
    #[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
    const fn add(&mut self, row: usize, path: &str) {
        assert!(row < MOST_ROWS, "more rows than the scanner has bits");
        let (bytes, bit) = (path.as_bytes(), 1 << row);
        let mut length = bytes.len();
        if length >= AS_TEXT.len() && bytes[length - 1] == b'}' {
            length -= AS_TEXT.len();
            self.as_text |= bit;
        }
        assert!(length < 256, "offsets have eight bits");
        let (mut at, mut step) = (0, 0);
        while at < length {
            if bytes[at] == b'|' {
                self.alternatives |= bit;
            }
            at += 1;
            if at == length || bytes[at] == b'.' {
                #[expect(clippy::cast_possible_truncation, reason = "less than 256")]
                let end = at as u8;
                self.ends[row][step] = end;
                step += 1;
            }
        }
        if path.is_empty() {
            self.at_root |= bit;
        } else {
            self.below_root |= bit;
        }
    }
}

/// The meaning of a value: a field of the format, or a part of an error object.
#[derive(Clone, Copy, Debug)]
pub enum Meaning<F> {
    Field(F),
    Error(ErrorField),
}

/// A place in a body that can describe an error. Later variants are less specific than earlier ones.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ErrorField {
    /// The error itself: an object or a string.
    Error,
    Type,
    /// Google: the name of the error, next to a numeric code.
    Status,
    Code,
    /// MiniMax: the status of the response, `0` for success.
    ResponseStatus,
    /// AWS: the name of the exception.
    AwsName,
    /// SageMaker and TGI: the type of the error.
    ServerType,
    TopType,
    TopCode,
    /// The type of the whole body, which is `error` in some old formats.
    ObjectType,
}

/// Rows of errors in all formats. They apply to every API, because gateways and clouds send their own error objects
/// instead of the errors of the API.
const ERROR_ROWS: &[(&str, ErrorField)] = &[
    ("error", ErrorField::Error),
    ("errors.*", ErrorField::Error),
    ("error.type", ErrorField::Type),
    ("errors.*.type", ErrorField::Type),
    ("error.status", ErrorField::Status),
    ("error.code", ErrorField::Code),
    ("errors.*.code", ErrorField::Code),
    ("base_resp.status_code", ErrorField::ResponseStatus),
    ("__type", ErrorField::AwsName),
    ("Output.__type", ErrorField::AwsName),
    ("ErrorCode|error_type", ErrorField::ServerType),
    ("type", ErrorField::TopType),
    ("code|error_code", ErrorField::TopCode),
    ("object", ErrorField::ObjectType),
    // An error that ends a choice, or a stream of Groq.
    ("choices.*.error", ErrorField::Error),
    ("choices.*.error.type", ErrorField::Type),
    ("choices.*.error.code", ErrorField::Code),
    ("x_groq.error", ErrorField::Error),
    ("x_groq.error.type", ErrorField::Type),
    ("x_groq.error.code", ErrorField::Code),
];

/// The rows that match the path to a value.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Matches {
    /// Rows that match so far and have further steps.
    pub open: u128,
    /// Rows whose path ends here.
    pub ended: u128,
    /// Whether an object or a list at this path is delivered as text.
    pub is_raw: bool,
    /// Whether the value is the root or is read as if it were the root.
    pub is_root: bool,
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

    /// Reads an object under one of these root keys as if it were the root.
    pub const fn unwraps(self, wrappers: &'static [&'static str]) -> Self {
        Self { wrappers, ..self }
    }

    #[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
    const fn indexed(mut self) -> Self {
        let (base, own) = (self.base.len(), self.own.len());
        self.index = Index::EMPTY;
        let mut row = 0;
        while row < base + own + self.errors.len() {
            let path = if row < base {
                self.base[row].0
            } else if row < base + own {
                self.own[row - base].0
            } else {
                self.errors[row - base - own].0
            };
            self.index.add(row, path);
            row += 1;
        }
        self
    }

    /// Returns the rows that match the root.
    pub const fn root(&self) -> Matches {
        let (open, ended) = (self.index.below_root, self.index.at_root);
        Matches { open, ended, is_raw: false, is_root: true }
    }

    /// Returns the rows that match a key of an object that is `depth` steps from the root. With `None` instead of a
    /// key, returns the rows that match an element of a list.
    pub fn step(&self, open: u128, depth: usize, key: Option<&str>) -> Matches {
        let is_wrapper = depth == 0 && key.is_some_and(|key| self.wrappers.contains(&key));
        let mut matches = if is_wrapper { self.root() } else { Matches::default() };
        for row in bits(open) {
            let Some((step, has_more)) = self.nth_step(row, depth) else { continue };
            let bit = 1 << row;
            if !fits(step, key, self.index.alternatives & bit != 0) {
                continue;
            }
            if has_more {
                matches.open |= bit;
            } else {
                matches.ended |= bit;
                matches.is_raw |= self.index.as_text & bit != 0;
            }
        }
        matches
    }

    /// Returns the rows that match a key of the root.
    pub fn key(&self, key: &str) -> Matches {
        self.step(self.root().open, 0, Some(key))
    }

    /// Returns the meanings of the rows whose path ends here.
    pub fn meanings(&self, ended: u128) -> impl Iterator<Item = Meaning<F>> + '_ {
        bits(ended).filter_map(|row| {
            if let Some((_, field)) = self.field(row) {
                return Some(Meaning::Field(*field));
            }
            let row = row - self.base.len() - self.own.len();
            self.errors.get(row).map(|(_, field)| Meaning::Error(*field))
        })
    }

    /// Returns the step at `depth` of a row's path, and whether more steps follow.
    fn nth_step(&self, row: usize, depth: usize) -> Option<(&'static str, bool)> {
        let ends = self.index.ends.get(row)?;
        let end = |step: usize| ends.get(step).map_or(0, |&end| usize::from(end));
        let start = if depth == 0 { 0 } else { end(depth - 1) + 1 };
        let step = self.path(row).get(start..end(depth))?;
        (!step.is_empty()).then_some((step, end(depth + 1) != 0))
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

/// Returns whether a step matches a key, or an element of a list if `key` is `None`.
fn fits(step: &str, key: Option<&str>, has_alternatives: bool) -> bool {
    match key {
        None => step == "*",
        Some(key) if has_alternatives => step.split('|').any(|known| known == key),
        Some(key) => step == key,
    }
}

/// Returns the indices of the bits that are set.
fn bits(mut set: u128) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = usize::try_from(set.trailing_zeros()).unwrap_or(MOST_ROWS);
        (set != 0).then(|| {
            set &= set - 1;
            lowest
        })
    })
}
