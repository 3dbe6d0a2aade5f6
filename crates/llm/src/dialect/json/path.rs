//! The paths of the values that a format reads, each with the meaning of the value.

use std::cmp::Ordering;

use memchr::memchr;

/// The most rows of one format: the scanner keeps one bit for each.
const MOST_ROWS: usize = 128;

/// Ends a path whose objects and lists are delivered as the JSON text that they are.
const AS_TEXT: &str = "{}";

/// A path and the meaning of the value there.
///
/// The path lists the keys from the root, separated by dots. `a|b` matches either key, `*` any element of a list. The
/// empty path is the root. A path that ends in `{}` delivers an object or a list as compact JSON text.
pub type Row<F> = (&'static str, F);

/// Every value that a format reads. Two rows may have the same path: both apply.
#[derive(Debug)]
pub struct Paths<F: 'static> {
    /// Rows of another format that this one extends. They apply first.
    base: &'static [Row<F>],
    own: &'static [Row<F>],
    errors: &'static [Row<ErrorField>],
    /// Keys of the root whose object is read as if it were the root.
    wrappers: &'static [&'static str],
}

/// The meaning of a value.
#[derive(Clone, Copy, Debug)]
pub enum Meaning<F> {
    Field(F),
    Error(ErrorField),
}

/// A place of a body that may describe an error, from the most to the least specific name of its kind.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ErrorField {
    /// The error itself: an object or a message.
    Error,
    Type,
    /// Google: a name beside a numeric code.
    Status,
    Code,
    /// MiniMax: status of the response, `0` for success.
    ResponseStatus,
    /// AWS.
    AwsName,
    /// SageMaker and TGI.
    ServerType,
    TopType,
    TopCode,
    /// Type of the whole body, `error` in some old formats.
    ObjectType,
}

/// The places of all formats: gateways and clouds put their own error objects in place of those of the API.
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

/// Rows that match the path so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Matches {
    /// Rows that match and may go on.
    pub open: u128,
    /// Rows that end here.
    pub ended: u128,
    /// An object or a list here is delivered as text.
    pub is_raw: bool,
    /// The value is the root, or is read as if it were.
    pub is_root: bool,
}

impl<F: Copy> Paths<F> {
    pub const fn new(own: &'static [Row<F>]) -> Self {
        let paths = Self { own, base: &[], errors: &[], wrappers: &[] };
        paths.checked()
    }

    /// Adds the rows of another format.
    pub const fn extends(self, base: &'static [Row<F>]) -> Self {
        Self { base, ..self }.checked()
    }

    /// Adds the rows of error objects.
    pub const fn with_errors(self) -> Self {
        Self { errors: ERROR_ROWS, ..self }.checked()
    }

    /// Reads an object under one of these keys of the root as if it were the root.
    pub const fn unwraps(self, wrappers: &'static [&'static str]) -> Self {
        Self { wrappers, ..self }
    }

    const fn checked(self) -> Self {
        assert!(self.len() <= MOST_ROWS, "more rows than the scanner has bits");
        self
    }

    const fn len(&self) -> usize {
        self.own.len() + self.base.len() + self.errors.len()
    }

    /// Returns the matches of the root.
    pub fn root(&self) -> Matches {
        let mut root = Matches { is_root: true, ..Matches::default() };
        for row in 0..u32::try_from(self.len()).unwrap_or_default() {
            let bit = 1 << row;
            if self.path(row).is_empty() {
                root.ended |= bit;
            } else {
                root.open |= bit;
            }
        }
        root
    }

    /// Returns the matches of a key below a value `depth` steps from the root. `None` is an element of a list.
    pub fn step(&self, open: u128, depth: usize, key: Option<&str>) -> Matches {
        let is_wrapper = depth == 0 && key.is_some_and(|key| self.wrappers.contains(&key));
        let mut matches = if is_wrapper { self.root() } else { Matches::default() };
        for row in bits(open) {
            let path = self.path(row);
            let text = path.strip_suffix(AS_TEXT).unwrap_or(path);
            let Some((step, has_more)) = nth_step(text.as_bytes(), depth) else { continue };
            if !fits(step, key) {
                continue;
            }
            if has_more {
                matches.open |= 1 << row;
            } else {
                matches.ended |= 1 << row;
                matches.is_raw |= text.len() < path.len();
            }
        }
        matches
    }

    /// Returns the matches of a key of the root.
    pub fn key(&self, key: &str) -> Matches {
        self.step(self.root().open, 0, Some(key))
    }

    /// Returns the meanings of the rows that end here.
    pub fn meanings(&self, ended: u128) -> impl Iterator<Item = Meaning<F>> + '_ {
        bits(ended).filter_map(|row| {
            let row = usize::try_from(row).ok()?;
            if let Some((_, field)) = self.field(row) {
                return Some(Meaning::Field(*field));
            }
            let row = row - self.base.len() - self.own.len();
            self.errors.get(row).map(|(_, field)| Meaning::Error(*field))
        })
    }

    fn path(&self, row: u32) -> &'static str {
        let row = usize::try_from(row).unwrap_or(usize::MAX);
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
    /// Whether no row wants the value or anything in it.
    pub const fn is_none(self) -> bool {
        self.open == 0 && self.ended == 0
    }
}

/// Returns step `depth` of a path, and whether more steps follow.
fn nth_step(path: &[u8], depth: usize) -> Option<(&[u8], bool)> {
    let mut rest = path;
    for _ in 0..depth {
        rest = rest.get(memchr(b'.', rest)? + 1..)?;
    }
    let (step, has_more) = match memchr(b'.', rest) {
        Some(end) => (rest.get(..end)?, true),
        None => (rest, false),
    };
    (!step.is_empty()).then_some((step, has_more))
}

/// Returns whether a step matches a key. Runs for each open row and key, so the lengths decide first.
fn fits(step: &[u8], key: Option<&str>) -> bool {
    let Some(key) = key.map(str::as_bytes) else { return step == b"*" };
    match step.len().cmp(&key.len()) {
        Ordering::Less => false,
        Ordering::Equal => step == key,
        Ordering::Greater => {
            memchr(b'|', step).is_some() && step.split(|&byte| byte == b'|').any(|it| it == key)
        }
    }
}

/// Returns the positions of the bits that are set.
fn bits(mut set: u128) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lowest = set.trailing_zeros();
        (set != 0).then(|| {
            set &= set - 1;
            lowest
        })
    })
}
